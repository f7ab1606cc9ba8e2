"""How the writer of a snapshot keeps others from deleting the files that it is about to refer to.

The writer's half of the protocol of docs/deletion.md:

1. `hold`: write a lease that names the existing files to be shared; *then* read the tombstones;
   *then* see which of the files exist. A file that is condemned or gone must be uploaded anew, under a
   fresh name.
2. `announce` fresh names before their upload.
3. `publish`: write the snapshot's archive, *then* give the lease back.

A lease holds for `expiry_ms` after it was written, by the storage's clock. The writer measures the same time
on a clock that never jumps: before it has run out, it takes a new lease and checks everything again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from state_store.checkpoint.file_list import pack_file_list, unpack_file_list
from state_store.checkpoint.names import (
    DELTA_DIRECTORY,
    SHARED_DIRECTORY,
    TOMBSTONE_DIRECTORY,
    SnapshotName,
    is_file_list_name,
    lease_path,
)
from state_store.errors import MissingError, StateStoreError
from state_store.storage.contract import Storage


def steady_clock_ms() -> float:
    """Milliseconds on a clock that neither jumps nor stops while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


class Lease:
    """The lease of one snapshot; a context manager that gives it back. Used by one thread at a time.

    Every method raises StorageError and its kin as the storage does; a lease that is not given back expires.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        expiry_ms: int,
        clock_ms: Callable[[], float] = steady_clock_ms,
        unique: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._storage = storage
        self._expiry_ms = expiry_ms
        self._clock_ms = clock_ms
        self._unique = unique
        self._files: set[str] = set()
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
        """Holds the existing files at `paths`, so that a snapshot may refer to them.

        Returns those that it must not refer to, because they are condemned or gone; they are not held.
        """
        self._files |= set(paths)
        return self._renew_and_check() if self._files else frozenset()

    def announce(self, paths: Iterable[str]) -> None:
        """Holds files that are about to be uploaded; call before that, with names that were never used."""
        fresh = set(paths)
        if self._valid_from_ms is None:
            self._valid_from_ms = self._clock_ms()
        self._files |= fresh
        self._write(fresh)

    def publish(self, snapshot: SnapshotName, archive: bytes, *, overwrite: bool = False) -> frozenset[str]:
        """Makes the snapshot visible, all of whose files are held and uploaded; gives the lease back.

        Returns the files that were lost meanwhile: then nothing is published, and the caller uploads them
        under fresh names, announced before, and publishes again. Raises ConflictError when the snapshot
        exists and `overwrite` is false.
        """
        if self._age_ms() >= self._expiry_ms / 2:
            lost = self._renew_and_check()
            if lost:
                return lost
        self._storage.write(snapshot.path, archive, overwrite=overwrite)
        if self._age_ms() >= self._expiry_ms:
            lost = self._renew_and_check()
            if lost:
                self._storage.delete(snapshot.path)
                return lost
        self.release()
        return frozenset()

    def release(self) -> None:
        """Gives the lease back; twice is fine."""
        while self._written:
            self._storage.delete(self._written[-1])
            self._written.pop()
        self._files.clear()
        self._valid_from_ms = None

    def _renew_and_check(self) -> frozenset[str]:
        now_ms = self._clock_ms()
        self._write(self._files)
        lost = self._lost(self._files)
        self._files -= lost
        self._valid_from_ms = now_ms
        return lost

    def _write(self, paths: Iterable[str]) -> None:
        """Adds a file to the lease. No name is used twice: what is swept was never just renewed."""
        path = lease_path(self._unique())
        self._written.append(path)
        self._storage.write(path, pack_file_list(paths))

    def _age_ms(self) -> float:
        """Time since what is held was last held and found in order; fresh files are as old as that."""
        return self._expiry_ms if self._valid_from_ms is None else self._clock_ms() - self._valid_from_ms

    def _lost(self, paths: set[str]) -> frozenset[str]:
        condemned = read_condemned(self._storage)
        existing = {
            f"{directory}/{entry.name}"
            for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY)
            for entry in self._storage.list_files(directory)
        }
        return frozenset(path for path in paths if path in condemned or path not in existing)


def read_condemned(storage: Storage) -> frozenset[str]:
    """The files that some tombstone names. One that vanishes meanwhile is done: its files are gone."""
    return frozenset().union(*read_tombstones(storage).values())


def read_tombstones(storage: Storage) -> dict[str, frozenset[str]]:
    """Each tombstone's path, and the files that it names."""
    found: dict[str, frozenset[str]] = {}
    for entry in storage.list_files(TOMBSTONE_DIRECTORY):
        path = f"{TOMBSTONE_DIRECTORY}/{entry.name}"
        if not is_file_list_name(entry.name):
            continue
        try:
            found[path] = unpack_file_list(storage.read(path), file=path)
        except MissingError:
            continue
    return found
