"""Decision about the files that a clean-up may delete, from one reading of the store; no storage call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from state_store.core.checkpoint.lineage import Lineages
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.checkpoint.registry import Registry
from state_store.core.checkpoint.stored_documents import Manifest
from state_store.core.deletion.contents import StoreContents


@dataclass(frozen=True)
class DeletionPlan:
    """The files of a store that a clean-up may delete.

    A snapshot is *uncondemned* if all its files exist and neither it nor one of them is condemned: no cleaner
    can be about to break it. The others are in doubt. The plan is right whether they stay restorable or not.

    Attributes:
        contents: the files of the store.
        newest: the newest version.
        floor: the lowest version that stays.
    """

    contents: StoreContents
    newest: VersionId
    floor: int

    @classmethod
    def of_all(cls, contents: StoreContents, newest: VersionId) -> DeletionPlan:
        """Return the plan that retires no version.

        A version stays if it can be made without the files that a dead clean-up condemned, or if it could be
        made once a damaged archive has been put back from a copy.
        """
        everything = cls(contents, newest, 0)
        deltas = [delta for delta in contents.listing.deltas if delta.path not in everything.condemned]
        staying = Lineages(deltas, everything.uncondemned_snapshots).restorable()
        damaged = [name.version for name, read in contents.snapshots.items() if read.error is not None]
        return cls(contents, newest, min((*(version.number for version in staying), *damaged), default=0))

    @cached_property
    def registry(self) -> Registry:
        """The files that the versions that stay need."""
        return self.contents.registry(self.floor)

    @cached_property
    def condemned(self) -> frozenset[str]:
        return self.contents.tombstones.condemned()

    @cached_property
    def uncondemned_snapshots(self) -> dict[SnapshotName, Manifest]:
        return {
            name: manifest
            for name, manifest in self.contents.restorable_snapshots.items()
            if self.condemned.isdisjoint([name.path, *(entry.path for entry in manifest.files)])
        }

    def why_blocked(self) -> str | None:
        """Return why nothing may be deleted, or None.

        Either the newest version cannot be restored, or a version that stays needs a snapshot in doubt.
        """
        restorable = self.registry.checkpoints()
        if self.newest not in restorable:
            return f"version {self.newest} cannot be restored from the files that are there"
        certain = set(self._uncondemned_registry.checkpoints())
        doubtful = [version for version in restorable if version not in certain]
        if doubtful:
            return (
                f"version {doubtful[0]} needs a snapshot of which another clean-up has condemned a file; "
                "the next merge ends that"
            )
        return None

    def warnings(self) -> list[str]:
        """Return a warning for each damaged archive that stays and each damaged tombstone."""
        return [
            f"tombstone '{path}' is damaged: what it condemned may stay until it is condemned again"
            for path in self.contents.tombstones.damaged
        ] + [
            f"snapshot '{name.path}' counts as absent: {read.error}"
            for name, read in self.contents.snapshots.items()
            if read.error is not None and name not in self._going
        ]

    def candidates(self, orphaned_before_ms: float) -> set[str]:
        """Return the files that no staying version needs, with and without the snapshots in doubt.

        Args:
            orphaned_before_ms: shared files that no snapshot names, and that were modified later, stay: they
                may be on their way into a snapshot (see `_orphans`).
        """
        going = self._going
        kept = set(self._needed)
        for name, manifest in self.contents.manifests.items():
            if name not in going:
                kept |= {entry.path for entry in manifest.files}
        deltas = {delta.path for delta in self.contents.listing.deltas if delta.version < self.floor}
        deltas |= {mark.path for mark in self.contents.listing.refused if mark.version < self.floor}
        return ({name.path for name in going} | deltas | self._shared(orphaned_before_ms)) - kept

    def old_candidates(self, before_ms: float) -> set[str]:
        """Return the candidates that were modified before that time and that no staying snapshot names."""
        entries = self.contents.entries
        old = {path for path in self.candidates(before_ms) if entries[path].modified_ms < before_ms}
        manifests = self.contents.manifests.items()
        kept = {entry.path for name, found in manifests if name.path not in old for entry in found.files}
        return old - kept

    @cached_property
    def _uncondemned_registry(self) -> Registry:
        return Registry.rebuild(self.contents.listing, self.uncondemned_snapshots, floor=self.floor)

    @cached_property
    def _needed(self) -> frozenset[str]:
        registries = (self._uncondemned_registry, self.registry)
        return frozenset(file.path for registry in registries for file in registry.entries())

    @cached_property
    def _oldest_version(self) -> int:
        """Version of the oldest snapshot that is needed; 0 if none is."""
        listed = self.contents.listing.snapshots
        return min((name.version for name in listed if name.path in self._needed), default=0)

    @cached_property
    def _going(self) -> set[SnapshotName]:
        """Return the snapshots that no version needs.

        A damaged snapshot stays until it is below the floor and a newer one is needed: it may be put back
        from a copy.
        """
        return {
            name
            for name, read in self.contents.snapshots.items()
            if name.version < self.floor
            and (read.error is None or name.version < self._oldest_version)
            and name.path not in self._needed
        }

    def _shared(self, orphaned_before_ms: float) -> set[str]:
        """Return the shared files that a snapshot names, condemned ones, and orphans."""
        contents = self.contents
        named = {entry.path for manifest in contents.manifests.values() for entry in manifest.files}
        known = {name.path for name in contents.listing.shared if name.path in named | self.condemned}
        return known | self._orphans(orphaned_before_ms) - named

    def _orphans(self, orphaned_before_ms: float) -> set[str]:
        """Return the shared files of merges that died.

        They were last modified before that time and are older than every snapshot that is needed. There are
        none while an unreadable archive stays: it may name any of them. A full merge replaces a snapshot by
        name: if its files were deleted as orphans while its archive is written, a snapshot that others rely
        on would be replaced by a broken one.
        """
        snapshots = self.contents.snapshots
        if any(snapshots[name].manifest is None for name in snapshots.keys() - self._going):
            return set()
        return {
            name.path
            for name in self.contents.listing.shared
            if name.version < self._oldest_version
            and self.contents.entries[name.path].modified_ms < orphaned_before_ms
        }
