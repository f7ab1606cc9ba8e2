"""Small stores for tests of deletion: files with made-up bytes, but real names, manifests and archives."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable

from state_store.core.checkpoint.lineage import Listing
from state_store.core.checkpoint.names import (
    EMPTY_PARENT,
    DeltaName,
    SharedName,
    SnapshotName,
    VersionId,
    origin_of,
)
from state_store.core.checkpoint.registry import restorable_snapshots
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, FileEntry, Manifest, pack, unpack
from state_store.errors import DamagedError

_DATABASE = {"CURRENT": b"MANIFEST-000005\n", "MANIFEST-000005": b"", "OPTIONS-000007": b""}


def version(number: int) -> VersionId:
    return VersionId(number, f"id-{number}")


def delta(number: int) -> DeltaName:
    parent = f"id-{number - 1}" if number > 1 else EMPTY_PARENT
    return DeltaName(number, f"id-{number}", parent, number)


def shared(number: int, unique: int, sst: int = 1) -> str:
    return SharedName(number, unique, sst).path


def snapshot(number: int) -> SnapshotName:
    return SnapshotName(*version(number))


def content(path: str) -> bytes:
    return path.encode()


def manifest(at: VersionId, paths: Iterable[str]) -> Manifest:
    return sized_manifest(at, {path: len(content(path)) for path in paths})


def sized_manifest(at: VersionId, sizes: dict[str, int]) -> Manifest:
    """Return the manifest of a snapshot of these files, given with their bytes."""
    entries = tuple(
        FileEntry(
            name=f"{number:06d}.sst",
            path=path,
            size_bytes=sizes[path],
            sha256=hashlib.sha256(content(path)).hexdigest(),
            level=6,
            origin=origin_of(path),
        )
        for number, path in enumerate(sorted(sizes), 10)
    )
    kind = FULL if all(entry.origin == at.number for entry in entries) else INCREMENTAL
    return Manifest(at.number, at.checkpoint_id, kind, None, None, 0, 0, 0, entries)


def archive(at: VersionId, paths: Iterable[str]) -> bytes:
    return _archive(at, frozenset(paths))


@functools.lru_cache(None)
def _archive(at: VersionId, paths: frozenset[str]) -> bytes:
    return packed(manifest(at, paths))


def packed(manifest: Manifest) -> bytes:
    """Return the archive of a snapshot with this manifest."""
    return pack(manifest, _DATABASE)


def manifests(files: dict[str, bytes]) -> dict[SnapshotName, Manifest]:
    """Return the manifests of the snapshots in `files` that can be read."""
    found = {}
    for path, data in files.items():
        directory, _, name = path.partition("/")
        parsed = SnapshotName.parse(name)
        if directory == "snapshot" and parsed is not None:
            try:
                found[parsed] = unpack(data, file=path).manifest
            except DamagedError:
                continue
    return found


def listing(files: dict[str, bytes]) -> Listing:
    return Listing.from_files((path, len(data)) for path, data in files.items())


def broken_snapshots(files: dict[str, bytes]) -> list[SnapshotName]:
    """Snapshots that name a file that is not there."""
    read = manifests(files)
    return sorted(read.keys() - restorable_snapshots(listing(files), read).keys(), key=lambda name: name.name)
