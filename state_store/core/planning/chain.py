"""The chain of a store: the newest snapshot and the deltas committed after it. Values, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import FULL, Manifest


@dataclass(frozen=True)
class ChainDelta:
    """A delta of the chain, its size, and the CRC-32 of its name."""

    name: DeltaName
    size_bytes: int
    crc32: int | None = None

    @classmethod
    def from_listing(cls, name: DeltaName, size_bytes: int) -> ChainDelta:
        """Return the delta as a listing shows it."""
        return cls(name, size_bytes, name.crc)


@dataclass(frozen=True)
class Chain:
    """The files of `version` (None: nothing is committed). Immutable: each change returns a new chain.

    `full_snapshot` is the newest full one at or before `snapshot`, None if it is unknown or gone.
    """

    version: VersionId | None = None
    snapshot: Manifest | None = None
    deltas: tuple[ChainDelta, ...] = ()
    delta_bytes: int = 0
    full_snapshot: Manifest | None = None

    @classmethod
    def from_listing(
        cls,
        version: VersionId,
        snapshot: Manifest | None,
        deltas: Sequence[ChainDelta],
        full_snapshot: Manifest | None = None,
    ) -> Chain:
        """Return the chain of `version` (0: none) as it is in checkpoint storage."""
        size_bytes = sum(delta.size_bytes for delta in deltas)
        chain_version = version if version.number else None
        return cls(chain_version, snapshot, tuple(deltas), size_bytes, full_snapshot)

    @property
    def deltas_since_full(self) -> int:
        """Number of deltas that were committed since the last full checkpoint."""
        return len(self.deltas) + (self.snapshot.deltas_since_full if self.snapshot else 0)

    @property
    def merges_since_full(self) -> int:
        """Number of merges that were published since the last full checkpoint."""
        return self.snapshot.merges_since_full if self.snapshot else 0

    @property
    def snapshot_files(self) -> int:
        """Number of SST files of the snapshot; 0 without one."""
        return len(self.snapshot.files) if self.snapshot else 0

    @property
    def files(self) -> int:
        """Number of SST files that a restore opens: those of the snapshot and the deltas."""
        return self.snapshot_files + len(self.deltas)

    @property
    def size_bytes(self) -> int:
        """Bytes of all these files."""
        return self.delta_bytes + (self.snapshot.total_bytes if self.snapshot else 0)

    def new_bytes(self, version: VersionId) -> int | None:
        """Return the bytes of the files that a restore of `version` reads and no older version needs.

        If the version has a snapshot, a restore reads its files and not the delta, whose changes they have.
        None: the chain has neither.
        """
        if self.snapshot is not None and self.snapshot.version_id == version and self.snapshot.new_bytes:
            return self.snapshot.new_bytes
        sizes = (delta.size_bytes for delta in self.deltas if delta.name.version_id == version)
        return next(sizes, None)

    def commit(self, delta: ChainDelta) -> Chain:
        """Return the chain with one more delta.

        A delta of the newest version replaces it. A delta that the snapshot contains changes nothing.
        """
        if self.deltas and self.deltas[-1].name.version_id == delta.name.version_id:
            before = replace(
                self, deltas=self.deltas[:-1], delta_bytes=self.delta_bytes - self.deltas[-1].size_bytes
            )
            return before.commit(delta)
        if self.snapshot is not None and self.snapshot.version_id == delta.name.version_id:
            return self
        deltas = (*self.deltas, delta)
        return replace(
            self,
            version=delta.name.version_id,
            deltas=deltas,
            delta_bytes=self.delta_bytes + delta.size_bytes,
        )

    def publish(self, manifest: Manifest) -> Chain:
        """Return the chain with a newer snapshot and the deltas after it."""
        later_deltas = tuple(delta for delta in self.deltas if delta.name.version > manifest.version)
        return replace(
            self,
            snapshot=manifest,
            deltas=later_deltas,
            delta_bytes=sum(delta.size_bytes for delta in later_deltas),
            full_snapshot=manifest if manifest.kind == FULL else self.full_snapshot,
        )

    def back_to(self, version: VersionId) -> Chain | None:
        """Return the chain as it was at `version`, or None if the snapshot is newer."""
        for index, delta in enumerate(self.deltas):
            if delta.name.version_id == version:
                earlier_deltas = self.deltas[: index + 1]
                return replace(
                    self,
                    version=version,
                    deltas=earlier_deltas,
                    delta_bytes=sum(delta.size_bytes for delta in earlier_deltas),
                )
        if self.snapshot is not None and self.snapshot.version_id == version:
            return replace(self, version=version, deltas=(), delta_bytes=0)
        return None

    def between(self, after: VersionId | None, version: VersionId) -> Sequence[ChainDelta] | None:
        """Return the deltas from `after` to `version`, oldest first, or None if the chain lacks one."""
        by_version = {delta.name.version_id: delta for delta in self.deltas}
        path: list[ChainDelta] = []
        current: VersionId | None = version
        while current is not None and current != after:
            delta = by_version.get(current)
            if delta is None:
                return None
            path.append(delta)
            current = delta.name.builds_on
        return tuple(reversed(path)) if current == after else None

    def paths(self) -> set[str]:
        """Return the paths of the SST files below the store's directory."""
        paths = {delta.name.path for delta in self.deltas}
        return paths | ({entry.path for entry in self.snapshot.files} if self.snapshot else set())

    def to_json(self) -> dict[str, int | str | None]:
        """Return the sizes of the chain, as in docs/protocol.md."""
        snapshot = self.snapshot
        shared_files, shared_bytes = snapshot.older if snapshot else (0, 0)
        return {
            "deltas": len(self.deltas),
            "deltas_since_full": self.deltas_since_full,
            "merges_since_full": self.merges_since_full,
            "files": self.files,
            "bytes": self.size_bytes,
            "shared_files": shared_files,
            "shared_bytes": shared_bytes,
            "snapshot_version": snapshot.version if snapshot else None,
            "snapshot_kind": snapshot.kind if snapshot else None,
            "full_version": snapshot.full.number if snapshot and snapshot.full else None,
        }
