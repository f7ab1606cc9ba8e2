"""A version of one store for a reader: chosen, leased so that its files stay, restored to a local database.

A version is chosen by its number, by its batch, or by time.

Files of a running query appear and disappear. So a reader of a version of many stores lists all stores at
once, keeps small files (listings, archives of snapshots) in memory, and holds a lease on the rest, which is
renewed until the version is released (docs/deletion.md). If the storage is read-only there is no lease, and a
version that is no longer retained may be gone when it is read.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from state_store.core.checkpoint.lineage import ChainDelta, Lineages, Listing, describe_restorable
from state_store.core.checkpoint.names import DELTA_DIRECTORY, SNAPSHOT_DIRECTORY, DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import ColumnFamily, DeltaMetadata, FileEntry
from state_store.core.deletion.lease import (
    DEFAULT_EXPIRY_MS,
    KeptLease,
    ReaderLease,
    listing_of,
    read_archive,
)
from state_store.core.engine.database import DatabaseSettings
from state_store.core.engine.table import read_metadata
from state_store.core.files.transfer import Wanted, difference
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.snapshots.context import LocalDatabase, StoreContext, wanted_deltas
from state_store.core.snapshots.restore import Restored, restore
from state_store.core.storage.contract import Entry, Storage
from state_store.core.storage.forwarding import ForwardingStorage
from state_store.data.dataset.moments import Moment, as_moment, format_moment, milliseconds_of
from state_store.data.query import Progress, Query, StoreKey
from state_store.data.query.arguments import check_number
from state_store.errors import DamagedError, MissingError, OptionError, StateStoreError, StorageError

MAX_OPEN_FILES = 512
_TRIES = 3


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
            wanted = Wanted(path, self._sizes[source], local, crc32=source.crc)
        else:
            wanted = Wanted(path, source.size_bytes, local, sha256=source.sha256)
        reason = difference(wanted)
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
            DatabaseSettings(max_open_files=MAX_OPEN_FILES),
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
        """Lease files, and return those that are condemned or gone, all of which are in `spared`."""
        lease = ReaderLease(self.storage, expiry_ms=DEFAULT_EXPIRY_MS, runtime=self._runtime)
        try:
            lost = lease.hold(paths)
        except StorageError:
            return frozenset()
        lost_files = lost - spared
        if lost_files:
            lease.release()
            raise MissingError(
                f"'{min(lost_files)}' of store {self.key} was removed meanwhile", file=min(lost_files)
            )
        self._lease = KeptLease(lease, self._runtime)
        return lost


class _Pinned(ForwardingStorage):
    """A store's directory as it was listed; `kept` are files whose bytes are in memory."""

    def __init__(self, inner: Storage, entries: Mapping[str, Entry], kept: Mapping[str, bytes]) -> None:
        super().__init__(inner)
        self._entries = entries
        self._kept = kept

    def list_files(self, directory: str) -> list[Entry]:
        if directory not in (DELTA_DIRECTORY, SNAPSHOT_DIRECTORY):
            return self.inner.list_files(directory)
        return [entry for path, entry in self._entries.items() if path.startswith(f"{directory}/")]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if path in self._kept:
            return self._kept[path][offset : None if length is None else offset + length]
        return self.inner.read(path, offset, length)
