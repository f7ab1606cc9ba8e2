"""A version of one store for a reader: chosen, leased so that its files stay, and restored, by partition.

A version is chosen by its number, by its batch, or by time.

Files of a running query appear and disappear. So a reader of a version of many stores lists all stores at
once, keeps small files (listings, archives of snapshots) in memory, and holds a lease on the rest, which is
renewed until the version is released (docs/deletion.md). If the storage is read-only there is no lease, and a
version that is no longer retained may be gone when it is read.

`Partitions` are those of a view. Their rows are decoded as batches of columns. If a file is damaged, a reader
is told the loss behind it: the partition, its rows, the keys in the file.
"""

from __future__ import annotations

import contextlib
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from state_store.core.checkpoint.lineage import ChainDelta, Lineages, Listing, describe_restorable
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    VersionId,
    is_sst_path,
)
from state_store.core.checkpoint.stored_documents import ColumnFamily, DeltaMetadata, FileEntry
from state_store.core.deletion.lease import (
    DEFAULT_EXPIRY_MS,
    KeptLease,
    ReaderLease,
    listing_of,
    read_archive,
)
from state_store.core.engine.database import Database, DatabaseSettings
from state_store.core.engine.rows import rows
from state_store.core.engine.table import key_bounds, read_metadata
from state_store.core.files.transfer import Wanted, difference, parallel
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.runtime import SYSTEM, Runtime, ScratchDirectory
from state_store.core.snapshots.context import LocalDatabase, StoreContext, wanted_deltas
from state_store.core.snapshots.restore import Restored, restore
from state_store.core.storage.contract import Entry, ForwardingStorage, Storage
from state_store.data.dataset.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.moments import Moment, as_moment, format_moment, milliseconds_of
from state_store.data.dataset.views import View
from state_store.data.query import LISTED_AT_ONCE, CommitTimes, Progress, Query, StoreKey
from state_store.data.query.arguments import check_number, counted
from state_store.errors import (
    DamagedError,
    MissingError,
    OptionError,
    StateStoreError,
    StorageError,
    UnknownOutcomeError,
)

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute


MAX_OPEN_FILES = 512

_TRIES = 3

READING = DatabaseSettings(max_open_files=MAX_OPEN_FILES)

T = TypeVar("T")


def version_number(
    query: Query, version: int | None = None, batch: int | None = None, at: Moment | None = None
) -> int:
    """Return the number of the chosen version; the default is the one that Spark committed last.

    Args:
        query: the query.
        version: the number itself.
        batch: the batch that made the version.
        at: a moment, without a zone in the local one; the version is the newest then.

    Raises:
        OptionError: several arguments are given, or one has a wrong type.
        MissingError: Spark has committed no such version.
    """
    if sum(value is not None for value in (version, batch, at)) > 1:
        raise OptionError(
            "a version is given by its number, by its batch or by a time, not by several of them"
        )
    for name, value in (("version", version), ("batch", batch)):
        if value is not None:
            check_number(name, value)
    newest = query.newest_batch()
    if at is not None:
        batch = _batch_at(query, at)
    number = newest + 1 if version is None and batch is None else version if batch is None else batch + 1
    assert number is not None
    check_committed(query, number, newest)
    return number


def check_committed(query: Query, number: int, newest: int) -> None:
    """Raise MissingError if there is no version of a number; `newest` is the batch committed last."""
    if not 1 <= number <= newest + 1:
        yet = " yet" if number > newest else ""
        raise MissingError(
            f"there is no version {number}{yet}: of {query.location} Spark has committed batch {newest} "
            f"last, which is version {newest + 1}"
        )


def identified(listing: Listing, number: int, newest: VersionId, where: str) -> VersionId:
    """Return the version with that number on the lineage of `newest`, which Spark has committed.

    Raises:
        MissingError: the store does not have it any more; the message lists the versions that it has. If
            all of these are older, the message names the file that is missing.
    """
    if newest.checkpoint_id is None:
        newest = listing.attempts.resolve(newest.number) or newest
    lineages = Lineages(listing.deltas, listing.snapshots)
    version = next((earlier for earlier in lineages.history(newest) if earlier.number == number), None)
    if version is None and newest.checkpoint_id is None:
        version = VersionId(number, None)
    restorable = lineages.restorable()
    if version is None or version not in restorable:
        if number == newest.number and all(other.number < number for other in restorable):
            _check_files(lineages, newest, where)  # clean-ups remove the oldest versions
        raise MissingError(
            f"version {number} is not in {where} any more, or not yet: {describe_restorable(restorable)}"
        )
    return version


def _check_files(lineages: Lineages, version: VersionId, where: str) -> None:
    """Raise MissingError, which names the store and the file, if a file of a version is not there."""
    try:
        lineages.plan(version)
    except MissingError as error:
        raise MissingError(f"files of {where} are missing: {error.message}", file=error.file) from error


def _batch_at(query: Query, at: Moment) -> int:
    at_ms = milliseconds_of(as_moment(at))
    times: Mapping[int, int] = query.logs.end_times_ms()
    before = [batch for batch, time_ms in times.items() if time_ms <= at_ms]
    if not before:
        first = format_moment(min(times.values()))
        raise MissingError(
            f"the oldest batch that {query.location} still has was committed at {first}, after "
            f"{format_moment(at_ms)}"
        )
    return max(before)


class PinnedVersion:
    """A version of one store, leased until `release`. One thread at a time."""

    def __init__(
        self,
        key: StoreKey,
        storage: Storage,
        number: int,
        newest: VersionId,
        *,
        since: int | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Find the version and lease its files.

        Args:
            key: the store.
            storage: the store's directory.
            number: the number of the version.
            newest: the version that Spark committed last.
            since: also lease the deltas of all versions after this number; None leases none of them.
            runtime: clocks, randomness and threads.

        Raises:
            MissingError: the store does not have that version any more.
        """
        self.key = key
        self.storage = storage
        self.paths: frozenset[str] = frozenset()
        """The SST files that are leased: paths below the store's directory."""
        self.archives: dict[str, bytes] = {}
        """The archive of the snapshot that the version starts from, by its path; empty without a snapshot."""
        self.archive_error: StateStoreError | None = None
        """The reason why that archive cannot be read; a restore raises it."""
        self._checksums: dict[str, DeltaName | FileEntry] = {}
        self.lineage: list[DeltaName] = []
        """The deltas after `since` that the version builds on, oldest first, as far as they exist and are not
        condemned.
        """
        self._since = since
        self._runtime = runtime
        self._lease: KeptLease | None = None
        self._condemned: frozenset[str] = frozenset()
        for attempt in range(_TRIES):
            try:
                self.version, self._view = self._held(number, newest)
                self._unmetered = self._view
                return
            except MissingError:
                # A clean-up may have removed a listed file and left a newer snapshot in its place.
                if attempt == _TRIES - 1:
                    raise

    def follow(self, progress: Progress) -> None:
        """Report files that are fetched from now on to `progress`."""
        self._view = progress.metered(self._unmetered)

    def restore(self, directory: Path) -> LocalDatabase:
        """Return the version as a local database below `directory`, which the caller removes."""
        try:
            return restore(self._context(directory), self.version).base
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def restore_by_blocks(self, directory: Path) -> Restored:
        """Restore the version as a query does, and return the timings.

        No file is verified as a whole, and deltas stay beside the database. The caller removes `directory`.
        """
        return restore(self._context(directory), self.version, thorough=False, ingest=False)

    def fetch(self, delta: DeltaName, directory: Path) -> Path:
        """Fetch a delta of the lineage into `directory` and verify its checksum. Raises DamagedError."""
        context = self._context(directory)
        (file,) = wanted_deltas([ChainDelta.from_listing(delta, self._sizes[delta])], directory)
        context.fetch([file])
        context.verify([file])
        return file.target

    def check(self, path: str, local: Path) -> None:
        """Compare a local copy of a file in `paths` with its checksum. Raises DamagedError."""
        source = self._checksums[path]
        if isinstance(source, DeltaName):
            local_file = Wanted(path, self._sizes[source], local, crc32=source.crc)
        else:
            local_file = Wanted(path, source.size_bytes, local, sha256=source.sha256)
        reason = difference(local_file)
        if reason is not None:
            file = f"{self.storage.location}/{path}"
            raise DamagedError(f"'{file}' is damaged: {reason}", file=file)

    def file_bytes(self, path: str) -> int:
        """Return the bytes of a file in `paths`."""
        source = self._checksums[path]
        return self._sizes[source] if isinstance(source, DeltaName) else source.size_bytes

    def metadata(self, delta: DeltaName, directory: Path) -> DeltaMetadata:
        """Return the metadata of a delta; `directory` is used meanwhile and removed. Raises DamagedError."""
        try:
            return DeltaMetadata.from_json(read_metadata(self.fetch(delta, directory)), file=delta.path)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def column_families(self, directory: Path) -> Mapping[str, ColumnFamily]:
        """Return the column families of the version with their numbers of keys.

        They come from the newest delta, or from the manifest of the snapshot. Raises DamagedError.
        """
        if self._plan.deltas:
            return self.metadata(self._plan.deltas[-1], directory).column_families
        assert self._plan.snapshot is not None
        return read_archive(self._view, self._plan.snapshot).manifest.column_families

    @property
    def size_bytes(self) -> int:
        """Bytes of the SST files that a restore of the version reads."""
        return sum(self._sizes[delta] for delta in self._plan.deltas) + self._snapshot_bytes

    @property
    def lineage_bytes(self) -> int:
        """Bytes of the deltas in `lineage`."""
        return sum(self._sizes[delta] for delta in self.lineage)

    def delta_bytes(self, delta: DeltaName) -> int:
        """Return the bytes of a delta of the lineage."""
        return self._sizes[delta]

    def written_ms(self, delta: DeltaName) -> int:
        """Return when the delta was written, by the storage's clock."""
        return self._times_ms[delta]

    def release(self) -> None:
        """Release the lease and close the storage; releasing twice is allowed."""
        lease, self._lease = self._lease, None
        if lease is not None:
            with contextlib.suppress(StateStoreError):  # the lease expires by itself
                lease.release()
        self.storage.close()

    def _context(self, directory: Path) -> StoreContext:
        workspace = Workspace(directory / "work", runtime=self._runtime)
        workspace.open()
        return StoreContext(
            self._view,
            LocalCache(directory / "cache", 0).store(self.storage.location),
            workspace,
            replace(READING, keeps_indexes=False),
            runtime=self._runtime,
        )

    def _held(self, number: int, newest: VersionId) -> tuple[VersionId, Storage]:
        entries = {
            f"{directory}/{entry.name}": entry
            for directory in (DELTA_DIRECTORY, SNAPSHOT_DIRECTORY)
            for entry in self.storage.list_files(directory)
        }
        listing = listing_of(entries)
        version = identified(listing, number, newest, f"store {self.key}")
        lineages = Lineages(listing.deltas, listing.snapshots)
        plan = self._plan = lineages.plan(version)
        self._snapshot_bytes = 0
        self._sizes, self._times_ms = listing.deltas, listing.written_ms
        if self._since is not None:
            after = [earlier for earlier in lineages.history(version) if earlier.number > self._since]
            deltas = [lineages.delta(earlier) for earlier in reversed(after)]
            self.lineage = [delta for delta in deltas if delta is not None]
        archives = self.archives = {}
        paths = {delta.path for delta in (*plan.deltas, *self.lineage)}
        self.archive_error = None
        self._checksums = {delta.path: delta for delta in (*plan.deltas, *self.lineage)}
        if plan.snapshot is not None:
            archives[plan.snapshot.path] = self.storage.read(plan.snapshot.path)
            try:
                archive = read_archive(_Pinned(self.storage, entries, archives), plan.snapshot)
            except StateStoreError as error:
                self.archive_error = error
            else:
                paths |= {entry.path for entry in archive.manifest.files}
                self._snapshot_bytes = sum(entry.size_bytes for entry in archive.manifest.files)
                self._checksums.update((entry.path, entry) for entry in archive.manifest.files)
        past = {delta.path for delta in self.lineage} - {delta.path for delta in plan.deltas}
        lost = self._hold(paths, spared=past)
        self.lineage = [delta for delta in self.lineage if delta.path not in lost]
        self.paths = frozenset(paths - lost)
        return version, _Pinned(self.storage, entries, archives)

    def _hold(self, paths: set[str], spared: set[str]) -> frozenset[str]:
        """Lease files, and return those in `spared` that are condemned or gone.

        Others that are condemned are looked for twice. If nothing has taken their place, a snapshot needs
        them after all, and they are read while they are there, as `find_under_lease` says.

        Raises:
            MissingError: Another file is condemned for the first time, or gone.
        """
        lease = ReaderLease(self.storage, expiry_ms=DEFAULT_EXPIRY_MS, runtime=self._runtime)
        try:
            lost = lease.hold(paths)
            lost_files = lost - spared
            before, self._condemned = self._condemned, lost_files
            if lost_files == before:
                lost_files = frozenset(path for path in lost_files if not self.storage.exists(path))
        except (StorageError, UnknownOutcomeError):
            return frozenset()
        if lost_files:
            with contextlib.suppress(StateStoreError):  # it runs out
                lease.release()
            raise MissingError(
                f"'{min(lost_files)}' of store {self.key} was removed meanwhile", file=min(lost_files)
            )
        self._lease = KeptLease(lease, self._runtime)
        return lost & spared


class _Pinned(ForwardingStorage):
    """A store's directory as it was listed, with the contents of the files that are in memory."""

    def __init__(self, inner: Storage, entries: Mapping[str, Entry], contents: Mapping[str, bytes]) -> None:
        super().__init__(inner)
        self._entries = entries
        self._kept = contents

    def list_files(self, directory: str) -> list[Entry]:
        if directory not in (DELTA_DIRECTORY, SNAPSHOT_DIRECTORY):
            return self.inner.list_files(directory)
        return [entry for path, entry in self._entries.items() if path.startswith(f"{directory}/")]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if path in self._kept:
            return self._kept[path][offset : None if length is None else offset + length]
        return self.inner.read(path, offset, length)


class Partitions:
    """The partitions `numbers` of a view at version `version`. One thread at a time.

    `close`, or garbage collection, releases the leases and removes local files.
    """

    def __init__(
        self,
        query: Query,
        view: View,
        version: int,
        numbers: Iterable[int] | None = None,
        *,
        skip_damaged: bool = False,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Pin the version of each partition.

        Args:
            query: the query.
            view: the store.
            version: the number of the version.
            numbers: numbers of partitions; None is all.
            skip_damaged: True collects partitions that cannot be read in `lost`, with the reason, instead of
                raising.
            runtime: clocks, randomness and threads.

        Raises:
            MissingError: a partition or the version does not exist.
        """
        self.view = view
        self.version = version
        self.lost: dict[int, StateStoreError] = {}
        self._skip_damaged = skip_damaged
        self._query = query
        self._runtime = runtime
        self._progress: Progress | None = None
        count = view.operator.stores[view.store]
        self.numbers = tuple(range(count) if numbers is None else dict.fromkeys(numbers))
        unknown = [number for number in self.numbers if not 0 <= number < count]
        if unknown:
            raise MissingError(f"there is no partition {unknown[0]}: the store has 0 to {count - 1}")
        self._pins = self._pinned(version, None)
        scratch = ScratchDirectory("state-store-")
        self.directory = Path(scratch.name)
        self._local: dict[int, LocalDatabase] = {}
        self._families: dict[int, Mapping[str, ColumnFamily]] = {}
        self._finalizer = weakref.finalize(self, _let_go, self._pins, scratch)

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Release the files in checkpoint storage and remove local ones; closing twice is allowed."""
        self._finalizer()

    def follow(self, progress: Progress) -> None:
        """Report files that are fetched from now on, and partitions that have been read, to `progress`."""
        self._progress = progress

    @contextlib.contextmanager
    def read(self, partition: int) -> Iterator[None]:
        """Remove the local database of a partition after the body, unless it existed before."""
        if self.is_local(partition) or partition in self.lost:
            yield
            return
        with self.reporting([self._pins[partition]], self.size_bytes(partition)):
            yield
            if self.is_local(partition):
                self.forget(partition)

    @contextlib.contextmanager
    def local_copy(self, partition: int) -> Iterator[LocalDatabase]:
        """Yield the local database of a partition, which stays; making it is reported as progress."""
        if self.is_local(partition):
            yield self.base(partition)
            return
        with self.reporting([self._pins[partition]], self.size_bytes(partition)):
            yield self.base(partition)

    @contextlib.contextmanager
    def reporting(self, pins: Iterable[PinnedVersion], size_bytes: int) -> Iterator[None]:
        """Report the reading of a partition as progress; `pins` will fetch `size_bytes` bytes."""
        progress = self._progress
        if progress is None:
            yield
            return
        for pin in pins:
            pin.follow(progress)
        progress.expect(size_bytes)
        yield
        progress.store_done()

    def committed_ms(self, pin: PinnedVersion, delta: DeltaName) -> int | None:
        """Return when the version of a delta was committed, by the storage's clock.

        If Spark's commit log has forgotten the batch, it is when the delta was written, None for a copy.
        """
        return self._commit_times.of(delta.version, pin.written_ms(delta))

    @cached_property
    def _commit_times(self) -> CommitTimes:
        return self._query.logs.end_times()

    def key(self, partition: int) -> StoreKey:
        """Return the store of a partition."""
        return StoreKey(self.view.operator.id, partition, self.view.store)

    def version_id(self, partition: int) -> VersionId:
        """Return the version of a partition, with its id."""
        return self._pins[partition].version

    def base(self, partition: int) -> LocalDatabase:
        """Return the local database of a partition; make it if necessary."""
        if not self._finalizer.alive:
            raise OptionError("the state was closed")
        if partition in self.lost:
            raise self.lost[partition]
        if partition not in self._local:
            pin = self._pins[partition]
            try:
                self._local[partition] = pin.restore(self.directory / str(partition))
            except (DamagedError, MissingError) as error:
                raise self._lost(partition, error, pin) from error
        return self._local[partition]

    def is_readable(self, partition: int) -> bool:
        """Return True if a partition can be read, which makes it local.

        Raises as `base`, unless damaged partitions are skipped.
        """
        if partition in self.lost:
            return False
        try:
            self.base(partition)
        except (DamagedError, MissingError) as error:
            if not self._skip_damaged:
                raise
            self.lost[partition] = error
        return partition not in self.lost

    def _lost(
        self, partition: int, error: DamagedError | MissingError, pin: PinnedVersion | None = None
    ) -> DamagedError | MissingError:
        """Return the error with a description of the loss."""

        def families() -> Mapping[str, ColumnFamily]:
            assert pin is not None
            return pin.column_families(self.directory / f"lost-{partition}")

        storage = self._query.storage(self.key(partition))
        try:
            return lost_partition(
                error,
                self._query.location,
                self.view,
                partition,
                self.version,
                storage,
                families if pin else dict,
            )
        finally:
            storage.close()

    def is_local(self, partition: int) -> bool:
        """Return True if the partition has a local database."""
        return partition in self._local

    def forget(self, partition: int) -> None:
        """Remove the local database."""
        del self._local[partition]
        shutil.rmtree(self.directory / str(partition), ignore_errors=True)

    def family(self, partition: int) -> ColumnFamily | None:
        """Return the view's column family in a partition; None if nothing was ever written to it."""
        return self.base(partition).column_families.get(self.view.schema.family)

    def count(self, partition: int) -> int:
        """Return the view's rows in a partition as its files state them, without a restore.

        A lost partition has 0.
        """
        if partition in self.lost:
            return 0
        family = self._described_family(partition)
        return 0 if family is None else family.keys

    def family_id(self, partition: int) -> int | None:
        """Return the id of the view's column family in a partition, from its files; None as `family`."""
        family = self._described_family(partition)
        return None if family is None else family.id

    def described_families(self, partition: int) -> Mapping[str, ColumnFamily]:
        """Return all column families of a partition as its files state them, without a restore."""
        if partition not in self._families:
            directory = self.directory / f"count-{partition}"
            self._families[partition] = self._pins[partition].column_families(directory)
        return self._families[partition]

    def _described_family(self, partition: int) -> ColumnFamily | None:
        return self.described_families(partition).get(self.view.schema.family)

    def size_bytes(self, partition: int) -> int:
        """Return the bytes of the files of a partition that a restore reads, over all column families."""
        return 0 if partition in self.lost else self._pins[partition].size_bytes

    @contextlib.contextmanager
    def pinned(
        self, version: int, since: int | None = None, numbers: Sequence[int] | None = None
    ) -> Iterator[Mapping[int, PinnedVersion]]:
        """Yield the same partitions, or some of them, at another version (0: none), leased meanwhile.

        The deltas after version `since` are leased, too.
        """
        pins = self._pinned(version, since, numbers) if version else {}
        try:
            yield pins
        finally:
            for pin in pins.values():
                pin.release()

    def _pinned(
        self, version: int, since: int | None, numbers: Sequence[int] | None = None
    ) -> dict[int, PinnedVersion]:
        partitions = self.numbers if numbers is None else numbers
        try:
            committed = self._query.committed(version - 1)
        except MissingError:  # Spark has forgotten the batch, but its last commit builds on that version
            committed = self._query.committed()

        newest = (self._query.committed_batch() or 0) + 1

        def pin(number: int) -> PinnedVersion:
            key = self.key(number)
            storage = self._query.storage(key)
            return PinnedVersion(key, storage, version, committed[key], since=since, runtime=self._runtime)

        def found(number: int) -> PinnedVersion | None:
            try:
                return pin(number)
            except (DamagedError, MissingError) as error:
                if version != self.version or version != newest:
                    raise  # retention may have removed it
                lost = self._lost(number, error)
                if not self._skip_damaged:
                    raise lost from error
                self.lost[number] = lost
                return None

        pins = parallel(LISTED_AT_ONCE, found, partitions, runtime=self._runtime)
        return {number: pinned for number, pinned in zip(partitions, pins, strict=True) if pinned is not None}


def open_database(base: LocalDatabase) -> Database:
    """Open a local database for reading."""
    return Database(base.directory, READING)


def _let_go(pins: Mapping[int, PinnedVersion], directory: ScratchDirectory) -> None:
    for pin in pins.values():
        pin.release()
    directory.cleanup()


def filtered(
    partitions: Partitions,
    needed: Columns,
    names: Sequence[str],
    filter: pyarrow.compute.Expression | None,
    batch_rows: int,
    numbers: Sequence[int] | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows for which an expression is true, one partition after the other.

    Args:
        partitions: the partitions at their version; each is local while it is read.
        needed: the columns that are decoded.
        names: the columns that are returned.
        filter: None keeps all rows.
        batch_rows: the maximum number of rows of a batch.
        numbers: the numbers of the partitions that are read; None is all.

    Raises:
        DamagedError: a partition does not have the number of rows that it records.
        OptionError: the filter does not fit the columns.
    """
    for number in partitions.numbers if numbers is None else numbers:
        with partitions.read(number):
            for batch in decoded(partitions, needed, number, batch_rows):
                matches = batch if filter is None else _that_match(batch, filter)
                if matches.num_rows:
                    yield matches.select(names) if names != needed.schema.names else matches


def decoded(
    partitions: Partitions, needed: Columns, number: int, batch_rows: int
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of one partition, which is being read. Raises DamagedError for a wrong count of rows."""
    family = partitions.family(number) if partitions.is_readable(number) else None
    if family is None:
        return
    start, end = (place.to_bytes(FAMILY_BYTES, "big") for place in (family.id, family.id + 1))
    count = 0
    for page in rows(partitions.base(number).directory, READING, start, end):
        count += len(page)
        batch = needed.decode(tuple(page.keys), tuple(page.values), number)
        step = min(batch_rows, max(1, batch.num_rows))
        for first in range(0, batch.num_rows, step):
            yield batch.slice(first, step)
    if count != family.keys:
        raise DamagedError(
            f"store {partitions.key(number)} has {count} rows of column family "
            f"'{partitions.view.schema.family}' in version {partitions.version}, and says that it has "
            f"{family.keys}"
        )


def _that_match(batch: pyarrow.RecordBatch, filter: pyarrow.compute.Expression) -> pyarrow.RecordBatch:
    """Return the rows for which an expression is true. Raise OptionError if it does not fit the columns."""
    import pyarrow

    try:
        return batch.filter(filter)
    except pyarrow.ArrowException as error:
        raise OptionError(f"the filter does not fit the columns: {error}", option="filter") from error


def lost_partition(
    error: DamagedError | MissingError,
    checkpoint: str,
    view: View,
    partition: int,
    version: int,
    storage: Storage,
    families: Callable[[], Mapping[str, ColumnFamily]],
) -> DamagedError | MissingError:
    """Return the error that a partition cannot be read at a version, with the loss and a remedy.

    Args:
        error: the reason.
        checkpoint: the query's checkpoint directory.
        view: the store.
        partition: the number of the partition.
        version: the version.
        storage: the store's directory.
        families: returns the column families of the version with their numbers of rows, or fails.
    """
    family = _attempted(lambda: families()[view.schema.family])
    rows = "its rows" if family is None else f"its {counted(family.keys, 'row')}"
    keys = None if family is None else _attempted(lambda: _keys_in(error.file, view, family, storage))
    where = f" ({keys})" if keys else ""
    message = (
        f"partition {partition} of store '{view.name}' of operator {view.operator.id} cannot be read at "
        f"version {version}, and {rows} are lost{where}: {error.message}. `state-store repair {checkpoint}` "
        "tells if it can be repaired. Read the other partitions with partitions=..., or all undamaged ones "
        "with on_damage='skip'"
    )
    return type(error)(message, file=error.file)


def _keys_in(file: str | None, view: View, family: ColumnFamily, storage: Storage) -> str | None:
    """Return a sentence on the keys of the rows in the file; None if they are not known."""
    path = "/".join((file or "").split("/")[-2:])
    if not is_sst_path(path):
        return None
    with ScratchDirectory("state-store-") as scratch:
        local = Path(scratch) / "table"
        storage.download(path, local)
        bounds = key_bounds(local)
    low, high = (int.from_bytes(bound[:FAMILY_BYTES], "big") for bound in bounds)
    if low > family.id or high < family.id:
        return "the damaged file has none of them, but the version cannot be made without it"
    texts = [
        f"{side} {shown_key(view, bound)}"
        for side, bound, family_id in zip(("from", "to"), bounds, (low, high), strict=True)
        if family_id == family.id
    ]
    return f"the damaged file has rows with keys {' '.join(texts)}" if texts else None


def shown_key(view: View, key: bytes) -> str:
    """Return a key, with the id of a column family in front, as a user writes it: `name = value`, ..."""
    columns = Columns(view)
    return ", ".join(
        f"{name} = {column[0].as_py()!r}"
        for name, column in zip(columns.key_names, columns.keys([key]), strict=True)
    )


def _attempted(get: Callable[[], T]) -> T | None:
    """Return the result of `get`, or None if it fails: around damage, reading may fail again."""
    try:
        return get()
    except (StateStoreError, KeyError, IndexError, ValueError, OSError):
        return None
