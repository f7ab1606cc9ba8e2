"""What a store's directory holds, by our grammar: the value that lineage, registry and retention work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from state_store.checkpoint.names import (
    DELTA_DIRECTORY,
    SHARED_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    SharedName,
    SnapshotName,
)


@dataclass(frozen=True)
class Listing:
    """Names that exist, each with its size in bytes. Foreign files and unfinished writes are not in it."""

    deltas: Mapping[DeltaName, int] = field(default_factory=dict)
    snapshots: Mapping[SnapshotName, int] = field(default_factory=dict)
    shared: Mapping[SharedName, int] = field(default_factory=dict)

    @classmethod
    def from_files(cls, files: Iterable[tuple[str, int]]) -> Listing:
        """From pairs of path (below the store's directory) and bytes."""
        deltas: dict[DeltaName, int] = {}
        snapshots: dict[SnapshotName, int] = {}
        shared: dict[SharedName, int] = {}
        for path, size_bytes in files:
            directory, _, name = path.partition("/")
            if directory == DELTA_DIRECTORY and (delta := DeltaName.parse(name)):
                deltas[delta] = size_bytes
            elif directory == SNAPSHOT_DIRECTORY and (snapshot := SnapshotName.parse(name)):
                snapshots[snapshot] = size_bytes
            elif directory == SHARED_DIRECTORY and (one := SharedName.parse(name)):
                shared[one] = size_bytes
        return cls(deltas, snapshots, shared)

    def sst_bytes(self) -> dict[str, int]:
        """Bytes of every SST, deltas and shared ones alike, by path."""
        return {name.path: size for names in (self.deltas, self.shared) for name, size in names.items()}
