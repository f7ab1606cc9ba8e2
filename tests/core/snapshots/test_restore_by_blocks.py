"""Restores that read no file as a whole: bytes that they skip, and damage that they notice."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from agent.harness import InProcess, Job, contents, rows_of

from state_store.core.checkpoint.stored_documents import pack, unpack
from state_store.core.files.sparse import identity_bytes
from state_store.errors import DamagedError

OWN = {"max_runs": 2, "size_amplification_percent": 1000}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Versions 1 to 10; a full snapshot at 4, an incremental one at 8 that shares a file with it."""
    made = Job(InProcess(tmp_path / "writer", **OWN), tmp_path / "state")
    for version in range(1, 11):
        rows = 300 if version <= 4 else 10
        made.commit({b"\0\0%02d-%03d" % (version, row): os.urandom(60) for row in range(rows)})
        if version == 4:
            made.merge("full")
        if version == 8:
            assert made.merge()["shared_files"] > 0
    return made


def reader(job: Job, directory: Path, **options: str) -> Job:
    """Another executor without local files."""
    other = Job(InProcess(directory, **OWN), job.location, **options)
    other.versions = dict(job.versions)
    return other


def flip(path: Path, position: int = 100) -> None:
    """A byte of the first data block, in the stored file alone."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.unlink()
    path.write_bytes(data)


def newest_shared(job: Job) -> Path:
    return max(job.location.glob("shared/*008-*.sst"))


def test_every_version_is_exact(job: Job, tmp_path: Path) -> None:
    other = reader(job, tmp_path / "reader")
    for version in (10, 1, 4, 5, 8, 3, 10):
        answer = other.restore_by_blocks(version)
        assert rows_of(answer) == job.versions[version][1]
        assert answer["base"]["version"] + len(answer["loose_deltas"]) == version
        assert (answer["deltas"], answer["warnings"]) == (len(answer["loose_deltas"]), [])


@pytest.mark.parametrize("pattern", ["shared", "delta"])
def test_a_damaged_block_is_not_read_by_the_restore_and_healed_by_the_next(
    job: Job, tmp_path: Path, pattern: str
) -> None:
    """The local copy is damaged; storage has the whole file."""
    other = reader(job, tmp_path / "reader")
    other.call("release", directory=other.restore(10)["directory"])
    (kept,) = (tmp_path / "reader/kept").glob(
        f"*/*{newest_shared(job).name}" if pattern == "shared" else f"*/delta@{10:020d}_*"
    )
    flip(kept)
    answer = other.restore_by_blocks(10)
    assert answer["warnings"] == []
    with pytest.raises(DamagedError):
        rows_of(answer)
    other.call("damaged", directory=answer["directory"])
    again = other.restore_by_blocks(10)
    assert rows_of(again) == job.state
    (warning,) = again["warnings"]
    assert "read again from checkpoint storage" in warning
    assert other.restore_by_blocks(10)["warnings"] == []


def test_a_damaged_block_in_storage_leads_to_an_older_snapshot(job: Job, tmp_path: Path) -> None:
    flip(newest_shared(job))
    other = reader(job, tmp_path / "reader")
    assert other.rows(10) == job.state
    assert other.restore(10, thorough=True)["snapshot_version"] == 4


def test_the_next_provider_of_the_store_knows_of_the_damage(job: Job, tmp_path: Path) -> None:
    flip(newest_shared(job))
    other = reader(job, tmp_path / "reader")
    answer = other.restore_by_blocks(10)
    other.call("damaged", directory=answer["directory"])
    other.close()
    following = Job(other.client, job.location)
    following.versions = dict(job.versions)
    assert rows_of(following.restore_by_blocks(10)) == job.state


def test_nothing_is_merged_from_a_base_that_was_found_damaged(job: Job, tmp_path: Path) -> None:
    other = reader(job, tmp_path / "reader")
    answer = other.restore_by_blocks(10)
    flip(Path(answer["directory"]) / next(Path(answer["directory"]).glob("*.sst")).name)
    other.call("damaged", directory=answer["directory"])
    other.commit({b"\0\0more": b"1"})
    assert contents(other.merge("full")["directory"]) == other.state


def test_another_whole_file_in_its_place_is_noticed_at_once(job: Job, tmp_path: Path) -> None:
    """The other delta has the same size, so that only its reserved record differs."""
    path = newest_shared(job)
    other_job = Job(InProcess(tmp_path / "stranger", **OWN), tmp_path / "other")
    for version in range(1, 9):
        other_job.commit(
            {key: value for key, value in job.versions[8][1].items() if b"%02d-" % version in key}
        )
        if version in (4, 8):
            other_job.merge("full" if version == 4 else "incremental")
    strange = next(path for path in other_job.location.glob("shared/*008-*.sst"))
    path.unlink()
    path.write_bytes(strange.read_bytes())
    answer = reader(job, tmp_path / "reader").restore_by_blocks(10)
    assert answer["snapshot_version"] == 4
    assert rows_of(answer) == job.state


def test_a_snapshot_without_ends_is_verified_as_a_whole(job: Job, tmp_path: Path) -> None:
    """As a writer leaves it that cannot find where the end of a file begins."""
    (path,) = job.location.glob(f"snapshot/{8:020d}_*.zip")
    archive = unpack(path.read_bytes(), file="")
    files = tuple(dataclasses.replace(entry, tail=None) for entry in archive.manifest.files)
    path.unlink()
    path.write_bytes(pack(dataclasses.replace(archive.manifest, files=files), archive.database))
    flip(newest_shared(job))
    answer = reader(job, tmp_path / "reader").restore_by_blocks(10)
    assert answer["snapshot_version"] == 4
    assert len(answer["warnings"]) == 1


def test_the_option_verifies_every_file_at_once(job: Job, tmp_path: Path) -> None:
    flip(newest_shared(job))
    answer = reader(job, tmp_path / "reader", restoreVerification="files").restore_by_blocks(10)
    assert answer["snapshot_version"] == 4


@pytest.mark.parametrize("version", [2, 4, 7, 10])
@pytest.mark.parametrize("kind", ["incremental", "full"])
def test_merges_go_on_from_it(job: Job, tmp_path: Path, version: int, kind: str) -> None:
    """The deltas lie above a database, or above nothing."""
    other = reader(job, tmp_path / "reader")
    other.restore_by_blocks(version)
    other.location = job.location
    other.commit({b"\0\0more": b"1"})
    merged = other.merge(kind)
    assert contents(merged["directory"]) == other.state
    again = reader(job, tmp_path / "again")
    again.versions = dict(other.versions)
    assert again.rows(version + 1) == other.state


def test_a_file_that_is_stored_anew_is_verified_before(job: Job, tmp_path: Path) -> None:
    """The snapshot's file goes, the next one uploads the local copy, of which no merge has read a block."""
    other = reader(job, tmp_path / "reader")
    answer = other.restore_by_blocks(10)
    shared = [path for path in job.location.glob("shared/*004-*.sst") if path.exists()]
    for path in Path(answer["directory"]).glob("*.sst"):
        if any(path.samefile(file) for file in shared):
            flip(path)
    for path in shared:
        path.unlink()
    other.commit({b"\0\0more": b"1"})
    with pytest.raises(DamagedError):
        other.merge("incremental")


def test_an_end_is_as_long_as_what_follows_index_and_filter(job: Job) -> None:
    for path in (*job.location.glob("shared/*.sst"), *job.location.glob("delta/*.sst")):
        size = identity_bytes(path)
        data = path.read_bytes()
        assert size is not None and 500 < size < 4000
        assert b"rocksdb.creating.session.identity" not in data[:-size]


def test_a_file_that_is_no_sst_has_no_end(tmp_path: Path) -> None:
    for data in (b"", b"x" * 53, os.urandom(200), os.urandom(4000)[:-8] + bytes.fromhex("f7cff485b741e288")):
        (tmp_path / "file").write_bytes(data)
        assert identity_bytes(tmp_path / "file") is None


def compressed(job: Job, directory: Path) -> Job:
    """Another executor on the store, whose snapshots are compressed."""
    other = Job(InProcess(directory, **OWN, compression="lz4"), job.location)
    other.versions = dict(job.versions)
    other.restore(10)
    return other


def test_deltas_lie_beside_compressed_tables(job: Job, tmp_path: Path) -> None:
    other = compressed(job, tmp_path / "other")
    other.commit({b"\0\0%03d" % row: bytes(100) for row in range(1000)})
    other.merge("full")
    newest = max(job.location.glob("shared/*011-*.sst"), key=lambda path: path.stat().st_size)
    assert newest.stat().st_size < 150_000, "the zeros are not compressed"
    other.commit({b"\0\0more": b"1"})
    following = reader(job, tmp_path / "reader")
    following.versions = dict(other.versions)
    answer = following.restore_by_blocks(12)
    assert (len(answer["loose_deltas"]), answer["base"]["version"], answer["deltas"]) == (1, 11, 1)
    assert rows_of(answer) == other.state
    following.commit({b"\0\0more": b"2"})
    assert contents(following.merge("full")["directory"]) == following.state
