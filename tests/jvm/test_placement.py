"""Partitions are spread over executors by their shares, with no needless move, and they come to rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from jvm.test_state_model import class_path, walk  # noqa: F401 -- a fixture

LONG = [pytest.param(seed, 20_000, marks=pytest.mark.tier("long")) for seed in range(2, 5)]


@pytest.mark.tier("more")
@pytest.mark.parametrize(("seed", "cases"), [(1, 300), *LONG])
def test_partitions_are_spread(class_path: str, tmp_path: Path, seed: int, cases: int) -> None:  # noqa: F811 -- the fixture
    assert "are spread" in walk(class_path, tmp_path, "placement.SpreadPartitions", seed, cases)


def test_tasks_are_timed(class_path: str, tmp_path: Path) -> None:  # noqa: F811 -- the fixture
    assert "are timed" in walk(class_path, tmp_path, "placement.TimedTasks")


def test_changes_of_executors_are_noticed(class_path: str, tmp_path: Path) -> None:  # noqa: F811 -- the fixture
    assert "are noticed" in walk(class_path, tmp_path, "placement.ChangedExecutors")
