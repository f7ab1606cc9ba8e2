from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import awaited

from state_store.core.checkpoint.stored_documents import META_KEY, ColumnFamily, DeltaMetadata
from state_store.core.engine import ROCKSDB_VERSION
from state_store.core.engine.database import (
    Database,
    DatabaseSettings,
    rocksdb_version,
    small_files,
    tidy,
    write_delta,
    written_compression,
)
from state_store.errors import (
    BusyError,
    DamagedError,
    InternalError,
    LocalDiskError,
    StateStoreError,
    StorageError,
)

SETTINGS = DatabaseSettings(threads=1, max_runs=2, size_amplification_percent=1000)


def delta(path: Path, version: int, rows: dict[bytes, bytes | None]) -> Path:
    metadata = DeltaMetadata(version, None, None, len(rows), len(rows), 0, {"default": ColumnFamily(0)})
    size, crc = write_delta(path, sorted(rows.items()), metadata)
    assert (size, crc) == (path.stat().st_size, zlib.crc32(path.read_bytes()))
    return path


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "db").mkdir()
    with Database(tmp_path / "db", SETTINGS, create=True) as made:
        yield made


@pytest.fixture
def filled(database: Database, tmp_path: Path) -> Database:
    """1,000 rows in one delta, changed by three small ones."""
    large = delta(tmp_path / "1.sst", 1, {b"\0\0%04d" % row: os.urandom(60) for row in range(1000)})
    small = [
        delta(tmp_path / f"{n}.sst", n, {b"\0\0%04d" % n: b"new", b"\0\0%04d" % (n * 9): None})
        for n in (2, 3, 4)
    ]
    database.ingest([large, *small])
    return database


def test_ingested_files_keep_their_bytes(database: Database, tmp_path: Path) -> None:
    paths = [delta(tmp_path / f"{n}.sst", n, {b"\0\0a": b"%d" % n}) for n in (1, 2, 3)]
    digests = [hashlib.sha256(path.read_bytes()).digest() for path in paths]
    names = database.ingest(paths)
    assert not any(path.exists() for path in paths)
    assert [hashlib.sha256((database.directory / name).read_bytes()).digest() for name in names] == digests


@pytest.mark.parametrize("reason", ["Operation not permitted", "Function not implemented"])
def test_files_are_copied_where_they_cannot_be_linked(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """RocksDB copies by itself only after two other errors; FAT, exFAT and FUSE have these."""
    first = delta(tmp_path / "first.sst", 1, {b"a": b"1"})
    ingest = Database._ingest

    def refuse_links(own: Database, paths: list[Path], *, moves: bool) -> None:
        if moves:
            raise Exception(f"IO error: while link file to {own.directory}/000008.sst: {first}: {reason}")
        ingest(own, paths, moves=moves)

    monkeypatch.setattr(Database, "_ingest", refuse_links)
    database.ingest([first])
    assert database.get(b"a") == b"1"
    assert first.exists()


def test_later_deltas_win(filled: Database) -> None:
    assert filled.get(b"\0\0" + b"0002") == b"new"
    assert filled.get(b"\0\0" + b"0018") is None
    assert DeltaMetadata.from_json(filled.metadata() or b"", file="x").version == 4


def test_scans_are_ordered_and_bounded(filled: Database) -> None:
    rows = list(filled.scan())
    assert rows == sorted(rows)
    assert len(rows) == 1000 - 3 + 1
    assert rows[-1][0] == META_KEY
    assert [key for key, _ in filled.scan(b"\0\0" + b"0010", b"\0\0" + b"0013")] == [
        b"\0\0" + b"%04d" % number for number in (10, 11, 12)
    ]


def test_no_file_changes_after_a_compaction_that_starts_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction that RocksDB starts as the wait for it ends is awaited: its inputs are deleted later."""

    def until_it_starts(database: Database, _deadline: Callable[[], bool]) -> None:
        for _ in range(1000):
            if database._property("rocksdb.num-running-compactions"):
                return
            time.sleep(0.001)

    monkeypatch.setattr(Database, "_wait_idle", until_it_starts)
    slow = dataclasses.replace(SETTINGS, rate_limit_bytes=5 << 20)
    (tmp_path / "db").mkdir()
    with Database(tmp_path / "db", slow, create=True) as database:
        for version in range(1, 4):
            rows: dict[bytes, bytes | None] = {b"\0\0%05d" % row: os.urandom(60) for row in range(9000)}
            database.ingest([delta(tmp_path / f"{version}.sst", version, rows)])
        before = database.files()
        database.compact_runs()
        assert database._property("rocksdb.num-running-compactions") == 0
        assert database.files() != before


def test_young_runs_are_merged_and_the_large_one_is_left(filled: Database) -> None:
    before = {file.name: file for file in filled.files()}
    largest = max(before.values(), key=lambda file: file.size_bytes).name
    filled.compact_runs()
    after = {file.name for file in filled.files()}
    assert after & before.keys() == {largest}
    assert len(after) == 2
    assert filled.get(b"\0\0" + b"0018") is None


def test_the_large_run_is_left_however_old_it_is(filled: Database) -> None:
    """RocksDB rewrites everything once a file is 30 days old; here a file is old after a second."""
    before = {file.name: file for file in filled.files()}
    largest = max(before.values(), key=lambda file: file.size_bytes).name
    old_s = int(time.time()) + 2
    awaited(lambda: time.time() > old_s, "the files are old")
    filled._db.set_options({"periodic_compaction_seconds": "1", "ttl": "1"})
    filled.compact_runs()
    assert {file.name for file in filled.files()} & before.keys() == {largest}


@pytest.mark.parametrize("compact", [Database.compact_runs, Database.compact_all])
def test_a_full_disk_is_an_error_of_a_compaction(
    filled: Database, compact: Callable[[Database], None]
) -> None:
    """RocksDB does not say so: it repeats such a compaction, or returns as if it had been made."""
    newest = max(int(file.name.partition(".")[0]) for file in filled.files())
    for number in range(newest + 1, newest + 1000):
        (filled.directory / f"{number:06}.sst").symlink_to("/dev/full")
    before = filled.files()
    with pytest.raises(LocalDiskError, match="no room") as failure:
        compact(filled)
    assert failure.value.file == str(filled.directory)
    assert filled.files() == before


@pytest.mark.parametrize("compact", [Database.compact_runs, Database.compact_all])
def test_another_failure_of_a_compaction_is_told_by_its_name(
    filled: Database, compact: Callable[[Database], None]
) -> None:
    newest = max(int(file.name.partition(".")[0]) for file in filled.files())
    for number in range(newest + 1, newest + 1000):
        (filled.directory / f"{number:06}.sst").symlink_to("/nowhere/at/all")
    with pytest.raises(StorageError, match=r"cannot compact .*: No such file or directory"):
        compact(filled)
    filled.close()  # the failure was told, and is not told once more in its place


def test_damage_that_a_compaction_meets_is_damage(filled: Database) -> None:
    largest = filled.directory / max(filled.files(), key=lambda file: file.size_bytes).name
    text = bytearray(largest.read_bytes())
    text[20_000:21_000] = bytes(1000)
    largest.write_bytes(text)
    with pytest.raises(DamagedError, match=r"cannot compact .*checksum mismatch") as failure:
        filled.compact_all()
    assert failure.value.file == str(largest)


def test_a_full_compaction_leaves_no_file_and_no_removed_row(filled: Database) -> None:
    before = {file.name for file in filled.files()}
    for _ in range(2):
        filled.compact_all()
        after = filled.files()
        assert before.isdisjoint(file.name for file in after)
        assert filled.entries() == 1000 - 3 + 1
        before = {file.name for file in after}


@pytest.mark.parametrize("open_files", [-1, 16])
def test_records_are_counted_in_more_files_than_may_be_open(tmp_path: Path, open_files: int) -> None:
    settings = DatabaseSettings(file_bytes=8 << 10, max_open_files=open_files)
    rows = {b"\0\0%06d" % row: os.urandom(100) for row in range(4_000)}
    with Database(tmp_path / "many", settings, create=True) as made:
        made.ingest([delta(tmp_path / "1.sst", 1, rows)])
        assert made.entries() == len(rows) + 1
        made.compact_all()
        assert len(made.files()) > 25
        assert made.entries() == len(rows) + 1


def test_a_closed_database_opens_from_its_small_files_and_ssts(filled: Database, tmp_path: Path) -> None:
    rows = list(filled.scan())
    names = {file.name for file in filled.files()}
    filled.close()
    target = tmp_path / "copy"
    target.mkdir()
    for name, data in small_files(filled.directory).items():
        (target / name).write_bytes(data)
    for name in names:
        os.link(filled.directory / name, target / name)
    with Database(target, SETTINGS) as copy:
        assert list(copy.scan()) == rows
    tidy(filled.directory, names)
    left = {path.name.partition("-")[0] for path in filled.directory.iterdir()} - names
    assert left == {"CURRENT", "MANIFEST", "OPTIONS"}
    with Database(filled.directory, SETTINGS) as again:
        assert list(again.scan()) == rows


def test_tables_are_as_the_format_says(filled: Database) -> None:
    ssts = [filled.directory / file.name for file in filled.files()]
    filled.close()
    (text,) = [data for name, data in small_files(filled.directory).items() if name.startswith("OPTIONS")]
    assert rocksdb_version(text) == ROCKSDB_VERSION
    assert b"format_version=5" in text
    assert all(b"fullfilter.rocksdb.BuiltinBloomFilter" in path.read_bytes() for path in ssts)
    assert b"comparator=leveldb.BytewiseComparator" in text
    assert b"whole_key_filtering=true" in text


def test_values_of_any_size_are_ingested(database: Database, tmp_path: Path) -> None:
    rows: dict[bytes, bytes | None] = {
        b"\0\0": b"",
        b"\0\0big": os.urandom(64 << 20),
        b"\0\0" + bytes(300): b"x",
    }
    database.ingest([delta(tmp_path / "1.sst", 1, rows)])
    assert {key: value for key, value in database.scan() if key != META_KEY} == rows


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: bytes(len(data)),
        lambda data: b"not an sst",
    ],
)
def test_a_damaged_delta_is_refused_as_damaged(
    database: Database, tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    good, bad = (delta(tmp_path / f"{n}.sst", n, {b"\0\0%d" % n: b"1"}) for n in (1, 2))
    bad.write_bytes(harm(bad.read_bytes()))
    with pytest.raises(StateStoreError) as failure:
        database.ingest([good, bad])
    assert failure.value.kind == "damaged", failure.value.message
    assert database.files() == []


def test_a_scan_says_where_a_block_is_corrupt(filled: Database, tmp_path: Path) -> None:
    filled.compact_all()
    (file,) = filled.files()
    filled.close()
    path = filled.directory / file.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with Database(filled.directory, SETTINGS) as again, pytest.raises(DamagedError, match=file.name):
        list(again.scan())


def test_a_scan_keeps_no_files_open_after_the_database(filled: Database) -> None:
    scan = filled.scan()
    next(scan)
    assert open_tables(filled)
    filled.close()
    assert open_tables(filled) == []
    with pytest.raises(InternalError, match="was closed before the end of a scan"):
        next(scan)


def test_the_error_of_a_scan_keeps_no_files_open(filled: Database, tmp_path: Path) -> None:
    path = filled.directory / filled.files()[0].name
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    filled.close()
    path.unlink()
    path.write_bytes(data)
    with Database(filled.directory, SETTINGS) as again, pytest.raises(DamagedError) as failed:
        list(again.scan())
    assert failed.value.__traceback__ is not None
    assert open_tables(filled) == []


def open_tables(database: Database) -> list[str]:
    """Return the tables of a database that this process has open."""
    places: list[str] = []
    for number in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing itself
            places.append(str(number.readlink()))
    return [place for place in places if place.startswith(f"{database.directory}/") and ".sst" in place]


def test_a_directory_that_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StateStoreError) as failure:
        Database(tmp_path / "nothing", SETTINGS)
    assert str(tmp_path) in failure.value.message


def test_a_missing_sst_is_named(filled: Database) -> None:
    name = filled.files()[0].name
    filled.close()
    (filled.directory / name).unlink()
    with pytest.raises((DamagedError, StorageError), match=name):
        Database(filled.directory, SETTINGS)


def test_two_cannot_open_one_directory(database: Database) -> None:
    with pytest.raises(BusyError):
        Database(database.directory, SETTINGS)


def rows_of(count: int) -> dict[bytes, bytes | None]:
    return {b"\0\0%06d" % row: b"value " * 20 for row in range(count)}


def total_bytes(database: Database) -> int:
    return sum(file.size_bytes for file in database.files())


@pytest.mark.parametrize(("first", "then", "smaller"), [("none", "lz4", True), ("lz4", "none", False)])
def test_settings_hold_for_a_database_that_was_written_with_others(
    tmp_path: Path, first: str, then: str, smaller: bool
) -> None:
    directory = tmp_path / "db"
    directory.mkdir()
    with Database(directory, DatabaseSettings(compression=first), create=True) as database:
        database.ingest([delta(tmp_path / "1.sst", 1, rows_of(3000))])
        database.compact_all()
        before = total_bytes(database)
        assert len(database.files()) == 1
    assert written_compression(directory) == first
    with Database(directory, DatabaseSettings(compression=then, file_bytes=4 << 10)) as database:
        database.compact_all()
        assert (total_bytes(database) < before / 2) is smaller
        assert (total_bytes(database) > before * 2) is not smaller
        assert len(database.files()) > 1
    assert written_compression(directory) == then


def test_without_compression_a_database_stays_as_it_was(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    directory.mkdir()
    with Database(directory, DatabaseSettings(compression="lz4"), create=True) as database:
        database.ingest([delta(tmp_path / "1.sst", 1, rows_of(3000))])
        database.compact_all()
        before = total_bytes(database)
    with Database(directory, DatabaseSettings()) as database:
        database.compact_all()
        assert total_bytes(database) == pytest.approx(before, rel=0.1)
    with Database(tmp_path / "new", DatabaseSettings(), create=True):
        pass
    assert written_compression(tmp_path / "new") == "none"


def test_the_newest_options_are_those_with_the_highest_number(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_text("MANIFEST-1000001\n")
    (tmp_path / "MANIFEST-1000001").write_bytes(b"")
    (tmp_path / "OPTIONS-999999").write_bytes(b"older")
    (tmp_path / "OPTIONS-1000003").write_bytes(b"newer")
    assert small_files(tmp_path)["OPTIONS-1000003"] == b"newer"
    tidy(tmp_path, set())
    assert {path.name for path in tmp_path.iterdir()} == {"CURRENT", "MANIFEST-1000001", "OPTIONS-1000003"}


@pytest.mark.parametrize(("idle_looks", "is_awaited"), [(0, True), (60, True), (1000, False)])
def test_a_pending_compaction_is_awaited_unless_it_is_declined(
    database: Database, monkeypatch: pytest.MonkeyPatch, idle_looks: int, is_awaited: bool
) -> None:
    """RocksDB's threads may be late, and a compaction that it declines is pending for ever."""
    running = [*[0] * idle_looks, 1, 1]
    looks = {"rocksdb.num-running-compactions": running, "rocksdb.compaction-pending": [1] * idle_looks}
    monkeypatch.setattr(database, "_property", lambda name: looks[name].pop(0) if looks.get(name) else 0)
    monkeypatch.setattr(database, "_pause", lambda deadline: None)
    database._wait_idle(lambda: False)
    assert (running == []) is is_awaited
