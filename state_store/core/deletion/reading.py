"""Reading of a store's listing and of its snapshots' archives from checkpoint storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from state_store.core.checkpoint.lineage import Listing
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    SnapshotName,
)
from state_store.core.checkpoint.stored_documents import Archive, Manifest, unpack
from state_store.core.storage.contract import Entry, Storage
from state_store.errors import DamagedError, MissingError

T = TypeVar("T")


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


def read_again_if_damaged(read: Callable[[], T]) -> T:
    """Return what `read` returns; call it a second time if it raises DamagedError.

    Files are deleted by what was read, so a bit that was wrong on its way must not count as damage.

    Raises:
        DamagedError: If both readings are damaged.
    """
    try:
        return read()
    except DamagedError:
        return read()


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
