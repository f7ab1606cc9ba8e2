"""RocksDB: the settings of its databases, its errors as ours, a database, and writers of tables.

Settings that both planes rely on are fixed (docs/format.md): block-based tables of `format_version` 5, full
bloom filters of 10 bits over whole keys, the bytewise comparator. The others were measured (docs/decisions).

A `Database` opens, ingests, compacts and reads. It belongs to one thread at a time; rocksdict lets other
threads run while it ingests or compacts. RocksDB compacts in threads of its own, by the system's clock: no
other runtime reaches them. The directory is private to the database: open a hard-linked copy of files that
others use, since opening writes small files beside them (the SST files themselves are never modified: an
ingested one keeps its bytes).

`write_delta` and `TableWriter` write tables without a database.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

from state_store.core.checkpoint.stored_documents import META_KEY, DeltaMetadata
from state_store.core.engine.table import number_of_records
from state_store.core.files.transfer import crc32_of
from state_store.core.runtime import SYSTEM, Closing, Running
from state_store.core.storage.local_disk import code_in, remedy
from state_store.errors import (
    BusyError,
    DamagedError,
    InternalError,
    LocalDiskError,
    StateStoreError,
    StorageError,
)

FORMAT_VERSION = 5
BLOOM_BITS_PER_KEY = 10
SIZE_RATIO_PERCENT = 20
"""Percent by which a sorted run may exceed the younger ones together and still be compacted with them."""

FILES_OF_A_STORE = 32
"""Files of the usual size that the merges of a store have together, once that is large."""
MAX_FILE_BYTES = 512 << 20

_NEVER_STALL = 1 << 30

_IDLE_POLL_S = 0.002
_IDLE_LOOKS = 100
"""Looks in a row, each after `_IDLE_POLL_S`, that see a compaction pending and none running, after which it
is declined. Looks and not seconds: RocksDB's threads compete with this one for processors, so that on a
busy machine both take longer."""
_DEADLINE_POLL_S = 0.5
_ANY_PERCENT = 1_000_000
"""Percentage that no ratio of sizes of runs reaches."""

_BY_SIZE = {"disable_auto_compactions": "false", "periodic_compaction_seconds": "0", "ttl": "0"}
"""Options with which RocksDB compacts, but not everything as soon as one file is 30 days old."""

_NO_LINK = "while link file to"
"""Words of RocksDB where a file system cannot link. Of its own it copies only after EXDEV and ENOTSUP."""

_LACKING = re.compile(r"while lock file|while fsync: a directory", re.IGNORECASE)
"""Words of RocksDB about what some network file systems and FUSE do not have."""

_LACKED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_SST = re.compile(r"[\w./-]*?(\d{6,}\.sst)")


@dataclass(frozen=True)
class DatabaseSettings:
    """Settings with which databases are written. Immutable; safe for any thread.

    Attributes:
        compression: `none`, `lz4`, or None: as the database was written last, `none` for a new one.
        block_bytes: bytes of a data block.
        file_bytes: bytes of a table at which the next one is begun, in a small store.
        threads: threads of a compaction.
        max_runs: sorted runs above which an incremental merge compacts.
        size_amplification_percent: size of all younger runs, in percent of the oldest, at which everything
            is rewritten.
        rate_limit_bytes: bytes per second that compactions write at most; 0: no limit.
        max_open_files: tables that an open database keeps open at most; -1: all.
        keeps_indexes: indexes and filters are in memory as long as their tables are open; False: they share
            the cache of blocks, for those who look up no keys.
    """

    compression: str | None = None
    block_bytes: int = 4 << 10
    file_bytes: int = 32 << 20
    threads: int = 2
    max_runs: int = 4
    size_amplification_percent: int = 80
    rate_limit_bytes: int = 0
    max_open_files: int = -1
    keeps_indexes: bool = True

    def for_store(self, size_bytes: int) -> DatabaseSettings:
        """Return the settings with which a store of this size is merged: the larger, the larger its files."""
        by_size = min(size_bytes // FILES_OF_A_STORE, MAX_FILE_BYTES)
        return replace(self, file_bytes=max(self.file_bytes, by_size))


def rocks_options(settings: DatabaseSettings, *, create: bool = False) -> Any:
    """Return the `rocksdict.Options` of a database or an SST writer, with automatic compaction off."""
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_block_based_table_factory(_table_options(settings))
    options.set_compression_type(getattr(rocksdict.DBCompressionType, settings.compression or "none")())
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    options.set_universal_compaction_options(_universal_options(settings))
    options.set_level_zero_file_num_compaction_trigger(settings.max_runs)
    options.set_level_zero_slowdown_writes_trigger(_NEVER_STALL)
    options.set_level_zero_stop_writes_trigger(_NEVER_STALL)
    options.set_target_file_size_base(settings.file_bytes)
    options.set_disable_auto_compactions(True)
    options.set_max_background_jobs(max(2, settings.threads))
    options.set_max_subcompactions(settings.threads)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_skip_stats_update_on_db_open(True)
    options.set_max_open_files(settings.max_open_files)
    if settings.rate_limit_bytes:
        options.set_ratelimiter(settings.rate_limit_bytes, 100_000, 10)
    return options


def _table_options(settings: DatabaseSettings) -> Any:
    import rocksdict

    table = rocksdict.BlockBasedOptions()
    table.set_format_version(FORMAT_VERSION)
    table.set_checksum_type(rocksdict.ChecksumType.crc32c())  # the data plane verifies it in hardware
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
    table.set_block_size(settings.block_bytes)
    table.set_block_cache(rocksdict.Cache(4 << 20))
    table.set_cache_index_and_filter_blocks(not settings.keeps_indexes)
    return table


def _universal_options(settings: DatabaseSettings) -> Any:
    import rocksdict

    universal = rocksdict.UniversalCompactOptions()
    universal.size_ratio = SIZE_RATIO_PERCENT
    universal.min_merge_width = 2
    universal.max_size_amplification_percent = settings.size_amplification_percent
    return universal


@contextmanager
def translated(action: str, directory: str) -> Iterator[None]:
    """Turn exceptions of rocksdict in the block into errors that name the database, or the file in it.

    Args:
        action: the verb of the message, such as "open".
        directory: the directory of the database, or the file.

    Raises:
        DamagedError: For a corruption.
        LocalDiskError: For a disk that is full or cannot be written.
        StorageError: For another input/output error.
        BusyError: For a lock or a cancelled compaction.
        InternalError: For anything else.
    """
    try:
        yield
    except StateStoreError:
        raise
    except Exception as error:
        raise _translate(action, directory, str(error)) from error


def _translate(action: str, directory: str, text: str) -> StateStoreError:
    table_match = _SST.search(text)
    file = f"{directory}/{table_match[1]}" if table_match else directory
    message = f"cannot {action} '{file}': RocksDB says: {text}"
    status = text.partition(":")[0].strip().lower()
    if status == "corruption" or "corrupt" in text.lower() or "checksum mismatch" in text.lower():
        return DamagedError(message, file=file)
    if status == "invalid argument" and ("does not exist" in text or "not an sstable" in text):
        return DamagedError(message, file=file)
    if _LACKING.search(text) and any(os.strerror(code) in text for code in _LACKED):
        needed = "the file system of local files has to have locks, and to sync directories"
        return LocalDiskError(f"{message} ({needed}: {remedy(None)})", file=file)
    code = code_in(text)
    if code is not None and code != errno.ENOENT:
        return LocalDiskError(f"{message} ({remedy(code)})", file=file)
    if status == "io error" and "lock" in text.lower():
        return BusyError(message, file=file)
    if status in ("io error", "no space", "not found") or "No such file" in text:
        return StorageError(message, file=file)
    if status in ("operation aborted", "shutdown in progress", "resource busy", "operation timed out"):
        return BusyError(message, file=file)
    return InternalError(message, file=file)


@dataclass(frozen=True)
class TableFile:
    """An SST of a database: file `name` there, LSM `level` (0 to 6), size."""

    name: str
    level: int
    size_bytes: int


class _Cursor:
    """A scan's place in a database. It keeps the database's files open for as long as it has an iterator.

    `options` has the bytes of the scan's end, to which RocksDB's iterator points.
    """

    def __init__(self, iterator: Any, options: Any) -> None:
        self.iterator = iterator
        self.options = options


class _Ended:
    """The iterator of a scan whose database was closed."""

    def next(self) -> None:
        raise InternalError("the database was closed before the end of a scan")


class Database(Closing):
    """An open database; a context manager that closes it. Every method raises as `translated`.

    Scans that have not ended keep no files open once it is closed.
    """

    def __init__(self, directory: Path, settings: DatabaseSettings, *, create: bool = False) -> None:
        import rocksdict

        self.directory = directory
        self._cancelled = self._closed = self._has_failed = False
        self._cursors: WeakSet[_Cursor] = WeakSet()
        if settings.compression is None and not create:
            settings = replace(settings, compression=written_compression(directory))
        options = rocks_options(settings, create=create)
        with translated("open", str(directory)):
            # Without column_families rocksdict takes most settings from the OPTIONS file, not from `options`.
            self._db = rocksdict.Rdict(str(directory), options, column_families={"default": options})

    def close(self) -> None:
        """Stop compactions and close the database; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for cursor in self._cursors:
            cursor.iterator = _Ended()
        try:
            with translated("close", str(self.directory)):
                self._db.close()
        except BusyError:
            if not self._cancelled:  # a cancelled database does not sync what it never had
                raise
        except StateStoreError:
            if not self._has_failed:  # it repeats why a compaction has failed, which was told
                raise

    def ingest(self, paths: Sequence[Path]) -> list[str]:
        """Add SST files, oldest first, by moving them into the directory, or copying them without hard links.

        On failure none of them is part of the database.

        Returns:
            Their new names, in the same order.
        """
        if not paths:
            return []
        before = {file.name for file in self.files()}
        sizes = [path.stat().st_size for path in paths]
        with translated("ingest into", str(self.directory)):
            try:
                self._ingest(paths, moves=True)
            except Exception as error:
                if _NO_LINK not in str(error):
                    raise
                self._ingest(paths, moves=False)
        added = sorted(
            (file for file in self.files() if file.name not in before),
            key=lambda file: table_number(file.name),
        )
        if [file.size_bytes for file in added] != sizes:
            raise DamagedError(
                f"'{self.directory}' did not take the {len(paths)} files it was given: sizes {sizes} became "
                f"{[file.size_bytes for file in added]}",
                file=str(self.directory),
            )
        return [file.name for file in added]

    def _ingest(self, paths: Sequence[Path], *, moves: bool) -> None:
        import rocksdict

        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(moves)
        self._db.ingest_external_file([str(path) for path in paths], options)

    def compact_runs(self, *, deadline: Callable[[], bool] = lambda: False) -> None:
        """Let RocksDB compact young sorted runs, or all runs if the young ones have outgrown the oldest.

        Raises:
            BusyError: If `deadline()` returns true before the end.
            LocalDiskError: If the disk is full.
            StateStoreError: As `translated`, for another failure of a compaction.
        """
        with translated("compact", str(self.directory)):
            self._db.set_options(_BY_SIZE)
            try:
                self._wait_idle(deadline)
            finally:
                self._db.set_options({"disable_auto_compactions": "true"})
            # A pending compaction may have started as its grace ended; its inputs are deleted when it ends.
            while self._property("rocksdb.num-running-compactions"):
                self._pause(deadline)
            self._check_compacted()

    def compact_newest(self, count: int, *, deadline: Callable[[], bool] = lambda: False) -> None:
        """Let RocksDB compact so many of the newest sorted runs, two at least, to one, and no other run.

        Raises:
            BusyError: If `deadline()` returns true before the end.
        """
        others = len(self.runs()) - count
        universal = (
            f"size_ratio={_ANY_PERCENT};max_size_amplification_percent={_ANY_PERCENT};"
            f"min_merge_width={count};max_merge_width={count};"
        )
        options = {
            "compaction_options_universal": "{" + universal + "}",
            "level0_file_num_compaction_trigger": str(others + 2),
        }
        with translated("compact", str(self.directory)):
            self._db.set_options(options)
        self.compact_runs(deadline=deadline)

    def compact_all(self, *, deadline: Callable[[], bool] = lambda: False) -> None:
        """Rewrite all records into new files of the oldest run, without removed keys.

        Raises:
            BusyError: If `deadline()` returns true before the end.
            LocalDiskError: If the disk is full.
            StateStoreError: As `translated`, for another failure of a compaction.
        """
        import rocksdict

        options = rocksdict.CompactOptions()
        options.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force())
        with translated("compact", str(self.directory)), self._watched(deadline):
            self._db.compact_range(None, None, options)
        self._check_compacted()

    @contextmanager
    def _watched(self, deadline: Callable[[], bool]) -> Iterator[None]:
        """Cancel the compaction that runs in the block once `deadline()` returns true."""
        is_over, changed = False, SYSTEM.condition()

        def watch() -> None:
            with changed:
                while not changed.wait_for(lambda: is_over, _DEADLINE_POLL_S):
                    if deadline():
                        self._cancel(wait=False)
                        return

        watcher: Running | None = None
        try:
            watcher = SYSTEM.start(watch, name="merge-deadline")
            yield
        except Exception as error:
            if self._cancelled:
                raise self._too_long() from error
            raise
        finally:
            with changed:
                is_over = True
                changed.notify_all()
            if watcher is not None:
                watcher.join()
        if self._cancelled:
            raise self._too_long()

    def files(self) -> list[TableFile]:
        """Return the live SST files, by name."""
        with translated("list", str(self.directory)):
            tables = [
                TableFile(listed["name"].lstrip("/"), listed["level"], listed["size"])
                for listed in self._db.live_files()
            ]
        return sorted(tables, key=lambda file: table_number(file.name))

    def entries(self) -> int:
        """Return the number of records in all files, by what each file says.

        RocksDB's own numbers are 0 for all but 20 files if it may not keep all open.
        """
        return sum(number_of_records(self.directory / file.name) for file in self.files())

    def get(self, key: bytes) -> bytes | None:
        """Return the value of the key, or None."""
        with translated("read", str(self.directory)):
            value: bytes | None = self._db.get(key)
            return value

    def look_up(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None, str]]:
        """Yield each key with its value, or None, and with RocksDB's message if it cannot be read.

        Where many blocks are missing, errors of this package would take most of the time.
        """
        get = self._db.get
        for key in keys:
            value, message = None, ""
            try:
                value = get(key)
            except Exception as error:
                message = str(error)
            yield key, value, message

    def metadata(self) -> bytes | None:
        """Return the value of the newest delta's reserved record, or None in an empty database."""
        return self.get(META_KEY)

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Return keys and values from `start` up to `end` (excluded; None: all), in order, as they are now.

        The reserved record is among them.

        Raises:
            DamagedError: At a corrupt block; the scan never just ends early.
            InternalError: If the database was closed meanwhile.
        """
        import rocksdict

        options = rocksdict.ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        with translated("scan", str(self.directory)):
            cursor = _Cursor(self._db.iter(options), options)
            cursor.iterator.seek(start)
        self._cursors.add(cursor)
        return self._rest(cursor)

    def _rest(self, cursor: _Cursor) -> Iterator[tuple[bytes, bytes]]:
        with translated("scan", str(self.directory)):
            try:
                while cursor.iterator.valid():
                    yield cursor.iterator.key(), cursor.iterator.value()
                    cursor.iterator.next()
                cursor.iterator.status()
            finally:
                cursor.iterator = None  # an error that is kept would keep it, too
                self._cursors.discard(cursor)

    def runs(self) -> list[list[TableFile]]:
        """Return the sorted runs, newest first: each file of level 0, then each level in key order."""
        with translated("list", str(self.directory)):
            listed = self._db.live_files()  # RocksDB lists level after level, and in level 0 the newest first
        files = {file.name: file for file in self.files()}
        runs: list[list[TableFile]] = []
        for table in listed:
            file = files[table["name"].lstrip("/")]
            if file.level and runs and runs[-1][0].level == file.level:
                runs[-1].append(file)
            else:
                runs.append([file])
        return runs

    def _wait_idle(self, deadline: Callable[[], bool]) -> None:
        """Wait until no compaction runs and none is pending.

        RocksDB may decline a pending one for good, which looks like one that never starts. A late one that is
        taken for declined is waited for by the caller, or left to the next merge.
        """
        idle_looks = 0
        while idle_looks <= _IDLE_LOOKS:
            self._check_compacted()
            if self._property("rocksdb.num-running-compactions"):
                idle_looks = 0
            elif not self._property("rocksdb.compaction-pending"):
                return
            self._pause(deadline)
            idle_looks += 1

    def _pause(self, deadline: Callable[[], bool]) -> None:
        """Sleep until the next look at compactions; past the deadline cancel them, and raise BusyError."""
        if deadline():
            self._cancel(wait=True)
            raise self._too_long()
        SYSTEM.sleep(_IDLE_POLL_S)

    def _check_compacted(self) -> None:
        """Raise the error of a compaction that has failed: RocksDB returns as if it had been made.

        After other failures than a full disk RocksDB stops, and every write has the reason, a flush of
        nothing as well. Only a full disk it takes for one that has room again soon, and goes on.

        Raises:
            LocalDiskError: If the disk is full.
            StateStoreError: As `translated`, for another failure.
        """
        if not self._property("rocksdb.background-errors"):
            return
        self._has_failed = True
        with translated("compact", str(self.directory)):
            self._db.flush()
        raise LocalDiskError(
            f"cannot compact '{self.directory}': the disk has no room for the result "
            f"({remedy(errno.ENOSPC)})",
            file=str(self.directory),
        )

    def _cancel(self, *, wait: bool) -> None:
        self._cancelled = True
        self._db.cancel_all_background(wait)

    def _too_long(self) -> BusyError:
        return BusyError(
            f"the compaction of '{self.directory}' was given up: it took longer than mergeTimeout"
        )

    def _property(self, name: str) -> int:
        return int(self._db.property_int_value(name) or 0)


def small_files(directory: Path) -> dict[str, bytes]:
    """Return RocksDB's own files of a closed database by name.

    Those are `CURRENT`, the `MANIFEST-*` that it names, and the newest `OPTIONS-*`.

    Raises:
        DamagedError: If one of them is missing.
    """
    try:
        current = (directory / "CURRENT").read_bytes()
        manifest = current.decode("ascii").strip()
        options = _newest_options(directory)
        names = ["CURRENT", manifest, *([options.name] if options else [])]
        return {name: (directory / name).read_bytes() for name in names}
    except (FileNotFoundError, IsADirectoryError, ValueError) as error:
        raise DamagedError(
            f"the database '{directory}' is damaged: its CURRENT or the file that it names cannot be read "
            f"({error})",
            file=str(directory),
        ) from error


def tidy(directory: Path, tables: set[str]) -> None:
    """Delete all files of a closed database's directory except RocksDB's own and the SSTs `tables`."""
    keep = {"CURRENT", *tables}
    manifest = (directory / "CURRENT").read_text("ascii").strip()
    options = _newest_options(directory)
    for path in directory.iterdir():
        if path.name not in keep | {manifest} and path != options:
            path.unlink()


def rocksdb_version(options_file: bytes) -> str:
    """Return the version of RocksDB that wrote an `OPTIONS-*` file; empty if the file does not say."""
    version_match = re.search(rb"rocksdb_version=([\d.]+)", options_file)
    return version_match[1].decode("ascii") if version_match else ""


def written_compression(directory: Path) -> str:
    """Return the `DatabaseSettings.compression` with which a closed database was written last."""
    options = _newest_options(directory)
    text = options.read_bytes() if options else b""
    compression_match = re.search(rb"^\s*compression=k(\w+)Compression", text, re.MULTILINE)
    return "lz4" if compression_match and compression_match[1] == b"LZ4" else "none"


def _newest_options(directory: Path) -> Path | None:
    """Return the `OPTIONS-*` file with the highest number; numbers have six digits or more."""
    options_files = [path for path in directory.glob("OPTIONS-*") if path.name.rpartition("-")[2].isdigit()]
    return max(options_files, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def table_number(name: str) -> int:
    """Return the number in the name of an SST of a database, such as `000012.sst`."""
    return int(name.partition(".")[0])


def write_delta(
    path: Path,
    records: Iterable[tuple[bytes, bytes | None]],
    metadata: DeltaMetadata,
    settings: DatabaseSettings | None = None,
) -> tuple[int, int]:
    """Write a delta; it is not synced, since storing it does that.

    Args:
        path: the file, which must not exist.
        records: keys, in strictly ascending order, and values (None: the key is removed).
        metadata: the reserved record.
        settings: how tables are written; None: the default.

    Returns:
        The bytes and the CRC-32 of the file.
    """
    import rocksdict

    with translated("write", str(path)):
        writer = rocksdict.SstFileWriter(rocks_options(settings or DatabaseSettings()))
        writer.open(str(path))
        for key, value in records:
            if value is None:
                del writer[key]
            else:
                writer[key] = value
        writer[META_KEY] = metadata.to_json()
        writer.finish()
    return path.stat().st_size, crc32_of(path)


class TableWriter:
    """The table at `path`, which must not exist. Every method raises as `translated`. One thread."""

    def __init__(self, path: Path, settings: DatabaseSettings) -> None:
        import rocksdict

        self.path = path
        self.size_bytes = 0
        """Bytes of the keys and values so far."""
        with translated("write", str(path)):
            self._writer = rocksdict.SstFileWriter(rocks_options(settings))
            self._writer.open(str(path))

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record; its key is greater than those before."""
        try:
            self._writer[key] = value
        except Exception:
            with translated("write", str(self.path)):
                raise
        self.size_bytes += len(key) + len(value)

    def finish(self) -> None:
        """Complete the table; it is not synced."""
        with translated("write", str(self.path)):
            self._writer.finish()
