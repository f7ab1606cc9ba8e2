"""Registry of shared state: for every file, the retained checkpoints that need it.

A file is freed when the last checkpoint that needs it is retired, never sooner, never later. Its count is
the size of a set of checkpoints, so that registering a checkpoint twice, or late, changes nothing. The
registry can be rebuilt from the files at any time. SST files and archives of snapshots are counted alike.

Not safe for threads: the caller locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from state_store.core.checkpoint.lineage import Lineages, Listing
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    SnapshotName,
    VersionId,
    version_order,
)
from state_store.core.checkpoint.stored_documents import FileEntry, Manifest
from state_store.errors import MissingError


@dataclass(frozen=True)
class StoredFile:
    """A file that checkpoints need: `path` below the store's directory, `origin` the version that wrote it.

    `sha256` (64 hexadecimal digits) is known once a snapshot's manifest names the file. `crc32` is the
    checksum in the name of a delta.
    """

    path: str
    size_bytes: int
    origin: int
    sha256: str | None = None
    crc32: int | None = None

    @property
    def name(self) -> str:
        """The file name, without its directory."""
        return self.path.rpartition("/")[2]

    @property
    def is_snapshot(self) -> bool:
        """True for a snapshot's archive."""
        return self.path.startswith(SNAPSHOT_DIRECTORY + "/")

    @classmethod
    def of_delta(cls, delta: DeltaName, size_bytes: int) -> StoredFile:
        """Return the delta that a name and a size in a listing describe."""
        return cls(delta.path, size_bytes, delta.version, crc32=delta.crc)

    @classmethod
    def of_snapshot(cls, snapshot: SnapshotName, size_bytes: int) -> StoredFile:
        """Return the snapshot's archive that a name and a size in a listing describe."""
        return cls(snapshot.path, size_bytes, snapshot.version)

    @classmethod
    def of_entry(cls, entry: FileEntry) -> StoredFile:
        """Return the SST that an entry of a manifest describes."""
        directory, _, name = entry.path.partition("/")
        delta = DeltaName.parse(name) if directory == DELTA_DIRECTORY else None
        return cls(entry.path, entry.size_bytes, entry.origin, entry.sha256, delta.crc if delta else None)


def delta_of(path: str) -> VersionId | None:
    """Return the version whose delta is at `path`, or None for any other path."""
    directory, _, name = path.partition("/")
    delta = DeltaName.parse(name) if directory == DELTA_DIRECTORY else None
    return None if delta is None else delta.version_id


class _Base:
    """The archive and the SSTs of one snapshot, by path; many checkpoints share it."""

    __slots__ = ("files",)

    def __init__(self, files: Iterable[StoredFile]) -> None:
        self.files = {file.path: file for file in files}


@dataclass(frozen=True, eq=False)
class _Link:
    """A delta after the base, and the one before it. Checkpoints of a lineage share all but their last."""

    __slots__ = ("before", "file")

    file: StoredFile
    before: _Link | None


class _Needs(NamedTuple):
    """The files that a checkpoint needs: those of its base (None: it starts from nothing), and deltas."""

    base: _Base | None
    last: _Link | None

    def deltas(self) -> Iterator[_Link]:
        """Yield the deltas, newest first."""
        link = self.last
        while link is not None:
            yield link
            link = link.before

    def files(self) -> Iterator[StoredFile]:
        if self.base is not None:
            yield from self.base.files.values()
        for link in self.deltas():
            yield link.file


_NOTHING = _Needs(None, None)


class Registry:
    """The files that each retained checkpoint needs, and the reverse.

    Checkpoints share in memory what they have in common: the memory is that of the snapshots' files and of a
    delta for each checkpoint. The time of `commit` does not depend on the number of files.
    """

    def __init__(self) -> None:
        self._needs: dict[VersionId, _Needs] = {}

    def commit(self, delta: DeltaName, size_bytes: int) -> None:
        """Register the version of `delta`: the files of the version before, and this one.

        A registered version is not changed.

        Raises:
            MissingError: If the version that it builds on is not registered.
        """
        if delta.version_id in self._needs:
            return
        builds_on = delta.builds_on
        before = _NOTHING
        if builds_on is not None:
            if builds_on not in self._needs:
                raise MissingError(
                    f"version {builds_on}, which '{delta.path}' builds on, is not in the registry"
                )
            before = self._needs[builds_on]
        file = StoredFile.of_delta(delta, size_bytes)
        self._needs[delta.version_id] = _Needs(before.base, _Link(file, before.last))

    def publish(self, manifest: Manifest, size_bytes: int) -> list[StoredFile]:
        """Register a snapshot; return the files that no checkpoint needs any more.

        Checkpoints at or after it on its lineage now need its files and the deltas after it.

        Args:
            manifest: the manifest of the snapshot.
            size_bytes: bytes of its archive.
        """
        base = _Base(_snapshot_files(manifest, size_bytes))
        moved: dict[_Link, _Link] = {}
        changed = {}
        for version, needs in self._needs.items():
            tail = _deltas_after(needs, manifest)
            if version == manifest.version_id:
                tail = []
            if tail is not None:
                changed[version] = _Needs(base, _linked(tail, moved))
        return self._replacing(changed)

    def retire(self, versions: Iterable[VersionId]) -> list[StoredFile]:
        """Remove checkpoints, also unknown ones; return the files that no checkpoint needs any more."""
        return self._freed([self._needs.pop(version) for version in versions if version in self._needs])

    def retire_below(self, floor: int) -> list[StoredFile]:
        """Remove all versions below `floor`; return the files that no checkpoint needs any more."""
        return self.retire([version for version in self._needs if version.number < floor])

    def freed_below(self, floor: int) -> list[str]:
        """Return the paths of the files that `retire_below` would free."""
        return sorted(file.path for file in self._freed_below(floor))

    def _freed_below(self, floor: int) -> list[StoredFile]:
        kept_parts = _Parts(needs for version, needs in self._needs.items() if version.number >= floor)
        going = _Parts(
            (needs for version, needs in self._needs.items() if version.number < floor), apart_from=kept_parts
        )
        if going.empty:
            return []
        kept_files = kept_parts.files()
        return [file for path, file in going.files().items() if path not in kept_files]

    def last_cut(self, up_to: int) -> int | None:
        """Return the newest version at or below `up_to` that needs nothing older than itself, or None.

        That is a full snapshot: what versions before it alone need goes as a whole when they do.
        """
        cuts = [
            version.number
            for version, needs in self._needs.items()
            if version.number <= up_to
            and needs.last is None
            and needs.base is not None
            and all(file.origin >= version.number for file in needs.base.files.values())
        ]
        return max(cuts, default=None)

    def bytes_freed_below(self, floor: int) -> int:
        """Return the bytes of the files that `retire_below` would free."""
        return sum(file.size_bytes for file in self._freed_below(floor))

    def count(self, path: str) -> int:
        """Return the number of retained checkpoints that need the file."""
        return len(self.holders(path))

    def holders(self, path: str) -> list[VersionId]:
        """Return the checkpoints that need the file, oldest first."""
        return [version for version in self.checkpoints() if self._file(version, path) is not None]

    def files(self, version: VersionId) -> list[StoredFile]:
        """Return the files that `version` needs, by path; none if it is not registered."""
        return sorted(self._needs.get(version, _NOTHING).files(), key=lambda file: file.path)

    def checkpoints(self) -> list[VersionId]:
        """Return the retained checkpoints, oldest first."""
        return sorted(self._needs, key=version_order)

    def entries(self) -> list[StoredFile]:
        """Return the files that checkpoints need, by path, with their SHA-256 if one checkpoint knows it."""
        files = _Parts(self._needs[version] for version in self.checkpoints()).files()
        return [files[path] for path in sorted(files)]

    def entry(self, path: str) -> StoredFile:
        """Return the file at `path`. Raises MissingError if no checkpoint needs it."""
        known_files = [
            file for version in self.checkpoints() if (file := self._file(version, path)) is not None
        ]
        if not known_files:
            raise MissingError(f"no retained checkpoint needs '{path}'", file=path)
        return next((file for file in known_files if file.sha256 is not None), known_files[-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry) and self._by_path() == other._by_path()

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def rebuild(
        cls, listing: Listing, manifests: Mapping[SnapshotName, Manifest], *, floor: int = 0
    ) -> Registry:
        """Return the registry of all versions from `floor` up that the files in `listing` can make.

        Args:
            listing: the files that exist.
            manifests: those of the readable snapshots; a snapshot that lacks a file counts as absent.
            floor: the lowest version that is registered.
        """
        usable = restorable_snapshots(listing, manifests)
        lineages = Lineages(listing.deltas, usable)
        registry = cls()
        needs: dict[VersionId | None, _Needs] = {None: _NOTHING}
        for version in lineages.restorable():
            snapshot = SnapshotName(*version)
            if snapshot in usable:
                needs[version] = _Needs(
                    _Base(_snapshot_files(usable[snapshot], listing.snapshots[snapshot])), None
                )
            else:
                delta = lineages.delta(version)
                assert delta is not None
                before = needs[delta.builds_on]
                link = _Link(StoredFile.of_delta(delta, listing.deltas[delta]), before.last)
                needs[version] = _Needs(before.base, link)
            if version.number >= floor:
                registry._needs[version] = needs[version]
        return registry

    def _file(self, version: VersionId, path: str) -> StoredFile | None:
        needs = self._needs[version]
        if needs.base is not None and path in needs.base.files:
            return needs.base.files[path]
        return next((link.file for link in needs.deltas() if link.file.path == path), None)

    def _by_path(self) -> dict[VersionId, dict[str, StoredFile]]:
        return {
            version: {file.path: file for file in needs.files()} for version, needs in self._needs.items()
        }

    def _replacing(self, changed: Mapping[VersionId, _Needs]) -> list[StoredFile]:
        """Replace the needs of checkpoints; return the files that no checkpoint needs any more."""
        before = [self._needs[version] for version in changed if version in self._needs]
        self._needs |= changed
        return self._freed(before)

    def _freed(self, dropped: Iterable[_Needs]) -> list[StoredFile]:
        kept_parts = _Parts(self._needs.values())
        gone = _Parts(dropped, apart_from=kept_parts)
        if gone.empty:
            return []
        kept_files = kept_parts.files()
        return [file for path, file in gone.files().items() if path not in kept_files]


class _Parts:
    """The bases and links of checkpoints, each once, without those of `apart_from`."""

    def __init__(self, all_needs: Iterable[_Needs], apart_from: _Parts | None = None) -> None:
        self._bases: dict[_Base, None] = {}
        self._links: dict[_Link, None] = {}
        others = apart_from or self
        for needs in all_needs:
            if needs.base is not None and needs.base not in others._bases:
                self._bases[needs.base] = None
            for link in needs.deltas():
                if link in others._links or link in self._links:
                    break  # so are those before it
                self._links[link] = None

    @property
    def empty(self) -> bool:
        return not self._bases and not self._links

    def files(self) -> dict[str, StoredFile]:
        """Return the files by path, with their SHA-256 if one of the checkpoints knows it."""
        by_path: dict[str, StoredFile] = {}
        for files in (
            *(base.files.values() for base in self._bases),
            *((link.file,) for link in self._links),
        ):
            for file in files:
                known_file = by_path.get(file.path)
                if known_file is None or known_file.sha256 is None:
                    by_path[file.path] = file
        return by_path


def _deltas_after(needs: _Needs, manifest: Manifest) -> list[_Link] | None:
    """Return the deltas after a snapshot, newest first, of a checkpoint on its lineage, else None.

    The checkpoint starts before the snapshot and needs its delta, or starts from a snapshot of that name.
    """
    after: list[_Link] = []
    for link in needs.deltas():
        if link.file.origin <= manifest.version:
            return after if delta_of(link.file.path) == manifest.version_id else None
        after.append(link)
    if needs.base is not None and manifest.snapshot.path in needs.base.files:
        return after
    return None


def _linked(newest_first: Sequence[_Link], moved: dict[_Link, _Link]) -> _Link | None:
    """Return the same deltas after another base; `moved` has those already made, so that they are shared."""
    last: _Link | None = None
    for link in reversed(newest_first):
        if link not in moved:
            moved[link] = _Link(link.file, last)
        last = moved[link]
    return last


def _snapshot_files(manifest: Manifest, size_bytes: int) -> list[StoredFile]:
    """Return the archive and the SSTs of a snapshot."""
    archive = StoredFile.of_snapshot(manifest.snapshot, size_bytes)
    return [archive, *(StoredFile.of_entry(entry) for entry in manifest.files)]


def restorable_snapshots(
    listing: Listing, manifests: Mapping[SnapshotName, Manifest]
) -> dict[SnapshotName, Manifest]:
    """Return the snapshots whose files all exist with the sizes in their manifests."""
    sizes = listing.sst_bytes()
    return {
        snapshot: manifests[snapshot]
        for snapshot in listing.snapshots
        if snapshot in manifests
        and all(sizes.get(entry.path) == entry.size_bytes for entry in manifests[snapshot].files)
    }


NEWEST_MERGED = "newest version: snapshot"
NEWEST_DELTAS = "newest version: deltas"
OLDER_MERGED = "older versions alone: snapshots"
OLDER_DELTAS = "older versions alone: deltas"
NO_VERSION = "no version"

REASONS = (NEWEST_MERGED, NEWEST_DELTAS, OLDER_MERGED, OLDER_DELTAS, NO_VERSION)


def reason_of(path: str, *, by_newest: bool, by_older: bool) -> str:
    """Return why a file is there.

    Args:
        path: its path below the store's directory.
        by_newest: the newest version needs it.
        by_older: a version before the newest one needs it.
    """
    is_delta = path.startswith(DELTA_DIRECTORY + "/")
    if by_newest:
        return NEWEST_DELTAS if is_delta else NEWEST_MERGED
    if by_older:
        return OLDER_DELTAS if is_delta else OLDER_MERGED
    return NO_VERSION
