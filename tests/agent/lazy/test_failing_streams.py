"""Each call to storage, and each operation on the disk, fails in turn in merges from storage to storage.

The rows of the state come back after each failure, every file that an archive names is there, and the next
merge goes on. Kills are in `tests/agent/process/test_kill_in_streams.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faults import WRITES, Call, error_after, error_before

from agent.harness import InProcess, Job
from agent.lazy.remote_storage import OnRemoteStorage, reader
from agent.lazy.test_streamed_merges import key, nothing_is_left
from agent.restores.test_each_file_operation import refused
from state_store.agent.lazy import file_cache, reader_leases
from state_store.core.checkpoint.names import SNAPSHOT_DIRECTORY
from state_store.core.checkpoint.stored_documents import unpack
from state_store.core.files import sparse
from state_store.core.snapshots import streamed_merge
from state_store.errors import StateStoreError

ROWS = 1_000
LIMIT = 64 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of 64 KiB is meant as it is: windows, tables and tails are as small beside it as usual.

    No thread looks at the readers' leases, so all operations that are counted are those of the merge.
    """
    monkeypatch.setattr(reader_leases.LeaseRounds, "look", lambda rounds: None)
    monkeypatch.setattr(file_cache, "MIN_BYTES", 8 << 10)
    monkeypatch.setattr(streamed_merge, "MIN_WINDOW_BYTES", 64 << 10)
    monkeypatch.setattr(streamed_merge, "MIN_TABLE_BYTES", 64 << 10)
    monkeypatch.setattr(sparse, "_MIN_END_BYTES", 8 << 10)


class FailingOnce(OnRemoteStorage):
    """An agent whose n-th call to storage fails, once. Only calls that the fault may hit are counted."""

    def __init__(self, directory: Path) -> None:
        self.left = 0
        self.failed = ""
        self.fault: Callable[[Call], Any] = error_before
        super().__init__(directory)

    def fail(self, nth: int, fault: Callable[[Call], Any]) -> None:
        self.left, self.fault, self.failed = nth, fault, ""

    def _schedule(self, operation: str, path: str) -> Callable[[Call], object] | None:
        if self.fault is error_after and operation not in WRITES:
            return None
        self.left -= 1
        if self.left != 0:
            return None
        self.failed = f"{operation} {path}"
        return self.fault


@pytest.fixture
def settled(tmp_path: Path) -> Job:
    """A state of 400 KB in a full snapshot of some tables."""
    job = Job(InProcess(tmp_path / "writer", file_bytes=64 << 10), tmp_path / "state")
    job.commit({key(row): os.urandom(400) for row in range(ROWS)})
    job.merge("full")
    return job


def limited(settled: Job, client: OnRemoteStorage, location: Path | None = None) -> Job:
    """Return the job of an agent with a small cache, whose state is the settled one or a copy of it."""
    job = Job(
        client,
        location or settled.location,
        restoreMode="lazy",
        localDiskLimit=str(LIMIT),
        localRecovery="false",
    )
    for name in ("versions", "state", "version", "id", "attempts"):
        setattr(job, name, getattr(settled, name))
    job.restore_by_blocks(job.version)
    return job


def check(job: Job, directory: Path) -> None:
    """Raise AssertionError unless archives name files that are there, and the newest version has its rows."""
    root = Path(job.location)
    for archive in (root / SNAPSHOT_DIRECTORY).iterdir():
        names = [entry.path for entry in unpack(archive.read_bytes(), file=archive.name).manifest.files]
        assert [name for name in names if not (root / name).exists()] == [], archive.name
    other = reader(job, directory)
    other.restore(job.version)
    assert other.rows(job.version) == job.state
    assert nothing_is_left(job)


CHANGES = {"full": 200, "incremental": 8}
"""Rows that are changed before a merge: of so few the oldest run has its place in an incremental merge."""


MERGED_BY = {"full": 45, "incremental": 45}
"""Operations on the disk that a merge has at least."""


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("fault", [pytest.param(error_before, marks=pytest.mark.tier("more")), error_after])
def test_each_call_to_storage_fails_in_turn(
    settled: Job, tmp_path: Path, kind: str, fault: Callable[[Call], Any]
) -> None:
    client = FailingOnce(tmp_path / "reader")
    job = limited(settled, client)
    job.commit({key(1): b"one"})
    assert job.merge(kind)["kind"] == kind
    failed: list[str] = []
    while True:
        first = len(failed) * CHANGES[kind]
        job.commit({key(row % ROWS): os.urandom(90) for row in range(first, first + CHANGES[kind])})
        client.fail(len(failed) + 1, fault)
        made: dict[str, Any] = {}
        with suppress(StateStoreError):
            made = job.merge(kind)
        if not client.failed:
            break
        failed.append(client.failed)
        if made:
            job.call("release", directory=made["directory"])
        check(job, tmp_path / f"elsewhere-{len(failed)}")
    check(job, tmp_path / "at-last")
    assert {call.split("/")[0] for call in failed} >= {"upload shared", f"write {SNAPSHOT_DIRECTORY}"}, failed


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param("full", 1, marks=pytest.mark.tier("long"), id="all-full"),
        pytest.param("incremental", 1, marks=pytest.mark.tier("long"), id="all-incremental"),
        pytest.param("full", 15, marks=pytest.mark.tier("more"), id="sample-full"),
        pytest.param(
            "incremental",
            15,
            marks=pytest.mark.dear("stands for operations on the disk that fail"),
            id="sample-incremental",
        ),
    ],
)
def test_each_operation_on_the_disk_fails_in_turn(settled: Job, tmp_path: Path, kind: str, step: int) -> None:
    """Each merge starts from a copy of the same state.

    A merge that fails leaves a delta more to the next, which links it: with one state for all failures, the
    merge has an operation more with every failure, and the last operation is never reached.
    """
    before = limited(settled, FailingOnce(tmp_path / "before"))
    for first in range(0, 3 * CHANGES[kind], CHANGES[kind]):
        before.commit({key(row): os.urandom(90) for row in range(first, first + CHANGES[kind])})
        before.merge(kind)
    uses, seen = 0, ""
    while uses == 0 or seen:
        place = tmp_path / f"failing-{uses}"
        shutil.copytree(before.location, place / "state")
        job = limited(before, FailingOnce(place / "reader"), place / "state")
        made: list[Any] = []
        for last in range(2):
            first = (3 + last) * CHANGES[kind]
            job.commit({key(row): os.urandom(90) for row in range(first, first + CHANGES[kind])})
            if last:
                made.append(job.merge(kind))
            else:
                seen = refused(place / "reader", uses, lambda: made.append(job.merge(kind)))  # noqa: B023
            check(job, place / f"elsewhere-{last}")
        assert made[-1]["kind"] == kind
        shutil.rmtree(place)
        uses += step
    assert uses > MERGED_BY[kind], f"only {uses} operations"
