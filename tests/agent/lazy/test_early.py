"""Lazy restores fetch files while they still ask for the ends of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import Call
from waiting import awaited

from agent.harness import PATIENCE_S, Job
from agent.lazy.remote_storage import OnRemoteStorage, wait_until_whole
from state_store.core.files import transfer
from state_store.core.files.sparse import end_bytes
from state_store.core.files.transfer import Wanted
from state_store.errors import MissingError


class Watched(OnRemoteStorage):
    """`read` is asked with the path of a table, whether its
    end is wanted, and the call.
    """

    def __init__(self, directory: Path) -> None:
        self.read: Callable[[str, bool, Call], object] = lambda path, is_end, call: call()
        super().__init__(directory)

    def _schedule(self, operation: str, path: str) -> Callable[[Call], object] | None:
        if operation != "read" or not path.startswith("shared/"):
            return None
        return lambda call: self.read(path, self._is_end(call), call)

    def _is_end(self, call: Call) -> bool:
        size = (Path(call.inner.location) / call.path).stat().st_size
        return call.range == (size - end_bytes(size), end_bytes(size))


@pytest.fixture
def job(written: Job, tmp_path: Path) -> Job:
    return reader(written, tmp_path)


def reader(written: Job, tmp_path: Path, **options: str) -> Job:
    options = {"restoreMode": "lazy", **options}
    other = Job(Watched(tmp_path / "reader"), written.location, **options)
    other.versions = dict(written.versions)
    return other


def test_files_come_while_the_end_of_another_is_asked_for(written: Job, job: Job) -> None:
    last = max(path.name for path in written.location.glob("shared/*"))
    others_came = threading.Event()
    whose: list[str] = []

    def read(path: str, is_end: bool, call: Call) -> object:
        if is_end and path.endswith(last):
            assert others_came.wait(PATIENCE_S)
        found = call()
        if not is_end:
            whose.append(path)
            others_came.set()
        return found

    job.client.read = read
    directory = Path(job.restore_by_blocks(5)["directory"])
    assert whose and not whose[0].endswith(last)
    wait_until_whole(job, directory)
    assert len(set(whose)) == len(list(directory.glob("*.sst")))


def test_nothing_is_fetched_for_a_restore_that_failed(written: Job, tmp_path: Path) -> None:
    """Two files are under way when it fails."""
    earlier = prefetching()
    job = reader(written, tmp_path, transferThreads="2")
    last = max(path.name for path in written.location.glob("shared/*"))
    under_way, failed = threading.Event(), threading.Event()
    started: list[str] = []

    def read(path: str, is_end: bool, call: Call) -> object:
        if is_end and path.endswith(last):
            assert under_way.wait(PATIENCE_S)
            raise MissingError(f"'{path}' is gone", file=path)
        if not is_end:
            started.append(path)
            if len(started) == 2:
                under_way.set()
            assert failed.wait(PATIENCE_S)
        return call()

    job.client.read = read
    with pytest.raises(MissingError):
        (snapshot, _), (version, _) = (written.versions[number] for number in (3, 5))
        job.call("restore", version=5, id=version, from_version=3, from_id=snapshot, thorough=False)
    failed.set()
    ended(earlier)
    assert len(started) == 2  # those that were under way
    assert not list((tmp_path / "reader").glob("**/*.sst"))


def test_a_restore_that_failed_is_not_waited_for(written: Job, job: Job) -> None:
    """Though all that it had begun to fetch has come."""
    earlier = prefetching()
    tables = len(list(written.location.glob("shared/*")))
    last = max(path.name for path in written.location.glob("shared/*"))
    fetched: list[str] = []
    others_came = threading.Event()

    def read(path: str, is_end: bool, call: Call) -> object:
        if is_end and path.endswith(last):
            assert others_came.wait(PATIENCE_S)
            ended(earlier)
            raise MissingError(f"'{path}' is gone", file=path)
        found = call()
        if not is_end:
            fetched.append(path)
            if len(fetched) == tables - 1:
                others_came.set()
        return found

    job.client.read = read
    with pytest.raises(MissingError):
        (snapshot, _), (version, _) = (written.versions[number] for number in (3, 5))
        job.call("restore", version=5, id=version, from_version=3, from_id=snapshot, thorough=False)
    bases = job.open_store.bases
    assert bases.progress().left_bytes == 0
    assert bases.has_hydrated


def prefetching() -> set[threading.Thread]:
    """Return the threads that fetch files, those of the agents of other tests included."""
    return {thread for thread in threading.enumerate() if thread.name == "prefetch"}


def ended(earlier: set[threading.Thread]) -> None:
    """Wait until no thread fetches anything but those that there were earlier."""
    end_s = time.monotonic() + PATIENCE_S
    while prefetching() - earlier:
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_two_files_at_a_time_are_compared(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of threads may have fetched them: those that find nothing to do end."""
    earlier = prefetching()
    lock, at_once, peak, two_there = threading.Lock(), 0, 0, threading.Event()

    def slowly(wanted: Wanted) -> str | None:
        nonlocal at_once, peak
        with lock:
            at_once += 1
            peak = max(peak, at_once)
            if at_once == 2:
                two_there.set()
        two_there.wait(PATIENCE_S)
        awaited(lambda: peak > 2 or len(prefetching() - earlier) <= 2, "the other threads compare, or end")
        found = transfer.difference(wanted)
        with lock:
            at_once -= 1
        return found

    monkeypatch.setattr("state_store.agent.lazy.prefetch.difference", slowly)
    wait_until_whole(job, Path(job.restore_by_blocks(5)["directory"]))
    assert peak == 2
