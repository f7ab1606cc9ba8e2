"""Threads of the agent at each of whose steps an error comes once: merges and lazy restores go on."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtimes import AdjustedRuntime
from waiting import awaited

from agent.harness import InProcess, Job, contents
from agent.lazy.remote_storage import FailingStorage, five_versions, is_at_work, reader, restored, slow
from state_store.agent import supervision
from state_store.agent.calls import Calls
from state_store.agent.lazy import local_file, prefetch
from state_store.agent.lazy.local_file import LocalFile
from state_store.agent.lazy.prefetch import Prefetch, PrefetchThreads
from state_store.agent.lazy.remote_bases import RemoteBases
from state_store.agent.merges.merging import EventLog
from state_store.agent.merges.scheduler import MergeQueue, MergeScheduler
from state_store.agent.open_store import StoreHead
from state_store.agent.supervision import WorkerThreads, as_state_store_error
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files import sparse
from state_store.core.runtime import SystemRuntime
from state_store.errors import StorageError

PATIENCE_S = 20.0

ERRORS: dict[str, Callable[[], BaseException]] = {
    "descriptors": lambda: OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
    "input": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "memory": MemoryError,
    "interrupt": KeyboardInterrupt,
    "storage": lambda: StorageError("the storage is away"),
    "defect": lambda: RuntimeError("a defect"),
}

MERGE_STEPS: list[tuple[Any, str]] = [
    (MergeQueue, "next"),
    (MergeQueue, "ended"),
    (MergeQueue, "wait_s"),
    (MergeScheduler, "_started"),
    (MergeScheduler, "_release"),
    (MergeScheduler, "_report"),
    (EventLog, "add"),
    (SystemRuntime, "lower_priority"),
    (supervision, "background"),
    (StoreHead, "begin_merge"),
    (StoreHead, "offer"),
    (StoreHead, "published"),
    (StoreHead, "ages"),
    (RemoteBases, "has_hydrated"),
]

HYDRATION_STEPS: list[tuple[Any, str]] = [
    (Prefetch, "_part"),
    (Prefetch, "_verification"),
    (Prefetch, "_fetch"),
    (Prefetch, "_verify"),
    (Prefetch, "_report"),
    (Prefetch, "_wait_for_turn"),
    (LocalFile, "arriving"),
    (prefetch, "difference"),
    (supervision, "background"),
    (SystemRuntime, "lower_priority"),
    (PrefetchThreads, "turn_s"),
]

INHERITED_STEPS: list[tuple[Any, str]] = [
    *HYDRATION_STEPS,
    (local_file, "make_hole"),
    (local_file, "copy_ranges"),
]
"""Steps of a prefetch that another agent began."""


def fail_once(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Callable[[], BaseException], *, thread: str
) -> list[str]:
    """Let the first call of a function fail that a thread of that name makes; the list then has its name."""
    before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    failed: list[str] = []

    def fails(*arguments: Any, **named: Any) -> Any:
        if not failed and threading.current_thread().name == thread:
            failed.append(name)
            raise error()
        function = before.fget if isinstance(before, property) else before
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, property(fails) if isinstance(before, property) else fails)
    return failed


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state_store.agent.supervision.RESTART_PAUSE_S", 0.01)
    monkeypatch.setattr("state_store.agent.merges.scheduler.MIN_BACK_OFF_MS", 10)
    monkeypatch.setattr(prefetch, "RETRY_S", 0.01)


@pytest.mark.tier("more")
@pytest.mark.parametrize(("owner", "name"), MERGE_STEPS, ids=lambda step: str(step).rpartition(".")[2])
def test_merges_go_on_after_any_error_at_any_step(tmp_path: Path, owner: Any, name: str) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="1", minPauseBetweenMerges="1ms")
    merged = 0
    for error in ERRORS.values():
        with pytest.MonkeyPatch.context() as patch:
            failed = fail_once(patch, owner, name, error, thread="merge")
            merged = commit_until_merged(job, since=merged)
            while not failed:
                merged = commit_until_merged(job, since=merged)
        merged = commit_until_merged(job, since=merged)
    own = job.client.calls.scheduler
    wait_until(lambda: own._busy == 0 and own._queue.running(job.store["instance"]) is None)
    wait_until(lambda: own._workers.count == own._idle == 1)  # one thread waits for the next merge
    job.close()
    wait_until(lambda: not Path(job.opened["incoming"]).parent.exists())  # and no base is left
    assert not own._entries


def commit_until_merged(job: Job, *, since: int) -> int:
    """Commit until a merge of a later version than `since` is an event; return its version."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        job.commit({b"\0\0%d" % job.version: b"value"})
        for event in job.events(0, 0):
            if event["event"] == "merged" and event["merged"]["base"]["version"] > since:
                return int(event["merged"]["base"]["version"])
        time.sleep(0.005)
    raise AssertionError("no merge is made any more")


def test_a_thread_goes_on_after_an_error_and_is_not_counted_after_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    works: list[Callable[[], object]] = []

    class Collecting(AdjustedRuntime):
        def start(self, work: Callable[[], object], *, name: str) -> Any:
            works.append(work)

    errors: list[BaseException] = [RuntimeError("a defect of the queue"), SystemExit()]

    def take() -> None:
        if errors:
            raise errors.pop(0)

    threads = WorkerThreads(Collecting(), threading.Condition(), "merge", take)
    for ending in (pytest.raises(SystemExit), contextlib.nullcontext()):
        assert threads.ensure(1)
        with ending:
            works.pop()()
        assert threads.count == 0
    assert "a defect of the queue" in caplog.text


@pytest.mark.parametrize("error", ["defect", "memory"])
def test_merges_go_on_after_threads_could_not_be_started(tmp_path: Path, error: str) -> None:
    refused: list[str] = []

    class Limited(AdjustedRuntime):
        def start(self, work: Callable[[], object], *, name: str) -> Any:
            if len(refused) < 3:
                refused.append(name)
                raise RuntimeError("can't start new thread") if error == "defect" else MemoryError
            return super().start(work, name=name)

    client = InProcess(tmp_path / "unused")
    client.calls = Calls(
        tmp_path / "local", settings=lambda options: DatabaseSettings(threads=1), runtime=Limited()
    )
    job = Job(client, tmp_path / "state", maxDeltas="1")
    commit_until_merged(job, since=0)
    assert refused == ["merge"] * 3


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return five_versions(tmp_path_factory.mktemp("written"), 200_000)


@pytest.fixture
def continued(written: Job, tmp_path: Path) -> Job:
    """Return the job with a copy of its storage, for a test that goes on with its versions."""
    copy = Job(InProcess(tmp_path / "unused"), shutil.copytree(written.location, tmp_path / "copy"))
    copy.versions = dict(written.versions)
    return copy


@pytest.mark.parametrize(("owner", "name"), HYDRATION_STEPS, ids=lambda step: str(step).rpartition(".")[2])
def test_every_file_becomes_whole_after_any_error_at_any_step(
    written: Job, tmp_path: Path, owner: Any, name: str
) -> None:
    for number, error in enumerate(ERRORS.values()):
        with pytest.MonkeyPatch.context() as patch:
            failed = fail_once(patch, owner, name, error, thread="prefetch")
            job = reader(written, tmp_path / f"reader-{number}", transferThreads="2")
            directory, _ = restored(job)
            bases = job.open_store.bases
            wait_until(lambda: bases.is_whole(directory))  # noqa: B023
            assert failed == [name], "the error never came"
            running = bases._bases[directory].prefetch
            wait_until(lambda: not is_at_work(running))  # noqa: B023
        assert contents(directory) == written.versions[3][1]


@pytest.mark.tier("more")
@pytest.mark.parametrize(("owner", "name"), INHERITED_STEPS, ids=lambda step: str(step).rpartition(".")[2])
def test_every_file_of_a_dead_agent_becomes_whole_after_any_error_at_any_step(
    written: Job, tmp_path: Path, owner: Any, name: str
) -> None:
    for number, error in enumerate(ERRORS.values()):
        with pytest.MonkeyPatch.context() as patch:
            slow(patch)
            job = reader(written, tmp_path / f"reader-{number}", transferThreads="2")
            directory, names = restored(job)
        job.client = FailingStorage(tmp_path / f"reader-{number}")
        job.store["held"] = [str(directory)]
        with pytest.MonkeyPatch.context() as patch:
            failed = fail_once(patch, owner, name, error, thread="prefetch")
            job.call("ranges", directory=str(directory), ranges=[[names[0], 0, 10]])
            bases = job.open_store.bases
            wait_until(lambda: bases.is_whole(directory))  # noqa: B023
            assert failed == [name], "the error never came"
            running = bases._bases[directory].prefetch
            wait_until(lambda: not is_at_work(running))  # noqa: B023
        assert contents(directory) == written.versions[3][1]
        assert not list(directory.glob(f"{sparse.INCOMING_PREFIX}*"))


def test_a_hydration_without_threads_goes_on_with_the_next_commit(
    continued: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = WorkerThreads.ensure
    monkeypatch.setattr(WorkerThreads, "ensure", lambda self, count: False)
    job = reader(continued, tmp_path / "reader")
    directory, _ = restored(job)
    monkeypatch.setattr(WorkerThreads, "ensure", before)
    job.commit({b"\0\0more": b"1"})
    wait_until(lambda: job.open_store.bases.is_whole(directory))


def test_a_merge_does_not_wait_for_ever_for_files_that_only_fail(
    continued: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It restores by itself then, and reports what the storage says."""
    monkeypatch.setattr(prefetch, "STALL_S", 0.2)

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/local/base/x.sst")

    monkeypatch.setattr(LocalFile, "arriving", refuse)
    job = reader(continued, tmp_path / "reader")
    directory, _ = restored(job)
    job.commit({b"\0\0more": b"1"})
    assert contents(job.merge("full")["directory"]) == job.state
    assert not job.open_store.bases.is_coming(directory)


def test_stores_that_wait_for_their_files_hold_no_slot_and_do_not_fail(
    continued: Job, tmp_path: Path
) -> None:
    client = FailingStorage(tmp_path / "reader")
    options = {"maxDeltas": "1", "mergeTimeout": "1s", "restoreMode": "lazy"}
    slow = Job(client, continued.location, hydrationRateLimit="2k", **options)
    slow.versions = dict(continued.versions)
    slow.restore_by_blocks(5)
    other = Job(client, tmp_path / "other", hydrationRateLimit="2k", **{**options, "mergeTimeout": "5m"})
    slow.commit({b"\0\0more": b"1"})
    slow.commit({b"\0\0more": b"2"})
    version = commit_until_merged(other, since=0)
    client.runtime.ahead_s = 1.5  # longer than mergeTimeout
    commit_until_merged(other, since=version)
    assert not slow.open_store.bases.has_hydrated, "the other store does not wait for its files"

    def merges() -> dict[str, Any]:
        (status,) = client.call("status", instances=[slow.store["instance"]])["stores"]
        return dict(status["merges"])

    fetched = "its files are still being fetched by a lazy restore"
    wait_until(lambda: [merge["why"] for merge in merges()["waiting"]] == [fetched])
    assert slow.events(0, 0) == []
    assert merges()["failures_in_row"] == 0
    slow.open_store.bases.stop()
    # On a slow machine the merge itself takes longer than mergeTimeout.
    awaited(lambda: any("merge" in event["event"] for event in slow.events(1)), "the merge ends")


def test_files_that_come_after_the_look_put_the_merge_back(
    continued: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore may begin between the look at the queue and the merge: nothing failed then."""
    job = reader(continued, tmp_path / "reader", hydrationRateLimit="1k", maxDeltas="1", mergeTimeout="5s")
    monkeypatch.setattr(RemoteBases, "has_hydrated", property(lambda self: True))
    put_back, returns = MergeQueue.put_back, []

    def counted(self: MergeQueue, store: int) -> None:
        put_back(self, store)
        returns.append(store)

    monkeypatch.setattr(MergeQueue, "put_back", counted)
    restored(job)
    for number in range(2):
        job.commit({b"\0\0more": b"%d" % number})

    def events() -> list[dict[str, Any]]:
        return list(job.client.call("events", after=0, wait_ms=0)["events"])

    wait_until(lambda: len(returns) > 1 or events() != [])
    assert events() == [], "it waits, and has not failed"
    (status,) = job.client.call("status")["stores"]
    assert status["merges"]["failures_in_row"] == 0
    job.open_store.bases.stop()
    awaited(lambda: any(event["event"] == "merged" for event in job.events(1)), "the merge ends")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "no file descriptor left"),
        (OSError(errno.EMFILE, "Too many open files", "/disk/base/x.sst"), "no file descriptor left"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no memory left"),
        (OSError(errno.EIO, "Input/output error"), "the operating system refused: Input/output error"),
        (MemoryError(), "no memory left"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/disk/base/x.sst"),
            "disk of '/disk/base' is full",
        ),
    ],
)
def test_errors_of_the_machine_are_not_defects(error: BaseException, message: str) -> None:
    failure = as_state_store_error(error)
    assert failure.kind != "internal"
    assert message in failure.message


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.005)
