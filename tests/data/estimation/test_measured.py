"""The measurement of a workload: the restores that fit the cost model, and the deltas of batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dataset.golden_states import checkpoint

import state_store
from state_store.core.checkpoint.lineage import Chain
from state_store.core.checkpoint.names import VersionId
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.snapshots.restore import Restored
from state_store.data.estimation.workload import _fit, _restored
from state_store.errors import MissingError


def restored(ms: float) -> Restored:
    """Return a restore of 10 files, which spent most of its time in the choice."""
    phases = {"choose_ms": ms - 0.2, "fetch_ms": 0.1, "verify_ms": 0.1}
    fetched: Any = SimpleNamespace(files=10, size_bytes=1 << 20, local_files=0)
    base: Any = SimpleNamespace(files=range(10))
    return Restored(VersionId(1, None), base, False, Chain(), fetched, phases, ())


def made(times_ms: list[float], directory: Path) -> tuple[float, int, int]:
    """Return the fastest of restores with these times, their number, and the announced bytes."""
    left, announced = list(times_ms), []
    pin: Any = SimpleNamespace(size_bytes=7, restore_by_blocks=lambda _: restored(left.pop(0)))
    progress: Any = SimpleNamespace(expect=announced.append)
    found = _restored(pin, directory, progress)
    return sum(found.phases.values()), len(times_ms) - len(left), sum(announced)


def test_short_restores_are_made_several_times_and_the_quickest_counts(tmp_path):
    times = [30.0, 9.0, 20.0, 2.0, 3.0, 25.0, 2.5, 2.5, 2.5, 1.0]
    ms, count, announced = made(times, tmp_path)
    assert (round(ms, 6), count, announced) == (2.0, 9, 63)
    assert made([2000.0, 1500.0, 1.0], tmp_path)[1:] == (2, 14)
    assert made([200.0, 50.0, 60.0, 1.0], tmp_path)[1] == 3


def test_no_partition_counts_more_than_another():
    work, models = RestoreWork(10, 1 << 20, 0), [CostModel(), CostModel()]
    _fit(models[0], [restored(2.0), restored(8.0)])
    _fit(models[1], [restored(8.0), restored(2.0)])
    predicted = [model.predict_restore_ms(work) for model in models]
    assert all(4.0 < ms < 6.0 for ms in predicted), predicted


def without_deltas(partitions: list[int], tmp_path: Path) -> Path:
    """Return a checkpoint whose newest version needs no delta, and has none in these partitions."""
    directory = checkpoint("flights", tmp_path)
    state_store.full_checkpoint(directory)
    for partition in partitions:
        for delta in (directory / f"state/0/{partition}/delta").iterdir():
            delta.unlink()
    return directory


def test_a_partition_without_deltas_is_left_out(tmp_path: Path) -> None:
    found = state_store.measure(without_deltas([1], tmp_path))
    assert found.sampled == (0,)
    assert found.deltas > 0
    assert found.workload.keys == 6


def test_a_store_without_deltas_cannot_be_measured(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"no delta of store 'default' .* in partitions 0, 1"):
        state_store.measure(without_deltas([0, 1], tmp_path))
