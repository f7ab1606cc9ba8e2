"""Which files a clean-up may take, decided from one reading of the store; makes no storage call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from state_store.core.checkpoint.lineage import Lineages
from state_store.core.checkpoint.manifest import Manifest
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.checkpoint.registry import Registry
from state_store.core.deletion.contents import StoreContents


@dataclass(frozen=True)
class DeletionPlan:
    """What becomes of the files in `contents` when `newest` is the newest version and those from `floor` up
    stay.

    A snapshot is *uncondemned* when all its files are there and neither it nor one of them is condemned:
    nobody can be about to break it. The others are in doubt: what is decided holds whether they stay
    restorable or not.
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
        """Who needs which file, of the versions that stay."""
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
        """Why nothing should be deleted: the newest version is in need already, or a version that stays
        hangs on a snapshot in doubt alone.
        """
        restorable = self.registry.checkpoints()
        if self.newest not in restorable:
            return f"version {self.newest} cannot be restored from the files that are there"
        surely = set(self._uncondemned_registry.checkpoints())
        doubtful = [version for version in restorable if version not in surely]
        if doubtful:
            return (
                f"version {doubtful[0]} needs a snapshot of which another clean-up has condemned a file; "
                "the next merge ends that"
            )
        return None

    def warnings(self) -> list[str]:
        """What is damaged and counts as absent: archives that stay, and tombstones."""
        return [
            f"tombstone '{path}' is damaged: what it condemned may stay until it is condemned again"
            for path in self.contents.tombstones.damaged
        ] + [
            f"snapshot '{name.path}' counts as absent: {read.error}"
            for name, read in self.contents.snapshots.items()
            if read.error is not None and name not in self._going
        ]

    def candidates(self, orphaned_before_ms: float) -> set[str]:
        """The files that no version that stays needs, whether the snapshots in doubt stay restorable or not.

        A shared file that no snapshot names may be on its way into one: see `_orphans`.
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
        """Those of the candidates that were last modified before that time; where that leaves a snapshot
        there, its files stay, too.
        """
        entries = self.contents.entries
        old = {path for path in self.candidates(before_ms) if entries[path].modified_ms < before_ms}
        manifests = self.contents.manifests.items()
        kept = {entry.path for name, one in manifests if name.path not in old for entry in one.files}
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
        """Of the oldest snapshot that is needed; 0 when none is."""
        listed = self.contents.listing.snapshots
        return min((name.version for name in listed if name.path in self._needed), default=0)

    @cached_property
    def _going(self) -> set[SnapshotName]:
        """Return the snapshots that no version needs.

        A damaged one stays until it is below the floor and a newer one is needed: it may be put back from a
        copy.
        """
        return {
            name
            for name, read in self.contents.snapshots.items()
            if name.version < self.floor
            and (read.error is None or name.version < self._oldest_version)
            and name.path not in self._needed
        }

    def _shared(self, orphaned_before_ms: float) -> set[str]:
        """The shared files that some snapshot named, that are condemned already, or orphans."""
        contents = self.contents
        named = {entry.path for manifest in contents.manifests.values() for entry in manifest.files}
        known = {name.path for name in contents.listing.shared if name.path in named | self.condemned}
        return known | self._orphans(orphaned_before_ms) - named

    def _orphans(self, orphaned_before_ms: float) -> set[str]:
        """Shared files that were last modified before that time and are older than every snapshot that is
        needed: those of a merge that died. An archive that stays and cannot be read may name any of them.

        A full merge replaces a snapshot by name. Were its own files deleted as orphans while its archive is
        on the way, a snapshot that others rely on would be replaced by a broken one.
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
