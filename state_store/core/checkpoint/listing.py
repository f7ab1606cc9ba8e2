"""What a store's directory holds, by our grammar: the value that lineage, registry and retention work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from state_store.core.checkpoint.attempts import Attempts
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    SHARED_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    RefusedName,
    SharedName,
    SnapshotName,
)


@dataclass(frozen=True)
class Listing:
    """Names that exist, each with its size in bytes. Foreign files and unfinished writes are not in it.

    `written_ms`, where it is known, is when each delta was written, by the storage's clock.
    """

    deltas: Mapping[DeltaName, int] = field(default_factory=dict)
    snapshots: Mapping[SnapshotName, int] = field(default_factory=dict)
    shared: Mapping[SharedName, int] = field(default_factory=dict)
    written_ms: Mapping[DeltaName, int] = field(default_factory=dict)
    refused: frozenset[RefusedName] = frozenset()

    @classmethod
    def from_files(
        cls, files: Iterable[tuple[str, int]], modified_ms: Mapping[str, int] | None = None
    ) -> Listing:
        """From pairs of path (below the store's directory) and bytes, and times by path."""
        times = modified_ms or {}
        deltas: dict[DeltaName, int] = {}
        snapshots: dict[SnapshotName, int] = {}
        shared: dict[SharedName, int] = {}
        refused: set[RefusedName] = set()
        for path, size_bytes in files:
            directory, _, name = path.partition("/")
            if directory == DELTA_DIRECTORY and (delta := DeltaName.parse(name)):
                deltas[delta] = size_bytes
            elif directory == DELTA_DIRECTORY and (mark := RefusedName.parse(name)):
                refused.add(mark)
            elif directory == SNAPSHOT_DIRECTORY and (snapshot := SnapshotName.parse(name)):
                snapshots[snapshot] = size_bytes
            elif directory == SHARED_DIRECTORY and (one := SharedName.parse(name)):
                shared[one] = size_bytes
        written_ms = {delta: times[delta.path] for delta in deltas if delta.path in times}
        return cls(deltas, snapshots, shared, written_ms, frozenset(refused))

    @property
    def attempts(self) -> Attempts:
        """The attempts at versions that the names tell of."""
        return Attempts(self.deltas, self.refused, self.snapshots, self.written_ms)

    def sst_bytes(self) -> dict[str, int]:
        """Bytes of every SST, deltas and shared ones alike, by path."""
        return {name.path: size for names in (self.deltas, self.shared) for name, size in names.items()}
