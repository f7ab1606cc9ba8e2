"""A store on its machine: threads that cannot be started, and attempts that Spark names by numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from jvm.test_state_model import class_path, walk  # noqa: F401 -- a fixture


@pytest.mark.tier("more")
def test_a_store_is_right_where_no_thread_can_be_started(class_path: str, tmp_path: Path) -> None:  # noqa: F811
    assert "the store is right" in walk(class_path, tmp_path, "local.LocalCases")
