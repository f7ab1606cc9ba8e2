"""A damaged file that the work at hand does not need does not stop it, and the next merge heals the store."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agent.harness import InProcess, Job, rows_of
from state_store.core.checkpoint.names import tombstone_path
from state_store.errors import DamagedError

ROWS = {b"\0\0row-%04d" % number: os.urandom(40) for number in range(400)}


def new_job(tmp_path: Path, name: str = "a", retain: int = 3) -> Job:
    client = InProcess(tmp_path / name, size_amplification_percent=1000)
    return Job(client, tmp_path / "state", retain=retain)


def follow(job: Job, other: Job) -> Job:
    """`job` goes on where `other` is."""
    job.versions = dict(other.versions)
    job.version, job.id, job.state = other.version, other.id, other.state
    return job


def committed(tmp_path: Path) -> Job:
    """Return a store of four versions with a snapshot of the newest."""
    job = new_job(tmp_path)
    rows = sorted(ROWS.items())
    for number in range(4):
        job.commit(dict(rows[number::4]))
    job.merge("full")
    return job


def grow(job: Job) -> None:
    job.commit({b"\0\0more-%d" % job.version: b"1"})


def damage(path: Path) -> None:
    """As a disk would: the same name, other bytes; a hard link elsewhere stays whole."""
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x10
    path.unlink()
    path.write_bytes(data[:-7] if path.suffix == ".zip" else data)


def snapshot_of(job: Job, version: int) -> Path:
    (path,) = Path(job.location).glob(f"snapshot/{version:020d}_*.zip")
    return path


def restored_elsewhere(job: Job, tmp_path: Path, name: str) -> tuple[dict[bytes, bytes], list[str]]:
    reader = follow(new_job(tmp_path, name), job)
    answer = reader.restore()
    return rows_of(answer), answer["warnings"]


class TestADamagedArchive:
    @pytest.mark.parametrize("kind", ["incremental", "full"])
    def test_merges_go_on_and_the_next_snapshot_replaces_it(self, tmp_path: Path, kind: str) -> None:
        job = committed(tmp_path)
        damage(snapshot_of(job, 4))
        grow(job)
        assert "skipped" not in job.merge(kind)
        rows, warnings = restored_elsewhere(job, tmp_path, "reader")
        assert (rows, warnings) == (job.state, [])

    def test_a_full_merge_of_the_same_version_overwrites_it(self, tmp_path: Path) -> None:
        job = committed(tmp_path)
        damage(snapshot_of(job, 4))
        job.merge("full")
        rows, warnings = restored_elsewhere(job, tmp_path, "reader")
        assert (rows, warnings) == (job.state, [])

    @pytest.mark.parametrize("older_files_are_gone", [False, True])
    def test_an_agent_that_replaces_a_dead_one_commits(
        self, tmp_path: Path, older_files_are_gone: bool
    ) -> None:
        job = committed(tmp_path)
        grow(job)
        damage(snapshot_of(job, 4))
        if older_files_are_gone:
            for path in (tmp_path / "state/delta").glob(f"{1:020d}_*"):
                path.unlink()
        other = follow(new_job(tmp_path, "b"), job)
        grow(other)
        assert other.version == 6

    def test_clean_ups_go_on(self, tmp_path: Path) -> None:
        job = committed(tmp_path)
        for _ in range(2):
            grow(job)
        job.merge("full")
        damage(snapshot_of(job, 6))
        grow(job)
        job.merge("full")
        grow(job)
        assert job.cleanup()["deleted_files"] > 0
        rows, _ = restored_elsewhere(job, tmp_path, "reader")
        assert rows == job.state


def test_an_old_damaged_tombstone_stops_neither_merges_nor_clean_ups(tmp_path: Path) -> None:
    job = committed(tmp_path)
    tombstone = tmp_path / "state" / tombstone_path("cleaner")
    tombstone.parent.mkdir()
    tombstone.write_bytes(b"")
    old = time.time() - 2 * 3600
    os.utime(tombstone, (old, old))
    for _ in range(4):
        grow(job)
        job.merge("incremental")
    assert job.cleanup()["deleted_files"] > 0
    assert not tombstone.exists()


def test_a_young_damaged_tombstone_makes_merges_share_nothing(tmp_path: Path) -> None:
    job = committed(tmp_path)
    tombstone = tmp_path / "state" / tombstone_path("cleaner")
    tombstone.parent.mkdir()
    tombstone.write_bytes(b"")
    grow(job)
    before = {path.name for path in (tmp_path / "state/shared").iterdir()}
    job.merge("incremental")
    (tmp_path / "state/tombstone/cleaner.json").unlink()
    for name in before:
        (tmp_path / "state/shared" / name).unlink()
    rows, warnings = restored_elsewhere(job, tmp_path, "reader")
    assert (rows, warnings) == (job.state, [])


@pytest.mark.parametrize("harm", ["tables", "no table", "CURRENT", "no CURRENT", "no MANIFEST"])
def test_a_damaged_local_database_is_dropped(tmp_path: Path, harm: str) -> None:
    job = committed(tmp_path)
    directory = Path(job.merge("full")["directory"])
    job.call("release", directory=str(directory))
    pattern = {"tables": "*.sst", "no table": "*.sst", "no MANIFEST": "MANIFEST-*"}.get(harm, "CURRENT")
    for path in directory.glob(pattern):
        if harm == "CURRENT":
            path.write_bytes(path.read_bytes()[:1])
        elif harm == "tables":
            damage(path)
        else:
            path.unlink()
    grow(job)
    with pytest.raises(DamagedError):
        job.merge("full")
    assert "skipped" not in job.merge("full")
    rows, warnings = restored_elsewhere(job, tmp_path, "reader")
    assert (rows, warnings) == (job.state, [])
