"""Threads that all lazy restores of an executor share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtimes import AdjustedRuntime

from agent.harness import PATIENCE_S, Job, contents
from agent.lazy.remote_storage import FailingStorage, is_at_work, wait_until_whole
from state_store.agent.lazy.prefetch import PrefetchThreads, Taken
from state_store.core.runtime import SYSTEM, Runtime
from state_store.errors import StorageError


class Source:
    """A prefetch with a number of jobs, each of which is noted when it is done."""

    def __init__(self, name: str, jobs: int, done: list[str], work: Callable[[], object]) -> None:
        self.name = name
        self.jobs = jobs
        self.done = done
        self.work = work
        self.rests_until_done = 0

    def take(self) -> Taken:
        if len(self.done) < self.rests_until_done:
            return SYSTEM.monotonic_s() + 0.01
        if not self.jobs:
            return None
        self.jobs -= 1
        return self

    def run(self) -> None:
        self.work()
        self.done.append(self.name)

    def end(self, failure: BaseException | None) -> float:
        return 0.0


class Crowd:
    """Three prefetches of three jobs each, over one thread that has another job until `go_on` is set."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_busy = threading.Event()
        self.go_on = threading.Event()
        self.threads = PrefetchThreads(SYSTEM)
        self.threads.start(self.source("first", 1, self.block), 1, 1)
        assert self.is_busy.wait(PATIENCE_S)
        self.sources = [self.source(name, 3) for name in "abc"]
        for source in self.sources:
            self.threads.start(source, 3, 1)

    def block(self) -> None:
        self.is_busy.set()
        self.go_on.wait(PATIENCE_S)

    def source(self, name: str, jobs: int, work: Callable[[], object] = lambda: None) -> Source:
        return Source(name, jobs, self.done, work)

    def finish(self, jobs: int) -> str:
        """Let the thread go on, and return the prefetches whose jobs were done, in order."""
        self.go_on.set()
        end_s = time.monotonic() + PATIENCE_S
        while len(self.done) < jobs + 1:
            assert time.monotonic() < end_s, self.done
            time.sleep(0.005)
        return "".join(self.done[1:])


def test_prefetches_take_turns() -> None:
    assert Crowd().finish(9) == "abcabcabc"


def test_a_prefetch_that_is_waited_for_comes_first() -> None:
    crowd = Crowd()
    crowd.threads.prefer(crowd.sources[2])
    assert crowd.finish(9) == "cabcabcab"


def test_a_prefetch_that_rests_holds_up_no_other() -> None:
    crowd = Crowd()
    crowd.sources[0].rests_until_done = len(["first", *"bcbcbc"])
    assert crowd.finish(9) == "bcbcbcaaa"


def test_a_prefetch_that_is_dropped_gives_no_job() -> None:
    crowd = Crowd()
    crowd.threads.drop(crowd.sources[1])
    assert crowd.finish(6) == "acacac"


def followed(written: Job, client: FailingStorage, **options: str) -> Job:
    job = Job(client, written.location, restoreMode="lazy", **options)
    job.versions = dict(written.versions)
    return job


def test_stores_that_are_restored_lazily_share_their_threads(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Runtime] = []
    start = AdjustedRuntime.start

    def noted(self: Runtime, work: Callable[[], object], *, name: str) -> Any:
        started.extend([self] * (name == "prefetch"))
        return start(self, work, name=name)

    monkeypatch.setattr(AdjustedRuntime, "start", noted)
    client = FailingStorage(tmp_path / "reader")
    jobs = [
        followed(written, client, transferThreads=threads, hydrationRateLimit="1k") for threads in "123123"
    ]
    directories = [Path(job.restore_by_blocks(5)["directory"]) for job in jobs]
    assert 1 <= sum(runtime is jobs[0].open_store.context.runtime for runtime in started) <= 3
    for job in jobs:
        job.close()
    assert not any(directory.exists() for directory in directories)


def test_a_store_whose_storage_is_down_does_not_hold_up_the_others(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_store.agent.lazy.prefetch.RETRY_S", 3600.0)
    client = FailingStorage(tmp_path / "reader")
    broken = followed(written, client, transferThreads="2")
    other = followed(written, client, transferThreads="2")
    with monkeypatch.context() as patch:
        patch.setattr("state_store.agent.lazy.prefetch.Prefetch.start", lambda self: None)
        first = Path(broken.restore_by_blocks(5)["directory"])
    running = broken.open_store.bases._bases[first].prefetch
    tried: list[object] = []

    def refused(file: object, part: object) -> bool:
        tried.append(file)
        raise StorageError("it is down")

    monkeypatch.setattr(running, "_fetch", refused)
    running.start()
    second = Path(other.restore_by_blocks(5)["directory"])
    wait_until_whole(other, second)
    assert contents(second) == written.versions[3][1]
    assert (running._at_work, len(tried)) == (0, 2)
    assert is_at_work(running), "it is tried again when it has rested"
    running.stop()
