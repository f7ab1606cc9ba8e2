"""One store as it was found: its contents, read once, and which version Spark means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from state_store.core.checkpoint.lineage import Plan
from state_store.core.checkpoint.manifest import Manifest
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.registry import Registry
from state_store.core.deletion.contents import StoreContents
from state_store.core.storage import Storage
from state_store.data.query import StoreKey
from state_store.errors import ConflictError


@dataclass(frozen=True)
class FoundStore:
    """One store at one moment. While the query runs, files come and go between two looks."""

    key: StoreKey
    contents: StoreContents

    @classmethod
    def read(cls, key: StoreKey, storage: Storage) -> FoundStore:
        """Reads the store's directory. Raises what `StoreContents.read` does."""
        return cls(key, StoreContents.read(storage))

    @cached_property
    def registry(self) -> Registry:
        """Who needs which file, of all versions."""
        return self.contents.registry()

    def restorable(self, wanted: VersionId | None) -> VersionId | None:
        """`wanted` where it can be restored, else None. Without an id, the attempt that its number means.

        Raises ConflictError when several attempts have that number and it is not known which is meant.
        """
        if wanted is None:
            return None
        same = [
            version
            for version in self.registry.checkpoints()
            if version.number == wanted.number and wanted.checkpoint_id in (None, version.checkpoint_id)
        ]
        if len(same) > 1:
            meant = self.contents.listing.attempts.resolve(wanted.number)
            if meant in same:
                return meant
            raise ConflictError(
                f"{len(same)} attempts of version {wanted.number} are in store {self.key}, and Spark's "
                "commit log has no id that says which one it took"
            )
        return same[0] if same else None

    def plan(self, version: VersionId) -> Plan:
        """The files that a restore of `version` takes."""
        return self.contents.lineages.plan(version)

    def delta(self, version: VersionId) -> DeltaName | None:
        """The delta that made `version`, where it is still there."""
        return next((delta for delta in self.contents.listing.deltas if delta.version_id == version), None)

    def manifest(self, version: VersionId) -> Manifest | None:
        """The manifest of the snapshot that a restore of `version` starts from; None: from nothing."""
        snapshot = self.plan(version).snapshot
        return None if snapshot is None else self.contents.manifests[snapshot]
