"""Contents of a store's directory: its listing, the archives of its snapshots, and everything in one reading.

`StoreContents.read` reads in the order that safe deletion needs. Snapshots and their manifests come first,
then tombstones, then deltas and shared files. So a snapshot that is complete here and has no condemned file
cannot lose one afterwards: a cleaner that condemns a file later sees that snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from state_store.core.checkpoint.lineage import Lineages, Listing
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    SHARED_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    TEMPORARY_SUFFIX,
    SnapshotName,
)
from state_store.core.checkpoint.registry import Registry, restorable_snapshots
from state_store.core.checkpoint.stored_documents import Archive, Manifest, unpack
from state_store.core.deletion.lease import Tombstones, read_again_if_damaged
from state_store.core.storage.contract import Entry, Storage
from state_store.errors import DamagedError, FormatError, MissingError


def read_listing(storage: Storage) -> Listing:
    """Return the deltas and snapshots of a store. Raises as the storage does.

    Deltas are listed first. If a clean-up deletes one between the two listings, a snapshot has taken its
    place, and the second listing shows it.
    """
    entries = {
        f"{directory}/{entry.name}": entry
        for directory in (DELTA_DIRECTORY, SNAPSHOT_DIRECTORY)
        for entry in storage.list_files(directory)
    }
    return listing_of(entries)


def listing_of(entries: Mapping[str, Entry]) -> Listing:
    """Return the files that are ours by their names, of entries by path."""
    return Listing.from_files(
        ((path, entry.size_bytes) for path, entry in entries.items()),
        {path: entry.modified_ms for path, entry in entries.items()},
    )


def read_newest_manifest(
    storage: Storage, snapshots: Iterable[SnapshotName]
) -> tuple[Manifest | None, list[str]]:
    """Return the manifest of the newest readable snapshot (None: there is none), and warnings.

    A warning names a damaged archive. It counts as absent until a newer snapshot, or a full one of that
    version, takes its place.

    Raises:
        FormatError: If an archive is of a format that this program does not know.
        StorageError: If the storage fails.
    """
    warnings: list[str] = []
    for name in sorted(snapshots, key=lambda name: name.version, reverse=True):
        try:
            return read_archive(storage, name).manifest, warnings
        except MissingError:
            continue
        except DamagedError as error:
            warnings.append(f"snapshot '{name.path}' counts as absent: {error.message}")
    return None, warnings


def read_archive(storage: Storage, snapshot: SnapshotName) -> Archive:
    """Return the archive of a snapshot.

    Raises:
        MissingError: If there is no such archive.
        DamagedError: If it is not what was written, or of another version than its name.
        FormatError: If it is of a format that this program does not know.
    """
    file = f"{storage.location}/{snapshot.path}"
    archive = unpack(storage.read(snapshot.path), file=file)
    if archive.manifest.version_id != snapshot.version_id:
        raise DamagedError(
            f"'{file}' is damaged: it says that it is version {archive.manifest.version_id}", file=file
        )
    return archive


@dataclass(frozen=True)
class ReadSnapshot:
    """A snapshot as it was listed and read; without a `manifest`, `error` says why it cannot be used."""

    entry: Entry
    manifest: Manifest | None
    error: DamagedError | FormatError | None = None


@dataclass(frozen=True)
class StoreContents:
    """The files of a store at one moment. Immutable; safe for any thread.

    While the query runs, files appear and disappear between two readings.

    Attributes:
        snapshots: the snapshots by name, damaged ones included.
        tombstones: the tombstones.
        entries: all files of `delta/`, `shared/` and `snapshot/` by path, foreign and unfinished ones too.
    """

    snapshots: Mapping[SnapshotName, ReadSnapshot]
    tombstones: Tombstones
    entries: Mapping[str, Entry]

    @classmethod
    def read(
        cls, storage: Storage, known_snapshots: Mapping[SnapshotName, ReadSnapshot] | None = None
    ) -> StoreContents:
        """Read the directory: four listings, and the archives that are not as they were in `known_snapshots`.

        Raises:
            FormatError: If a tombstone is of a newer format. A snapshot of one has it as its error.
            StorageError: If the storage fails.
        """
        entries = _entries(storage, SNAPSHOT_DIRECTORY)
        snapshots = _read_snapshots(storage, entries.values(), known_snapshots or {})
        tombstones = Tombstones.read(storage)
        entries |= _entries(storage, DELTA_DIRECTORY)
        entries |= _entries(storage, SHARED_DIRECTORY)
        return cls(snapshots, tombstones, entries)

    def without(self, paths: Collection[str]) -> StoreContents:
        """Return the contents without these files."""
        left_out = set(paths)
        snapshots = {name: read for name, read in self.snapshots.items() if name.path not in left_out}
        entries = {path: entry for path, entry in self.entries.items() if path not in left_out}
        return replace(self, snapshots=snapshots, entries=entries)

    @cached_property
    def listing(self) -> Listing:
        """The finished files that are ours by their names."""
        return listing_of(self.entries)

    @cached_property
    def manifests(self) -> dict[SnapshotName, Manifest]:
        """The manifests of the snapshots whose archives can be read."""
        return {name: read.manifest for name, read in self.snapshots.items() if read.manifest is not None}

    @cached_property
    def restorable_snapshots(self) -> dict[SnapshotName, Manifest]:
        """The snapshots all of whose files exist."""
        return restorable_snapshots(self.listing, self.manifests)

    @cached_property
    def lineages(self) -> Lineages:
        """The versions that these files can make."""
        return Lineages(self.listing.deltas, self.restorable_snapshots)

    @property
    def unfinished(self) -> dict[str, Entry]:
        """Unfinished writes, of live and dead writers, by path."""
        return {path: entry for path, entry in self.entries.items() if path.endswith(TEMPORARY_SUFFIX)}

    @property
    def committed_ms(self) -> dict[int, int]:
        """Time of the last commit of each version, by the storage's clock."""
        times: dict[int, int] = {}
        for delta in self.listing.deltas:
            at_ms = self.entries[delta.path].modified_ms
            times[delta.version] = max(at_ms, times.get(delta.version, at_ms))
        return times

    def registry(self, floor: int = 0) -> Registry:
        """Return the files that the versions from `floor` up need."""
        return Registry.rebuild(self.listing, self.manifests, floor=floor)


def read_snapshots(
    storage: Storage, known_snapshots: Mapping[SnapshotName, ReadSnapshot]
) -> dict[SnapshotName, ReadSnapshot]:
    """Return the present snapshots; those that are as in `known_snapshots` are not read again."""
    return _read_snapshots(storage, storage.list_files(SNAPSHOT_DIRECTORY), known_snapshots)


def refuse_newer_formats(snapshots: Mapping[SnapshotName, ReadSnapshot]) -> None:
    """Raise FormatError if a snapshot is of a format that this program does not know."""
    for read in snapshots.values():
        if isinstance(read.error, FormatError):
            raise read.error


def _entries(storage: Storage, directory: str) -> dict[str, Entry]:
    return {f"{directory}/{entry.name}": entry for entry in storage.list_files(directory)}


def _read_snapshots(
    storage: Storage, entries: Iterable[Entry], known_snapshots: Mapping[SnapshotName, ReadSnapshot]
) -> dict[SnapshotName, ReadSnapshot]:
    snapshots: dict[SnapshotName, ReadSnapshot] = {}
    for entry in entries:
        name = SnapshotName.parse(entry.name)
        if name is None:
            continue
        before = known_snapshots.get(name)
        if before is not None and before.entry == entry and before.manifest is not None:
            snapshots[name] = before
            continue
        try:
            snapshots[name] = ReadSnapshot(entry, _read_manifest(storage, name))
        except MissingError:
            continue  # deleted since it was listed
        except (DamagedError, FormatError) as error:
            snapshots[name] = ReadSnapshot(entry, None, error)
    return snapshots


def _read_manifest(storage: Storage, name: SnapshotName) -> Manifest:
    return read_again_if_damaged(lambda: read_archive(storage, name)).manifest
