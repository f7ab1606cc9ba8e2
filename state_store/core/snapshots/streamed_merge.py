"""Merges of a store that is larger than the local disk, from storage to storage.

They start from a restore of which only the tails of large files are local (`sparse_database`).

A **full** merge (`publish_rows`) reads all rows in order and writes them to new tables, with a window of
each. Each table is uploaded when it is complete, and only what RocksDB looks at when it takes a table in
stays of it on the disk. The writer's lease has the name of a table before its upload, as that of any merge
(docs/deletion.md).

An **incremental** merge (`merge_young`) compacts the younger runs, if the oldest run does not fit. The files
of the oldest run, most of the state, stay in storage, and the snapshot shares them. RocksDB opens their
tails, and reads no row of them: its settings never let the oldest run take part in a compaction. If the
younger runs do not fit either, the newest of them that fit are compacted to one, and the others stay as the
oldest does. Two neighbours of these do not fit together, so their number is bounded.

A new store whose rows are there in order becomes a snapshot in the same way.

Rows of sparse tables (`RowStream`) are fetched ahead of the reader, and left as holes behind it. The tables
have their tails (index, filter, properties), so RocksDB opens them. A block that is not there is zeros, which
its checksum shows: RocksDB reports it as corrupt, with its place. Then a window from there on is fetched, and
the reader begins again, where it was. A block that stays wrong is damaged. Two windows of each sorted run
stay, since a reader that begins again may need the block before. It begins at the first key of that block, or
after the last row that it gave: long stretches of removed rows give none.

Any thread may call, one at a time for a store.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import re
import shutil
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from state_store.core.checkpoint.names import SharedName, VersionId
from state_store.core.checkpoint.stored_documents import (
    META_KEY,
    Cause,
    ColumnFamily,
    DeltaMetadata,
    Manifest,
)
from state_store.core.deletion.lease import Lease
from state_store.core.engine.database import Database, DatabaseSettings, TableFile, TableWriter, tidy
from state_store.core.engine.table import (
    KEY_FOOTER_BYTES,
    TRAILER_BYTES,
    blocks,
    content_of,
    entries_of,
    mapped,
)
from state_store.core.files.sparse import (
    SPAN_BYTES,
    HolesUnsupportedError,
    SparseFile,
    drop_data,
    fetch_spans,
    punch_hole,
)
from state_store.core.files.transfer import MAX_AT_ONCE, difference, parallel, sha256_of, verify_stored
from state_store.core.runtime import Runtime
from state_store.core.snapshots.context import (
    DatabaseFile,
    LocalDatabase,
    StoreContext,
    check_files,
    check_rows,
    check_version,
    describe,
    ingest_deltas,
    workspace_of,
)
from state_store.core.snapshots.merge import Laps, Merged, Published, publish_written, tail_of, take_back
from state_store.core.snapshots.restore import LOOSE_DIRECTORY, Restored
from state_store.core.storage.contract import Span, Storage
from state_store.core.storage.local_disk import of_local_disk
from state_store.errors import DamagedError, FormatError

T = TypeVar("T")

_PLACE = re.compile(r"(\d{6,}\.sst) offset (\d+) size (\d+)")
_REQUEST_BYTES = SPAN_BYTES // 2
MIN_WINDOW_BYTES = 256 << 10
"""Bytes of a table that are fetched at a time however many runs share the room."""

_ALIGNED = 4 << 10
"""Holes are made of whole blocks of the file system."""
_WINDOWS = 2
"""Windows of a run that stay."""
_TRIES = 3
"""Fetches of a block, while the reader does not move, after which it is damaged."""

MIN_TABLE_BYTES = 8 << 20
"""Bytes of a written table at least, but the last: more tables would be slow to restore."""

_ROWS_A_CHECK = 4096
"""Rows between two looks at the deadline."""

_NEVER_PERCENT = 1_000_000
"""Size amplification at which RocksDB would rewrite everything."""

_MIN_RATIO = 2
"""Ratio of the oldest run to all younger ones from which on RocksDB does not compact it with them."""


@dataclass(frozen=True)
class SparseTable:
    """A sparse table of a database.

    Attributes:
        path: Its place in storage.
        data_end: The offset at which its data end.
        run: The number of its sorted run.
        order: Its place in that run.
    """

    path: str
    data_end: int
    run: int
    order: int


def first_and_last_block(path: Path) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return start and end of the first and of the last data block of a table, with their trailers.

    Raises:
        DamagedError: The index cannot be read, or is empty.
    """
    places = [
        (block.offset, block.offset + block.size + TRAILER_BYTES) for block in blocks(mapped(path), path)
    ]
    if not places:
        raise DamagedError.of(path, "it has no data")
    return places[0], places[-1]


class _Window(NamedTuple):
    """A fetched stretch of a table."""

    name: str
    start: int
    end: int


class RowStream:
    """Reader of a database, some of whose tables are sparse. One thread.

    Nobody else may use the files: they get holes.

    Args:
        database: The database.
        tables: Its sparse tables by name. The others are complete.
        storage: Checkpoint storage.
        runtime: Makes the threads of requests.
        room_bytes: Disk for windows; the windows of all runs share it.
    """

    def __init__(
        self,
        database: Database,
        tables: Mapping[str, SparseTable],
        storage: Storage,
        runtime: Runtime,
        room_bytes: int,
    ) -> None:
        self._database = database
        self._tables = dict(tables)
        self._storage = storage
        self._runtime = runtime
        self._room_bytes = room_bytes
        self._windows: dict[int, deque[_Window]] = {}
        self._offsets: dict[str, array[int]] = {}
        self._tries: Counter[tuple[str, int]] = Counter()
        self._can_evict = True

    def take_in(self, tables: Mapping[str, SparseTable]) -> None:
        """Know these sparse tables from now on: the database has taken in others."""
        self._tables = dict(tables)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order; the reserved record is among them.

        Raises:
            DamagedError: A block is damaged in storage.
            StateStoreError: The storage or the disk fails.
        """
        start = last = b""
        self._tries.clear()
        while True:
            try:
                for key, value in self._database.scan(start):
                    yield key, value
                    last = key
                return
            except DamagedError as error:
                passed = max(
                    start, last + b"\0" if last else b"", self._fetch_window(error, self._window_bytes())
                )
                if passed > start:
                    start = passed
                    self._tries.clear()

    def read(self, action: Callable[[], T]) -> T:
        """Return the result of an action on the database that reads single blocks; it may be repeated."""
        self._tries.clear()
        fetched: list[_Window] = []
        while True:
            try:
                result = action()
                break
            except DamagedError as error:
                self._fetch_window(error, 0)
                fetched += [window for windows in self._windows.values() for window in windows]
                self._windows.clear()
        for window in fetched:
            self._evict(window, None)
        return result

    def _window_bytes(self) -> int:
        runs = len({table.run for table in self._tables.values()})
        return max(MIN_WINDOW_BYTES, self._room_bytes // (runs * _WINDOWS))

    def _fetch_window(self, error: DamagedError, window_bytes: int) -> bytes:
        """Fetch a window from the block on that an error names, or raise the error.

        Returns:
            The first key of the block before, if that is there: a reader that came from there has passed it.
        """
        place = _PLACE.search(error.message)
        table = None if place is None else self._tables.get(place[1])
        if place is None or table is None:
            raise error
        name, offset, size = place[1], int(place[2]), int(place[3]) + TRAILER_BYTES
        self._tries[name, offset] += 1
        if self._tries[name, offset] > _TRIES:
            raise error
        window = _Window(name, offset, max(offset + size, min(table.data_end, offset + window_bytes)))
        windows = self._windows.setdefault(table.run, deque())
        passed = self._first_key_before(windows, name, offset)
        while len(windows) >= _WINDOWS:
            self._evict(windows.popleft(), window)
        windows.append(window)
        fetch_spans(self._storage, self._spans(table.path, window), self._runtime)
        return passed

    def _spans(self, path: str, window: _Window) -> list[Span]:
        local = self._database.directory / window.name
        return [
            Span(path, local, ((at, min(_REQUEST_BYTES, window.end - at)),))
            for at in range(window.start, window.end, _REQUEST_BYTES)
        ]

    def _first_key_before(self, windows: deque[_Window], name: str, offset: int) -> bytes:
        """Return the first key of the block before one, if it is in the newest window; else no key."""
        if not windows:
            return b""
        newest = windows[-1]
        if self._tables[newest.name].order > self._tables[name].order:
            return b""
        offsets = self._offsets_of(newest.name)
        last = bisect.bisect_left(offsets, offset) if newest.name == name else len(offsets) - 1
        if last < 1 or not newest.start <= offsets[last - 1] < offsets[last] <= newest.end:
            return b""
        start, end = offsets[last - 1], offsets[last]
        with (self._database.directory / newest.name).open("rb") as file:
            file.seek(start)
            content = file.read(end - start)
        try:
            block = content_of(content, 0, end - start - TRAILER_BYTES)
            return next((key[:-KEY_FOOTER_BYTES] for key, _ in entries_of(block)), b"")
        except (IndexError, ValueError, FormatError):  # RocksDB says so when it reads the block
            return b""

    def _offsets_of(self, name: str) -> array[int]:
        """Return the offsets of a table's data blocks, and the end of the last."""
        offsets = self._offsets.get(name)
        if offsets is None:
            path = self._database.directory / name
            offsets = array("Q", (block.offset for block in blocks(mapped(path), path)))
            offsets.append(self._tables[name].data_end)
            self._offsets[name] = offsets
        return offsets

    def _evict(self, window: _Window, kept_window: _Window | None) -> None:
        """Make a hole of a window but for what it shares with another one that is kept."""
        start, end = window.start, window.end
        if kept_window is not None and window.name == kept_window.name:
            if kept_window.start <= start:
                start = max(start, min(end, kept_window.end))
            else:
                end = min(end, kept_window.start)
        else:
            self._offsets.pop(window.name, None)
        start, end = -(-start // _ALIGNED) * _ALIGNED, end // _ALIGNED * _ALIGNED
        if start < end and self._can_evict:
            try:
                punch_hole(self._database.directory / window.name, start, end - start)
            except HolesUnsupportedError:
                self._can_evict = False


@contextlib.contextmanager
def sparse_database(
    context: StoreContext, result: Restored, window_bytes: int
) -> Iterator[tuple[Database, RowStream, dict[str, DatabaseFile]]]:
    """Open a restored database, and take the loose deltas into it.

    Args:
        context: The store.
        result: The restore, whose directory is private.
        window_bytes: Disk for windows of its sparse files.

    Yields:
        The database, the reader of its rows, and its files by name.

    Raises:
        DamagedError: A file is damaged.
        StateStoreError: The storage or the disk failed.
    """
    base = result.base
    sparse = {file.name: file for file in result.sparse}
    loose = base.directory / LOOSE_DIRECTORY
    deltas = list(result.chain.deltas)
    ends = {
        delta.name.path: first_and_last_block(loose / delta.name.name)
        for delta in deltas
        if f"{LOOSE_DIRECTORY}/{delta.name.name}" in sparse
    }
    fetch_spans(
        context.storage,
        [
            Span(path, loose / Path(path).name, ((start, end - start),))
            for path, blocks in ends.items()
            for start, end in blocks
        ],
        context.runtime,
    )
    with Database(base.directory, context.settings, create=base.snapshot is None) as database:
        check_files(database, base.files)
        stored = {name: str(file.path) for name, file in base.files.items() if name in sparse}
        stream = RowStream(
            database, _tables(database, stored), context.storage, context.runtime, window_bytes
        )
        ingested: dict[str, DatabaseFile] = {}
        if deltas:
            # RocksDB looks for keys of the deltas in the tables, to choose their level.
            ingested = stream.read(lambda: ingest_deltas(database, deltas, loose))
            stored |= {name: str(file.path) for name, file in ingested.items() if file.path in ends}
            stream.take_in(_tables(database, stored))
        yield database, stream, {**base.files, **ingested}


def _tables(database: Database, stored: Mapping[str, str]) -> dict[str, SparseTable]:
    """Return the sparse tables of a database, by name, whose places in storage are given by name."""
    return {
        file.name: SparseTable(
            stored[file.name], first_and_last_block(database.directory / file.name)[1][1], number, order
        )
        for number, run in enumerate(database.runs())
        for order, file in enumerate(run)
        if file.name in stored
    }


class SortedRows(NamedTuple):
    """All rows of a version in the order of their keys, its record among them, and what the record says.

    Attributes:
        rows: keys and values.
        keys: the number of keys.
        families: the column families.
        before: the snapshot that the version builds on; None for the first one of a store.
    """

    rows: Iterator[tuple[bytes, bytes]]
    keys: int
    families: Mapping[str, ColumnFamily]
    before: Manifest | None = None


@contextlib.contextmanager
def restored_rows(context: StoreContext, result: Restored, window_bytes: int) -> Iterator[SortedRows]:
    """Open the rows of a restored version, of which only tails may be local; its directory is used up.

    Args:
        context: The store.
        result: The version, whose directory is private.
        window_bytes: Disk for windows of its sparse files.

    Raises:
        DamagedError: A file is damaged.
        StateStoreError: The storage or the disk failed.
    """
    with sparse_database(context, result, window_bytes) as (database, stream, _):
        newest = result.chain.deltas[-1].name if result.deltas else None
        keys, families = stream.read(lambda: check_version(database, result.version, newest, context.storage))
        yield SortedRows(stream.rows(), keys, families, result.base.snapshot)


@contextlib.contextmanager
def new_rows(rows: Iterator[tuple[bytes, bytes]], metadata: DeltaMetadata) -> Iterator[SortedRows]:
    """Add the reserved record to all rows of a version, of which no older one is there."""
    all_rows = chain(rows, [(META_KEY, metadata.to_json())])
    yield SortedRows(all_rows, metadata.keys, metadata.column_families)


@of_local_disk(workspace_of)
def publish_rows(
    context: StoreContext,
    version: VersionId,
    source: contextlib.AbstractContextManager[SortedRows],
    lease: Lease,
    table_bytes: int,
    *,
    overwrite: bool = False,
    cause: Cause | None = None,
) -> Published:
    """Make a full snapshot of the rows of a version.

    If a step fails before the archive is written, the uploaded tables are deleted again.

    Args:
        context: The store.
        version: The version.
        source: Opens its rows.
        lease: A new lease, which is given back.
        table_bytes: Bytes of the keys and values of a table.
        overwrite: Replace a snapshot of the version.
        cause: The cause of the merge, which the manifest keeps.

    Returns:
        The snapshot, whose base has the ends of its tables.

    Raises:
        BusyError: The deadline passed, or a file was deleted meanwhile.
        ConflictError: There is a snapshot of that version already, and `overwrite` is false.
        DamagedError: A file is damaged, or there are more or fewer rows than the record says.
        StorageError: The storage or the disk failed.
        UnknownOutcomeError: The storage failed, and the snapshot may be there.
    """
    clock_s = context.runtime.monotonic_s
    start = clock_s()
    with context.workspace.new_base(version.number) as directory, lease:
        tables = StoredTables(context, directory, lease, version.number, table_bytes)
        try:
            with source as (rows, keys, families, before):
                tables.write(rows)
            files = tables.taken_in(version, keys)
            context.deadline.check()
        except BaseException:
            take_back(context.storage, tables.announced)
            raise
        # From here on the archive may be in storage, whatever fails: the tables stay.
        merged_ms = (clock_s() - start) * 1000
        base = LocalDatabase(directory, version, files, keys, families, before)
        published = publish_written(context, base, lease, overwrite=overwrite, cause=cause)
    phases = {"fetch_ms": 0.0, "ingest_ms": 0.0, "compact_ms": merged_ms - tables.upload_ms}
    return replace(published, phases={**phases, "checksum_ms": 0.0, "upload_ms": tables.upload_ms})


def written_tables(
    rows: Iterator[tuple[bytes, bytes]],
    directory: Path,
    settings: DatabaseSettings,
    table_bytes: int,
    check: Callable[[], object] = lambda: None,
) -> Iterator[Path]:
    """Write rows, which come in order, to local tables, and yield each table when it is complete.

    Args:
        rows: The rows.
        directory: The directory of the tables.
        settings: How tables are written.
        table_bytes: Bytes of the keys and values of a table.
        check: Called now and then; what it raises ends the writing.
    """
    writer: TableWriter | None = None
    numbers = itertools.count(1)
    for count, (key, value) in enumerate(rows, start=1):
        if writer is None:
            writer = TableWriter(directory / f"written-{next(numbers)}.sst", settings)
        writer.put(key, value)
        if count % _ROWS_A_CHECK == 0:
            check()
        if writer.size_bytes >= table_bytes:
            writer.finish()
            yield writer.path
            writer = None
    if writer is not None:
        writer.finish()
        yield writer.path


class StoredTables:
    """Tables of a snapshot that is being written. One thread."""

    def __init__(
        self, context: StoreContext, directory: Path, lease: Lease, version: int, table_bytes: int
    ) -> None:
        self._context = context
        self._directory = directory
        self._lease = lease
        self._version = version
        self._table_bytes = max(MIN_TABLE_BYTES, table_bytes)
        self._unique = context.runtime.random_32()
        self._files: list[tuple[Path, DatabaseFile]] = []
        self.announced: list[str] = []
        self.upload_ms = 0.0

    def write(self, rows: Iterator[tuple[bytes, bytes]]) -> None:
        """Write rows, which come in order, to tables, and upload each table."""
        settings, check = self._context.settings, self._context.deadline.check
        for path in written_tables(rows, self._directory, settings, self._table_bytes, check):
            self._store(path)

    def _store(self, path: Path) -> None:
        """Upload a table, and give up its data on the disk but the first and the last block."""
        context = self._context
        stored = SharedName(self._version, self._unique, len(self._files) + 1).path
        file = DatabaseFile(
            stored, path.stat().st_size, sha256_of(path), self._version, level=0, tail=tail_of(path)
        )
        start = context.runtime.monotonic_s()
        self.announced.append(stored)
        self._lease.announce([stored])
        context.storage.upload(path, stored)
        self.upload_ms += (context.runtime.monotonic_s() - start) * 1000
        drop_data(path, ranges=first_and_last_block(path))
        self._files.append((path, file))

    def taken_in(self, version: VersionId, keys: int) -> dict[str, DatabaseFile]:
        """Make a database of the tables, which have that many keys, and return its files by name."""
        with Database(self._directory, self._context.settings, create=True) as database:
            names = database.ingest([path for path, _ in self._files])
            check_rows(database, version, keys, self._context.storage, are_current=True)
            levels = {file.name: file.level for file in database.files()}
        files = {
            name: replace(file, level=levels[name])
            for name, (_, file) in zip(names, self._files, strict=True)
        }
        tidy(self._directory, set(files))
        return files


def is_young(result: Restored) -> bool:
    """Return True if a merge need not read the oldest run."""
    files = result.base.files.values()
    oldest = max((file.level for file in files), default=0)
    oldest_bytes = sum(file.size_bytes for file in files if file.level == oldest)
    young = result.base.size_bytes - oldest_bytes + sum(delta.size_bytes for delta in result.deltas)
    return oldest > 0 and young * _MIN_RATIO <= oldest_bytes


@of_local_disk(workspace_of)
def merge_young(context: StoreContext, result: Restored, room_bytes: int) -> Merged:
    """Compact the newest runs of a restored version that fit on the disk, in the directory of the restore.

    The oldest run never takes part.

    Args:
        context: The store.
        result: The version, of which only tails may be local; its directory is private.
        room_bytes: Disk for the runs that are compacted, and once more for their result.

    Returns:
        The merged base; only the tails of the other runs are local.

    Raises:
        DamagedError: A file is damaged.
        StateStoreError: The storage or the disk failed, or the deadline passed.
    """
    base = result.base
    laps = Laps(context.runtime.monotonic_s)
    settings = replace(context.settings.for_store(base.size_bytes), size_amplification_percent=_NEVER_PERCENT)
    bounded = replace(context, settings=settings)
    with sparse_database(bounded, result, room_bytes) as (database, stream, known_files):
        laps.lap("ingest_ms")
        runs = database.runs()
        young = runs[: _fitting(runs[:-1], room_bytes)]
        sparse = {file.path: file for file in result.sparse}
        all_fit = len(young) == len(runs) - 1
        some_fit = len(young) > 1 and len(runs) > settings.max_runs
        if all_fit or some_fit:
            for file in _complete(context, result, known_files, young):
                del sparse[file.path]
        laps.lap("fetch_ms")
        if all_fit:
            database.compact_runs(deadline=lambda: context.deadline.passed)
        elif some_fit:
            database.compact_newest(len(young), deadline=lambda: context.deadline.passed)
        files = describe(database, known_files, result.version)
        newest = result.chain.deltas[-1].name if result.deltas else None
        keys, families = stream.read(lambda: check_version(database, result.version, newest, context.storage))
        check_rows(database, result.version, keys, context.storage, are_current=False)
    shutil.rmtree(base.directory / LOOSE_DIRECTORY, ignore_errors=True)
    tidy(base.directory, set(files))
    laps.lap("compact_ms")
    files, names = _with_stored_checksums(context, base.directory, files, sparse)
    new_base = LocalDatabase(base.directory, result.version, files, keys, families, base.snapshot)
    return Merged(new_base, {"link_ms": 0.0, **laps.phases}, names)


def _fitting(runs: Sequence[Sequence[TableFile]], room_bytes: int) -> int:
    """Return the number of runs, from the first on, that take no more than that together."""
    sizes = accumulate(sum(file.size_bytes for file in run) for run in runs)
    return sum(1 for size_bytes in sizes if size_bytes <= room_bytes)


def _complete(
    context: StoreContext,
    result: Restored,
    known_files: Mapping[str, DatabaseFile],
    runs: Sequence[Sequence[TableFile]],
) -> list[SparseFile]:
    """Fetch the sparse files of some runs as a whole, verify them, and return them."""
    directory = result.base.directory
    sparse = {file.path: file for file in result.sparse}
    young = [
        replace(sparse[path], name=file.name)
        for run in runs
        for file in run
        if (path := known_files[file.name].path) in sparse
    ]
    fetch_spans(
        context.storage,
        [
            Span(file.path, directory / file.name, ((at, min(SPAN_BYTES, file.size_bytes - at)),))
            for file in young
            for at in range(0, file.size_bytes, SPAN_BYTES)
        ],
        context.runtime,
    )
    for file in young:
        context.deadline.check()
        wrong = difference(file.wanted(directory))
        if wrong is not None:
            raise DamagedError.of(f"{context.storage.location}/{file.path}", wrong)
    return young


def _with_stored_checksums(
    context: StoreContext,
    directory: Path,
    files: Mapping[str, DatabaseFile],
    sparse: Mapping[str, SparseFile],
) -> tuple[dict[str, DatabaseFile], frozenset[str]]:
    """Return files with the SHA-256 of those that are sparse, and the names of these.

    A delta has no SHA-256 until it belongs to a snapshot. It is read from storage: here it has holes.
    """
    sparse_files = {name: sparse.get(file.path or "") for name, file in files.items()}
    stored = {name: file for name, file in sparse_files.items() if file is not None}
    lacking = [name for name in stored if files[name].sha256 is None]

    def checksum(name: str) -> DatabaseFile:
        context.deadline.check()
        wanted_file = stored[name].wanted(directory)
        return replace(files[name], sha256=verify_stored(context.storage, wanted_file)[0])

    threads = min(MAX_AT_ONCE, context.transfer_threads)
    complete = parallel(threads, checksum, lacking, runtime=context.runtime)
    return {**files, **dict(zip(lacking, complete, strict=True))}, frozenset(stored)
