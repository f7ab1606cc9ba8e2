"""Restores from damaged, truncated, missing and local files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from agent.harness import InProcess, Job, rows_of

from state_store.core.checkpoint.names import VersionId
from state_store.core.snapshots.restore import restore
from state_store.errors import DamagedError, FormatError, MissingError, StateStoreError


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x10
    replace(path, bytes(data))


def truncate(path: Path) -> None:
    replace(path, path.read_bytes()[:-7])


def replace(path: Path, data: bytes) -> None:
    """Give `path` other bytes without touching its hard links."""
    path.unlink()
    path.write_bytes(data)


def empty(path: Path) -> None:
    replace(path, b"")


HARM: dict[str, Callable[[Path], None]] = {
    "flipped": flip_a_bit,
    "truncated": truncate,
    "empty": empty,
    "missing": Path.unlink,
}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Versions 1 to 12; a full snapshot at 4, an incremental one at 8 that shares a file with it."""
    made = Job(
        InProcess(tmp_path / "writer", max_runs=2, size_amplification_percent=1000), tmp_path / "state"
    )
    for version in range(1, 13):
        rows = 300 if version <= 4 else 10
        made.commit({b"\0\0%02d-%03d" % (version, row): os.urandom(60) for row in range(rows)})
        if version == 4:
            made.merge("full")
        if version == 8:
            assert made.merge()["shared_files"] > 0
    return made


def reader(job: Job, directory: Path) -> Job:
    """Another executor without local files."""
    other = Job(InProcess(directory), job.location)
    other.versions = job.versions
    return other


def stored(job: Job, pattern: str) -> Path:
    (path,) = job.location.glob(pattern)
    return path


def test_any_version_is_restored_exactly(job: Job, tmp_path: Path) -> None:
    other = reader(job, tmp_path / "reader")
    for version in (12, 1, 4, 5, 8, 3, 12):
        answer = other.restore(version)
        assert rows_of(answer) == job.versions[version][1]
        assert answer["warnings"] == []


def test_a_restore_starts_from_exactly_the_requested_snapshot(job: Job, tmp_path: Path) -> None:
    other = reader(job, tmp_path / "reader")
    for start in (4, 8):
        answer = other.call(
            "restore", version=10, id=job.versions[10][0], from_version=start, from_id=job.versions[start][0]
        )
        assert (answer["snapshot_version"], answer["deltas"]) == (start, 10 - start)
        assert rows_of(answer) == job.versions[10][1]
    answer = other.call("restore", version=10, id=job.versions[10][0], from_version=4)
    assert answer["snapshot_version"] == 4, "the number alone stands for the version on the lineage"
    with pytest.raises(MissingError, match="snapshots there are: 4"):
        other.call("restore", version=10, id=job.versions[10][0], from_version=6, from_id=job.versions[6][0])


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("pattern", [f"snapshot/{8:020d}_*.zip", "shared/*008-*.sst"])
def test_an_older_snapshot_serves_with_more_deltas(job: Job, tmp_path: Path, harm: str, pattern: str) -> None:
    path = stored(job, pattern)
    HARM[harm](path)
    answer = reader(job, tmp_path / "reader").restore(12)
    assert rows_of(answer) == job.state
    assert (answer["snapshot_version"], answer["deltas"]) == (4, 8)
    if not (harm == "missing" and "snapshot" in pattern):
        (warning,) = answer["warnings"]
        assert path.name in warning


@pytest.mark.parametrize("harm", HARM)
def test_a_delta_that_is_needed_is_named(job: Job, tmp_path: Path, harm: str) -> None:
    path = stored(job, f"delta/{10:020d}_*.sst")
    HARM[harm](path)
    with pytest.raises((DamagedError, MissingError)) as failure:
        reader(job, tmp_path / "reader").restore(12)
    error = failure.value
    assert error.kind == ("missing" if harm == "missing" else "damaged")
    assert "10" in Path(error.file).name[:20]
    assert error.message.endswith("versions that can be restored: 1 to 9")
    assert rows_of(reader(job, tmp_path / "again").restore(9)) == job.versions[9][1]


SNAPSHOTS = [f"snapshot/{8:020d}_*.zip", f"snapshot/{4:020d}_*.zip"]
EARLY_DELTA = f"delta/{2:020d}_*.sst"


@pytest.mark.parametrize("harm", HARM)
def test_the_delta_that_is_needed_without_snapshots_is_named(job: Job, tmp_path: Path, harm: str) -> None:
    for pattern in (*SNAPSHOTS, EARLY_DELTA):
        HARM[harm](stored(job, pattern))
    with pytest.raises(StateStoreError) as failure:
        reader(job, tmp_path / "reader").restore(12)
    assert failure.value.kind == ("missing" if harm == "missing" else "damaged")
    assert Path(failure.value.file).name.startswith(f"{2:020d}_")
    assert failure.value.message.endswith("versions that can be restored: 1")


def test_the_damaged_snapshot_is_named_if_nothing_is_there_in_its_place(job: Job, tmp_path: Path) -> None:
    newest, older = (stored(job, pattern) for pattern in SNAPSHOTS)
    HARM["flipped"](newest)
    HARM["missing"](older)
    HARM["missing"](stored(job, EARLY_DELTA))
    with pytest.raises(DamagedError, match="without that snapshot, ") as failure:
        reader(job, tmp_path / "reader").restore(12)
    assert Path(failure.value.file).name == newest.name


def test_a_delta_in_a_snapshots_place_is_noticed(job: Job, tmp_path: Path) -> None:
    """A file that is whole, but another."""
    first, two = stored(job, f"delta/{9:020d}_*.sst"), stored(job, f"delta/{10:020d}_*.sst")
    replace(two, first.read_bytes())
    with pytest.raises(DamagedError):
        reader(job, tmp_path / "reader").restore(12)


def test_a_delta_that_says_that_it_is_another_version_is_damaged(job: Job, tmp_path: Path) -> None:
    """Whole, and with the checksum that its name gives."""
    nine, ten = stored(job, f"delta/{9:020d}_*.sst"), stored(job, f"delta/{10:020d}_*.sst")
    renamed = ten.with_name(f"{ten.stem[:-8]}{nine.stem[-8:]}.sst")
    ten.unlink()
    renamed.write_bytes(nine.read_bytes())
    with pytest.raises(DamagedError, match=r"it says that it is version 9 .*, not 10") as failure:
        restore(reader(job, tmp_path / "reader").open_store.context, VersionId(10, job.versions[10][0]))
    assert Path(failure.value.file).name == renamed.name


def test_a_newer_format_is_refused_by_name(job: Job, tmp_path: Path) -> None:
    import zipfile

    path = stored(job, f"snapshot/{8:020d}_*.zip")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["manifest.json"] = members["manifest.json"].replace(b'"format":1', b'"format":2')
    path.unlink()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(FormatError, match=path.name):
        reader(job, tmp_path / "reader").restore(12)


def test_local_files_are_linked_and_not_read_again(job: Job, tmp_path: Path) -> None:
    other = reader(job, tmp_path / "reader")
    first, second = other.restore(12), other.restore(12)
    assert (first["local_files"], second["fetched_files"]) == (0, 0)
    assert second["local_files"] == first["fetched_files"] > 0
    assert rows_of(second) == job.state
    other.call("close")
    third = reader(job, tmp_path / "reader").restore(12)
    assert third["fetched_files"] == 0


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_local_file_is_read_again(job: Job, tmp_path: Path, harm: str) -> None:
    other = reader(job, tmp_path / "reader")
    other.restore(12)
    kept = sorted((tmp_path / "reader" / "kept").rglob("*.sst"))
    assert len(kept) > 4
    for path in kept:
        HARM[harm](path)
    answer = other.restore(12)
    assert rows_of(answer) == job.state
    if harm != "missing":
        assert len(answer["warnings"]) == len(kept)
        assert other.restore(12)["warnings"] == []


def reader_of(job: Job, directory: Path, **options: str) -> Job:
    """Another machine that has read version 12 and then cleaned up."""
    reader = Job(InProcess(directory), job.location, **options)
    reader.versions = job.versions
    reader.restore(12)
    reader.cleanup()
    return reader


def kept_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / "kept").rglob("*.sst"))


def test_kept_files_stay_below_their_budget(job: Job, tmp_path: Path) -> None:
    reader_of(job, tmp_path / "roomy")
    everything = kept_bytes(tmp_path / "roomy")
    short = reader_of(job, tmp_path / "short", localRecoveryBudget=str(everything - 1))
    assert 0 < kept_bytes(tmp_path / "short") < everything
    assert rows_of(short.restore(12)) == job.state


def test_without_local_recovery_nothing_is_kept_after_the_end(job: Job, tmp_path: Path) -> None:
    other = Job(InProcess(tmp_path / "reader"), job.location, localRecovery="false")
    other.versions = job.versions
    other.restore(12)
    other.call("close")
    assert not list((tmp_path / "reader").rglob("*.sst"))


def test_without_local_recovery_no_file_of_another_provider_is_read(job: Job, tmp_path: Path) -> None:
    client = InProcess(tmp_path / "executor")
    for number in range(2):
        provider = Job(client, job.location, localRecovery="false")
        provider.versions = job.versions
        if number == 1:
            for path in Path(job.location).rglob("*.sst"):
                damaged = path.read_bytes()[:-100]
                path.unlink()
                path.write_bytes(damaged)
            with pytest.raises(StateStoreError):
                provider.restore(12)
        else:
            provider.restore(12)


def test_a_missing_version_is_refused_with_those_that_can_be_restored(job: Job, tmp_path: Path) -> None:
    other = reader(job, tmp_path / "reader")
    with pytest.raises(
        MissingError, match=r"version 13 .* cannot be restored.*versions that can be restored"
    ):
        other.call("restore", version=13, id="nobody")
    with pytest.raises(MissingError, match=r"12_nobody"):
        other.call("restore", version=12, id="nobody")


def test_version_0_is_empty(tmp_path: Path) -> None:
    other = Job(InProcess(tmp_path / "reader"), tmp_path / "state")
    answer = other.call("restore", version=0, id=None)
    assert rows_of(answer) == {}
    assert answer["keys"] == 0


def test_a_failed_restore_leaves_no_directory(job: Job, tmp_path: Path) -> None:
    stored(job, f"delta/{10:020d}_*.sst").unlink()
    other = reader(job, tmp_path / "reader")
    with pytest.raises(MissingError):
        other.restore(12)
    assert not list(Path(other.opened["incoming"]).parent.glob("base-*"))
    assert not list(Path(other.opened["incoming"]).parent.glob("scratch*"))


def test_a_short_download_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Job(InProcess(tmp_path / "writer"), tmp_path / "state")
    writer.commit({b"\0\0a": b"1" * 1000})
    reader = Job(InProcess(tmp_path / "reader"), tmp_path / "state")
    reader.versions = writer.versions
    storage = reader.open_store.context.storage
    real, cut = storage.download, iter([True])

    def short(path: str, local: Path) -> None:
        real(path, local)
        if next(cut, False):
            data = local.read_bytes()
            local.unlink()
            local.write_bytes(data[: len(data) // 2])

    monkeypatch.setattr(storage, "download", short)
    answer = reader.restore(1)
    assert rows_of(answer) == writer.versions[1][1]
    (warning,) = answer["warnings"]
    assert "first download of" in warning
