"""Full checkpoints on request: made by the queue of merges within its limits, and reported by an event."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from waiting import awaited

from agent.harness import InProcess, Job
from state_store.core.deletion.lease import StoreContents
from state_store.core.storage.local import LocalStorage
from state_store.errors import MissingError, StorageError


def rows(count: int) -> dict[bytes, bytes | None]:
    return {b"\0\0" + os.urandom(4): os.urandom(20) for _ in range(count)}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="100")


def test_a_full_checkpoint_of_the_version_asked_for_is_made(job: Job) -> None:
    for _ in range(3):
        job.commit(rows(10))
    assert job.call("full", version=2, reason="asked by a test")["state"] == "queued"
    (event,) = job.events()
    assert event["event"] == "merged"
    assert event["merged"]["kind"] == "full"
    assert event["merged"]["base"]["version"] == 2
    assert event["merged"]["reason"] == "asked by a test"


def test_a_version_whose_snapshot_is_full_is_not_made_again(job: Job) -> None:
    job.commit(rows(10))
    job.merge("full")
    answer = job.call("full", version=1, id=job.id, reason="again")
    assert answer == {"version": 1, "id": job.id, "state": "already"}
    job.commit(rows(10))
    assert job.call("full", version=1, reason="again")["state"] == "already"
    assert job.call("full", version=2, reason="again")["state"] == "queued"


def test_a_snapshot_that_hides_the_version_stands_for_it(job: Job) -> None:
    for _ in range(3):
        job.commit(rows(10))
    job.merge("incremental")
    answer = job.call("full", version=2, reason="asked")
    assert (answer["version"], answer["state"]) == (3, "queued")


@pytest.mark.parametrize(("version", "checkpoint_id"), [(3, None), (2, "of-another-attempt")])
def test_a_version_that_the_store_does_not_have_is_refused(
    job: Job, version: int, checkpoint_id: str | None
) -> None:
    for _ in range(2):
        job.commit(rows(10))
    with pytest.raises(MissingError, match="not among those that this executor has"):
        job.call("full", version=version, id=checkpoint_id, reason="asked")


def test_a_snapshot_that_storage_keeps_is_left_and_a_later_version_made_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is on ABFS, whose rename would remove the snapshot first."""
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="100", minPauseBetweenMerges="0s")

    def write(storage: LocalStorage, path: str, data: bytes, *, overwrite: bool = False) -> None:
        if overwrite and storage.exists(path):
            raise StorageError(f"{path} exists: it is kept", file=path)
        replace(storage, path, data, overwrite=overwrite)

    replace = LocalStorage.write
    monkeypatch.setattr(LocalStorage, "write", write)
    for _ in range(3):
        job.commit(rows(10))
    job.merge("incremental")
    kept = files_of(job)
    assert job.call("full", version=3, reason="asked")["state"] == "queued"
    first = awaited(lambda: of_fulls(job), "the full checkpoint ends")[0]
    assert (first["event"], first["error"]["kind"]) == ("merge_failed", "storage")
    assert files_of(job) == kept
    for _ in range(2):  # the version before the newest one is certain
        job.commit(rows(10))
    last = awaited(lambda: [e for e in of_fulls(job) if e["event"] == "merged"], "another is made")[0]
    assert (last["merged"]["base"]["version"], last["merged"]["reason"]) == (4, "asked")


def of_fulls(job: Job) -> list[dict[str, Any]]:
    """Return the events about the full checkpoint that was asked for."""
    return [e for e in job.events(0) if "asked" in (e.get("reason"), e.get("merged", {}).get("reason"))]


def test_it_waits_for_the_pause_between_merges(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="100", minPauseBetweenMerges="1h")
    job.commit(rows(10))
    job.call("full", version=1, reason="first")
    assert [event["merged"]["reason"] for event in job.events()] == ["first"]
    job.commit(rows(10))
    assert job.call("full", version=2, reason="second")["state"] == "queued"
    assert len(job.events(count=2, wait_s=0.5)) == 1


def test_a_chain_that_another_process_cut_stays_cut(job: Job, tmp_path: Path) -> None:
    """`state-store full` cuts it at a version before the base of this agent, which has files of before."""
    for _ in range(3):
        job.commit(rows(10))
    job.merge("incremental")
    before = files_of(job)[-1]
    for _ in range(2):
        job.commit(rows(10))
    job.restore(5)
    other = Job(InProcess(tmp_path / "other"), job.location)
    other.versions = dict(job.versions)
    other.restore(4)
    other.merge("full")
    job.commit(rows(10))
    job.merge("incremental")
    *_, full, newest = files_of(job)
    assert full <= newest
    assert not before & newest


def files_of(job: Job) -> list[set[str]]:
    """Return the files of each snapshot, oldest first."""
    found = StoreContents.read(LocalStorage(job.location)).manifests.values()
    ordered = sorted(found, key=lambda manifest: manifest.version)
    return [{file.path for file in manifest.files} for manifest in ordered]
