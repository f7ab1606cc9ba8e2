"""Leases and tombstones, the half of the protocol of those who hold files, and the contents of a store.

The protocol is that of docs/deletion.md.

A *lease* names files that its owner refers to or reads, a *tombstone* files that a cleaner condemns. `Leases`
and `Tombstones` are those of a store as they are read. A damaged lease or tombstone counts for as long as a
lease would, and for all files, since its own are not known. Afterwards its writer has ended.

A writer of a snapshot (`Lease`):

1. `hold`: write a lease that names the existing files to be shared; *then* read the tombstones; *then* list
   the files. A file that is condemned or gone must be uploaded again, under a fresh name.
2. `announce` fresh names before their upload.
3. `publish`: write the snapshot's archive, *then* release the lease.

A lease says how long it holds. Its writer measures that on a clock that never jumps, and on the wall clock.
After half of that time it takes a new lease and checks everything again before it publishes.

A reader of stored files, such as an executor whose base is partly remote, holds them for as long as it reads:

1. find the files; write a lease that names them; *then* read the tombstones; *then* list the files. If a file
   is condemned or gone, find others (`find_under_lease`).
2. renew the lease after half of its time, and give it back when nothing is read any more (`ReaderLease`). A
   process that reads now and then has a thread for the renewals (`KeptLease`, `LeaseKeeper`).

The contents of a store's directory come last: its listing, the archives of its snapshots, and everything in
one reading. `StoreContents.read` reads in the order that safe deletion needs. Snapshots and their manifests
come first, then tombstones, then deltas and shared files. So a snapshot that is complete here and has no
condemned file cannot lose one afterwards: a cleaner that condemns a file later sees that snapshot.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TypeVar

from state_store.core.checkpoint import names
from state_store.core.checkpoint.lineage import Lineages, Listing
from state_store.core.checkpoint.registry import Registry, restorable_snapshots
from state_store.core.checkpoint.stored_documents import (
    Archive,
    LeaseTerms,
    Manifest,
    unpack,
    unpack_tombstone,
)
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Entry, Failures, Storage
from state_store.errors import (
    BusyError,
    DamagedError,
    FormatError,
    MissingError,
    StateStoreError,
    StorageError,
    UnknownOutcomeError,
)

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_EXPIRY_MS = 3_600_000
"""Default of the option leaseExpiry."""

FUTURE_LEASE_FACTOR = 24
"""Multiple of the expiry after which a lease runs out if the clock of its writer was far ahead."""

_FINDS = 3
"""Number of times that a reader looks for files of which none is condemned."""

LOOK_S = 60.0
"""Seconds between two looks at the leases."""


# ---- leases and tombstones as they are read -------------------------------------------------------------


def has_run_out(age_ms: float, expiry_ms: float) -> bool:
    """Return True if a lease, or a damaged tombstone, of that age no longer counts."""
    return age_ms > expiry_ms


@dataclass(frozen=True)
class Tombstones:
    """The tombstones of a store.

    Attributes:
        files: by path, the files that each names.
        damaged: entries of the damaged ones, by path.
        unfinished: unfinished writes, of live and dead writers, by path.
        entries: entries of the readable ones, by path.
    """

    files: Mapping[str, frozenset[str]]
    damaged: Mapping[str, Entry] = field(default_factory=dict)
    unfinished: Mapping[str, Entry] = field(default_factory=dict)
    entries: Mapping[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, storage: Storage) -> Tombstones:
        """Read all tombstones, without those that disappear meanwhile: their files are gone.

        Raises:
            FormatError: If a file has a newer format.
            StorageError: If the storage fails.
        """
        files: dict[str, frozenset[str]] = {}
        damaged: dict[str, Entry] = {}
        listed, unfinished = _listed_marks(storage, names.TOMBSTONE_DIRECTORY)
        for path, entry in listed.items():
            try:
                files[path] = _read_mark(storage, path, unpack_tombstone)
            except MissingError:
                continue
            except DamagedError:
                damaged[path] = entry
        return cls(files, damaged, unfinished, {path: listed[path] for path in files})

    def condemned(self) -> frozenset[str]:
        """Return the files that tombstones name."""
        return frozenset().union(*self.files.values())


@dataclass(frozen=True)
class ReadLease:
    """A lease and its entry in the listing; a damaged one has no `terms`."""

    entry: Entry
    terms: LeaseTerms | None
    error: DamagedError | None = None

    def is_expired(self, storage_now_ms: int, runtime: Runtime, default_expiry_ms: int) -> bool:
        """Return True if the writer counts as dead, after the time that the lease itself names.

        Two clocks must say so, each for itself: the storage's (when the lease appeared there, against
        `storage_now_ms`), and those of the machines (what the writer's showed, against that of `runtime`). So
        one clock that jumps, or a file whose time lies in the future, makes no live lease look old. If the
        lease was written in the future by the machines' clocks, they tell no age; then the storage's clock
        alone decides, after `FUTURE_LEASE_FACTOR` times as long.

        If writer and cleaner are on one machine, the storage may be there, too, and then all of these are one
        clock. So the clock since its start, which never jumps, must say so as well.
        """
        storage_age_ms, wall_ms = storage_now_ms - self.entry.modified_ms, runtime.wall_ms()
        if self.terms is None:
            return has_run_out(storage_age_ms, default_expiry_ms)
        uptime_ms = self.terms.uptime_ms if self._is_of_this_start(runtime) else None
        if uptime_ms is not None and not has_run_out(runtime.uptime_ms() - uptime_ms, self.terms.expiry_ms):
            return False
        if self.is_from_the_future(wall_ms):
            return has_run_out(storage_age_ms, FUTURE_LEASE_FACTOR * self.terms.expiry_ms)
        return has_run_out(min(storage_age_ms, wall_ms - self.terms.written_ms), self.terms.expiry_ms)

    def _is_of_this_start(self, runtime: Runtime) -> bool:
        """Return True if the writer has, or had, the clock of this start of this machine."""
        boot = None if self.terms is None else self.terms.boot
        return boot is not None and boot == runtime.boot()

    def is_from_the_future(self, wall_now_ms: float) -> bool:
        """Return True if the clock of the writer's machine is ahead of this one's by more than the expiry."""
        return self.terms is not None and self.terms.written_ms > wall_now_ms + self.terms.expiry_ms


@dataclass(frozen=True)
class Leases:
    """The leases of a store, and unfinished writes of leases, by path."""

    leases: Mapping[str, ReadLease]
    unfinished: Mapping[str, Entry]

    @classmethod
    def read(cls, storage: Storage) -> Leases:
        """Read all leases, without those that disappear meanwhile: they were released.

        Raises:
            FormatError: If a file has a newer format.
            StorageError: If the storage fails.
        """
        leases: dict[str, ReadLease] = {}
        listed, unfinished = _listed_marks(storage, names.LEASE_DIRECTORY)
        for path, entry in listed.items():
            try:
                leases[path] = ReadLease(entry, _read_mark(storage, path, LeaseTerms.unpack))
            except MissingError:
                continue
            except DamagedError as error:
                leases[path] = ReadLease(entry, None, error)
        return cls(leases, unfinished)


def _read_mark(storage: Storage, path: str, unpack: Callable[..., T]) -> T:
    return read_again_if_damaged(lambda: unpack(storage.read(path), file=path))


def _listed_marks(storage: Storage, directory: str) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Return the leases or tombstones, and the unfinished writes, by path, without foreign files."""
    entries = {f"{directory}/{entry.name}": entry for entry in storage.list_files(directory)}
    return (
        {path: entry for path, entry in entries.items() if names.is_file_list_name(entry.name)},
        {path: entry for path, entry in entries.items() if path.endswith(names.TEMPORARY_SUFFIX)},
    )


def read_again_if_damaged(read: Callable[[], T]) -> T:
    """Return what `read` returns; call it a second time if it raises DamagedError.

    Files are deleted by what was read, so a bit that was wrong on its way must not count as damage.

    Raises:
        DamagedError: If both readings are damaged.
    """
    try:
        return read()
    except DamagedError:
        return read()


# ---- the lease of a writer ------------------------------------------------------------------------------


class Lease:
    """The lease of one snapshot; a context manager that releases it. Used by one thread at a time.

    Every method raises as the storage does. A lease that is not released runs out `expiry_ms` after it was
    written. Here that is measured on a clock that never jumps and on the wall clock, whichever says more;
    others go by the wall clock in the lease.
    `warnings` name damaged tombstones, and a lease that stays.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        expiry_ms: int,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.warnings: list[str] = []
        self._storage = storage
        self._expiry_ms = expiry_ms
        self._runtime = runtime
        self._existing: set[str] = set()
        self._announced: set[str] = set()
        self._written: list[str] = []
        self._valid_from_ms: tuple[float, int] | None = None
        self._is_published = False

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except StateStoreError as failure:
            if self._is_published:
                self.warnings.append(f"a lease stays until it runs out: {failure.message}")
            elif error is None:
                raise

    def hold(self, paths: Iterable[str]) -> frozenset[str]:
        """Hold existing files, so that a snapshot may refer to them.

        Returns:
            The files that it must not refer to, because they are condemned or gone; they are not held.
        """
        self._existing |= set(paths)
        return self._renew_and_check() if self._existing else frozenset()

    def announce(self, paths: Iterable[str]) -> None:
        """Hold files that will be uploaded, before the upload; their names were never used."""
        fresh = set(paths)
        if self._valid_from_ms is None:
            self._valid_from_ms = self._clocks_ms()
        self._announced |= fresh
        self._write(fresh)

    def not_held(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that the lease does not cover."""
        return set(paths) - self._existing - self._announced

    def publish(
        self, snapshot: names.SnapshotName, archive: bytes, *, overwrite: bool = False
    ) -> frozenset[str]:
        """Write the archive of a snapshot, all of whose files are held and uploaded; release the lease.

        A lease that storage does not let go runs out: the end of the context tries once more, and warns.

        Returns:
            The files that were lost meanwhile. If there are any, nothing is published: the caller announces
            and uploads them under fresh names and publishes again.

        Raises:
            ConflictError: If the snapshot exists and `overwrite` is false.
            BusyError: If the lease ran out while the archive was written and a file may be gone. The snapshot
                stays, since others may rely on it already; a restore that finds a file missing skips it.
        """
        if self._age_ms() >= self._expiry_ms / 2:
            lost = self._renew_and_check()
            if lost:
                return lost
        self._storage.write(snapshot.path, archive, overwrite=overwrite)
        if self._age_ms() >= self._expiry_ms and (lost := self._renew_and_check()):
            raise BusyError(
                f"'{snapshot.path}' took longer to write than the {self._expiry_ms} ms that its lease held, "
                f"and of its files '{min(lost)}' is condemned or gone: restores may pass over it",
                file=snapshot.path,
            )
        self._is_published = True
        with contextlib.suppress(StorageError, UnknownOutcomeError):
            self.release()
        return frozenset()

    def release(self) -> None:
        """Delete the lease; a second call does nothing."""
        failures = Failures()
        for path in self._written[::-1]:
            failures.attempt(self._give_back, path)
        failures.check()
        self._existing.clear()
        self._announced.clear()
        self._valid_from_ms = None

    def _give_back(self, path: str) -> None:
        self._storage.delete(path)
        self._written.remove(path)

    def _renew_and_check(self) -> frozenset[str]:
        now_ms = self._clocks_ms()
        self._write(self._existing | self._announced)
        lost = self._lost()
        self._existing -= lost
        self._announced -= lost
        self._valid_from_ms = now_ms
        return lost

    def _write(self, paths: Iterable[str]) -> None:
        """Add a file to the lease. No name is used twice, so that no renewed lease is swept as expired."""
        path = names.lease_path(self._runtime.unique())
        self._written.append(path)
        terms = LeaseTerms(
            frozenset(paths),
            self._expiry_ms,
            int(self._runtime.wall_ms()),
            self._runtime.boot(),
            int(self._runtime.uptime_ms()),
        )
        self._storage.write(path, terms.pack())

    def _age_ms(self) -> float:
        """Return the time since all files were held and checked; announced files count as that old.

        The clock that never jumps stands still while a hypervisor has paused the machine, and the wall clock
        is set right afterwards. So the one that says more counts: too early a renewal does no harm.
        """
        if self._valid_from_ms is None:
            return self._expiry_ms
        return max(now - then for now, then in zip(self._clocks_ms(), self._valid_from_ms, strict=True))

    def _clocks_ms(self) -> tuple[float, int]:
        return self._runtime.uptime_ms(), self._runtime.wall_ms()

    def _lost(self) -> frozenset[str]:
        tombstones = Tombstones.read(self._storage)
        condemned = tombstones.condemned()
        if tombstones.damaged and self._any_counts(tombstones):
            condemned |= self._existing
        existing = {
            f"{directory}/{entry.name}"
            for directory in (names.DELTA_DIRECTORY, names.SHARED_DIRECTORY)
            for entry in self._storage.list_files(directory)
        }
        held = self._existing | self._announced
        return frozenset(path for path in held if path in condemned or path not in existing)

    def _any_counts(self, tombstones: Tombstones) -> bool:
        """Return True if a damaged tombstone is so young that its cleaner may be at work.

        The lease that was just written tells the storage's time.
        """
        newest = self._written[-1]
        written = [
            entry.modified_ms
            for entry in self._storage.list_files(names.LEASE_DIRECTORY)
            if newest.endswith(f"/{entry.name}")
        ]
        young = [
            path
            for path, entry in tombstones.damaged.items()
            if not written or not has_run_out(written[0] - entry.modified_ms, self._expiry_ms)
        ]
        self.warnings += [
            f"'{path}' is damaged, so it is not known which files it condemns: none is shared until it is "
            f"{self._expiry_ms} ms old"
            for path in young
        ]
        return bool(young)


# ---- the leases of readers ------------------------------------------------------------------------------


class ReaderLease(Lease):
    """The lease of one reader, for as long as it reads. Used by one thread at a time."""

    def __init__(self, storage: Storage, *, expiry_ms: int, runtime: Runtime = SYSTEM) -> None:
        super().__init__(storage, expiry_ms=expiry_ms, runtime=runtime)
        self._written_ms: dict[str, float] = {}

    def hold(self, paths: Iterable[str]) -> frozenset[str]:
        """Hold files, before the first read of them.

        Returns:
            Those that are condemned or gone. They are held as well, if they are there.
        """
        self._existing |= set(paths)
        return self.renew()

    def renew(self) -> frozenset[str]:
        """Hold the files for as long again, from now on.

        The lease before is given back unless a file is condemned: its cleaner may have listed the leases when
        the new one was not there, and is about to read the one before.

        Returns:
            The files that are condemned or gone. They stay held: a cleaner that finds the lease leaves them.
        """
        held, before = frozenset(self._existing), list(self._written)
        lost = self._renew_and_check()
        self._existing |= held
        failures = Failures()
        for path in before:
            age_ms = self._runtime.uptime_ms() - self._written_ms.get(path, -math.inf)
            if not lost or age_ms >= self._expiry_ms:
                failures.attempt(self._give_back, path)
        failures.check()
        return lost

    @property
    def is_of_use(self) -> bool:
        """True if one of its files is there. Asks the storage, and raises as that does."""
        return self._storage.exists(min(self._existing))

    @property
    def renew_in_ms(self) -> float:
        """Milliseconds until the lease has to be renewed."""
        return self._expiry_ms / 2 - self._age_ms()

    def _give_back(self, path: str) -> None:
        super()._give_back(path)
        self._written_ms.pop(path, None)

    def _write(self, paths: Iterable[str]) -> None:
        now_ms = self._runtime.uptime_ms()
        super()._write(paths)
        self._written_ms[self._written[-1]] = now_ms


def find_under_lease(
    find: Callable[[], T],
    files_of: Callable[[T], frozenset[str]],
    give_up: Callable[[T], object],
    new_lease: Callable[[], ReaderLease],
) -> tuple[T, ReaderLease | None, frozenset[str]]:
    """Find stored files to read, and lease them before the first read.

    If a file is condemned or gone once the lease is there, another search finds what has taken its place. If
    that is the same files, they are read all the same: a snapshot may need what a cleaner has condemned, and
    only a cleaner that has looked already deletes it. If the storage refuses the lease, as one that cannot be
    written does, the files are read without: the first renewal tries again.

    Args:
        find: Searches.
        files_of: Returns the paths of the files of a find that will be read; none needs a lease.
        give_up: Is called with a find that is not used.
        new_lease: Makes a lease.

    Returns:
        The find, its lease (None without files), and the files of it that are condemned or gone.

    Raises:
        StateStoreError: As `find`.
    """
    before: frozenset[str] = frozenset()
    for attempt in range(_FINDS):
        find_result = find()
        files = files_of(find_result)
        if not files:
            return find_result, None, files
        lease = new_lease()
        try:
            lost = lease.hold(files)
            if not lost or files == before or attempt == _FINDS - 1:
                return find_result, lease, lost
        except (StorageError, UnknownOutcomeError):
            return find_result, lease, frozenset()
        except BaseException:
            give_up(find_result)
            raise
        with contextlib.suppress(StorageError, UnknownOutcomeError):  # it runs out
            lease.release()
        give_up(find_result)
        before = files
    raise AssertionError("unreachable")


class KeptLease:
    """A lease that is renewed until it is released, or until nobody refers to it. Safe for any thread."""

    def __init__(self, lease: ReaderLease, runtime: Runtime) -> None:
        self._lease = lease
        self._lock = runtime.lock()
        self._is_released = False
        self._keeper = keeper_of(runtime)
        self._keeper.keep(self)

    def release(self) -> None:
        """Give the lease back. Raises as the storage does; the lease runs out then."""
        with self._lock:
            self._is_released = True
            self._keeper.wake()
            self._lease.release()

    def renew_if_due(self) -> None:
        """Renew the lease if half of its time is over. Raises as the storage does.

        The lease of a removed checkpoint does not bring it back.
        """
        with self._lock:
            if not self._is_released and self._lease.renew_in_ms <= 0 and self._lease.is_of_use:
                self._lease.renew()

    @property
    def is_released(self) -> bool:
        """True if nothing is read any more."""
        return self._is_released


class LeaseKeeper:
    """A thread that renews leases while there are any. Safe for any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._changed = runtime.condition()
        self._leases: weakref.WeakSet[KeptLease] = weakref.WeakSet()
        self._is_running = False

    def keep(self, lease: KeptLease) -> None:
        """Renew a lease from now on. Without a thread to start it holds once, as its first time says."""
        with self._changed:
            self._leases.add(lease)
            if not self._is_running:
                try:
                    self._runtime.start(self._run, name="leases")
                except (RuntimeError, MemoryError):
                    return
                self._is_running = True

    def wake(self) -> None:
        """Look soon: a lease was released."""
        with self._changed:
            self._changed.notify_all()

    def look(self) -> bool:
        """Renew what is due. Returns False, and keeps nothing, if no lease is left."""
        with self._changed:
            for lease in [lease for lease in self._leases if lease.is_released]:
                self._leases.discard(lease)
            kept_leases = list(self._leases)
            if not kept_leases:
                self._is_running = False
                return False
        for lease in kept_leases:
            try:
                lease.renew_if_due()
            except StateStoreError:
                continue  # the next look tries again
            except Exception as error:  # of a storage of others: the thread must go on for all leases
                _LOG.warning("a lease was not renewed, and is tried again: %r", error)
        return True

    def _run(self) -> None:
        while self.look():
            with self._changed:
                self._changed.wait(LOOK_S)


@functools.lru_cache(maxsize=16)
def keeper_of(runtime: Runtime) -> LeaseKeeper:
    """Return the keeper of a process."""
    return LeaseKeeper(runtime)


# A process that was forked has the memory of the keeper before, and not its thread.
os.register_at_fork(after_in_child=keeper_of.cache_clear)


# ---- the contents of a store ----------------------------------------------------------------------------


def read_listing(storage: Storage) -> Listing:
    """Return the deltas and snapshots of a store. Raises as the storage does.

    Deltas are listed first. If a clean-up deletes one between the two listings, a snapshot has taken its
    place, and the second listing shows it.
    """
    entries = {
        f"{directory}/{entry.name}": entry
        for directory in (names.DELTA_DIRECTORY, names.SNAPSHOT_DIRECTORY)
        for entry in storage.list_files(directory)
    }
    return listing_of(entries)


def listing_of(entries: Mapping[str, Entry]) -> Listing:
    """Return the files that are ours by their names, of entries by path."""
    return Listing.from_files(
        ((path, entry.size_bytes) for path, entry in entries.items()),
        {path: entry.modified_ms for path, entry in entries.items()},
    )


def read_newest_manifest(
    storage: Storage, snapshots: Iterable[names.SnapshotName]
) -> tuple[Manifest | None, list[str]]:
    """Return the manifest of the newest readable snapshot (None: there is none), and warnings.

    A warning names a damaged archive. It counts as absent until a newer snapshot, or a full one of that
    version, takes its place.

    Raises:
        FormatError: If an archive is of a format that this program does not know.
        StorageError: If the storage fails.
    """
    warnings: list[str] = []
    for name in sorted(snapshots, key=lambda name: name.version, reverse=True):
        try:
            return read_archive(storage, name).manifest, warnings
        except MissingError:
            continue
        except DamagedError as error:
            warnings.append(f"snapshot '{name.path}' counts as absent: {error.message}")
    return None, warnings


def read_archive(storage: Storage, snapshot: names.SnapshotName) -> Archive:
    """Return the archive of a snapshot.

    Raises:
        MissingError: If there is no such archive.
        DamagedError: If it is not what was written, or of another version than its name.
        FormatError: If it is of a format that this program does not know.
    """
    file = f"{storage.location}/{snapshot.path}"
    archive = unpack(storage.read(snapshot.path), file=file)
    if archive.manifest.version_id != snapshot.version_id:
        raise DamagedError(
            f"'{file}' is damaged: it says that it is version {archive.manifest.version_id}", file=file
        )
    return archive


@dataclass(frozen=True)
class ReadSnapshot:
    """A snapshot as it was listed and read; without a `manifest`, `error` says why it cannot be used."""

    entry: Entry
    manifest: Manifest | None
    error: DamagedError | FormatError | None = None


@dataclass(frozen=True)
class StoreContents:
    """The files of a store at one moment. Immutable; safe for any thread.

    While the query runs, files appear and disappear between two readings.

    Attributes:
        snapshots: the snapshots by name, damaged ones included.
        tombstones: the tombstones.
        entries: all files of `delta/`, `shared/` and `snapshot/` by path, foreign and unfinished ones too.
    """

    snapshots: Mapping[names.SnapshotName, ReadSnapshot]
    tombstones: Tombstones
    entries: Mapping[str, Entry]

    @classmethod
    def read(
        cls, storage: Storage, known_snapshots: Mapping[names.SnapshotName, ReadSnapshot] | None = None
    ) -> StoreContents:
        """Read the directory: four listings, and the archives that are not as they were in `known_snapshots`.

        Raises:
            FormatError: If a tombstone is of a newer format. A snapshot of one has it as its error.
            StorageError: If the storage fails.
        """
        entries = _entries(storage, names.SNAPSHOT_DIRECTORY)
        snapshots = _read_snapshots(storage, entries.values(), known_snapshots or {})
        tombstones = Tombstones.read(storage)
        entries |= _entries(storage, names.DELTA_DIRECTORY)
        entries |= _entries(storage, names.SHARED_DIRECTORY)
        return cls(snapshots, tombstones, entries)

    def without(self, paths: Collection[str]) -> StoreContents:
        """Return the contents without these files."""
        left_out = set(paths)
        snapshots = {name: read for name, read in self.snapshots.items() if name.path not in left_out}
        entries = {path: entry for path, entry in self.entries.items() if path not in left_out}
        return replace(self, snapshots=snapshots, entries=entries)

    @functools.cached_property
    def listing(self) -> Listing:
        """The finished files that are ours by their names."""
        return listing_of(self.entries)

    @functools.cached_property
    def manifests(self) -> dict[names.SnapshotName, Manifest]:
        """The manifests of the snapshots whose archives can be read."""
        return {name: read.manifest for name, read in self.snapshots.items() if read.manifest is not None}

    @functools.cached_property
    def restorable_snapshots(self) -> dict[names.SnapshotName, Manifest]:
        """The snapshots all of whose files exist."""
        return restorable_snapshots(self.listing, self.manifests)

    @functools.cached_property
    def lineages(self) -> Lineages:
        """The versions that these files can make."""
        return Lineages(self.listing.deltas, self.restorable_snapshots)

    @property
    def unfinished(self) -> dict[str, Entry]:
        """Unfinished writes, of live and dead writers, by path."""
        return {path: entry for path, entry in self.entries.items() if path.endswith(names.TEMPORARY_SUFFIX)}

    @property
    def committed_ms(self) -> dict[int, int]:
        """Time of the last commit of each version, by the storage's clock."""
        times: dict[int, int] = {}
        for delta in self.listing.deltas:
            at_ms = self.entries[delta.path].modified_ms
            times[delta.version] = max(at_ms, times.get(delta.version, at_ms))
        return times

    def registry(self, floor: int = 0) -> Registry:
        """Return the files that the versions from `floor` up need."""
        return Registry.rebuild(self.listing, self.manifests, floor=floor)


def read_snapshots(
    storage: Storage, known_snapshots: Mapping[names.SnapshotName, ReadSnapshot]
) -> dict[names.SnapshotName, ReadSnapshot]:
    """Return the present snapshots; those that are as in `known_snapshots` are not read again."""
    return _read_snapshots(storage, storage.list_files(names.SNAPSHOT_DIRECTORY), known_snapshots)


def refuse_newer_formats(snapshots: Mapping[names.SnapshotName, ReadSnapshot]) -> None:
    """Raise FormatError if a snapshot is of a format that this program does not know."""
    for read in snapshots.values():
        if isinstance(read.error, FormatError):
            raise read.error


def _entries(storage: Storage, directory: str) -> dict[str, Entry]:
    return {f"{directory}/{entry.name}": entry for entry in storage.list_files(directory)}


def _read_snapshots(
    storage: Storage, entries: Iterable[Entry], known_snapshots: Mapping[names.SnapshotName, ReadSnapshot]
) -> dict[names.SnapshotName, ReadSnapshot]:
    snapshots: dict[names.SnapshotName, ReadSnapshot] = {}
    for entry in entries:
        name = names.SnapshotName.parse(entry.name)
        if name is None:
            continue
        before = known_snapshots.get(name)
        if before is not None and before.entry == entry and before.manifest is not None:
            snapshots[name] = before
            continue
        try:
            snapshots[name] = ReadSnapshot(entry, _read_manifest(storage, name))
        except MissingError:
            continue  # deleted since it was listed
        except (DamagedError, FormatError) as error:
            snapshots[name] = ReadSnapshot(entry, None, error)
    return snapshots


def _read_manifest(storage: Storage, name: names.SnapshotName) -> Manifest:
    return read_again_if_damaged(lambda: read_archive(storage, name)).manifest
