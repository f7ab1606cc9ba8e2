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
    TEMPORARY_SUFFIX,
    DeltaName,
    SnapshotName,
    VersionId,
)
from state_store.checkpoint.registry import Registry, whole_snapshots
from state_store.cli.query import StoreKey
from state_store.deletion.catalog import read_archive
from state_store.errors import DamagedError, FormatError, MissingError
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
    leftovers: tuple[str, ...]
    """Paths of unfinished writes."""

    @cached_property
    def registry(self) -> Registry:
        return Registry.rebuild(self.listing, self.manifests)

    @cached_property
    def lineages(self) -> Lineages:
        return Lineages(self.listing.deltas, whole_snapshots(self.listing, self.manifests))

    def newest(self, committed_id: str | None = None) -> VersionId | None:
        """The newest version that can be restored; with `committed_id`, the newest with that id."""
        versions = self.registry.checkpoints()
        if committed_id is not None:
            versions = [of for of in versions if of.id == committed_id] or versions
        return versions[-1] if versions else None

    def plan(self, of: VersionId) -> Plan:
        return self.lineages.plan(of)

    def delta(self, of: VersionId) -> DeltaName | None:
        """The delta that made `of`, where it is still there."""
        return next((delta for delta in self.listing.deltas if delta.of == of), None)

    def manifest(self, of: VersionId) -> Manifest | None:
        """The manifest of the snapshot that a restore of `of` starts from; None: it starts from nothing."""
        snapshot = self.plan(of).snapshot
        return None if snapshot is None else self.manifests[snapshot]


def take(key: StoreKey, storage: Storage) -> Inventory:
    """Reads a store's directory: three listings and every snapshot's archive."""
    sizes: dict[str, int] = {}
    modified_ms: dict[str, int] = {}
    for directory in (SNAPSHOT_DIRECTORY, DELTA_DIRECTORY, SHARED_DIRECTORY):
        for entry in storage.list(directory):
            sizes[f"{directory}/{entry.name}"] = entry.bytes
            modified_ms[f"{directory}/{entry.name}"] = entry.modified_ms
    listing = Listing.of(sizes.items())
    manifests, unreadable = _manifests(storage, listing)
    leftovers = tuple(sorted(path for path in sizes if path.endswith(TEMPORARY_SUFFIX)))
    return Inventory(key, listing, manifests, unreadable, modified_ms, leftovers)


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
