"""Stores of a new checkpoint, brought from a version of a query that ran on to a later one.

The checkpoint is written beside the query (`beside`). First each new store gets a table with all its rows,
or several if it is large, at the version that was the newest when the first was begun (`FirstTableWriter`).
Then, step by step, it gets the last value of each key that the deltas since have written (`CatchingUp`), as
one table a step. At the end its tables become a snapshot, in which they are runs of one database; none of
them is written again.

A delta says which keys it has written, but not which of them were new, and a version has to say how many rows
each column family has. So each key of a step is looked up in the tables that the store has. They are sparse
here (`SparseTables`): RocksDB opens them with their tails, in which the Bloom filters answer for most keys
that are new, and reports a block that is missing with its place. The blocks of many keys are fetched
together, and the look-ups repeated. So the work is in proportion to the changes, but for the tails, a
fortieth of the state; and a missing block is never an answer, since its checksum fails.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from state_store.core.checkpoint.lineage import NO_APPLICATION, AttemptId, ChainDelta
from state_store.core.checkpoint.names import EMPTY_PARENT, SharedName, SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import META_KEY, Cause, ColumnFamily, DeltaMetadata, Tail
from state_store.core.codec import Positive, from_json, json_names, to_json
from state_store.core.deletion.lease import DEFAULT_EXPIRY_MS, Lease
from state_store.core.engine.database import Database, tidy, write_delta
from state_store.core.engine.rows import Page, pages
from state_store.core.engine.table import TRAILER_BYTES, read_metadata
from state_store.core.files.sparse import (
    HolesUnsupportedError,
    end_bytes,
    fetch_spans,
    make_sparse,
    other_bytes,
    punch_hole,
    spans_of,
)
from state_store.core.files.transfer import read_end, sha256_of
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.runtime import Runtime, ScratchDirectory
from state_store.core.snapshots.context import (
    DatabaseFile,
    LocalDatabase,
    StoreContext,
    wanted_deltas,
    wanted_table,
)
from state_store.core.snapshots.merge import publish_written, tail_of
from state_store.core.snapshots.streamed_merge import first_and_last_block, written_tables
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.contract import Span
from state_store.core.storage.local_disk import remove_unneeded
from state_store.data.dataset.columns import FAMILY_BYTES
from state_store.data.dataset.partitions import READING
from state_store.data.dataset.rewriting.store_writer import (
    SPOOL_RATIO,
    WRITER,
    WRITING,
    Piece,
    Receipts,
    StoreWriter,
    WrittenStore,
    adopted,
    as_batch,
    check_room,
    family_range,
    parted,
)
from state_store.data.dataset.views import View, views
from state_store.data.query import Operator, Progress, Query, StoreKey
from state_store.data.rows.batches import KEY, VALUE, SortedSpool, first_of_keys, pairs, records_of, tallied
from state_store.errors import ConflictError, DamagedError, InternalError

if TYPE_CHECKING:
    import pyarrow

_PLACE = re.compile(r"(\d{6,}\.sst) offset (\d+) size (\d+)")
"""The place of a block in RocksDB's message that its checksum is wrong."""

_TRIES = 3
"""Fetches of a block after which it is damaged."""

_LOOK_UPS = 16_384
"""Keys that are looked up together: the blocks that they lack are fetched at the same time."""

_END_BLOCKS_BYTES = 64 << 10
"""Bytes that have the first or the last block of a table, unless it has very large rows."""

_ALIGNED = 4 << 10
"""Holes are made of whole blocks of the file system."""

_WHY = "its checkpoint was written beside the running query (state-store repartition --running)"

T = TypeVar("T")


# ---- how far a new store is -----------------------------------------------------------------------------


@json_names(size_bytes="bytes")
@dataclass(frozen=True)
class Table:
    """A stored table of a new store; `path` is below the store's directory."""

    path: str
    size_bytes: Positive
    sha256: str
    tail: Tail


@json_names(checkpoint_id="id")
@dataclass(frozen=True)
class SourceVersion:
    """The version of an old partition, and the ids of its column families by name."""

    number: Positive
    checkpoint_id: str | None
    families: Mapping[str, int]

    @property
    def version_id(self) -> VersionId:
        """The version."""
        return VersionId(self.number, self.checkpoint_id)


@dataclass(frozen=True)
class NewStore:
    """A store of the new checkpoint as it is so far.

    Attributes:
        version: the version whose rows it has.
        tables: its tables, oldest first; a later one has the newer value of a key.
        families: its column families, with their numbers of rows.
        sources: the old partitions that its rows come from, at that version, by number.
    """

    version: Positive
    tables: tuple[Table, ...]
    families: Mapping[str, ColumnFamily]
    sources: Mapping[str, SourceVersion]

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return sum(family.keys for family in self.families.values())

    @property
    def size_bytes(self) -> int:
        """The bytes of its tables."""
        return sum(table.size_bytes for table in self.tables)

    @classmethod
    def of_receipt(cls, written: WrittenStore) -> NewStore:
        """Return the store of the receipt of a first table."""
        return from_json(cls, written.details)


def _stored_table(version: int, local: Path, size_bytes: int, runtime: Runtime) -> Table:
    """Return a table that is still local, under a name that was never used."""
    tail = tail_of(local)
    if tail is None:
        raise InternalError(f"'{local}', which was just written, has no tail", file=str(local))
    path = SharedName(version, runtime.random_32(), 1).path
    return Table(path, size_bytes, sha256_of(local), tail)


class FirstTableWriter(StoreWriter):
    """Writer of the first tables of a piece. The details of a receipt are the `NewStore`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sources: dict[str, SourceVersion] = {}

    def _note_source(self, number: int, at: VersionId, families: Mapping[str, ColumnFamily]) -> None:
        ids = {name: family.id for name, family in families.items()}
        self._sources[str(number)] = SourceVersion(at.number, at.checkpoint_id, ids)

    def _stored(
        self,
        storage: Storage,
        records: Iterator[tuple[bytes, bytes]],
        metadata: DeltaMetadata,
        scratch: Path,
        number: int,
    ) -> WrittenStore:
        """Store the tables of a new partition: a large one gets several, whose keys do not overlap."""
        all_records = chain(records, [(META_KEY, metadata.to_json())])
        table_bytes = self._table_bytes(number) if self._is_large(number) else sys.maxsize
        tables = []
        for local in written_tables(all_records, scratch, WRITING, table_bytes):
            table = _stored_table(metadata.version, local, local.stat().st_size, self._runtime)
            self._upload(storage, local, table.path)
            tables.append(table)
        store = NewStore(metadata.version, tuple(tables), metadata.column_families, self._sources)
        return WrittenStore(
            str(metadata.checkpoint_id),
            tables[-1].path,
            metadata.keys,
            store.size_bytes,
            tuple(table.path for table in tables[:-1]),
            to_json(store),
        )


# ---- tables of which only parts are local ---------------------------------------------------------------


class SparseTables:
    """A database of stored tables, of which the tails and the blocks that were asked for are local.

    One thread.

    Args:
        context: the store of the new checkpoint.
        tables: the tables, oldest first.
        directory: an empty directory for the database, which nobody else uses.
    """

    def __init__(self, context: StoreContext, tables: Sequence[Table], directory: Path) -> None:
        self._storage = context.storage
        self._runtime = context.runtime
        self._directory = directory
        self._tables: dict[str, Table] = {}
        self._data_ends: dict[str, int] = {}
        self._complete: dict[str, Table] = {}
        self._tries: Counter[tuple[str, int]] = Counter()
        self._can_evict = True
        self._database = Database(directory, READING, create=True)
        try:
            with context.workspace.scratch() as scratch:
                for number, table in enumerate(tables):
                    local = scratch / f"{number}.sst"
                    data_end = self._fetch_tail(table, local)
                    name = self._ingested(local, table)
                    self._tables[name], self._data_ends[name] = table, data_end
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        self._database.close()

    def exist(self, keys: Sequence[bytes]) -> list[bool]:
        """Say of each key if it has a value. The keys are in order.

        Raises:
            DamagedError: a block is damaged in storage.
            StateStoreError: the storage or the disk fails.
        """
        answers: dict[bytes, bool] = {}
        fetched: set[tuple[str, int, int]] = set()
        pending = list(keys)
        while pending:
            lacking: set[tuple[str, int, int]] = set()
            again = []
            for key, value, message in self._database.look_up(pending):
                answers[key] = value is not None
                if message:
                    lacking.add(self._place(message) or self._raised(key))
                    again.append(key)
            self._fetch(lacking)
            fetched |= lacking
            pending = again
        self._evict(fetched)
        return [answers[key] for key in keys]

    def take_in(self, local: Path, table: Table) -> None:
        """Make a complete local file, which is moved, the newest table."""
        self._complete[self._ingested(local)] = table

    def files(self, version: int) -> dict[str, DatabaseFile]:
        """Return the tables by their names in the database, as those of a snapshot of that version."""
        tables = {**self._tables, **self._complete}
        return {
            file.name: DatabaseFile(
                table.path, table.size_bytes, table.sha256, version, file.level, table.tail
            )
            for file in self._database.files()
            for table in (tables[file.name],)
        }

    def _fetch_tail(self, table: Table, local: Path) -> int:
        """Fetch the tail of a table, and its first and its last block, at which RocksDB looks to ingest it.

        Returns:
            The offset at which its data end.

        Raises:
            DamagedError: the stored file is another one, or damaged.
        """
        sparse, _ = make_sparse(self._storage, wanted_table(table, local), local.parent)
        if sparse is None:
            file = f"{self._storage.location}/{table.path}"
            raise DamagedError(f"'{file}' is damaged: it does not end as it was written", file=file)
        tail = end_bytes(table.size_bytes)
        data_end = table.size_bytes - (other_bytes(read_end(local, tail)[1]) or 0)
        first, last = min(_END_BLOCKS_BYTES, data_end), max(0, data_end - _END_BLOCKS_BYTES)
        ends = [(0, first), (last, data_end)] if first < last else [(0, data_end)]
        if tail < table.size_bytes:
            fetch_spans(self._storage, list(spans_of(table.path, local, ends)), self._runtime)
        return data_end

    def _ingested(self, local: Path, table: Table | None = None) -> str:
        """Ingest a table, and return its name. RocksDB looks for its keys in the others, for its level."""
        has_ends = table is None
        while True:
            try:
                (name,) = self._database.ingest([local])
                return name
            except DamagedError as error:
                place = self._place(error.message)
                if place is not None:
                    self._fetch({place})
                elif table is not None and not has_ends:  # the first or the last block is a large one
                    has_ends = True
                    ends = first_and_last_block(local)
                    fetch_spans(self._storage, list(spans_of(table.path, local, ends)), self._runtime)
                else:
                    raise

    def _place(self, message: str) -> tuple[str, int, int] | None:
        """Return the table, the offset and the size of the block that RocksDB says to be wrong.

        None: it is not a block that could be missing here.
        """
        match = _PLACE.search(message)
        if match is None or match[1] not in self._tables:
            return None
        place = match[1], int(match[2]), int(match[3]) + TRAILER_BYTES
        return place if self._tries[place[:2]] < _TRIES else None

    def _raised(self, key: bytes) -> Any:
        """Raise the error with which a key cannot be read; the stored file is damaged."""
        try:
            self._database.get(key)
        except DamagedError as error:
            name = Path(error.file or "").name
            if name in self._tables:
                file = f"{self._storage.location}/{self._tables[name].path}"
                raise DamagedError(f"'{file}' is damaged: {error.message}", file=file) from error
            raise
        raise InternalError(f"a key of '{self._storage.location}' could not be read, and then could")

    def _fetch(self, places: Iterable[tuple[str, int, int]]) -> None:
        spans: list[Span] = []
        by_table: dict[str, list[tuple[int, int]]] = {}
        for name, offset, size in sorted(places):
            self._tries[name, offset] += 1
            by_table.setdefault(name, []).append((offset, offset + size))
        for name, pieces in by_table.items():
            spans += spans_of(self._tables[name].path, self._directory / name, pieces)
        fetch_spans(self._storage, spans, self._runtime)

    def _evict(self, places: Iterable[tuple[str, int, int]]) -> None:
        """Make holes of blocks again: the next keys are in others, and a store may be as large as the disk.

        The ends of their neighbours go with them, and are fetched again if they are asked for.
        """
        for name, offset, size in places:
            del self._tries[name, offset]
            data_end = self._data_ends[name] // _ALIGNED * _ALIGNED
            start = offset // _ALIGNED * _ALIGNED
            end = min(-(-(offset + size) // _ALIGNED) * _ALIGNED, data_end)
            if start < end and self._can_evict:
                try:
                    punch_hole(self._directory / name, start, end - start)
                except HolesUnsupportedError:
                    self._can_evict = False


# ---- a step ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """The work on a piece that brings its new stores to a version.

    Attributes:
        piece: the piece.
        deltas: the deltas to apply, oldest first, by old partition; someone holds leases on them.
        sources: the old partitions at the version, by number, without their column families.
        stores: the new stores, by partition, as they are.
        version: the version.
    """

    piece: Piece
    deltas: Mapping[int, tuple[ChainDelta, ...]]
    sources: Mapping[int, VersionId]
    stores: Mapping[int, NewStore]
    version: int


class FamilyRemoved(Exception):
    """The query has removed a column family since: a removed row may be of that, or of one with its id."""


class CatchingUp:
    """A step's worker: `advance` while the query runs, `finish` when it has stopped.

    Used once, by one thread.
    """

    def __init__(
        self,
        query: Query,
        operator: Operator,
        step: Step,
        location: str,
        progress: Progress | None,
        runtime: Runtime,
    ) -> None:
        self._query = query
        self._operator = operator
        self._step = step
        self._piece = step.piece
        self._location = location
        self._progress = progress
        self._runtime = runtime
        self._views: Mapping[str, View] = {
            view.schema.family: view
            for view in views(query, operator).values()
            if view.store == step.piece.store and not view.is_another_name
        }
        self._families = {number: dict(store.families) for number, store in step.stores.items()}
        self._changed: Counter[int] = Counter()
        """The number of records that the deltas have of each new partition."""
        self._sources: dict[str, SourceVersion] = {}

    def advance(self) -> dict[int, NewStore]:
        """Give each new store a table with the changes, if there are any, and return all of them."""
        with self._spread() as (spool, scratch):
            return {number: self._advanced(number, spool, scratch) for number in self._piece.targets}

    def finish(self, receipts: Receipts, *, has_ids: bool) -> dict[int, WrittenStore]:
        """Give each new store a table with the changes, and make a snapshot of its tables.

        Args:
            receipts: the receipts of snapshots of this version; what has one is not done again.
            has_ids: the query's commit log has ids of versions.
        """
        done = {number: receipts.of(self._key(number)) for number in self._piece.targets}
        written = {number: store for number, store in done.items() if store is not None}
        if len(written) < len(done):
            with self._spread() as (spool, scratch):
                for number in self._piece.targets:
                    if number not in written:
                        store = self._finished(number, spool, scratch, has_ids=has_ids)
                        written[number] = receipts.claim(self._key(number), store)
        if self._progress is not None:
            for _ in written:
                self._progress.store_done()
        return written

    # ---- the changes of the old partitions, by new partition ---------------------------------------------

    @contextmanager
    def _spread(self) -> Iterator[tuple[SortedSpool, Path]]:
        """Yield the records of the deltas by new partition, and a scratch directory."""
        expected = sum(delta.size_bytes for deltas in self._step.deltas.values() for delta in deltas)
        tails = max(
            sum(end_bytes(table.size_bytes) for table in store.tables) for store in self._step.stores.values()
        )
        check_room(round(expected * (1 + 2 * SPOOL_RATIO)) + tails)
        if self._progress is not None:
            self._progress.expect(expected)
        with (
            ScratchDirectory("state-store-") as root,
            closing(SortedSpool(Path(root) / "rows")) as spool,
        ):
            for number in self._piece.sources:
                with closing(self._metered(self._query.storage(self._key(number)))) as storage:
                    self._sources[str(number)] = self._read(number, storage, spool, Path(root))
            yield spool, Path(root)

    def _read(self, number: int, storage: Storage, spool: SortedSpool, scratch: Path) -> SourceVersion:
        """Add the records of an old partition to the spool; return that partition as it is now."""
        oldest = min(self._step.stores.values(), key=lambda store: store.version)
        families = dict(oldest.sources[str(number)].families)
        context = self._context(storage, scratch / f"source-{number}")
        for delta in self._step.deltas[number]:
            (file,) = wanted_deltas([delta], scratch)
            context.fetch([file])
            context.verify([file])
            try:
                self._read_delta(number, delta, file.target, families, spool)
            finally:
                remove_unneeded(file.target)
        at = self._step.sources[number]
        return SourceVersion(at.number, at.checkpoint_id, families)

    def _read_delta(
        self, number: int, delta: ChainDelta, local: Path, families: dict[str, int], spool: SortedSpool
    ) -> None:
        import numpy

        file = f"{self._key(number).path}/{delta.name.path}"
        metadata = DeltaMetadata.from_json(read_metadata(local), file=file)
        found_ids = {name: family.id for name, family in metadata.column_families.items()}
        if any(found_ids.get(name) != id_ for name, id_ in families.items()):
            raise FamilyRemoved
        families.update(found_ids)
        count = 0
        for name, family in metadata.column_families.items():
            ids = {target: adopted(self._families[target], name, family) for target in self._piece.targets}
            behind: dict[int, list[int]] = {}
            for target, id_ in ids.items():
                if self._step.stores[target].version < metadata.version:
                    behind.setdefault(id_, []).append(target)
            for page in pages(local, *family_range(family)):
                count += len(page)
                targets, part = parted(page, self._view(name), number, self._piece)
                for id_, of_id in behind.items():
                    selection = numpy.isin(targets, of_id)
                    if selection.any():
                        self._add(spool, targets[selection], part.take(selection), family.id, id_)
        if count != metadata.puts + metadata.removes:
            raise DamagedError(
                f"'{file}' has {count} records of column families, and says that it has "
                f"{metadata.puts + metadata.removes}",
                file=file,
            )

    def _add(self, spool: SortedSpool, targets: Any, page: Page, before: int, family: int) -> None:
        """Add records, a null in the place of the value of those that remove their key."""
        import pyarrow
        import pyarrow.compute

        batch = as_batch(page, before, family)
        if page.removed.any():
            nothing = pyarrow.scalar(None, pyarrow.large_binary())
            values = pyarrow.compute.if_else(pyarrow.array(page.removed), nothing, batch[VALUE])
            batch = pairs(batch[KEY], values)
        for target, count, _ in tallied(batch, targets):
            self._changed[target] += count
        spool.add(batch, targets)

    def _view(self, family: str) -> View:
        if family not in self._views:
            raise DamagedError(f"column family '{family}' of store {self._piece.store} has no schema")
        return self._views[family]

    # ---- a new store -------------------------------------------------------------------------------------

    def _advanced(self, number: int, spool: SortedSpool, scratch: Path) -> NewStore:
        before = self._step.stores[number]
        tables, families = before.tables, self._families[number]
        if self._changed[number]:
            id_ = self._new_id(has_ids=True)
            with self._opened(number, scratch) as (context, sparse):
                families, puts, removes = self._counted(number, spool, sparse)
                local, table = self._written(number, spool, scratch, id_, families, puts, removes)
                context.storage.upload(local, table.path)
                remove_unneeded(local)
            tables = (*tables, table)
        sources = {name: self._sources[name] for name in before.sources}
        return NewStore(self._step.version, tables, families, sources)

    def _finished(self, number: int, spool: SortedSpool, scratch: Path, *, has_ids: bool) -> WrittenStore:
        version = VersionId(self._step.version, self._new_id(has_ids=has_ids))
        before = self._step.stores[number]
        with self._opened(number, scratch) as (context, sparse):
            families, puts, removes = self._counted(number, spool, sparse)
            local, table = self._written(
                number, spool, scratch, version.checkpoint_id, families, puts, removes
            )
            context.storage.upload(local, table.path)
            sparse.take_in(local, table)
            files = sparse.files(version.number)
            sparse.close()
            directory = self._database_directory(number, scratch)
            tidy(directory, set(files))
            rows = sum(family.keys for family in families.values())
            base = LocalDatabase(directory, version, files, rows, families, None)
            lease = Lease(context.storage, expiry_ms=DEFAULT_EXPIRY_MS, runtime=self._runtime)
            paths = [str(file.path) for file in files.values()]
            with lease:
                lost = lease.hold(paths)
                if lost:
                    where = f"{context.storage.location}/{min(lost)}"
                    raise ConflictError(f"'{where}' was removed: something else works there", file=where)
                published = publish_written(context, base, lease, overwrite=False, cause=Cause(_WHY))
        size_bytes = before.size_bytes + table.size_bytes + published.archive_bytes
        archive = SnapshotName(*version).path
        return WrittenStore(str(version.checkpoint_id), archive, rows, size_bytes, tuple(paths))

    @contextmanager
    def _opened(self, number: int, scratch: Path) -> Iterator[tuple[StoreContext, SparseTables]]:
        """Yield the tables of a new store as a database."""
        key, directory = self._key(number), self._database_directory(number, scratch)
        directory.mkdir()
        try:
            with closing(self._metered(open_storage(f"{self._location}/{key.path}"))) as storage:
                context = self._context(storage, scratch / f"target-{number}")
                with closing(SparseTables(context, self._step.stores[number].tables, directory)) as sparse:
                    yield context, sparse
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _counted(
        self, number: int, spool: SortedSpool, sparse: SparseTables
    ) -> tuple[dict[str, ColumnFamily], int, int]:
        """Return the column families with their rows after the changes, the puts and the removals."""
        more: Counter[int] = Counter()
        puts = removes = 0
        for batch in _last_values(spool.merged(number)):
            for at in range(0, len(batch), _LOOK_UPS):
                chunk = list(records_of([batch.slice(at, _LOOK_UPS)]))
                answers = sparse.exist([key for key, _ in chunk])
                for (key, value), existed in zip(chunk, answers, strict=True):
                    more[int.from_bytes(key[:FAMILY_BYTES], "big")] += (value is not None) - existed
                    puts, removes = puts + (value is not None), removes + (value is None)
        families = {
            name: replace(family, keys=family.keys + more[family.id])
            for name, family in self._families[number].items()
        }
        wrong = next((name for name, family in families.items() if family.keys < 0), None)
        if wrong is not None:
            raise DamagedError(
                f"store {self._key(number)} of '{self._location}' would have {families[wrong].keys} rows of "
                f"column family '{wrong}' in version {self._step.version}"
            )
        return families, puts, removes

    def _written(
        self,
        number: int,
        spool: SortedSpool,
        scratch: Path,
        id_: str | None,
        families: Mapping[str, ColumnFamily],
        puts: int,
        removes: int,
    ) -> tuple[Path, Table]:
        """Write the last values of the changed keys as a local table."""
        version, local = self._step.version, scratch / f"table-{number}.sst"
        rows = sum(family.keys for family in families.values())
        metadata = DeltaMetadata(version, id_, EMPTY_PARENT, rows, puts, removes, families, WRITER)
        size_bytes, _ = write_delta(local, records_of(_last_values(spool.merged(number))), metadata)
        return local, _stored_table(version, local, size_bytes, self._runtime)

    # ---- names and places --------------------------------------------------------------------------------

    def _new_id(self, *, has_ids: bool) -> str:
        if has_ids:
            return self._runtime.uuid()
        return str(AttemptId(0, NO_APPLICATION, 0, self._runtime.unique(4)))

    def _key(self, number: int) -> StoreKey:
        return StoreKey(self._operator.id, number, self._piece.store)

    def _database_directory(self, number: int, scratch: Path) -> Path:
        return scratch / f"database-{number}"

    def _metered(self, storage: Storage) -> Storage:
        return storage if self._progress is None else self._progress.metered(storage)

    def _context(self, storage: Storage, directory: Path) -> StoreContext:
        workspace = Workspace(directory, runtime=self._runtime)
        workspace.open()
        cache = LocalCache(directory / "cache", 0).store(storage.location)
        return StoreContext(storage, cache, workspace, READING, runtime=self._runtime)


def _last_values(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the last record of each key, of batches that are in order, and have all records of their keys."""
    import numpy
    import pyarrow

    for batch in batches:
        lasts = numpy.append(first_of_keys(batch)[1:], len(batch)) - 1
        yield batch.take(pyarrow.array(lasts))
