"""Invariants are checked before a change counts: if one is broken, an error says so and nothing happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.harness import InProcess, Job, contents
from state_store.agent.open_store import StoreHead
from state_store.core.checkpoint.lineage import Chain
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import Manifest
from state_store.core.deletion.lease import Lease
from state_store.core.deletion.retention import DeletionPlan
from state_store.core.engine.database import Database, DatabaseSettings
from state_store.core.snapshots.context import check_files
from state_store.errors import DamagedError, InternalError


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(InProcess(tmp_path / "local"), tmp_path / "state", retain=2)
    for number in range(4):
        made.commit({b"\0\0row-%d" % number: b"x" * 50})
    return made


def files(job: Job) -> set[str]:
    return {str(path.relative_to(job.location)) for path in Path(job.location).rglob("*") if path.is_file()}


def test_a_snapshot_whose_files_are_not_held_is_not_published(job: Job, monkeypatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Lease, "announce", lambda self, paths: None)
        with pytest.raises(
            InternalError, match=r"was not published: .*lease does not hold\. The versions are"
        ):
            job.merge("full")
    assert not list(Path(job.location).glob("snapshot/*"))
    assert contents(job.merge("full")["directory"]) == job.state


def test_a_manifest_that_contradicts_itself_is_not_published(job: Job, monkeypatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Manifest, "contradiction", lambda self: "is of two minds")
        with pytest.raises(InternalError, match="was not published: it is of two minds"):
            job.merge("full")
    assert not list(Path(job.location).glob("snapshot/*"))


@pytest.mark.parametrize("path", ["needed", "../../somebody/elses", "delta/notes.txt"])
def test_nothing_is_deleted_when_one_file_must_not_be(job: Job, monkeypatch, path: str) -> None:
    job.merge("full")
    for number in range(3):
        job.commit({b"\0\0more-%d" % number: b""})
    (needed,) = [path for path in files(job) if path.startswith(f"delta/{job.version:020d}")]
    candidates = DeletionPlan.candidates
    forbidden = needed if path == "needed" else path
    before = files(job)
    with monkeypatch.context() as broken:
        broken.setattr(
            DeletionPlan, "candidates", lambda self, before_ms: candidates(self, before_ms) | {forbidden}
        )
        with pytest.raises(InternalError, match=r"was about to delete .*nothing was deleted") as caught:
            job.cleanup()
    assert caught.value.file == forbidden
    assert before <= files(job)
    assert job.cleanup()["deleted_files"] > 0


def test_a_version_that_does_not_follow_is_not_stored(job: Job, monkeypatch) -> None:
    arguments = job.write({b"\0\0a": b"1"})
    before = files(job)
    with monkeypatch.context() as broken:
        elsewhere = Chain(version=VersionId(2, "another"))
        broken.setattr(StoreHead, "chain_before", lambda self, delta: elsewhere)
        with pytest.raises(InternalError, match=r"was not stored: it builds on .* leads to 2 \(another\)"):
            job.call("commit", **arguments)
    assert files(job) == before
    job.call("commit", **arguments)


@pytest.mark.parametrize("change", ["less", "more", "larger"])
def test_a_database_with_other_files_is_damaged(job: Job, change: str) -> None:
    job.merge("full")
    base, _ = job.open_store.head.begin_merge(VersionId(job.version, job.id))
    name, file = next(iter(base.files.items()))
    known = dict(base.files)
    if change == "less":
        del known[name]
    elif change == "more":
        known["999999.sst"] = file
    else:
        known[name] = type(file)(file.path, file.size_bytes + 1, file.sha256, file.origin, file.level)
    with Database(base.directory, DatabaseSettings()) as database:
        check_files(database, base.files)
        with pytest.raises(DamagedError, match=r"its list of files differs .*\.sst"):
            check_files(database, known)
