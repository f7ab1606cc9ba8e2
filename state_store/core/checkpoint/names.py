"""Names of the files in a store's directory (grammar: docs/format.md), as values that parse and format.

A parser returns None for a name that is not ours: foreign files and unfinished writes are left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from state_store.core.codec import json_names
from state_store.errors import FormatError

DELTA_DIRECTORY = "delta"
SNAPSHOT_DIRECTORY = "snapshot"
SHARED_DIRECTORY = "shared"
LEASE_DIRECTORY = "lease"
TOMBSTONE_DIRECTORY = "tombstone"
TEMPORARY_SUFFIX = ".tmp"

EMPTY_PARENT = "empty"
"""Parent of a delta that started from nothing."""

# Bounded, so that every name fits the 255 bytes that file systems allow.
_ID = r"[0-9A-Za-z-]{1,100}"
_DELTA = re.compile(rf"([0-9]{{20}})_({_ID})_({_ID})_([0-9a-f]{{8}})\.sst")
_REFUSED = re.compile(rf"([0-9]{{20}})_({_ID})\.refused")
_SNAPSHOT = re.compile(rf"([0-9]{{20}})_({_ID})\.zip")
_FILE_LIST = re.compile(rf"{_ID}\.json")
_SHARED = re.compile(r"([0-9]{20})-([0-9a-f]{8})-([0-9]{1,20})\.sst")


@json_names(number="version", checkpoint_id="id")
class VersionId(NamedTuple):
    """A version of a store.

    Its id is Spark's checkpoint id of it, or the store's own under checkpoint format 1 (`lineage.Attempts`).
    It is None if the number alone is known, and of version 0, the empty store.
    """

    number: int
    checkpoint_id: str | None

    def __str__(self) -> str:
        return f"{self.number}" if self.checkpoint_id is None else f"{self.number} ({self.checkpoint_id})"


def version_order(version: VersionId) -> tuple[int, str]:
    """Return a key that sorts versions by number, and attempts at a version by their ids."""
    return version.number, version.checkpoint_id or ""


@dataclass(frozen=True)
class DeltaName:
    """Name of the delta that made `version`.

    `checkpoint_id` is typed as that of a `VersionId`, but is never None. `parent` is the id of the version
    that the delta builds on, or `EMPTY_PARENT`. `crc` is the CRC-32 of the file.
    """

    version: int
    checkpoint_id: str | None
    parent: str
    crc: int

    def __post_init__(self) -> None:
        _check_version(self.version)
        _check_id(self.checkpoint_id)
        _check_id(self.parent)
        if self.checkpoint_id == EMPTY_PARENT:
            raise FormatError(f"the checkpoint id '{EMPTY_PARENT}' is a reserved word for parents")
        if not 0 <= self.crc < 1 << 32:
            raise FormatError(f"the checksum of delta {self.version} must be 32 bits, not {self.crc!r}")

    @classmethod
    def parse(cls, name: str) -> DeltaName | None:
        """Return the value of a file name without its directory, or None if it is not one of ours."""
        match = _DELTA.fullmatch(name)
        if match is None or int(match[1]) < 1 or match[2] == EMPTY_PARENT:
            return None
        return cls(int(match[1]), match[2], match[3], int(match[4], 16))

    @property
    def version_id(self) -> VersionId:
        """The version that the delta made."""
        return VersionId(self.version, self.checkpoint_id)

    @property
    def builds_on(self) -> VersionId | None:
        """The version that this delta is applied to; None if it starts from nothing."""
        if self.version == 1 or self.parent == EMPTY_PARENT:
            return None
        return VersionId(self.version - 1, self.parent)

    @property
    def name(self) -> str:
        """The file name, without its directory."""
        return f"{self.version:020d}_{self.checkpoint_id}_{self.parent}_{self.crc:08x}.sst"

    @property
    def path(self) -> str:
        """The path below the store's directory."""
        return f"{DELTA_DIRECTORY}/{self.name}"


@dataclass(frozen=True)
class RefusedName:
    """Name of the mark on an attempt at `version` that does not count."""

    version: int
    checkpoint_id: str

    def __post_init__(self) -> None:
        _check_version(self.version)
        _check_id(self.checkpoint_id)

    @classmethod
    def parse(cls, name: str) -> RefusedName | None:
        """Return the value of a file name without its directory, or None if it is not one of ours."""
        match = _REFUSED.fullmatch(name)
        return None if match is None or int(match[1]) < 1 else cls(int(match[1]), match[2])

    @property
    def version_id(self) -> VersionId:
        """The attempt."""
        return VersionId(self.version, self.checkpoint_id)

    @property
    def name(self) -> str:
        """The file name, without its directory."""
        return f"{self.version:020d}_{self.checkpoint_id}.refused"

    @property
    def path(self) -> str:
        """The path below the store's directory, beside the delta's."""
        return f"{DELTA_DIRECTORY}/{self.name}"


@dataclass(frozen=True)
class SnapshotName:
    """Name of the snapshot of `version`; the id is typed as that of a `VersionId`, but is never None."""

    version: int
    checkpoint_id: str | None

    def __post_init__(self) -> None:
        _check_version(self.version)
        _check_id(self.checkpoint_id)

    @classmethod
    def parse(cls, name: str) -> SnapshotName | None:
        """Return the value of a file name without its directory, or None if it is not one of ours."""
        match = _SNAPSHOT.fullmatch(name)
        if match is None or int(match[1]) < 1:
            return None
        return cls(int(match[1]), match[2])

    @property
    def version_id(self) -> VersionId:
        """The version that the snapshot is of."""
        return VersionId(self.version, self.checkpoint_id)

    @property
    def name(self) -> str:
        """The file name, without its directory."""
        return f"{self.version:020d}_{self.checkpoint_id}.zip"

    @property
    def path(self) -> str:
        """The path below the store's directory."""
        return f"{SNAPSHOT_DIRECTORY}/{self.name}"


@dataclass(frozen=True)
class SharedName:
    """Name of an SST that a merge wrote: the version of its snapshot, 32 random bits, its number there."""

    version: int
    unique: int
    number: int

    def __post_init__(self) -> None:
        _check_version(self.version)
        if not 0 <= self.unique < 1 << 32 or not 0 <= self.number < 10**20:
            raise FormatError(f"not a shared file: unique {self.unique}, number {self.number}")

    @classmethod
    def parse(cls, name: str) -> SharedName | None:
        """Return the value of a file name without its directory, or None if it is not one of ours."""
        match = _SHARED.fullmatch(name)
        if match is None or int(match[1]) < 1:
            return None
        return cls(int(match[1]), int(match[2], 16), int(match[3]))

    @property
    def name(self) -> str:
        """The file name, without its directory."""
        return f"{self.version:020d}-{self.unique:08x}-{self.number}.sst"

    @property
    def path(self) -> str:
        """The path below the store's directory."""
        return f"{SHARED_DIRECTORY}/{self.name}"


def parent_of(before: VersionId) -> str:
    """Return the parent in the name of a delta that builds on `before` (0: on nothing)."""
    if before.number == 0:
        return EMPTY_PARENT
    _check_id(before.checkpoint_id)
    return str(before.checkpoint_id)


def lease_path(writer: str) -> str:
    """Return the path of the lease of `writer`, an id."""
    _check_id(writer)
    return f"{LEASE_DIRECTORY}/{writer}.json"


def tombstone_path(cleaner: str) -> str:
    """Return the path of the tombstone of `cleaner`, an id."""
    _check_id(cleaner)
    return f"{TOMBSTONE_DIRECTORY}/{cleaner}.json"


def is_file_list_name(name: str) -> bool:
    """Return True if `name`, without its directory, is that of a lease or a tombstone."""
    return _FILE_LIST.fullmatch(name) is not None


def is_checkpoint_id(text: str) -> bool:
    """Return True if `text` may be the checkpoint id of a version."""
    return re.fullmatch(_ID, text) is not None


def is_sst_path(path: str) -> bool:
    """Return True if `path` (below the store's directory) is that of a delta or a shared file."""
    return _origin(path) is not None


def is_refused_path(path: str) -> bool:
    """Return True if `path` (below the store's directory) is that of a mark on an attempt."""
    directory, _, name = path.partition("/")
    return directory == DELTA_DIRECTORY and RefusedName.parse(name) is not None


def is_snapshot_path(path: str) -> bool:
    """Return True if `path` (below the store's directory) is that of a snapshot's archive."""
    directory, _, name = path.partition("/")
    return directory == SNAPSHOT_DIRECTORY and SnapshotName.parse(name) is not None


def origin_of(path: str) -> int:
    """Return the version that wrote the SST at `path`. Raises FormatError for any other path."""
    origin = _origin(path)
    if origin is None:
        raise FormatError(f"'{path}' is not the path of an SST of this store", file=path)
    return origin


def _origin(path: str) -> int | None:
    """Return the version that wrote the SST at `path`, or None for any other path.

    No `DeltaName` or `SharedName` is made, for speed: a restore asks twice for each of its files.
    """
    directory, _, name = path.partition("/")
    if directory == SHARED_DIRECTORY:
        match = _SHARED.fullmatch(name)
    elif directory == DELTA_DIRECTORY:
        match = _DELTA.fullmatch(name)
        if match is not None and match[2] == EMPTY_PARENT:
            return None
    else:
        return None
    return None if match is None else int(match[1]) or None


def _check_version(version: int) -> None:
    if not 1 <= version < 10**20:
        raise FormatError(f"a version is a number from 1 up with at most 20 digits, not {version}")


def _check_id(id_: str | None) -> None:
    if id_ is None or not is_checkpoint_id(id_):
        raise FormatError(f"a checkpoint id is 1 to 100 of 0-9, A-Z, a-z and '-', not {id_!r}")
