"""What a cleaner sees of a store: one reading of its directory, in the order that safe deletion needs.

Snapshots and their manifests come first, then tombstones, then deltas and shared files. So a
snapshot that looks whole here and has no condemned file cannot lose one afterwards: who
condemns a file later sees that snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from state_store.checkpoint.archive import unpack
from state_store.checkpoint.lineage import Lineages
from state_store.checkpoint.listing import Listing
from state_store.checkpoint.manifest import Manifest
from state_store.checkpoint.names import (
    DELTA_DIRECTORY,
    SHARED_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    SnapshotName,
    VersionId,
)
from state_store.checkpoint.registry import Registry, whole_snapshots
from state_store.deletion.lease import read_tombstones
from state_store.errors import DamagedError, MissingError
from state_store.storage.contract import Entry, Storage


@dataclass(frozen=True)
class ReadSnapshot:
    """A snapshot as it was listed and read; `manifest` is None when the archive is damaged."""

    entry: Entry
    manifest: Manifest | None


@dataclass(frozen=True)
class Inventory:
    """The files of a store. `entries` are the files of `delta/`, `shared/` and `snapshot/`, by path."""

    snapshots: Mapping[SnapshotName, ReadSnapshot]
    tombstones: Mapping[str, frozenset[str]]
    entries: Mapping[str, Entry]

    @classmethod
    def read(cls, storage: Storage, known: Mapping[SnapshotName, ReadSnapshot]) -> Inventory:
        """Reads the directory; archives that are as they were in `known` are not read again."""
        snapshots = read_snapshots(storage, known)
        tombstones = read_tombstones(storage)
        entries = {name.path: read.entry for name, read in snapshots.items()}
        for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY):
            entries |= {f"{directory}/{entry.name}": entry for entry in storage.list_files(directory)}
        return cls(snapshots, tombstones, entries)

    @cached_property
    def listing(self) -> Listing:
        return Listing.from_files((path, entry.size_bytes) for path, entry in self.entries.items())

    @cached_property
    def condemned(self) -> frozenset[str]:
        return frozenset().union(*self.tombstones.values())

    @cached_property
    def restorable_snapshots(self) -> dict[SnapshotName, Manifest]:
        """The snapshots that can be restored from now."""
        return whole_snapshots(self.listing, self._manifests)

    @cached_property
    def uncondemned_snapshots(self) -> dict[SnapshotName, Manifest]:
        """The `restorable_snapshots` none of whose files is condemned: nobody is about to break them."""
        return {
            name: manifest
            for name, manifest in self.restorable_snapshots.items()
            if all(entry.path not in self.condemned for entry in manifest.files)
        }

    @property
    def committed_ms(self) -> dict[int, int]:
        """When each version was committed last, by the storage's clock."""
        times: dict[int, int] = {}
        for delta in self.listing.deltas:
            at_ms = self.entries[delta.path].modified_ms
            times[delta.version] = max(at_ms, times.get(delta.version, at_ms))
        return times

    def obstacle(self, newest: VersionId, floor: int) -> str | None:
        """Why nothing should be deleted: what is needed cannot be known, or `newest` is already in need."""
        for name, read in self.snapshots.items():
            if read.manifest is None and name.version >= floor:
                return f"'{name.path}' is damaged, so it is not known which files it needs"
        if newest not in Lineages(self.listing.deltas, self.restorable_snapshots).restorable():
            return f"version {newest} cannot be restored from the files that are there"
        return None

    def registry(self, floor: int) -> Registry:
        """Who needs which file, of the versions from `floor` up."""
        return Registry.rebuild(self.listing, self.restorable_snapshots, floor=floor)

    def candidates(self, floor: int, orphaned_before_ms: int) -> set[str]:
        """The files that no version from `floor` up needs, whether or not
        the snapshots in doubt come to nothing.

        A shared file that no snapshot names may be on its way into one: it must be last modified before
        `orphaned_before_ms`, or condemned already.
        """
        certain = Registry.rebuild(self.listing, self.uncondemned_snapshots, floor=floor)
        needed = {file.path for registry in (certain, self.registry(floor)) for file in registry.entries()}
        going = {name for name in self.snapshots if name.version < floor and name.path not in needed}
        for name, manifest in self._manifests.items():
            if name not in going:
                needed |= {entry.path for entry in manifest.files}
        deltas = {delta.path for delta in self.listing.deltas if delta.version < floor}
        return ({name.path for name in going} | deltas | self._shared(orphaned_before_ms)) - needed

    @property
    def _manifests(self) -> dict[SnapshotName, Manifest]:
        return {name: read.manifest for name, read in self.snapshots.items() if read.manifest is not None}

    def _shared(self, orphaned_before_ms: int) -> set[str]:
        """The shared files that somebody named once, or that are old."""
        named = {entry.path for manifest in self._manifests.values() for entry in manifest.files}
        return {
            name.path
            for name in self.listing.shared
            if name.path in named
            or name.path in self.condemned
            or self.entries[name.path].modified_ms < orphaned_before_ms
        }


def read_snapshots(
    storage: Storage, known: Mapping[SnapshotName, ReadSnapshot]
) -> dict[SnapshotName, ReadSnapshot]:
    """The snapshots there are now. Raises FormatError when one is of a newer format."""
    found: dict[SnapshotName, ReadSnapshot] = {}
    for entry in storage.list_files(SNAPSHOT_DIRECTORY):
        name = SnapshotName.parse(entry.name)
        if name is None:
            continue
        if name in known and known[name].entry == entry:
            found[name] = known[name]
            continue
        try:
            found[name] = ReadSnapshot(entry, _read_manifest(storage, name.path))
        except MissingError:
            continue  # deleted since it was listed
    return found


def _read_manifest(storage: Storage, path: str) -> Manifest | None:
    try:
        return unpack(storage.read(path), file=path).manifest
    except DamagedError:
        return None
