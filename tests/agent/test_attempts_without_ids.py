"""Checkpoint format 1, where Spark names versions by their numbers alone.

Two executors, a merge between any two steps of a commit, a commit between any two of a merge, tasks that wake
up late, agents that are replaced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.harness import InProcess, Job, rows_of
from state_store.core.storage.contract import Storage
from state_store.errors import ConflictError, MissingError, OptionError


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
    """Return the version as an executor that knows nothing restores it."""
    fresh = executor(f"fresh-{version}-{id(like)}")
    fresh.versions = dict(like.versions)
    return rows_of(fresh.restore(version))


def stored(job: Job) -> set[str]:
    """Return the paths of the store's files."""
    root = Path(job.location)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


STEPS = [
    "write snapshot/",
    "list snapshot",
    "write lease/",
    "upload shared/",
    "write delta/",
    "upload delta/",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_merge_beside_another_attempt_at_its_version_does_not_change_its_rows(executor, step):
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
    first.merge("full")
    if not seen:
        continue_on(second, first, 3)
        second.commit({key("late"): b"second attempt", key("only-in-second"): b"needed"})
    assert read(executor, 4, second) == second.state
    second.commit({key("next"): b"batch 5"})
    assert read(executor, 5, second) == second.state
    assert read(executor, 4, second) == second.versions[4][1]


@pytest.mark.parametrize("step", ["list delta", "upload delta/"])
def test_an_attempt_keeps_its_rows_when_another_attempt_at_its_version_is_merged(executor, step):
    first = executor("first")
    for batch in range(3):
        first.commit({key(f"row{batch}"): b"base"})
    first.commit({key("late"): b"first attempt", key("only-in-first"): b"phantom"})
    second, seen = executor("second"), []
    continue_on(second, first, 3)

    def before(operation: str, path: str) -> None:
        if f"{operation} {path}".startswith(step) and not seen:
            seen.append(path)
            first.merge("full")

    interrupt(second, before)
    second.commit({key("late"): b"second attempt", key("only-in-second"): b"needed"})
    assert seen
    second.commit({key("next"): b"batch 5"})
    assert read(executor, 5, second) == second.state


@pytest.mark.parametrize("merged", [False, True])
def test_a_late_task_takes_nothing_away_from_the_query_that_went_on(executor, merged):
    asleep = executor("asleep", retain=3)
    for batch in range(3):
        asleep.commit({key(f"row{batch}"): b"base"})
    late = asleep.write({key("zombie"): b"z"})
    awake = executor("awake", retain=3)
    continue_on(awake, asleep, 3)
    for batch in range(4, 11 if merged else 6):
        awake.commit({key(f"row{batch}"): b"b"})
        if batch == 7:
            awake.merge("full")
    if merged:
        awake.cleanup()
    before = stored(awake)
    with pytest.raises(ConflictError, match="attempt at version 4 is refused: "):
        asleep.call("commit", **late)
    left = {f"delta/{4:020}_{late['id']}.refused"} | {
        f"delta/{path.name}" for path in Path(awake.location).glob(f"delta/*_{late['id']}_*")
    }
    assert stored(awake) == before | left
    assert read(executor, awake.version, awake) == awake.state
    assert read(executor, awake.version - 1, awake) == awake.versions[awake.version - 1][1]


def test_a_refused_attempt_goes_with_its_version(executor):
    asleep, awake = executor("asleep", retain=3), executor("awake", retain=3)
    late = asleep.write({key("zombie"): b"z"})
    for batch in range(8):
        awake.commit({key(f"row{batch}"): b"b"})
        if batch == 1:
            with pytest.raises(ConflictError):
                asleep.call("commit", **late)
    assert any(path.endswith(".refused") for path in stored(awake))
    awake.merge("full")
    awake.commit({key("next"): b"b"})
    awake.commit({key("next"): b"c"})
    awake.cleanup()
    assert not any(late["id"] in path for path in stored(awake))


def test_an_attempt_whose_task_failed_is_not_meant(executor):
    job = executor("job")
    job.commit({key("row"): b"1"})
    before = job.version, job.id, job.state
    job.commit({key("row"): b"a task that fails afterwards"})
    for _ in range(2):
        job.call("refuse", version=2, id=job.id)
    with pytest.raises(MissingError):
        executor("reader").call("restore", version=2, id=None)
    with pytest.raises(ConflictError, match="which it builds on, was given up"):
        job.commit({key("next"): b"on it"})
    job.version, job.id, job.state = before
    job.look()
    job.commit({key("row"): b"2"})
    assert read(executor, 2, job) == {key("row"): b"2"}


def test_a_late_task_at_the_first_version_takes_nothing_away(executor):
    asleep, awake = executor("asleep", retain=3), executor("awake", retain=3)
    late = asleep.write({key("zombie"): b"z"})
    for batch in range(8):
        awake.commit({key(f"row{batch}"): b"b"})
        if batch == 5:
            awake.merge("full")
    awake.cleanup()
    with pytest.raises(ConflictError, match="the query has gone on to version"):
        asleep.call("commit", **late)
    assert read(executor, 8, awake) == awake.state


def test_a_late_task_is_refused_by_the_newest_version_too(executor):
    asleep, awake = executor("asleep"), executor("awake")
    late = asleep.write({key("zombie"): b"z"})
    awake.commit({key("row"): b"b"})
    with pytest.raises(ConflictError, match="another attempt committed it meanwhile"):
        asleep.call("commit", **late)
    assert read(executor, 1, awake) == awake.state
    asleep.look()
    asleep.commit({key("again"): b"by a task that Spark ran again"})
    assert read(executor, 1, asleep) == asleep.state


def test_a_task_that_begins_late_does_not_override_one_that_spark_launched_after_it(executor):
    early, later = executor("early", task=4), executor("later", task=9)
    later.commit({key("row"): b"b"})
    early.look()
    assert early.attempts["ordinal"] == 1
    before = stored(later)
    with pytest.raises(ConflictError, match="a task that Spark launched later has committed it already"):
        early.commit({key("zombie"): b"z"})
    assert stored(later) == before
    later.task = 12
    later.restore(0)
    later.look()
    later.commit({key("row"): b"again"})
    assert read(executor, 1, later) == later.state


def test_nothing_is_built_on_memory_if_another_attempt_counts(executor):
    """A stage that ran again elsewhere, while this executor holds what it had committed before."""
    first, second = executor("first"), executor("second")
    first.commit({key("row"): b"1"})
    first.commit({key("row"): b"first attempt"})
    continue_on(second, first, 1)
    second.commit({key("row"): b"second attempt"})
    with pytest.raises(ConflictError, match="version 2, which it builds on, was committed anew"):
        first.commit({key("next"): b"on the first"})
    continue_on(first, second, 2)
    first.commit({key("next"): b"on the second"})
    assert read(executor, 3, first) == {key("row"): b"second attempt", key("next"): b"on the second"}


def test_a_query_that_goes_back_commits_again_below_its_snapshots(executor):
    job = executor("job")
    for batch in range(6):
        job.commit({key(f"row{batch}"): b"b"})
        if batch == 4:
            job.merge("full")
    again = executor("again")
    continue_on(again, job, 2)
    for batch in range(2, 6):  # also where it knows nothing but what it was told when it restored
        again.commit({key("other"): b"second time %d" % batch})
        assert read(executor, batch + 1, again) == again.state


def test_the_time_of_a_delta_is_that_of_its_commit(executor):
    """The time decides between attempts that meet; a local disk keeps the time of a file that is linked."""
    asleep, awake = executor("asleep"), executor("awake")
    late = asleep.write({key("zombie"): b"z"})
    awake.commit({key("row"): b"b"})
    (first,) = Path(awake.location).glob("delta/*.sst")
    now_s = time.time()
    os.utime(first, (now_s - 10, now_s - 10))
    os.utime(late["path"], (now_s - 1000, now_s - 1000))
    seen = []

    def before(operation: str, path: str) -> None:
        if operation == "list" and not seen:
            seen.append(read(executor, 1, awake))

    interrupt(asleep, before)
    with pytest.raises(ConflictError):
        asleep.call("commit", **late)
    assert seen == [awake.state]


def test_the_same_commit_again_is_the_same_attempt(executor, tmp_path):
    """The agent died after the delta was there, and the JVM asks its successor."""
    job = executor("job")
    job.commit({key("row"): b"1"})
    request = job.write({key("row"): b"2"})
    local = Path(request["path"])
    twin = local.with_name("twin.sst")
    os.link(local, twin)
    job.call("commit", **request)
    twin.rename(local)
    answer = Job(InProcess(tmp_path / "next"), tmp_path / "state", ids=False).call("commit", **request)
    assert answer["attempts"] == {"ordinal": 0, "seen": []}
    (delta,) = [path for path in stored(job) if path.startswith(f"delta/{2:020}")]
    assert request["id"] in delta


def test_changes_and_snapshots_are_found_by_number_alone(executor):
    job = executor("job")
    for batch in range(3):
        job.commit({key(f"row{batch}"): b"b"})
    job.merge("incremental")
    lost = executor("lost")
    continue_on(lost, job, 2)
    lost.commit({key("lost"): b"b"})
    continue_on(job, lost, 2)
    job.commit({key("kept"): b"b"})
    job.commit({key("next"): b"b"})
    fresh = executor("reader")
    files = fresh.call("deltas", version=4, id=None, first=3)["files"]
    assert [(file["version"], file["id"]) for file in files] == [
        (3, job.versions[3][0]),
        (4, job.versions[4][0]),
    ]
    job.call("snapshot", version=3, id=job.versions[3][0], kind="full", reason="test")
    replayed = fresh.call("restore", version=4, id=None, from_version=3, from_id=None)
    assert rows_of(replayed) == job.state
    assert replayed["snapshot_version"] == 3


def test_with_ids_a_checkpoint_that_was_begun_without_them_goes_on(executor, tmp_path):
    job = executor("job")
    job.commit({key("row"): b"1"})
    other = Job(InProcess(tmp_path / "other"), tmp_path / "state", ids=True)
    other.versions[1] = (None, job.state)
    other.restore(1)
    other.commit({key("next"): b"2"})
    assert rows_of(other.restore(2)) == {key("row"): b"1", key("next"): b"2"}


def test_a_query_without_ids_is_told_once_what_it_misses(tmp_path, caplog):
    client = InProcess(tmp_path / "agent")
    Job(client, tmp_path / "with-ids", ids=True)
    assert not caplog.records
    for name in ("one", "other"):
        Job(client, tmp_path / name, ids=False)
    warnings = [
        record.getMessage() for record in caplog.records if "checkpointFormatVersion=2" in record.getMessage()
    ]
    assert len(warnings) == 1


def test_a_version_of_format_2_is_refused_without_its_id(tmp_path):
    """Only its id can say which attempt is meant, also where nothing but its snapshot is left of it."""
    client = InProcess(tmp_path / "executor")
    job = Job(client, tmp_path / "state", ids=True, maxDeltas="1000")
    for batch in range(3):
        job.commit({key(f"row{batch}"): b"x"})
    job.merge("full")
    wanted = "checkpoint format 2 .*checkpointFormatVersion to 2"
    for operation, arguments in (("restore", {"version": 2}), ("deltas", {"version": 2, "first": 1})):
        with pytest.raises(OptionError, match=wanted) as refusal:
            job.call(operation, id=None, **arguments)
        assert refusal.value.option == "spark.sql.streaming.stateStore.checkpointFormatVersion"
    for delta in (tmp_path / "state").rglob("delta/*.sst"):
        delta.unlink()
    with pytest.raises(OptionError, match=wanted):
        job.call("restore", version=3, id=None)
    with pytest.raises(MissingError):
        job.call("restore", version=4, id=None)
