"""A file that checkpoints need: its place, its size and its checksum."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.core.checkpoint.manifest import FileEntry
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    SnapshotName,
    VersionId,
)


@dataclass(frozen=True)
class StoredFile:
    """A file that checkpoints need: `path` below the store's directory, `origin` the version that wrote it.

    `sha256` (64 hexadecimal digits) is known once a snapshot's manifest names the file. `crc32` is the
    checksum in the name of a delta.
    """

    path: str
    size_bytes: int
    origin: int
    sha256: str | None = None
    crc32: int | None = None

    @property
    def name(self) -> str:
        """The file name, without its directory."""
        return self.path.rpartition("/")[2]

    @property
    def is_snapshot(self) -> bool:
        """True for a snapshot's archive."""
        return self.path.startswith(SNAPSHOT_DIRECTORY + "/")

    @classmethod
    def of_delta(cls, delta: DeltaName, size_bytes: int) -> StoredFile:
        """Return the delta that a name and a size in a listing describe."""
        return cls(delta.path, size_bytes, delta.version, crc32=delta.crc)

    @classmethod
    def of_snapshot(cls, snapshot: SnapshotName, size_bytes: int) -> StoredFile:
        """Return the snapshot's archive that a name and a size in a listing describe."""
        return cls(snapshot.path, size_bytes, snapshot.version)

    @classmethod
    def of_entry(cls, entry: FileEntry) -> StoredFile:
        """Return the SST that an entry of a manifest describes."""
        directory, _, name = entry.path.partition("/")
        delta = DeltaName.parse(name) if directory == DELTA_DIRECTORY else None
        return cls(entry.path, entry.size_bytes, entry.origin, entry.sha256, delta.crc if delta else None)


def delta_of(path: str) -> VersionId | None:
    """Return the version whose delta is at `path`, or None for any other path."""
    directory, _, name = path.partition("/")
    delta = DeltaName.parse(name) if directory == DELTA_DIRECTORY else None
    return None if delta is None else delta.version_id
