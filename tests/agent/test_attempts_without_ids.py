"""Checkpoint format 1, where names do not tell attempts at a version apart.

Two executors, a merge between any two steps of a commit, a commit between any two of a merge, a task that
wakes up late."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from state_store.errors import ConflictError
from state_store.storage.contract import Storage

from .harness import InProcess, Job, contents


def key(name: str) -> bytes:
    return b"\0\0" + name.encode()


class Interrupted:
    """A storage that calls `before` with each write, upload and listing, before it happens."""

    def __init__(self, storage: Storage, before: Callable[[str, str], None]) -> None:
        self._storage = storage
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._before("write", path)
        self._storage.write(path, data, overwrite=overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self._before("upload", path)
        self._storage.upload(local, path, overwrite=overwrite)

    def list_files(self, directory: str) -> Any:
        self._before("list", directory)
        return self._storage.list_files(directory)


def interrupt(job: Job, before: Callable[[str, str], None]) -> None:
    context = job.open_store.context
    object.__setattr__(context, "storage", Interrupted(context.storage, before))


@pytest.fixture
def executor(tmp_path: Path) -> Callable[..., Job]:
    def make(name: str, **how: Any) -> Job:
        client = InProcess(tmp_path / name)
        return Job(client, tmp_path / "state", ids=False, maxDeltas="1000", **how)

    return make


def continue_on(job: Job, other: Job, version: int) -> None:
    """The executor of `job` restores what `other` had committed as that version."""
    job.versions = dict(other.versions)
    job.restore(version)


def read(executor: Callable[..., Job], version: int, like: Job) -> dict[bytes, bytes]:
    """The version as an executor that knows nothing restores it."""
    fresh = executor(f"fresh-{version}-{id(like)}")
    fresh.versions = dict(like.versions)
    return contents(fresh.restore(version)["directory"])


STEPS = [
    "write snapshot/",
    "list snapshot",
    "write lease/",
    "upload shared/",
    "write delta/",
    "upload delta/",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_merge_beside_an_attempt_that_replaces_its_version(executor, step):
    first = executor("first")
    for batch in range(3):
        first.commit({key(f"row{batch}"): b"base"})
    first.commit({key("late"): b"first attempt", key("only-in-first"): b"phantom"})
    second, seen = executor("second"), []

    def before(operation: str, path: str) -> None:
        if f"{operation} {path}".startswith(step) and not seen:
            seen.append(path)
            continue_on(second, first, 3)
            second.commit({key("late"): b"second attempt", key("only-in-second"): b"needed"})

    interrupt(first, before)
    with contextlib.suppress(ConflictError):
        first.merge("full")
    if not seen:
        continue_on(second, first, 3)
        second.commit({key("late"): b"second attempt", key("only-in-second"): b"needed"})
    second.commit({key("next"): b"batch 5"})
    assert read(executor, 5, second) == second.state
    assert read(executor, 4, second) == second.versions[4][1]


@pytest.mark.parametrize("step", ["list snapshot", "upload delta/"])
@pytest.mark.parametrize("nth", [1, 2])
def test_an_attempt_beside_a_merge_of_the_version_that_it_replaces(executor, step, nth):
    first = executor("first")
    for batch in range(3):
        first.commit({key(f"row{batch}"): b"base"})
    first.commit({key("late"): b"first attempt", key("only-in-first"): b"phantom"})
    second, seen = executor("second"), []
    continue_on(second, first, 3)

    def before(operation: str, path: str) -> None:
        if f"{operation} {path}".startswith(step):
            seen.append(path)
            if len(seen) == nth:
                with contextlib.suppress(ConflictError):
                    first.merge("full")

    interrupt(second, before)
    second.commit({key("late"): b"second attempt", key("only-in-second"): b"needed"})
    second.commit({key("next"): b"batch 5"})
    assert read(executor, 5, second) == second.state


def test_a_late_task_takes_nothing_away_from_the_query_that_went_on(executor):
    asleep = executor("asleep", retain=3)
    for batch in range(3):
        asleep.commit({key(f"row{batch}"): b"base"})
    late = asleep.write({key("zombie"): b"z"})
    awake = executor("awake", retain=3)
    continue_on(awake, asleep, 3)
    for batch in range(4, 11):
        awake.commit({key(f"row{batch}"): b"b"})
        if batch == 7:
            awake.merge("full")
    awake.cleanup()
    with pytest.raises(ConflictError, match="the query has gone on without this task"):
        asleep.call("commit", **late)
    assert read(executor, 10, awake) == awake.state
    assert read(executor, 9, awake) == awake.versions[9][1]


def test_a_late_task_at_the_first_version_takes_nothing_away(executor):
    asleep, awake = executor("asleep", retain=3), executor("awake", retain=3)
    late = asleep.write({key("zombie"): b"z"})
    for batch in range(8):
        awake.commit({key(f"row{batch}"): b"b"})
        if batch == 5:
            awake.merge("full")
    awake.cleanup()
    with pytest.raises(ConflictError, match="the query has gone on without this task"):
        asleep.call("commit", **late)
    assert read(executor, 8, awake) == awake.state


def test_a_query_that_goes_back_commits_again_below_its_snapshots(executor):
    job = executor("job")
    for batch in range(6):
        job.commit({key(f"row{batch}"): b"b"})
        if batch == 4:
            job.merge("full")
    again = executor("again")
    continue_on(again, job, 2)
    again.commit({key("other"): b"second time"})
    assert read(executor, 3, again) == again.state


def test_a_base_of_an_attempt_that_was_given_up_is_not_handed_out(executor):
    job = executor("job")
    for batch in range(4):
        job.commit({key(f"row{batch}"): b"base"})
    head = job.open_store.head
    offer = head.offer

    def offer_late(*arguments: Any) -> Any:
        head.rewind(4)  # the batch runs again
        return offer(*arguments)

    head.offer = offer_late
    with pytest.raises(ConflictError, match="given up"):
        job.merge("ingest")


def test_a_query_without_ids_is_told_once_what_it_misses(tmp_path, caplog):
    client = InProcess(tmp_path / "agent")
    Job(client, tmp_path / "with-ids", ids=True)
    assert not caplog.records
    for name in ("one", "other"):
        Job(client, tmp_path / name, ids=False)
    told = [
        record.getMessage() for record in caplog.records if "checkpointFormatVersion=2" in record.getMessage()
    ]
    assert len(told) == 1
