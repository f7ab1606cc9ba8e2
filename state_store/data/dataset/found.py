"""The contents of a store, read once, and the version that Spark committed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from state_store.core.checkpoint.lineage import Plan
from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId
from state_store.core.checkpoint.registry import Registry
from state_store.core.checkpoint.stored_documents import Manifest
from state_store.core.deletion.contents import StoreContents
from state_store.core.storage import Storage
from state_store.data.query import CommitTimes, StoreKey
from state_store.errors import ConflictError


@dataclass(frozen=True)
class FoundStore:
    """The contents of a store at one moment.

    While the query runs, files appear and disappear between two readings.
    """

    key: StoreKey
    contents: StoreContents

    @classmethod
    def read(cls, key: StoreKey, storage: Storage) -> FoundStore:
        """Read the store's directory. Raises as `StoreContents.read`."""
        return cls(key, StoreContents.read(storage))

    @cached_property
    def registry(self) -> Registry:
        """The checkpoints that need each file, over all versions."""
        return self.contents.registry()

    def restorable(self, wanted: VersionId | None) -> VersionId | None:
        """Return `wanted` if it can be restored, else None.

        A version without an id stands for the attempt that its number resolves to.

        Raises:
            ConflictError: several attempts have that number, and nothing says which one Spark committed.
        """
        if wanted is None:
            return None
        same = [
            version
            for version in self.registry.checkpoints()
            if version.number == wanted.number and wanted.checkpoint_id in (None, version.checkpoint_id)
        ]
        if len(same) > 1:
            resolved = self.contents.listing.attempts.resolve(wanted.number)
            if resolved in same:
                return resolved
            raise ConflictError(
                f"{len(same)} attempts of version {wanted.number} are in store {self.key}, and Spark's "
                "commit log has no id that says which one it took"
            )
        return same[0] if same else None

    def plan(self, version: VersionId) -> Plan:
        """Return the files that a restore of `version` reads."""
        return self.contents.lineages.plan(version)

    def delta(self, version: VersionId) -> DeltaName | None:
        """Return the delta that made `version`; None if it is gone."""
        return next((delta for delta in self.contents.listing.deltas if delta.version_id == version), None)

    def made_ms(self, version: VersionId, times: CommitTimes, *, is_committed: bool = True) -> int | None:
        """Return when `version` was committed or, if Spark's log has forgotten it, made.

        Args:
            version: a version that can be restored.
            times: the times of the query's batches.
            is_committed: Spark has committed it.

        Returns:
            Milliseconds since 1970 UTC; None if nothing says it but the time of a copied file.
        """
        delta, name = self.delta(version), SnapshotName(*version)
        entry = self.contents.entries.get(delta.path if delta else name.path)
        made_ms = times.of(version.number, entry.modified_ms if entry else 0, is_committed=is_committed)
        own = self.contents.manifests.get(name)
        return own.created_ms if made_ms is None and delta is None and own is not None else made_ms

    def manifest(self, version: VersionId) -> Manifest | None:
        """Return the manifest of the snapshot that a restore of `version` starts from; None without one."""
        snapshot = self.plan(version).snapshot
        return None if snapshot is None else self.contents.manifests[snapshot]
