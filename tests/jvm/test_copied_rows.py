"""A migration compares what it wrote with what it read, and takes no bytes for a list that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from jvm.test_state_model import class_path, walk  # noqa: F401 -- a fixture


@pytest.mark.tier("more")
def test_lists_are_whole_and_copies_are_their_source(class_path: str, tmp_path: Path) -> None:  # noqa: F811
    assert "copies are compared" in walk(class_path, tmp_path, "migration.CopiedRows")
