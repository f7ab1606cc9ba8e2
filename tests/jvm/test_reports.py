"""Reports of stores to the driver: read as written, bounded, counted once. Errors end no more than a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from jvm.test_state_model import class_path, walk  # noqa: F401 -- a fixture


@pytest.mark.tier("more")
@pytest.mark.parametrize("seed", [1, 2])
def test_reports_reach_the_driver(class_path: str, tmp_path: Path, seed: int) -> None:  # noqa: F811 -- the fixture
    assert "as they should be" in walk(class_path, tmp_path, "observed.ReportCases", seed)


def test_reports_go_on_after_all_errors(class_path: str, tmp_path: Path) -> None:  # noqa: F811 -- the fixture
    assert "reports go on" in walk(class_path, tmp_path, "observed.ReportThreads")


def test_errors_of_processors_fail_one_task(class_path: str, tmp_path: Path) -> None:  # noqa: F811 -- the fixture
    assert "fail one task" in walk(class_path, tmp_path, "processors.ServerErrors")


def test_ended_runs_leave_nothing(class_path: str, tmp_path: Path) -> None:  # noqa: F811 -- the fixture
    assert "leave nothing" in walk(class_path, tmp_path, "observed.EndedRuns")
