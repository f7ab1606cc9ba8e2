"""Lazy restores: what is there at once, what comes as it is asked for, who waits for the rest, what goes
wrong."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from faults import Call, FaultyStorage
from runtimes import AdjustedRuntime

from agent.harness import PATIENCE_S, InProcess, Job, contents, rows_of
from state_store.agent.calls import Calls
from state_store.agent.lazy import hydration
from state_store.agent.lazy.budget import HydrationBudget
from state_store.engine.settings import DatabaseSettings
from state_store.errors import BusyError, DamagedError, InternalError, MissingError, StorageError
from state_store.files.deadline import Deadline
from state_store.files.sparse import end_bytes
from state_store.files.transfer import Wanted, difference
from state_store.snapshots import assembly
from state_store.storage.local import LocalStorage


class Far(InProcess):
    """An agent whose storage is not of this machine. Reads of tables and deltas fail while `is_down`, and
    once for each of them at the offset `fails_at`; `reads` are those that did not, with offset and length;
    `downloads` counts files that were fetched as a whole."""

    def __init__(self, directory: Path) -> None:
        self.is_down = False
        self.fails_at: int | None = None
        self.failed: set[str] = set()
        self.reads: list[tuple[int, int | None]] = []
        self.downloads = 0
        self.before_reads: Callable[[], object] = lambda: None
        self.calls = Calls(
            directory,
            settings=lambda options: DatabaseSettings(threads=1, size_amplification_percent=1000),
            open_storage=lambda uri, jvm: FaultyStorage(LocalStorage(uri), self._schedule),
            runtime=AdjustedRuntime(wall_ms=None),
        )

    def _schedule(self, operation: str, path: str) -> Callable[[Call], object] | None:
        self.downloads += operation == "download"
        if operation == "read" and path.startswith(("shared/", "delta/")):
            return self._read
        return None

    def _read(self, call: Call) -> object:
        fails_here = call.range[0] == self.fails_at and call.path not in self.failed
        if self.is_down or fails_here:
            self.failed.add(call.path)
            raise call.failed("it is down")
        self.reads.append(call.range)
        self.before_reads()
        return call()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hydration, "_RETRY_S", 0.02)
    monkeypatch.setattr(hydration, "_POLL_S", 0.02)


@pytest.fixture
def written(tmp_path: Path) -> Job:
    """Five versions, a full snapshot of the third, in files of some hundred KB."""
    job = five_versions(tmp_path, 200_000)
    assert len(list(job.location.glob("shared/*"))) > 2
    assert min(path.stat().st_size for path in job.location.glob("shared/*")) > end_bytes(1 << 20)
    return job


def five_versions(tmp_path: Path, file_bytes: int) -> Job:
    job = Job(InProcess(tmp_path / "writer", file_bytes=file_bytes), tmp_path / "state")
    for version in range(1, 6):
        job.commit({b"\0\0%02d-%05d" % (version, row): os.urandom(100) for row in range(2650)})
        if version == 3:
            job.merge("full")
    return job


def reader(job: Job, directory: Path, **options: str) -> Job:
    other = Job(Far(directory), job.location, restoreMode="lazy", lazyRestoreThreshold="1", **options)
    other.versions = dict(job.versions)
    return other


def restored(job: Job) -> tuple[Path, list[str]]:
    """The base and its sparse files; storage goes down as the restore ends, so that these stay as they
    are."""
    answer = job.restore_by_blocks(5)
    return Path(answer["directory"]), answer["sparse"]


def whole(job: Job, directory: Path) -> None:
    """Waits until all is there."""
    job.open_store.hydrations.wait(directory, Deadline("the test", PATIENCE_S * 1000))


def missing(sizes: Iterable[int]) -> int:
    """Bytes of sparse files that a restore leaves to be fetched."""
    return sum(size - end_bytes(size) for size in sizes)


def settled(job: Job) -> None:
    """Waits until the damage is known."""
    end_s = time.monotonic() + PATIENCE_S
    while not job.open_store.suspicions.of(str(job.location)):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes in the background."""
    monkeypatch.setattr(hydration.Hydration, "start", lambda self: None)


def test_only_the_ends_are_there_at_first(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    assert sorted(sparse) == sorted(path.name for path in directory.glob("*.sst"))
    stored = sum(path.stat().st_size for path in written.location.glob("shared/*"))
    fetched = sum(length for _, length in job.client.reads)
    assert fetched < stored / 2
    assert sum(path.stat().st_size for path in directory.glob("*.sst")) == stored
    with pytest.raises(DamagedError):
        contents(directory)


def test_ranges_come_to_their_places(written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    for name in sparse:
        size = (directory / name).stat().st_size
        for offset in range(0, size, 50_000):
            answer = job.call("range", directory=str(directory), name=name, offset=offset, length=50_000)
            assert answer["bytes"] == min(50_000, size - offset)
    assert contents(directory) == written.versions[3][1]
    answer = job.commit({b"\0\0more": b"1"})
    sizes = [(directory / name).stat().st_size for name in sparse]
    assert answer["hydration"]["on_demand_bytes"] == sum(sizes)
    assert answer["hydration"]["left_bytes"] == missing(sizes)
    with pytest.raises(InternalError):
        job.call("range", directory=str(directory), name="CURRENT", offset=0, length=1)


def test_whole_files_come_in_the_background(written: Job, tmp_path: Path) -> None:
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    whole(job, directory)
    assert contents(directory) == written.versions[3][1]
    progress = job.commit({b"\0\0more": b"1"})["hydration"]
    assert (progress["left_bytes"], progress["on_demand_bytes"]) == (0, 0)
    assert progress["hydrated_bytes"] == missing((directory / name).stat().st_size for name in sparse)
    again = reader(written, tmp_path / "reader")
    again.client = job.client
    answer = again.restore_by_blocks(5)
    assert (answer["sparse"], answer["fetched_files"]) == ([], 0)


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

    monkeypatch.setattr(hydration, "difference", compare)
    directory, sparse = restored(job)
    whole(job, directory)
    assert len(fetched) == len(sparse) > 2
    assert (fetched[0] == len(job.client.reads)) == (limit == "0")


def test_no_byte_comes_twice_and_no_part_is_tiny(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hydration, "PART_BYTES", 50_000)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    whole(job, directory)
    sizes = [(directory / name).stat().st_size for name in sparse]
    assert sum(length or 0 for _, length in job.client.reads) == sum(sizes)
    ends = {size - end_bytes(size) for size in sizes}
    assert min(length or 0 for offset, length in job.client.reads if offset not in ends) >= 25_000


def test_ends_come_more_at_a_time_than_parts(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader", transferThreads="2")
    at_once = threading.Barrier(4)
    job.client.before_reads = lambda: len(job.client.reads) <= 4 and at_once.wait(PATIENCE_S)
    _, sparse = restored(job)
    assert len(sparse) > 4


def test_a_file_that_came_with_its_end_is_there(tmp_path: Path) -> None:
    job = reader(five_versions(tmp_path, 50_000), tmp_path / "reader")
    directory, sparse = restored(job)
    ends = [length for _, length in job.client.reads]
    whole(job, directory)
    assert len(ends) == len(job.client.reads) == len(sparse) > 10
    assert contents(directory) == job.versions[3][1]


def test_what_is_asked_for_comes_first(written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    running = job.open_store.hydrations._running[directory]
    job.call("range", directory=str(directory), name=sparse[-1], offset=0, length=10)
    following = running._next()
    assert following is not None and following[0].file.name == sparse[-1]


@pytest.fixture
def sparse_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas are read before they are there however small they are."""
    monkeypatch.setattr(assembly, "LEAST_SPARSE_DELTA_BYTES", 1)


@pytest.mark.usefixtures("sparse_deltas")
def test_of_large_deltas_only_the_ends_are_there_at_first(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    directory = Path(answer["directory"])
    deltas = [str(Path(delta["path"]).relative_to(directory)) for delta in answer["beside"]]
    assert len(deltas) == 2
    assert set(deltas) < set(answer["sparse"])
    assert sum(length for _, length in job.client.reads) < 64 * 1024 * len(answer["sparse"]) + 1
    with pytest.raises(DamagedError):
        rows_of(answer)
    for name in answer["sparse"]:
        size = (directory / name).stat().st_size
        call = job.call("range", directory=str(directory), name=name, offset=0, length=size + 1000)
        assert call["bytes"] == size
    assert rows_of(answer) == written.state


@pytest.mark.usefixtures("sparse_deltas")
def test_large_deltas_come_in_the_background_and_merges_wait_for_them(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    job.commit({b"\0\0more": b"1"})
    merged = merged_when_let_go(job, go_on)
    assert contents(merged["directory"]) == job.state
    assert rows_of(answer) == written.state
    again = reader(written, tmp_path / "reader")
    again.client = job.client
    assert again.restore_by_blocks(5)["fetched_files"] == 0


@pytest.mark.usefixtures("sparse_deltas")
def test_a_merge_of_deltas_alone_fetches_none_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = Job(InProcess(tmp_path / "writer"), tmp_path / "state")
    for version in range(1, 4):
        young.commit({b"\0\0%02d-%05d" % (version, row): os.urandom(100) for row in range(2500)})
    go_on = held_back(monkeypatch)
    job = reader(young, tmp_path / "reader")
    answer = job.restore_by_blocks(3)
    assert len(answer["sparse"]) == 3
    job.client.reads.clear()
    job.client.downloads = 0
    merged = merged_when_let_go(job, go_on)
    assert contents(merged["directory"]) == young.state
    stored = missing(path.stat().st_size for path in young.location.glob("delta/*"))
    assert sum(length for _, length in job.client.reads) == stored
    assert job.client.downloads == 0


@pytest.mark.usefixtures("sparse_deltas")
def test_a_delta_that_is_damaged_in_storage_is_found_before_it_is_kept(written: Job, tmp_path: Path) -> None:
    path = max(written.location.glob("delta/*"))
    damage(path)
    job = reader(written, tmp_path / "reader")
    restored(job)
    settled(job)
    with pytest.raises(DamagedError, match=path.name):
        job.restore_by_blocks(5)


def damage(path: Path) -> None:
    """Another file in its place: the stored one may be linked."""
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.unlink()
    path.write_bytes(data)


def held_back(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing comes in the background until what this gives is called."""
    waiting: list[hydration.Hydration] = []
    start = hydration.Hydration.start
    monkeypatch.setattr(hydration.Hydration, "start", lambda self: waiting.append(self))

    def go_on() -> None:
        monkeypatch.setattr(hydration.Hydration, "start", start)
        for one in waiting:
            one.start()

    return go_on


def merged_when_let_go(job: Job, go_on: Callable[[], None]) -> dict[str, Any]:
    """What comes of a full merge, which waits until `go_on` is called."""
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(job.merge, "full")
        assert wait([merging], 0.2).not_done
        go_on()
        return merging.result(PATIENCE_S)


def test_storage_that_fails_loses_nothing(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    job.client.is_down = True
    go_on()
    with pytest.raises(StorageError, match="it is down"):
        job.call("range", directory=str(directory), name=sparse[0], offset=0, length=10)
    job.commit({b"\0\0more": b"1"})
    with pytest.raises(BusyError):
        job.open_store.hydrations.wait(directory, Deadline("the merge", 50))
    assert job.open_store.suspicions.of(str(written.location)) == 0
    job.client.is_down = False
    whole(job, directory)
    assert contents(directory) == written.versions[3][1]
    assert contents(job.merge("full")["directory"]) == job.state


def test_a_file_goes_on_where_storage_failed(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hydration, "PART_BYTES", 10_000)
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    job.client.reads.clear()
    job.client.fails_at = 0
    go_on()
    whole(job, directory)
    assert len(job.client.failed) == len(sparse)
    sizes = [(directory / name).stat().st_size for name in sparse]
    assert sum(length or 0 for _, length in job.client.reads) == missing(sizes)
    progress = job.commit({b"\0\0more": b"1"})["hydration"]
    assert (progress["left_bytes"], progress["hydrated_bytes"]) == (0, missing(sizes))
    assert contents(directory) == written.versions[3][1]


def test_a_merge_waits_for_the_files_that_it_builds_on(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    restored(job)
    job.commit({b"\0\0more": b"1"})
    assert contents(merged_when_let_go(job, go_on)["directory"]) == job.state


def test_an_agent_that_replaces_a_dead_one_goes_on(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    monkeypatch.undo()
    job.client = Far(tmp_path / "reader")
    job.store["held"] = [str(directory)]
    assert job.call("range", directory=str(directory), name=sparse[0], offset=0, length=10)["bytes"] == 10
    whole(job, directory)
    assert contents(directory) == written.versions[3][1]


def test_a_file_that_is_damaged_in_storage_is_done_without(written: Job, tmp_path: Path) -> None:
    path = next(written.location.glob("shared/*"))
    damage(path)
    job = reader(written, tmp_path / "reader")
    restored(job)
    settled(job)
    answer = job.restore_by_blocks(5)
    assert (answer["sparse"], answer["snapshot_version"]) == ([], None)
    assert job.rows(5) == written.state


def test_a_file_that_is_gone_ends_the_wait(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, _ = restored(job)
    for path in written.location.glob("shared/*"):
        path.unlink()
    job.commit({b"\0\0more": b"1"})
    go_on()
    with pytest.raises(MissingError):
        job.open_store.hydrations.wait(directory, Deadline("the merge", PATIENCE_S * 1000))
    settled(job)
    assert contents(job.merge("full")["directory"]) == job.state


@pytest.mark.parametrize("change", ["eager", "threshold", "ends"])
def test_it_is_eager_where_that_is_asked_for_or_nothing_is_gained(
    written: Job, tmp_path: Path, change: str
) -> None:
    changes = {"eager": {"restoreMode": "eager"}, "threshold": {"lazyRestoreThreshold": "1g"}}
    client = Far(tmp_path / "reader") if change != "ends" else InProcess(tmp_path / "reader")
    assert sparse_of(written, client, **{"restoreMode": "lazy", **changes.get(change, {})}) == []


def sparse_of(written: Job, client: InProcess, **options: str) -> list[str]:
    """The sparse files of the newest version as another agent restores it; its rows must be right."""
    job = Job(client, written.location, **{"lazyRestoreThreshold": "1", **options})
    job.versions = dict(written.versions)
    answer = job.restore_by_blocks(5)
    assert job.rows(5) == written.state
    return answer["sparse"]


def test_what_has_no_room_stays_and_is_read_from_storage(
    written: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = reader(written, tmp_path / "reader", hydrationDiskBudget="450k")
    directory, sparse = restored(job)
    running = job.open_store.hydrations._running[directory]
    idle(running)
    sizes = {name: (directory / name).stat().st_size for name in sparse}
    taken = [name for name in sparse if name not in running._missing]
    assert 0 < sum(sizes[name] for name in taken) <= 450 << 10
    progress = job.commit({b"\0\0more": b"1"})["hydration"]
    without_room = [sizes[name] for name in sparse if name not in taken]
    left = missing(without_room)
    assert (progress["left_bytes"], progress["without_room_bytes"]) == (left, left)
    assert caplog.text.count("hydrationDiskBudget has no room") == 1
    for name in running._missing:
        job.call("range", directory=str(directory), name=name, offset=0, length=sizes[name])
    assert contents(directory) == written.versions[3][1]
    assert job.commit({b"\0\0more": b"2"})["hydration"]["on_demand_bytes"] == sum(without_room)
    assert caplog.text.count("hydrationDiskBudget has no room") == 1


def test_room_that_is_there_as_the_last_thread_ends_is_not_missed(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader", hydrationDiskBudget="1")
    directory, _ = restored(job)
    running = job.open_store.hydrations._running[directory]
    monkeypatch.undo()
    running._threads = 8  # of which none has ended yet when it has found no room
    for _ in range(8):
        assert running._next() is None
    whole(job, directory)
    assert contents(directory) == written.versions[3][1]


def test_what_is_gone_makes_room_for_others(written: Job, tmp_path: Path) -> None:
    job = reader(written, tmp_path / "reader", hydrationDiskBudget="450k", localRecovery="false")
    first, _ = restored(job)
    idle(job.open_store.hydrations._running[first])
    second, sparse = restored(job)
    running = job.open_store.hydrations._running[second]
    idle(running)
    job.commit({b"\0\0more": b"1"})
    idle(running)
    assert running._missing == set(sparse)
    job.call("release", directory=str(first))
    assert not first.exists()
    job.commit({b"\0\0more": b"2"})
    idle(running)
    assert 0 < len(running._missing) < len(sparse)


def test_a_merge_fetches_what_it_needs_however_little_room_there_is(written: Job, tmp_path: Path) -> None:
    job = reader(written, tmp_path / "reader", hydrationDiskBudget="1k", mergeTimeout="30s")
    directory, sparse = restored(job)
    idle(job.open_store.hydrations._running[directory])
    assert len(job.open_store.hydrations._running[directory]._missing) == len(sparse)
    job.commit({b"\0\0more": b"1"})
    assert contents(job.merge("full")["directory"]) == job.state


def test_all_stores_of_an_executor_keep_to_one_rate(tmp_path: Path) -> None:
    now_s = 0.0

    class Clock(AdjustedRuntime):
        def monotonic_s(self) -> float:
            return now_s

    budget = HydrationBudget(Clock(wall_ms=None))
    assert [budget.turn_s(100), budget.turn_s(100)] == [0.0, 0.0]
    budget.limit(disk_bytes=0, bytes_per_s=100)
    assert [budget.turn_s(100), budget.turn_s(50), budget.turn_s(1)] == [0.0, 1.0, 1.5]
    now_s = 10.0
    assert budget.turn_s(1) == 10.0


def idle(running: hydration.Hydration) -> None:
    """Waits until nothing is being fetched, and what came whole is verified."""

    def is_unverified(parts: hydration._Parts) -> bool:
        return parts.hydrated_bytes == parts.missing_bytes and parts.file.name in running._missing

    end_s = time.monotonic() + PATIENCE_S
    while running._threads or any(map(is_unverified, running._files.values())):
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.parametrize(("objective", "is_lazy"), [("1ms", True), ("10s", False), ("0", False)])
def test_by_itself_it_is_lazy_where_it_would_take_longer_than_the_objective(
    written: Job, tmp_path: Path, objective: str, is_lazy: bool
) -> None:
    assert bool(sparse_of(written, Far(tmp_path / "reader"), restoreObjective=objective)) == is_lazy


def test_what_is_released_is_fetched_no_more(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = reader(written, tmp_path / "reader", hydrationRateLimit="1k")
    directory, _ = restored(job)
    running = job.open_store.hydrations._running[directory]
    job.close()
    with pytest.raises(BusyError, match="no longer fetched"):
        running.wait(Deadline("the test", PATIENCE_S * 1000))
    assert not directory.exists()
