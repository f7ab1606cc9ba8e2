"""Lazy restores: where one is worth while, and what it may take of disk, network and cores."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from runtimes import AdjustedRuntime
from waiting import awaited

from agent.harness import InProcess, Job
from agent.lazy.remote_storage import (
    FailingStorage,
    reader,
    restored,
    slow,
    sparse_of,
    wait_until_whole,
)
from state_store.agent.lazy.prefetch import PrefetchThreads
from state_store.core.files.sparse import PAGE_BYTES
from state_store.core.files.transfer import Wanted, difference
from state_store.core.planning.cost import SMALL_AT_ONCE


@pytest.mark.parametrize("limit", ["0", "1g"])
def test_files_are_compared_when_nothing_is_left_to_fetch(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """But each at once where fetching is slowed down."""
    job = reader(written, tmp_path / "reader", transferThreads="1", hydrationRateLimit=limit)
    fetched: list[int] = []

    def compare(wanted: Wanted) -> str | None:
        fetched.append(len(job.client.reads))
        return difference(wanted)

    monkeypatch.setattr("state_store.agent.lazy.prefetch.difference", compare)
    directory, sparse = restored(job)
    wait_until_whole(job, directory)
    assert len(fetched) == len(sparse) > 2
    assert (fetched[0] == len(job.client.reads)) == (limit == "0")


class Visitors:
    """The number of those who are there at a time. The first wait until all are there who may come: this
    thread and those that it has started for transfers.
    """

    def __init__(self) -> None:
        self.most = 0
        self._here = 0
        self._lock = threading.Lock()
        self._earlier = transfers()
        self._have_met = threading.Event()

    def visit(self) -> None:
        with self._lock:
            self._here += 1
            self.most = max(self.most, self._here)
        awaited(lambda: self._have_met.is_set() or self._here > len(transfers() - self._earlier), "all come")
        self._have_met.set()
        with self._lock:
            self._here -= 1


def transfers() -> set[threading.Thread]:
    """Return the threads that transfer files, those of other tests included."""
    return {thread for thread in threading.enumerate() if thread.name == "transfer"}


def test_ends_come_more_at_a_time_than_parts(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader", transferThreads="1")
    visitors = Visitors()
    job.client.before_reads = visitors.visit
    _, sparse = restored(job)
    assert len(sparse) > visitors.most == SMALL_AT_ONCE


def test_no_part_takes_more_than_a_second_of_the_rate(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader", hydrationRateLimit="100k")
    directory, _ = restored(job)
    files = job.open_store.bases._bases[directory].prefetch._order
    assert max(file.local.missing_bytes for file in files) > 100 << 10
    lengths = [pages * PAGE_BYTES for file in files for _, pages in file.parts]
    assert sum(lengths) == sum(file.local.missing_bytes for file in files)
    assert max(lengths) <= 100 << 10


@pytest.mark.parametrize("change", ["eager", "ends"])
def test_it_is_eager_where_that_is_asked_for_or_nothing_is_gained(
    written: Job, tmp_path: Path, change: str
) -> None:
    changes = {"eager": {"restoreMode": "eager"}}
    client = FailingStorage(tmp_path / "reader") if change != "ends" else InProcess(tmp_path / "reader")
    assert sparse_of(written, client, **{"restoreMode": "lazy", **changes.get(change, {})}) == []


def test_all_stores_of_an_executor_keep_to_one_rate(tmp_path: Path) -> None:
    now_s = 0.0

    class Clock(AdjustedRuntime):
        def monotonic_s(self) -> float:
            return now_s

    budget = PrefetchThreads(Clock(wall_ms=None))
    assert [budget.turn_s(100), budget.turn_s(100)] == [0.0, 0.0]
    budget.bytes_per_s = 100
    assert [budget.turn_s(100), budget.turn_s(50), budget.turn_s(1)] == [0.0, 1.0, 1.5]
    now_s = 10.0
    assert budget.turn_s(1) == 10.0


@pytest.mark.parametrize(("objective", "is_lazy"), [("1ms", True), ("10s", False), ("0", False)])
def test_by_itself_it_is_lazy_where_it_would_take_longer_than_the_objective(
    written: Job, tmp_path: Path, objective: str, is_lazy: bool
) -> None:
    assert (
        bool(sparse_of(written, FailingStorage(tmp_path / "reader"), restoreObjective=objective)) == is_lazy
    )
