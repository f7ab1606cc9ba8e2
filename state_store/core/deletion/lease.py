"""Leases by which writers of snapshots and readers of stored files keep others from deleting them.

The writer's half of the protocol of docs/deletion.md:

1. `hold`: write a lease that names the existing files to be shared; *then* read the tombstones; *then* list
   the files. A file that is condemned or gone must be uploaded again, under a fresh name.
2. `announce` fresh names before their upload.
3. `publish`: write the snapshot's archive, *then* release the lease.

A lease says how long it holds. Its writer measures that on a clock that never jumps. After half of that time
it takes a new lease and checks everything again before it publishes.

A reader of stored files, such as an executor whose base is partly remote, holds them for as long as it reads:

1. find the files; write a lease that names them; *then* read the tombstones; *then* list the files. If a file
   is condemned or gone, find others (`find_under_lease`).
2. renew the lease after half of its time, and give it back when nothing is read any more (`ReaderLease`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TypeVar

from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    LEASE_DIRECTORY,
    SHARED_DIRECTORY,
    SnapshotName,
    lease_path,
)
from state_store.core.checkpoint.stored_documents import LeaseTerms
from state_store.core.deletion.markers import Tombstones, has_run_out
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Storage
from state_store.errors import BusyError, StateStoreError, StorageError, UnknownOutcomeError

T = TypeVar("T")

DEFAULT_EXPIRY_MS = 3_600_000
"""Default of the option leaseExpiry."""

_FINDS = 3
"""Number of times that a reader looks for files of which none is condemned."""


class Lease:
    """The lease of one snapshot; a context manager that releases it. Used by one thread at a time.

    Every method raises as the storage does. A lease that is not released runs out `expiry_ms` after it was
    written. Here that is measured on a clock that never jumps; others go by the wall clock in the lease.
    `warnings` name damaged tombstones.
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
        self._valid_from_ms: float | None = None

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except StateStoreError:
            if error is None:
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
            self._valid_from_ms = self._runtime.uptime_ms()
        self._announced |= fresh
        self._write(fresh)

    def not_held(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that the lease does not cover."""
        return set(paths) - self._existing - self._announced

    def publish(self, snapshot: SnapshotName, archive: bytes, *, overwrite: bool = False) -> frozenset[str]:
        """Write the archive of a snapshot, all of whose files are held and uploaded; release the lease.

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
        self.release()
        return frozenset()

    def release(self) -> None:
        """Delete the lease; a second call does nothing."""
        while self._written:
            self._storage.delete(self._written[-1])
            self._written.pop()
        self._existing.clear()
        self._announced.clear()
        self._valid_from_ms = None

    def _renew_and_check(self) -> frozenset[str]:
        now_ms = self._runtime.uptime_ms()
        self._write(self._existing | self._announced)
        lost = self._lost()
        self._existing -= lost
        self._announced -= lost
        self._valid_from_ms = now_ms
        return lost

    def _write(self, paths: Iterable[str]) -> None:
        """Add a file to the lease. No name is used twice, so that no renewed lease is swept as expired."""
        path = lease_path(self._runtime.unique())
        self._written.append(path)
        terms = LeaseTerms(frozenset(paths), self._expiry_ms, int(self._runtime.wall_ms()))
        self._storage.write(path, terms.pack())

    def _age_ms(self) -> float:
        """Return the time since all files were held and checked; announced files count as that old."""
        return (
            self._expiry_ms
            if self._valid_from_ms is None
            else self._runtime.uptime_ms() - self._valid_from_ms
        )

    def _lost(self) -> frozenset[str]:
        tombstones = Tombstones.read(self._storage)
        condemned = tombstones.condemned()
        if tombstones.damaged and self._any_counts(tombstones):
            condemned |= self._existing
        existing = {
            f"{directory}/{entry.name}"
            for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY)
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
            for entry in self._storage.list_files(LEASE_DIRECTORY)
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
        for path in before:
            age_ms = self._runtime.uptime_ms() - self._written_ms.get(path, -math.inf)
            if not lost or age_ms >= self._expiry_ms:
                self._storage.delete(path)
                self._written.remove(path)
                self._written_ms.pop(path, None)
        return lost

    @property
    def is_of_use(self) -> bool:
        """True if one of its files is there. Asks the storage, and raises as that does."""
        return self._storage.exists(min(self._existing))

    @property
    def renew_in_ms(self) -> float:
        """Milliseconds until the lease has to be renewed."""
        return self._expiry_ms / 2 - self._age_ms()

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
        found = find()
        files = files_of(found)
        if not files:
            return found, None, files
        lease = new_lease()
        try:
            lost = lease.hold(files)
            if not lost or files == before or attempt == _FINDS - 1:
                return found, lease, lost
            lease.release()
        except (StorageError, UnknownOutcomeError):
            return found, lease, frozenset()
        except BaseException:
            give_up(found)
            raise
        give_up(found)
        before = files
    raise AssertionError("unreachable")
