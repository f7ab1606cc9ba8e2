"""What one store has in checkpoint storage, read once: names, manifests, what is damaged, who needs what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from state_store.checkpoint.lineage import Lineages, Plan
from state_store.checkpoint.listing import Listing
from state_store.checkpoint.manifest import Manifest
from state_store.checkpoint.names import (
    DELTA_DIRECTORY,
    SHARED_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    SnapshotName,
    VersionId,
)
from state_store.checkpoint.registry import Registry, whole_snapshots
from state_store.cli.query import StoreKey
from state_store.deletion.catalog import read_archive
from state_store.errors import ConflictError, DamagedError, FormatError, MissingError
from state_store.storage import Storage


@dataclass(frozen=True)
class Inventory:
    """One store at one moment. While the query runs, files come and go between two looks."""

    key: StoreKey
    listing: Listing
    manifests: Mapping[SnapshotName, Manifest]
    unreadable: Mapping[str, str]
    """Why a snapshot cannot be read, by path."""
    modified_ms: Mapping[str, int]

    @cached_property
    def registry(self) -> Registry:
        return Registry.rebuild(self.listing, self.manifests)

    @cached_property
    def lineages(self) -> Lineages:
        return Lineages(self.listing.deltas, whole_snapshots(self.listing, self.manifests))

    def restorable(self, wanted: VersionId | None) -> VersionId | None:
        """`wanted` where it can be restored, else None. Without an id, the one version with that number.

        Raises ConflictError when several attempts have that number, so that it is not known which is meant.
        """
        if wanted is None:
            return None
        same = [
            version
            for version in self.registry.checkpoints()
            if version.number == wanted.number and wanted.checkpoint_id in (None, version.checkpoint_id)
        ]
        if len(same) > 1:
            raise ConflictError(
                f"{len(same)} attempts of version {wanted.number} are in store {self.key}, and Spark's "
                "commit log has no id that says which one it took"
            )
        return same[0] if same else None

    def plan(self, version: VersionId) -> Plan:
        return self.lineages.plan(version)

    def delta(self, version: VersionId) -> DeltaName | None:
        """The delta that made `version`, where it is still there."""
        return next((delta for delta in self.listing.deltas if delta.version_id == version), None)

    def manifest(self, version: VersionId) -> Manifest | None:
        """The manifest of the snapshot that a restore of `version` starts from; None: from nothing."""
        snapshot = self.plan(version).snapshot
        return None if snapshot is None else self.manifests[snapshot]


def take(key: StoreKey, storage: Storage) -> Inventory:
    """Reads a store's directory: three listings and every snapshot's archive."""
    sizes: dict[str, int] = {}
    modified_ms: dict[str, int] = {}
    for directory in (SNAPSHOT_DIRECTORY, DELTA_DIRECTORY, SHARED_DIRECTORY):
        for entry in storage.list_files(directory):
            sizes[f"{directory}/{entry.name}"] = entry.size_bytes
            modified_ms[f"{directory}/{entry.name}"] = entry.modified_ms
    listing = Listing.from_files(sizes.items())
    manifests, unreadable = _manifests(storage, listing)
    return Inventory(key, listing, manifests, unreadable, modified_ms)


def _manifests(storage: Storage, listing: Listing) -> tuple[dict[SnapshotName, Manifest], dict[str, str]]:
    manifests: dict[SnapshotName, Manifest] = {}
    unreadable: dict[str, str] = {}
    for snapshot in listing.snapshots:
        try:
            manifests[snapshot] = read_archive(storage, snapshot).manifest
        except (DamagedError, FormatError) as error:
            unreadable[snapshot.path] = error.message
        except MissingError:
            continue
    return manifests, unreadable
