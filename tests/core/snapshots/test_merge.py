"""Merges: files that they share, chains that they cut, and files that they no longer trust."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from agent.harness import InProcess, Job, contents, rows_of

from state_store.agent.merges import merging
from state_store.agent.merges.merging import MergedStore, MergeRequest
from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId, tombstone_path
from state_store.core.checkpoint.stored_documents import INCREMENTAL, INGEST, Manifest, pack_tombstone
from state_store.core.deletion.lease import read_archive
from state_store.core.engine.database import Database
from state_store.core.snapshots.merge import Merged
from state_store.core.storage.local import LocalStorage
from state_store.errors import BusyError, DamagedError, StorageError


def new_job(root: Path, **options: object) -> Job:
    client = InProcess(root / "local", max_runs=2, size_amplification_percent=1000)
    return Job(client, root / "state", **options)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a full snapshot of 1,200 rows at version 4, six small batches after it."""
    made = new_job(tmp_path)
    fill(made)
    return made


def fill(job: Job) -> None:
    for version in range(1, 11):
        rows = 300 if version <= 4 else 5
        job.commit({b"\0\0%02d-%03d" % (version, row): os.urandom(60) for row in range(rows)})
        if version == 4:
            job.call("release", directory=job.merge("full")["directory"])


def manifest(job: Job, version: int) -> Manifest:
    name = SnapshotName(version, job.versions[version][0])
    return read_archive(LocalStorage(job.location), name).manifest


def version_of(delta: Path) -> int:
    name = DeltaName.parse(delta.name)
    assert name is not None
    return name.version


def paths(job: Job, version: int) -> set[str]:
    return {entry.path for entry in manifest(job, version).files}


def test_files_of_a_merge_grow_with_the_store(tmp_path: Path) -> None:
    sizes = {}
    for rows in (1_000, 16_000):
        client = InProcess(tmp_path / f"local-{rows}", file_bytes=16 << 10)
        job = Job(client, tmp_path / f"state-{rows}")
        job.commit({b"\0\0%06d" % row: os.urandom(100) for row in range(rows)})
        job.merge("full")
        sizes[rows] = [entry.size_bytes for entry in manifest(job, 1).files]
    assert max(sizes[1_000]) < 26 << 10
    assert 28 <= len(sizes[16_000]) <= 36
    assert min(sizes[16_000][:-1]) > 48 << 10


def test_an_incremental_merge_shares_what_did_not_change(job: Job) -> None:
    answer = job.merge("incremental")
    assert answer["kind"] == "incremental"
    assert paths(job, 4) < paths(job, 10)
    assert answer["shared_files"] == len(paths(job, 4))
    assert answer["uploaded_bytes"] < 10_000 < sum(entry.size_bytes for entry in manifest(job, 4).files)
    made = manifest(job, 10)
    (delta,) = (path for path in job.location.glob("delta/*.sst") if version_of(path) == 10)
    assert (answer["new_bytes_before"], answer["new_bytes"]) == (delta.stat().st_size, made.new_bytes)
    assert (made.merges_since_full, made.deltas_since_full) == (1, 6)
    assert made.full == made.previous == manifest(job, 4).version_id
    assert made.keys == len(job.state)
    assert made.rocksdb_version == "9.8.4"


def test_a_full_merge_shares_nothing(job: Job) -> None:
    job.merge("incremental")
    before = paths(job, 4) | paths(job, 10)
    job.commit({b"\0\0more": b"1"})
    answer = job.merge("full")
    made = manifest(job, 11)
    assert (answer["kind"], answer["shared_files"]) == ("full", 0)
    assert paths(job, 11).isdisjoint(before)
    assert {entry.origin for entry in made.files} == {11}
    assert (made.merges_since_full, made.deltas_since_full, made.full) == (0, 0, made.version_id)


def test_a_full_merge_with_fewer_rows_than_the_record_says_is_not_published(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(Path(job.location).rglob("*"))
    entries = Database.entries
    monkeypatch.setattr(Database, "entries", lambda database: entries(database) - 1)
    with pytest.raises(DamagedError, match=r"has made \d+ rows, .* nothing is published"):
        job.merge("full")
    assert set(Path(job.location).rglob("*")) == before


@pytest.mark.parametrize("kind", ["ingest", "incremental"])
def test_a_merge_that_leaves_fewer_rows_than_the_record_says_is_not_published(
    job: Job, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Older rows and removals count, too: the check sees that many rows are lost, and not that one is."""
    before = set(Path(job.location).rglob("*"))
    entries = Database.entries
    keys = len(job.state)
    monkeypatch.setattr(Database, "entries", lambda database: min(entries(database), keys))
    with pytest.raises(
        DamagedError, match=rf"has made {keys - 1} rows, older .* that it has {keys}: nothing"
    ):
        job.merge(kind)
    assert set(Path(job.location).rglob("*")) == before
    monkeypatch.setattr(Database, "entries", lambda database: keys + 1)
    assert job.merge(kind)["kind"] == kind


def test_a_full_merge_with_more_rows_than_the_record_says_is_not_published(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database, "entries", lambda database: len(job.state) + 2)
    with pytest.raises(DamagedError, match=rf"has made {len(job.state) + 1} rows, and the record"):
        job.merge("full")


def test_removed_rows_take_no_space_after_a_full_merge(job: Job) -> None:
    job.commit(dict.fromkeys(job.state))
    assert contents(job.merge("full")["directory"]) == {}
    assert manifest(job, 11).total_bytes < 3000


def test_a_merge_that_rewrote_everything_is_a_full_one(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local", max_runs=2), tmp_path / "state")
    fill(job)
    rows = list(job.state)
    for _ in range(4):
        job.commit({key: os.urandom(60) for key in rows})
    answer = job.merge("incremental")
    assert (answer["kind"], answer["shared_files"]) == ("full", 0)
    assert answer["chain"]["deltas_since_full"] == 0


def test_deltas_are_shared_as_they_are(tmp_path: Path) -> None:
    """A large delta becomes part of the snapshot without a byte of it being written again."""
    job = new_job(tmp_path)
    job.commit({b"\0\0%05d" % row: os.urandom(60) for row in range(3000)})
    (delta,) = job.location.glob("delta/*.sst")
    digest = hashlib.sha256(delta.read_bytes()).hexdigest()
    for version in range(3):
        job.commit({b"\0\0small-%d" % version: b"1"})
    job.merge("incremental")
    shared = [entry for entry in manifest(job, 4).files if entry.path == f"delta/{delta.name}"]
    assert [entry.sha256 for entry in shared] == [digest]
    assert hashlib.sha256(delta.read_bytes()).hexdigest() == digest


def test_an_ingest_publishes_nothing(job: Job) -> None:
    before = sorted(path for path in job.location.rglob("*") if path.is_file())
    answer = job.merge("ingest")
    assert contents(answer["directory"]) == job.state
    assert sorted(path for path in job.location.rglob("*") if path.is_file()) == before
    assert paths(job, 4)
    assert job.merge("incremental")["shared_files"] == len(paths(job, 4))


@pytest.mark.parametrize("how", ["condemned", "gone", "gone, and the delta too"])
def test_a_late_snapshot_trusts_nothing_that_it_planned_to_share(job: Job, how: str) -> None:
    (shared,) = paths(job, 4)
    job.merge("ingest")
    if how == "condemned":
        LocalStorage(job.location).write(tombstone_path("cleaner"), pack_tombstone({shared}))
    else:
        (job.location / shared).unlink()
    if "delta" in how:
        for path in job.location.glob("delta/*.sst"):
            path.unlink()
    answer = job.merge("incremental")
    assert shared not in paths(job, 10)
    assert answer["shared_files"] == 0
    assert (answer["kind"], answer["chain"]["deltas_since_full"]) == ("full", 0)
    other = Job(InProcess(job.location.parent / "other"), job.location)
    other.versions = job.versions
    assert rows_of(other.restore(10)) == job.state


def test_the_same_version_is_not_merged_twice(job: Job) -> None:
    job.merge("incremental")
    assert "skipped" in job.merge("incremental")
    assert job.merge("full")["kind"] == "full"


def test_it_goes_on_from_a_full_checkpoint_that_another_process_made(job: Job) -> None:
    other = Job(InProcess(job.location.parent / "other"), job.location)
    other.versions = job.versions
    other.restore(8)
    other.merge("full")
    job.commit({b"\0\0more": b"1"})
    job.merge("incremental")
    made = manifest(job, 11)
    assert made.previous == manifest(job, 8).version_id
    assert min(entry.origin for entry in made.files) >= 8
    assert rows_of(job.restore()) == job.state


def test_a_damaged_local_delta_is_read_again_and_a_damaged_stored_one_is_an_error(job: Job) -> None:
    name = f"{7:020d}"
    (kept,) = (job.location.parent / "local" / "kept").rglob(f"*{name}*.sst")
    data = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(data[:-1])
    assert contents(job.merge("ingest")["directory"]) == job.state
    fresh = new_job(job.location.parent / "second")
    fill(fresh)
    for place in ("local/kept", "state/delta"):
        (path,) = (fresh.location.parent / place).rglob(f"*{name}*.sst")
        path.unlink()
        path.write_bytes(data)
    with pytest.raises(DamagedError, match=name):
        fresh.merge("incremental")
    assert not list(fresh.location.glob(f"snapshot/{10:020d}*"))


def test_a_merge_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    job = Job(
        InProcess(tmp_path / "local", rate_limit_bytes=50_000, max_runs=2),
        tmp_path / "state",
        mergeTimeout="1s",
    )
    for version in range(3):
        job.commit({b"\0\0%d-%05d" % (version, row): os.urandom(60) for row in range(1000)})
    for kind in ("full", "incremental"):
        with pytest.raises(BusyError, match="mergeTimeout"):
            job.merge(kind)
    assert not list(job.location.glob("snapshot/*"))
    assert not list(Path(job.opened["incoming"]).parent.glob("base-*"))
    assert not list(job.location.glob("shared/*"))


def test_a_failed_upload_leaves_the_chain_as_it_was(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    store = job.open_store

    def full_disk(*arguments: object, **named: object) -> None:
        raise StorageError("no space left on device", file="shared/x.sst")

    with monkeypatch.context() as patch:
        patch.setattr(store.context.storage, "upload", full_disk)
        with pytest.raises(StorageError, match="no space"):
            job.merge("incremental")
    assert not list(job.location.glob("lease/*"))
    assert job.merge("incremental")["kind"] == "incremental"
    assert rows_of(job.restore()) == job.state


def test_bases_go_when_the_data_plane_is_done_with_them(job: Job) -> None:
    root = Path(job.opened["incoming"]).parent
    first = job.merge("ingest")["directory"]
    second = job.merge("incremental")["directory"]
    assert Path(first).is_dir()
    job.call("release", directory=first)
    assert not Path(first).exists()
    job.call("release", directory=second)
    assert Path(second).is_dir(), "the next merge starts from it"
    job.commit({b"\0\0a": b"1"})
    third = job.merge("ingest")["directory"]
    assert {str(path) for path in root.glob("base-*")} == {third}
    job.call("release", directory="/etc")
    assert Path("/etc").is_dir()


def test_answers_have_the_fields_of_the_protocol(job: Job) -> None:
    answer = SimpleNamespace(**job.merge("incremental"))
    assert (answer.version, answer.id) == (10, job.id)
    assert answer.keys == len(job.state)
    assert answer.new_files == 1
    assert {"deltas", "deltas_since_full", "merges_since_full", "files", "bytes"} <= set(answer.chain)
    assert all(value >= 0 for value in answer.phases.values())


def test_a_base_that_is_newer_than_the_cut_of_another_process_is_given_up(job: Job) -> None:
    """A base that an ingest made has the files from before the cut."""
    job.call("release", directory=job.merge("ingest")["directory"])
    other = Job(InProcess(job.location.parent / "other"), job.location)
    other.versions = job.versions
    other.restore(8)
    other.merge("full")
    job.commit({b"\0\0more": b"1"})
    job.merge("incremental")
    assert min(entry.origin for entry in manifest(job, 11).files) >= 8
    assert rows_of(job.restore()) == job.state


@pytest.fixture
def forked(tmp_path: Path) -> tuple[Job, Job]:
    """Return a store whose next merge is due, and another one that went another way after version 8."""
    job = new_job(tmp_path, maxDeltas="5", minPauseBetweenMerges="1h")
    fill(job)
    other = Job(InProcess(tmp_path / "other"), job.location)
    other.versions = dict(job.versions)
    other.restore(8)
    other.commit({b"\0\0other": b"1"})
    return job, other


def test_a_snapshot_of_another_lineage_does_not_count(forked: tuple[Job, Job]) -> None:
    """If it counted, the merge would not be due any more."""
    job, other = forked
    other.merge("incremental")
    request = MergeRequest(VersionId(10, job.id), INCREMENTAL, "due")
    answer = job.client.calls.scheduler.merge_now(job.open_store, request)
    assert isinstance(answer, MergedStore)
    assert manifest(job, 10).previous == VersionId(4, job.versions[4][0])


def test_no_merge_starts_from_a_base_of_another_lineage(
    forked: tuple[Job, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store went another way while the merge ran: the base that it restored is still the newest."""
    job, other = forked
    real = merging.merge
    restored: list[Path] = []

    def late(*arguments: object) -> Merged:
        result = real(*arguments)
        job.versions = other.versions
        restored.append(Path(job.restore(9)["directory"]))
        return result

    monkeypatch.setattr(merging, "merge", late)
    request = MergeRequest(VersionId(10, job.id), INGEST, "memory is short")
    answer = job.client.calls.scheduler.merge_now(job.open_store, request)
    assert isinstance(answer, MergedStore)
    start = job.open_store.head.begin_merge(VersionId(9, other.id))
    assert start is not None
    assert [start[0].directory] == restored
