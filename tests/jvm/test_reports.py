"""Reports of stores to the driver are read as they were written, bounded, and counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from jvm.test_state_model import class_path, walk  # noqa: F401 -- a fixture


@pytest.mark.parametrize("seed", [1, 2])
def test_reports(class_path: str, tmp_path: Path, seed: int) -> None:  # noqa: F811 -- the fixture
    assert "as they should be" in walk(class_path, tmp_path, "observed.ReportCases", seed)
