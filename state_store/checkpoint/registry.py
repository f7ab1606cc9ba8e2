"""The shared-state registry: for every file, which retained checkpoints still need it.

A file goes when the last checkpoint that needs it is retired, never sooner, never later. The count
of a file is the size of a set of checkpoints, so hearing of one checkpoint twice, or late, changes
nothing; and the whole registry can be rebuilt from the files at any time. SST files and the
archives of snapshots are counted alike.

A registry is used by one thread at a time: the caller locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from state_store.checkpoint.lineage import Lineages, Plan
from state_store.checkpoint.listing import Listing
from state_store.checkpoint.manifest import FileEntry, Manifest
from state_store.checkpoint.names import (
    DELTA_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    SnapshotName,
    VersionId,
)
from state_store.errors import MissingError


@dataclass(frozen=True)
class StoredFile:
    """A file that checkpoints need: `path` below the store's directory, `origin` the version that wrote it.

    `sha256` (64 hexadecimal digits) is known once a snapshot's manifest names the file; before that, a delta
    has the CRC-32 of its name (None under format 1).
    """

    path: str
    size_bytes: int
    origin: int
    sha256: str | None = None
    crc32: int | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_delta(self) -> bool:
        return self.path.startswith(DELTA_DIRECTORY + "/")

    @property
    def is_snapshot(self) -> bool:
        return self.path.startswith(SNAPSHOT_DIRECTORY + "/")

    @classmethod
    def of_delta(cls, delta: DeltaName, size_bytes: int) -> StoredFile:
        return cls(delta.path, size_bytes, delta.version, crc32=delta.crc)

    @classmethod
    def of_snapshot(cls, snapshot: SnapshotName, size_bytes: int) -> StoredFile:
        return cls(snapshot.path, size_bytes, snapshot.version)

    @classmethod
    def of_entry(cls, entry: FileEntry) -> StoredFile:
        directory, _, name = entry.path.partition("/")
        delta = DeltaName.parse(name) if directory == DELTA_DIRECTORY else None
        return cls(entry.path, entry.size_bytes, entry.origin, entry.sha256, delta.crc if delta else None)


class Registry:
    """Which retained checkpoint needs which files, and the reverse."""

    def __init__(self) -> None:
        self._files: dict[VersionId, dict[str, StoredFile]] = {}
        self._holders: dict[str, set[VersionId]] = {}

    def register(self, version: VersionId, files: Iterable[StoredFile]) -> list[StoredFile]:
        """Notes that `version` needs exactly `files`; again with others replaces them.

        Returns the files that nobody needs any more (only ever some when `version` was registered before).
        """
        needed = {file.path: file for file in files}
        previous = self._files.get(version, {})
        self._files[version] = needed
        for path in needed:
            self._holders.setdefault(path, set()).add(version)
        return self._drop(version, [file for path, file in previous.items() if path not in needed])

    def retire(self, version: VersionId) -> list[StoredFile]:
        """Forgets `version` (an unknown one is fine); returns the files that nobody needs any more."""
        return self._drop(version, list(self._files.pop(version, {}).values()))

    def commit(self, delta: DeltaName, size_bytes: int) -> None:
        """Registers the version that `delta` makes: the files of the version before, and this one.

        Raises MissingError when the version that it builds on is not registered.
        """
        base = delta.builds_on
        files: dict[str, StoredFile] = {}
        if base is not None:
            if base not in self._files:
                raise MissingError(f"version {base}, which '{delta.path}' builds on, is not in the registry")
            files = self._files[base]
        self.register(delta.version_id, [*files.values(), StoredFile.of_delta(delta, size_bytes)])

    def publish(self, manifest: Manifest, size_bytes: int) -> list[StoredFile]:
        """Notes a new snapshot (its archive has `size_bytes`): registered checkpoints at or after it on its
        lineage now need its files and the deltas after it. Returns the files that nobody needs any more."""
        base = [StoredFile.of_snapshot(manifest.snapshot, size_bytes)]
        base += [StoredFile.of_entry(entry) for entry in manifest.files]
        freed: list[StoredFile] = []
        for version, files in list(self._files.items()):
            if version == manifest.version_id or self._passes(files, manifest.snapshot):
                tail = [file for file in files.values() if file.is_delta and file.origin > manifest.version]
                freed += self.register(version, [*base, *tail])
        return [file for file in freed if file.path not in self._holders]

    def retire_below(self, floor: int) -> list[StoredFile]:
        """Retires all versions below `floor`; returns the files that nobody needs any more."""
        return [
            file for version in self.checkpoints() if version.number < floor for file in self.retire(version)
        ]

    def freed_below(self, floor: int) -> list[str]:
        """Paths of the files that `retire_below` would free; changes nothing."""
        return sorted(
            path
            for path, holders in self._holders.items()
            if all(version.number < floor for version in holders)
        )

    def count(self, path: str) -> int:
        """How many retained checkpoints need the file."""
        return len(self._holders.get(path, ()))

    def holders(self, path: str) -> list[VersionId]:
        """The checkpoints that keep the file alive, oldest first."""
        return sorted(self._holders.get(path, ()), key=_order)

    def files(self, version: VersionId) -> list[StoredFile]:
        """The files that `version` needs, by path; none when it is not registered."""
        return sorted(self._files.get(version, {}).values(), key=lambda file: file.path)

    def checkpoints(self) -> list[VersionId]:
        """The retained checkpoints, oldest first."""
        return sorted(self._files, key=_order)

    def entries(self) -> list[StoredFile]:
        """Every file that some checkpoint needs, by path, as the best informed of its holders knows it."""
        return [self.entry(path) for path in sorted(self._holders)]

    def entry(self, path: str) -> StoredFile:
        """The file at `path`. Raises MissingError when no checkpoint needs it."""
        known = [self._files[version][path] for version in self.holders(path)]
        if not known:
            raise MissingError(f"no retained checkpoint needs '{path}'", file=path)
        return next((file for file in known if file.sha256 is not None), known[-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry) and self._files == other._files and self._holders == other._holders

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def rebuild(
        cls, listing: Listing, manifests: Mapping[SnapshotName, Manifest], *, floor: int = 0
    ) -> Registry:
        """The registry of all versions from `floor` up that the files in `listing` can make.

        `manifests` are those of the snapshots that can be read; a snapshot whose
        files are not all there counts as absent.
        """
        usable = whole_snapshots(listing, manifests)
        lineages = Lineages(listing.deltas, usable)
        registry = cls()
        for version in lineages.restorable():
            if version.number >= floor:
                registry.register(version, files_of(lineages.plan(version), usable, listing))
        return registry

    def _passes(self, files: Mapping[str, StoredFile], snapshot: SnapshotName) -> bool:
        """Whether the checkpoint with these files starts from before the snapshot and has its delta on the
        way, or starts from an older snapshot of that very name."""
        start = max((file.origin for file in files.values() if file.is_snapshot), default=0)
        if start >= snapshot.version:
            return snapshot.path in files
        return any(
            file.is_delta and file.origin == snapshot.version and delta_of(file.path) == snapshot.version_id
            for file in files.values()
        )

    def _drop(self, version: VersionId, files: Iterable[StoredFile]) -> list[StoredFile]:
        freed = []
        for file in files:
            holders = self._holders[file.path]
            holders.discard(version)
            if not holders:
                del self._holders[file.path]
                freed.append(file)
        return freed


def files_of(plan: Plan, manifests: Mapping[SnapshotName, Manifest], listing: Listing) -> list[StoredFile]:
    """The files that `plan` needs: the snapshot's archive and SSTs, and the deltas."""
    files: list[StoredFile] = []
    if plan.snapshot is not None:
        files.append(StoredFile.of_snapshot(plan.snapshot, listing.snapshots[plan.snapshot]))
        files += [StoredFile.of_entry(entry) for entry in manifests[plan.snapshot].files]
    return files + [StoredFile.of_delta(delta, listing.deltas[delta]) for delta in plan.deltas]


def whole_snapshots(
    listing: Listing, manifests: Mapping[SnapshotName, Manifest]
) -> dict[SnapshotName, Manifest]:
    """The snapshots whose files all exist, with the sizes that their manifests give."""
    sizes = listing.sst_bytes()
    return {
        snapshot: manifests[snapshot]
        for snapshot in listing.snapshots
        if snapshot in manifests
        and all(sizes.get(entry.path) == entry.size_bytes for entry in manifests[snapshot].files)
    }


def delta_of(path: str) -> VersionId | None:
    """The version whose delta is at `path`; None when the path is not a delta's."""
    directory, _, name = path.partition("/")
    delta = DeltaName.parse(name) if directory == DELTA_DIRECTORY else None
    return None if delta is None else delta.version_id


def _order(version: VersionId) -> tuple[int, str]:
    return version.number, version.checkpoint_id or ""
