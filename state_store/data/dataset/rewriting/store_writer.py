"""Stores of an operator, written from a checkpoint to another: in other partitions, or with other rows.

The work on a store is divided into pieces that share no new partition. A piece reads the old partitions
whose rows go to its new ones, one after the other, and keeps their rows in a file of sorted runs. So its
memory never has all rows of a partition, and its local disk is that of an old partition and of its new ones.

A small partition becomes a delta. RocksDB has the index and the hashes of all keys of a table in memory until
the table is complete, so a large partition becomes a snapshot of several tables, each as large as those that
a full merge writes.

A store that is written has a receipt, a file made by its only valid writer. A task may run twice, at the same
time or after a failure, and may end after the job. So a task stores files under names of its own, and then
makes the store's receipt, which only one task can do: the others remove their files and return what the
receipt says. The driver removes the files that no receipt names, which tasks left that were killed, before
it writes Spark's logs; until then the directory is not a checkpoint. A job that is started again finds the
receipts, and writes only the other stores.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store import __version__
from state_store.core.checkpoint.lineage import NO_APPLICATION, AttemptId
from state_store.core.checkpoint.names import EMPTY_PARENT, DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import Cause, ColumnFamily, DeltaMetadata, marker_of
from state_store.core.deletion.lease import DEFAULT_EXPIRY_MS, Lease
from state_store.core.engine.database import DatabaseSettings, write_delta
from state_store.core.engine.rows import ByteSlices, Page, rows
from state_store.core.files.transfer import parallel
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.runtime import SYSTEM, Runtime, ScratchDirectory
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.streamed_merge import new_rows, publish_rows
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.contract import Failures
from state_store.core.storage.local_disk import free_bytes, remove_unneeded
from state_store.data.dataset.columns import FAMILY_BYTES, decoded_keys, key_partitions, partitioning_columns
from state_store.data.dataset.partitions import MAX_OPEN_FILES, READING, Partitions
from state_store.data.dataset.rewriting.replacing import Replaced
from state_store.data.dataset.views import DEFAULT_FAMILY, View, views
from state_store.data.query import LISTED_AT_ONCE, Operator, Progress, Query, StoreKey
from state_store.data.query.targets import RECEIPTS
from state_store.data.rows.batches import KEY, VALUE, SortedSpool, Targets, pairs, records_of, tallied
from state_store.data.rows.encoder import prefixed
from state_store.errors import (
    BusyError,
    ConflictError,
    DamagedError,
    FormatError,
    LocalDiskError,
    MissingError,
)

if TYPE_CHECKING:
    import pyarrow

WRITER = f"incremental-state-store {__version__}"

SPOOL_RATIO = 1.45
"""Bytes of local disk for the rows of a piece, as a multiple of their bytes in files.

Measured with keys of which 8 bytes differ: 1.01 with rows of 632 bytes in files, 1.23 to 1.42 with 24 to 62.
Files have the common beginning of neighbouring keys once, so rows with longer ones take more.
"""

WRITING = DatabaseSettings(max_open_files=MAX_OPEN_FILES, keeps_indexes=False)

MAX_DELTA_BYTES = 256 << 20
"""Bytes of the keys and values of a partition above which it becomes a snapshot."""


_WHY = "its checkpoint was written anew, with other partitions or rows"


@dataclass(frozen=True)
class WrittenStore:
    """A store that was written: the id of its version, its rows and bytes.

    `path` is that of its delta, or of its snapshot, below it, and `others` those of the tables of that.
    `details`, values for JSON, are for those who go on with it.
    """

    checkpoint_id: str
    path: str
    rows: int
    size_bytes: int
    others: tuple[str, ...] = ()
    details: Any = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files, in the order of their removal: a snapshot goes before its tables."""
        return self.path, *self.others


class Receipts:
    """The receipts of a checkpoint that is being written. A value: tasks get copies.

    Those of different `stages` of the work on a store have nothing to do with each other, nor have those of
    different runs. Calls without a `run` go on with each other's stores.
    """

    def __init__(self, location: str, stage: str = "", run: str | None = None) -> None:
        self._location = location
        self._stage = stage if run is None else f"{run}-{stage}"
        self._run = run

    def begin(self) -> None:
        """Note that the run has begun: its tasks count until the directory is emptied."""
        if self._run is not None:
            with closing(open_storage(self._location)) as storage:
                storage.write(self._run_path, b"{}")

    def of(self, key: StoreKey) -> WrittenStore | None:
        """Return what was written of a store; None if no task has finished it."""
        with closing(open_storage(self._location)) as storage:
            try:
                fields = json.loads(storage.read(self._path(key)))
                return WrittenStore(**{**fields, "others": tuple(fields["others"])})
            except MissingError:
                return None

    def claim(self, key: StoreKey, written: WrittenStore) -> WrittenStore:
        """Return what counts as the store: what was just written, unless another task was first.

        What was written is removed if it surely does not count.

        Raises:
            BusyError: the job has ended meanwhile.
        """
        ended = BusyError(f"the job that writes '{self._location}' has ended without this task")
        with closing(open_storage(self._location)) as storage:
            if marker_of(storage) is None or not self._goes_on(storage):  # nobody knows of what was written
                remove_files(storage, key, written.paths)
                raise ended
            try:
                storage.write(self._path(key), _encoded(written))
                return written
            except ConflictError:
                pass  # another task was first, or the answer to our own request was lost
            counted = self.of(key)
            if counted is None:  # the job has ended since, perhaps with what this task wrote: it stays
                raise ended
            remove_files(storage, key, [path for path in written.paths if path not in counted.paths])
        return counted

    def forget(self, key: StoreKey) -> None:
        """Remove the receipt of a store, which is to be written anew."""
        with closing(open_storage(self._location)) as storage:
            storage.delete(self._path(key))

    def _goes_on(self, storage: Storage) -> bool:
        """Return False if the run has failed: another may write the directory now, with other rows."""
        return self._run is None or storage.exists(self._run_path)

    @property
    def _run_path(self) -> str:
        return f"{RECEIPTS}/{self._run}.json"

    def _path(self, key: StoreKey) -> str:
        return f"{RECEIPTS}/{self._stage}{key.operator}-{key.partition}-{key.name}.json"

    def remove_orphans(
        self, written: Iterable[tuple[StoreKey, WrittenStore]], *, runtime: Runtime = SYSTEM
    ) -> None:
        """Remove the files that tasks have left beside those of stores that were written.

        Storage without exclusive creation may have told two copies of a task that theirs counts. The receipt
        is that of the later one, and the job may have heard of the other: the receipt says so from here on,
        since a job that is started again believes it.
        """
        with closing(open_storage(self._location)) as storage:

            def of_store(pair: tuple[StoreKey, WrittenStore]) -> None:
                key, store = pair
                if self.of(key) not in (None, store):
                    storage.write(self._path(key), _encoded(store), overwrite=True)
                for directory in dict.fromkeys(path.rpartition("/")[0] for path in store.paths):
                    entries = storage.list_files(f"{key.path}/{directory}".rstrip("/"))
                    paths = {f"{directory}/{entry.name}".lstrip("/") for entry in entries}
                    remove_files(storage, key, paths.difference(store.paths))

            failures = Failures()
            parallel(LISTED_AT_ONCE, partial(failures.attempt, of_store), written, runtime=runtime)
            failures.check()


def _encoded(written: WrittenStore) -> bytes:
    return json.dumps(asdict(written)).encode()


class NoReceipts(Receipts):
    """The receipts of a process that writes each store once, and begins anew after a failure: none."""

    def of(self, key: StoreKey) -> WrittenStore | None:
        """Return None: no store is written twice."""
        return None

    def claim(self, key: StoreKey, written: WrittenStore) -> WrittenStore:
        """Return what was written."""
        return written

    def remove_orphans(
        self, written: Iterable[tuple[StoreKey, WrittenStore]], *, runtime: Runtime = SYSTEM
    ) -> None:
        """Do nothing: there are no others."""


def remove_files(storage: Storage, key: StoreKey, paths: Iterable[str]) -> None:
    """Delete files of a store, one directory after the other: a snapshot that stays keeps its tables.

    A file that stays is an error once those beside it are deleted.
    """
    for _, neighbours in itertools.groupby(paths, lambda path: path.rpartition("/")[0]):
        failures = Failures()
        for path in neighbours:
            failures.attempt(storage.delete, f"{key.path}/{path}")
        failures.check()


@dataclass(frozen=True)
class Piece:
    """A part of the work on a store.

    Attributes:
        operator: Spark's number of the operator.
        store: Spark's name of the store.
        sources: the old partitions that are read.
        targets: the new partitions that are written.
        before: the old number of partitions.
        count: the new number of partitions.
    """

    operator: int
    store: str
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    before: int
    count: int

    def disk_bytes(self, sizes: Mapping[int, int]) -> int:
        """Return the local disk that the piece needs, of the bytes in files of the old partitions."""
        of_sources = [sizes.get(number, 0) for number in self.sources]
        share = len(self.targets) * math.gcd(self.before, self.count) / self.count
        rows_bytes = sum(of_sources) * share
        return round(max(of_sources, default=0) + rows_bytes * (SPOOL_RATIO + 1 / len(self.targets)))


def pieces(operator: int, store: str, before: int, count: int, at_least: int = 1) -> list[Piece]:
    """Divide the work on a store of `before` partitions, which gets `count`, into pieces.

    Spark's partition of a key is its hash modulo the number of partitions. So with g, the greatest common
    divisor of both numbers, a row of partition p goes to one of the partitions p + n * g. There are g groups,
    each a piece, whose old partitions are read once. If these are fewer than `at_least`, each group is cut
    into pieces of some new partitions, and each of these reads all old partitions of the group.
    """
    groups = math.gcd(before, count)
    cuts = min(count // groups, -(-at_least // groups))
    pieces_of_store = []
    for group in range(groups):
        targets = range(group, count, groups)
        for cut in range(cuts):
            pieces_of_store.append(
                Piece(
                    operator,
                    store,
                    tuple(range(group, before, groups)),
                    tuple(targets[cut::cuts]),
                    before,
                    count,
                )
            )
    return pieces_of_store


class StoreWriter:
    """Writer of a piece of an operator's store, from the old checkpoint to the new one."""

    def __init__(
        self,
        query: Query,
        operator: Operator,
        piece: Piece,
        location: str,
        version: int,
        has_ids: bool,
        receipts: Receipts,
        progress: Progress | None,
        runtime: Runtime,
    ) -> None:
        self._query = query
        self._operator = operator
        self._piece = piece
        self._store = piece.store
        self._location = location
        self._version = version
        self._has_ids = has_ids
        self._receipts = receipts
        self._progress = progress
        self._runtime = runtime
        self._views = {
            view.schema.family: view
            for view in views(query, operator).values()
            if view.store == piece.store and not view.is_another_name
        }
        self._families = {DEFAULT_FAMILY: ColumnFamily(0)}
        self._counts: dict[int, Counter[int]] = {number: Counter() for number in piece.targets}
        """The number of rows of each column family, by new partition."""
        self._bytes: Counter[int] = Counter()
        """The bytes of keys and values, by new partition."""

    def write(self, replaced: Sequence[Replaced] = ()) -> dict[int, WrittenStore]:
        """Write the new partitions of the piece that are not written yet.

        Args:
            replaced: rows that take the place of rows of the query.

        Raises:
            LocalDiskError: the disk of temporary files has too little room.
        """
        receipts = {number: self._receipts.of(self._key(number)) for number in self._piece.targets}
        done = {number: written for number, written in receipts.items() if written is not None}
        if self._progress is not None:
            for _ in done:
                self._progress.store_done()
        if len(done) == len(receipts):
            return done
        replacements = {
            family: replacing
            for replacing in replaced
            for store, family in replacing.replacement.families
            if store == self._store
        }
        with (
            ScratchDirectory("state-store-") as root,
            closing(SortedSpool(Path(root) / "rows")) as spool,
        ):
            if replacements.keys() == self._views.keys():
                self._adopt_all()
            else:
                self._spread(spool, replacements.keys())
            direct = self._direct(replacements)
            for family, replacing in replacements.items() if direct is None else ():
                id_ = self._adopted_new(family)
                for number in self._piece.targets:
                    for batch in replacing.records(self._store, family, number):
                        self._add(spool, number, id_, _with_family(batch, id_))
            for number in self._piece.targets:
                if number not in done:
                    batches = spool.merged(number) if direct is None else direct(number)
                    done[number] = self._write_partition(number, batches, Path(root))
        return done

    def _direct(
        self, replacements: Mapping[str, Replaced]
    ) -> Callable[[int], Iterator[pyarrow.RecordBatch]] | None:
        """Return what yields the rows of a new partition in order, if these need not be put aside for that.

        That is so if there are none but those of one column family, which come in order.
        """
        if len(self._views) != 1 or replacements.keys() != self._views.keys():
            return None
        ((family, replacing),) = replacements.items()
        if not replacing.is_direct:
            return None
        id_ = self._adopted_new(family)
        for number in self._piece.targets:
            count, size_bytes = replacing.size(number)
            self._counts[number][id_] = count
            self._bytes[number] = size_bytes + count * FAMILY_BYTES
        return lambda number: (
            _with_family(batch, id_) for batch in replacing.records(self._store, family, number)
        )

    def _spread(self, spool: SortedSpool, left_out: Collection[str]) -> None:
        """Put each row of the old partitions to its new partition, without those of some column families."""
        with closing(self._partitions()) as partitions:
            sizes = {number: partitions.size_bytes(number) for number in partitions.numbers}
            check_room(self._piece.disk_bytes(sizes))
            if self._progress is not None:
                partitions.follow(_Uncounted(self._progress))
            for number in partitions.numbers:
                with partitions.read(number):
                    base = partitions.base(number)
                    self._note_source(number, partitions.version_id(number), base.column_families)
                    for name, family in base.column_families.items():
                        new_id = self._adopted(name, family)
                        if name in left_out:
                            continue
                        count = 0
                        for page in rows(base.directory, READING, *family_range(family)):
                            count += len(page)
                            targets, part = parted(page, self._view(name), number, self._piece)
                            self._add(spool, targets, new_id, as_batch(part, family.id, new_id))
                        if count != family.keys:
                            raise DamagedError(
                                f"store {partitions.key(number)} has {count} rows of column family '{name}' "
                                f"in version {partitions.version}, and says that it has {family.keys}"
                            )

    def _note_source(self, number: int, at: VersionId, families: Mapping[str, ColumnFamily]) -> None:
        """Take note of the version of an old partition that is read, and of its column families."""

    def _adopt_all(self) -> None:
        """Keep the ids of the column families.

        If they cannot be read, any ids serve, since no row is kept.
        """
        with suppress(DamagedError, MissingError), closing(self._partitions()) as partitions:
            for number in partitions.numbers:
                for name, family in partitions.described_families(number).items():
                    self._adopted(name, family)

    def _partitions(self) -> Partitions:
        any_view = next(iter(self._views.values()))
        sources = self._piece.sources
        return Partitions(self._query, any_view, self._version, sources, runtime=self._runtime)

    def _add(self, spool: SortedSpool, targets: Targets, family: int, batch: pyarrow.RecordBatch) -> None:
        """Put rows to a new partition, or each to its own, and count them."""
        for target, count, size_bytes in tallied(batch, targets):
            self._counts[target][family] += count
            self._bytes[target] += size_bytes
        spool.add(batch, targets)

    def _view(self, family: str) -> View:
        if family not in self._views:
            raise DamagedError(f"column family '{family}' of store {self._store} has no schema")
        return self._views[family]

    def _adopted(self, name: str, family: ColumnFamily) -> int:
        """Return the id of a column family in the new checkpoint."""
        return adopted(self._families, name, family)

    def _adopted_new(self, name: str) -> int:
        """Return the id of a column family whose rows are new."""
        return self._adopted(name, ColumnFamily(len(self._families), name.startswith("$")))

    def _key(self, number: int) -> StoreKey:
        return StoreKey(self._operator.id, number, self._store)

    def _write_partition(
        self, number: int, batches: Iterator[pyarrow.RecordBatch], scratch: Path
    ) -> WrittenStore:
        counts = self._counts[number]
        families = {name: replace(family, keys=counts[family.id]) for name, family in self._families.items()}
        expected = sum(counts.values())
        unique = self._runtime.unique(4)
        id_ = self._runtime.uuid() if self._has_ids else str(AttemptId(0, NO_APPLICATION, 0, unique))
        metadata = DeltaMetadata(self._version, id_, EMPTY_PARENT, expected, expected, 0, families, WRITER)
        key, progress = self._key(number), self._progress
        storage = open_storage(f"{self._location}/{key.path}")
        with closing(storage if progress is None else progress.metered(storage)) as metered:
            records = records_of(_all_of(batches, expected, key, scratch))
            written = self._stored(metered, records, metadata, scratch, number)
        written = self._receipts.claim(key, written)
        if progress is not None:
            progress.store_done()
        return written

    def _stored(
        self,
        storage: Storage,
        records: Iterator[tuple[bytes, bytes]],
        metadata: DeltaMetadata,
        scratch: Path,
        number: int,
    ) -> WrittenStore:
        """Store a new partition: as a delta, or as a snapshot if it is large."""
        id_, expected = str(metadata.checkpoint_id), metadata.keys
        if not self._is_large(number):
            path = scratch / "delta.sst"
            size_bytes, crc = write_delta(path, records, metadata)
            delta = DeltaName(metadata.version, metadata.checkpoint_id, EMPTY_PARENT, crc)
            self._upload(storage, path, delta.path)
            return WrittenStore(id_, delta.path, expected, size_bytes)
        self._expect(self._bytes[number])
        workspace = Workspace(scratch / f"target-{number}", runtime=self._runtime)
        workspace.open()
        cache = LocalCache(scratch / "cache", 0).store(storage.location)
        context = StoreContext(storage, cache, workspace, WRITING, runtime=self._runtime)
        lease = Lease(storage, expiry_ms=DEFAULT_EXPIRY_MS, runtime=self._runtime)
        version = VersionId(metadata.version, metadata.checkpoint_id)
        rows, table_bytes = new_rows(records, metadata), self._table_bytes(number)
        published = publish_rows(context, version, rows, lease, table_bytes, cause=Cause(_WHY))
        workspace.remove()
        self._expect(published.uploaded_bytes - self._bytes[number])
        tables = tuple(str(file.path) for file in published.base.files.values())
        archive = published.manifest.snapshot.path
        return WrittenStore(id_, archive, expected, published.uploaded_bytes, tables)

    def _is_large(self, number: int) -> bool:
        return self._bytes[number] > MAX_DELTA_BYTES

    def _table_bytes(self, number: int) -> int:
        """Return the bytes of a table of a large partition, as many as in the tables of a full merge."""
        return WRITING.for_store(self._bytes[number]).file_bytes

    def _expect(self, size_bytes: int) -> None:
        if self._progress is not None:
            self._progress.expect(size_bytes)

    def _upload(self, storage: Storage, local: Path, path: str) -> None:
        """Store a local file, and remove it."""
        self._expect(local.stat().st_size)
        try:
            storage.upload(local, path)
        finally:
            remove_unneeded(local)


def _all_of(
    batches: Iterator[pyarrow.RecordBatch], expected: int, key: StoreKey, scratch: Path
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a store; raise DamagedError if they are more or fewer than were put aside."""
    count = 0
    for batch in batches:
        count += len(batch)
        yield batch
    if count != expected:
        raise DamagedError(
            f"{count} rows of store {key} came back from '{scratch}', to which {expected} were "
            "written: check that disk, and try again"
        )


def adopted(families: dict[str, ColumnFamily], name: str, family: ColumnFamily) -> int:
    """Return the id of a column family among those of a new store, which get it if they lack it."""
    if name not in families:
        ids = [other.id for other in families.values()]
        id_ = family.id if family.id not in ids else max(ids) + 1
        families[name] = ColumnFamily(id_, family.internal)
    return families[name].id


def needed_bytes(query: Query, operator: Operator, todo: Sequence[Piece], version: int) -> int:
    """Return the local disk that each of some pieces needs at most, by the files of the old partitions."""
    needed = [0]
    for store in dict.fromkeys(piece.store for piece in todo):
        view = next(view for view in views(query, operator).values() if view.store == store)
        with closing(Partitions(query, view, version)) as partitions:
            sizes = {number: partitions.size_bytes(number) for number in partitions.numbers}
        needed += [piece.disk_bytes(sizes) for piece in todo if piece.store == store]
    return max(needed)


def check_room(needed_bytes: int) -> None:
    """Raise LocalDiskError if the disk of temporary files lacks the room that work needs."""
    directory = Path(tempfile.gettempdir())
    free = free_bytes(directory)
    if free < needed_bytes:
        raise LocalDiskError(
            f"the disk of '{directory}' has {free >> 20} MiB free, and about {needed_bytes >> 20} MiB are "
            "needed for the rows of a piece: set TMPDIR to another disk",
            file=str(directory),
        )


class _Uncounted:
    """Progress of readings: it counts bytes, but no store, because the store is still to be written."""

    def __init__(self, progress: Progress) -> None:
        self.expect = progress.expect
        self.metered = progress.metered

    def store_done(self) -> None:
        pass


def parted(page: Page, view: View, number: int, piece: Piece) -> tuple[Any, Page]:
    """Return those records of a page of old partition `number` that go to the new partitions of a piece.

    Returns:
        The new partition of each, a numpy array, and the records.

    Raises:
        FormatError: a key is not in the old partition in which Spark's hash puts it.
    """
    import numpy

    targets = numpy.full(len(page), number)
    if piece.before != piece.count:
        targets = _places(view, page.keys, piece.count)
        if (_places(view, page.keys, piece.before) != number).any():
            raise FormatError(
                f"keys of store {piece.operator}/{number}/{piece.store} are not in the partition in "
                "which Spark's hash puts them, so their new partition is not known"
            )
    are_chosen = numpy.isin(targets, piece.targets)
    return (targets, page) if are_chosen.all() else (targets[are_chosen], page.take(are_chosen))


def as_batch(page: Page, before: int, family: int) -> pyarrow.RecordBatch:
    """Return the records of a page of column family `before` as keys, which have another id, and values."""
    keys = page.keys
    if before == family:
        return pairs(keys.to_arrow(), page.values.to_arrow())
    rest = ByteSlices(keys.data, keys.starts + FAMILY_BYTES, keys.lengths - FAMILY_BYTES).to_arrow()
    return pairs(prefixed(_prefix(family), rest), page.values.to_arrow())


def _with_family(batch: pyarrow.RecordBatch, family: int) -> pyarrow.RecordBatch:
    """Return keys and values with the id of a column family before each key."""
    return pairs(prefixed(_prefix(family), batch[KEY]), batch[VALUE])


def _prefix(family: int) -> bytes:
    return family.to_bytes(FAMILY_BYTES, "big")


def _places(view: View, keys: ByteSlices, partitions: int) -> Any:
    """Return the partition of each key, by its bytes: a string of Spark's may have others than UTF-8."""
    if view.schema.avro is None:
        view = replace(view, schema=replace(view.schema, key=_without_strings(view.schema.key)))
    columns = decoded_keys(view, tuple(keys), partitioning_columns(view))
    return key_partitions(view, columns, len(keys.starts), partitions)


def _without_strings(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Return the columns with binaries, which have the same encoding and hash, in the place of strings."""
    import pyarrow

    def of_field(field: pyarrow.Field) -> pyarrow.Field:
        return field.with_type(of_type(field.type))

    def of_type(kind: pyarrow.DataType) -> pyarrow.DataType:
        if pyarrow.types.is_string(kind):
            return pyarrow.binary()
        if pyarrow.types.is_struct(kind):
            return pyarrow.struct([of_field(kind.field(place)) for place in range(kind.num_fields)])
        return pyarrow.list_(of_field(kind.value_field)) if pyarrow.types.is_list(kind) else kind

    return pyarrow.schema([of_field(field) for field in schema])


def family_range(family: ColumnFamily) -> tuple[bytes, bytes]:
    """Return the first key of a column family, and the key after its last."""
    return family.id.to_bytes(FAMILY_BYTES, "big"), (family.id + 1).to_bytes(FAMILY_BYTES, "big")
