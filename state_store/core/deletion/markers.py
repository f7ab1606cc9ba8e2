"""Leases and tombstones of a store as they are read: the files that each holds or condemns.

A damaged lease or tombstone counts for as long as a lease would, and for all files, since its own are not
known. Afterwards its writer has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from state_store.core.checkpoint.names import (
    LEASE_DIRECTORY,
    TEMPORARY_SUFFIX,
    TOMBSTONE_DIRECTORY,
    is_file_list_name,
)
from state_store.core.checkpoint.stored_documents import LeaseTerms, unpack_tombstone
from state_store.core.deletion.reading import read_again_if_damaged
from state_store.core.storage.contract import Entry, Storage
from state_store.errors import DamagedError, MissingError

T = TypeVar("T")

FUTURE_LEASE_FACTOR = 24
"""Multiple of the expiry after which a lease runs out if the clock of its writer was far ahead."""


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
        listed, unfinished = _listed(storage, TOMBSTONE_DIRECTORY)
        for path, entry in listed.items():
            try:
                files[path] = _read(storage, path, unpack_tombstone)
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

    def is_expired(self, storage_now_ms: int, wall_now_ms: float, default_expiry_ms: int) -> bool:
        """Return True if the writer counts as dead, after the time that the lease itself names.

        Two clocks must say so, each for itself: the storage's (when the lease appeared there, against
        `storage_now_ms`), and those of the machines (what the writer's showed, against `wall_now_ms`). So one
        clock that jumps, or a file whose time lies in the future, makes no live lease look old. If the lease
        was written in the future by the machines' clocks, they tell no age; then the storage's clock alone
        decides, after `FUTURE_LEASE_FACTOR` times as long.
        """
        storage_age_ms = storage_now_ms - self.entry.modified_ms
        if self.terms is None:
            return has_run_out(storage_age_ms, default_expiry_ms)
        if self.is_from_the_future(wall_now_ms):
            return has_run_out(storage_age_ms, FUTURE_LEASE_FACTOR * self.terms.expiry_ms)
        return has_run_out(min(storage_age_ms, wall_now_ms - self.terms.written_ms), self.terms.expiry_ms)

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
        listed, unfinished = _listed(storage, LEASE_DIRECTORY)
        for path, entry in listed.items():
            try:
                leases[path] = ReadLease(entry, _read(storage, path, LeaseTerms.unpack))
            except MissingError:
                continue
            except DamagedError as error:
                leases[path] = ReadLease(entry, None, error)
        return cls(leases, unfinished)


def _read(storage: Storage, path: str, unpack: Callable[..., T]) -> T:
    return read_again_if_damaged(lambda: unpack(storage.read(path), file=path))


def _listed(storage: Storage, directory: str) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Return the leases or tombstones, and the unfinished writes, by path, without foreign files."""
    entries = {f"{directory}/{entry.name}": entry for entry in storage.list_files(directory)}
    return (
        {path: entry for path, entry in entries.items() if is_file_list_name(entry.name)},
        {path: entry for path, entry in entries.items() if path.endswith(TEMPORARY_SUFFIX)},
    )
