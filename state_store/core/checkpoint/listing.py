"""Names of the files in a store's directory: the value on which lineage, registry and retention work."""

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
    """Names that exist, each with its size in bytes, without foreign files and unfinished writes.

    `written_ms` is the time at which each delta was written, by the storage's clock, if it is known.
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
        """Return the listing of these files.

        Args:
            files: pairs of a path below the store's directory and its bytes.
            modified_ms: times by path.
        """
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
            elif directory == SHARED_DIRECTORY and (table := SharedName.parse(name)):
                shared[table] = size_bytes
        written_ms = {delta: times[delta.path] for delta in deltas if delta.path in times}
        return cls(deltas, snapshots, shared, written_ms, frozenset(refused))

    @property
    def attempts(self) -> Attempts:
        """The attempts at versions that are in the listing."""
        return Attempts(self.deltas, self.refused, self.snapshots, self.written_ms)

    def sst_bytes(self) -> dict[str, int]:
        """Return the bytes of every SST, delta or shared, by path."""
        return {name.path: size for names in (self.deltas, self.shared) for name, size in names.items()}
