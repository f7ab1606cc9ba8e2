"""A file that checkpoints need, as a value: where it is, how large, and what it must contain."""

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

    `sha256` (64 hexadecimal digits) is known once a snapshot's manifest names the file; before that, a delta
    has the CRC-32 of its name (None under format 1).
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
        """Whether it is a snapshot's archive."""
        return self.path.startswith(SNAPSHOT_DIRECTORY + "/")

    @classmethod
    def of_delta(cls, delta: DeltaName, size_bytes: int) -> StoredFile:
        """The delta as its name and its size in a listing describe it."""
        return cls(delta.path, size_bytes, delta.version, crc32=delta.crc)

    @classmethod
    def of_snapshot(cls, snapshot: SnapshotName, size_bytes: int) -> StoredFile:
        """The snapshot's archive as its name and its size in a listing describe it."""
        return cls(snapshot.path, size_bytes, snapshot.version)

    @classmethod
    def of_entry(cls, entry: FileEntry) -> StoredFile:
        """An SST as a snapshot's manifest describes it."""
        directory, _, name = entry.path.partition("/")
        delta = DeltaName.parse(name) if directory == DELTA_DIRECTORY else None
        return cls(entry.path, entry.size_bytes, entry.origin, entry.sha256, delta.crc if delta else None)


def delta_of(path: str) -> VersionId | None:
    """The version whose delta is at `path`; None when the path is not a delta's."""
    directory, _, name = path.partition("/")
    delta = DeltaName.parse(name) if directory == DELTA_DIRECTORY else None
    return None if delta is None else delta.version_id
