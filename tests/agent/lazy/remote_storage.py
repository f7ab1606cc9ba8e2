"""Agents whose storage is not of their machine, and what lazy restores of theirs do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faults import Call, FaultyStorage
from runtimes import AdjustedRuntime
from waiting import awaited

from agent.harness import PATIENCE_S, InProcess, Job
from state_store.agent.calls import Calls
from state_store.agent.lazy import prefetch
from state_store.agent.lazy.prefetch import FileState
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.sparse import end_bytes
from state_store.core.storage.local import LocalStorage


class OnRemoteStorage(InProcess):
    """An agent whose storage is not of this machine. `_schedule` says how the storage answers a call."""

    def __init__(self, directory: Path, *, uptime_ms: Callable[[], float] | None = None) -> None:
        self.runtime = AdjustedRuntime(uptime_ms=uptime_ms)
        self.calls = Calls(
            directory,
            settings=lambda options: DatabaseSettings(threads=1, size_amplification_percent=1000),
            open_storage=lambda uri, jvm: FaultyStorage(LocalStorage(uri), self._schedule),
            runtime=self.runtime,
        )

    def _schedule(self, operation: str, path: str) -> Callable[[Call], object] | None:
        """In place of the call; None: the call as it is."""
        raise NotImplementedError


class FailingStorage(OnRemoteStorage):
    """An agent that cannot read tables and deltas while `is_down`, or a first time at `fails_at`.

    `reads` has the offset and the length of each read that did not fail, `read_paths` its file. `downloads`
    counts the files that were fetched as a whole.
    """

    def __init__(self, directory: Path, *, uptime_ms: Callable[[], float] | None = None) -> None:
        self.is_down = False
        self.fails_at: int | None = None
        self.failed: set[str] = set()
        self.reads: list[tuple[int, int | None]] = []
        self.read_paths: list[str] = []
        self.downloads = 0
        self.before_reads: Callable[[], object] = lambda: None
        super().__init__(directory, uptime_ms=uptime_ms)

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
        self.read_paths.append(call.path)
        self.before_reads()
        return call()


def five_versions(tmp_path: Path, file_bytes: int) -> Job:
    job = Job(InProcess(tmp_path / "writer", file_bytes=file_bytes), tmp_path / "state")
    for version in range(1, 6):
        job.commit({b"\0\0%02d-%05d" % (version, row): os.urandom(100) for row in range(2650)})
        if version == 3:
            job.merge("full")
    return job


def reader(job: Job, directory: Path, uptime_ms: Callable[[], float] | None = None, **options: str) -> Job:
    """Return the job of another agent that restores lazily."""
    other = Job(
        FailingStorage(directory, uptime_ms=uptime_ms),
        job.location,
        **{"restoreMode": "lazy", **options},
    )
    other.versions = dict(job.versions)
    return other


def restored(job: Job) -> tuple[Path, list[str]]:
    """Return the base and its sparse files, which stay sparse: storage goes down as the restore ends."""
    answer = job.restore_by_blocks(5)
    return Path(answer["directory"]), answer["sparse"]


def wait_until_whole(job: Job, directory: Path) -> None:
    """Wait until every file is whole. Fails if nobody fetches a missing one."""
    end_s = time.monotonic() + PATIENCE_S
    running = job.open_store.bases._bases[directory].prefetch
    while not running.is_whole:
        ended = is_idle(running) and not running.is_whole
        assert not ended, f"{sorted(not_local(running))} will never be there"
        assert time.monotonic() < end_s
        time.sleep(0.005)


def not_local(running: prefetch.Prefetch) -> set[str]:
    """Files that are not whole, or not verified."""
    return {name for name, state in running.states().items() if state is not FileState.WHOLE}


def missing(sizes: Iterable[int]) -> int:
    """Bytes of sparse files that a restore leaves to be fetched."""
    return sum(size - end_bytes(size) for size in sizes)


def settled(job: Job) -> None:
    """Wait until the damage is known."""
    end_s = time.monotonic() + PATIENCE_S
    while not job.open_store.damage_reports.of(str(job.location)):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes in the background."""
    monkeypatch.setattr(prefetch.Prefetch, "start", lambda self: None)


def held_back(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing comes in the background until what this gives is called."""
    waiting: list[prefetch.Prefetch] = []
    start = prefetch.Prefetch.start
    monkeypatch.setattr(prefetch.Prefetch, "start", lambda self: waiting.append(self))

    def go_on() -> None:
        monkeypatch.setattr(prefetch.Prefetch, "start", start)
        for held in waiting:
            held.start()

    return go_on


def merged_when_let_go(job: Job, go_on: Callable[[], None]) -> dict[str, Any]:
    """Make a full merge, which waits until `go_on` is called, and return its result."""
    bases = job.open_store.bases
    its_thread: list[int] = []

    def merge() -> dict[str, Any]:
        its_thread.append(threading.get_ident())
        return job.merge("full")

    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(merge)
        try:
            waiting = job.client.runtime.waiting
            awaited(lambda: merging.done() or not waiting.isdisjoint(its_thread), "it waits")
            assert not merging.done()
            go_on()
            for directory in list(bases._bases):
                wait_until_whole(job, directory)
            return merging.result(PATIENCE_S)
        finally:
            bases.stop()  # whoever waits for what does not come


def damage(path: Path, offset: int = 100) -> None:
    """Put another file, which differs in a byte, in its place: the stored one may be linked."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.unlink()
    path.write_bytes(data)


def idle(running: prefetch.Prefetch) -> None:
    """Wait until nothing is being fetched, and every whole file is verified."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_idle(running):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def is_idle(running: prefetch.Prefetch) -> bool:
    """Return True if nothing is being fetched, and every whole file is verified."""
    return not is_at_work(running) and FileState.FETCHED not in running.states().values()


def is_at_work(running: prefetch.Prefetch) -> bool:
    """Return True if a thread fetches or verifies, or will look for something to do."""
    threads = running._threads
    with threads.changed:
        return running._at_work > 0 or (threads._workers.count > 0 and running in threads._queue)


def sparse_of(written: Job, client: InProcess, **options: str) -> list[str]:
    """Return the sparse files of the newest version as another agent restores it; its rows must be right."""
    job = Job(client, written.location, **options)
    job.versions = dict(written.versions)
    answer = job.restore_by_blocks(5)
    assert job.rows(5) == written.state
    return answer["sparse"]
