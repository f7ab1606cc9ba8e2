"""Publish: make a snapshot in checkpoint storage of a base, by the lease protocol (docs/deletion.md).

The writer's lease names every stored file that the snapshot will share. After that the writer looks which of
them are condemned or gone, and uploads those again from its own hard links, under new names. A snapshot that
turns out to share nothing is a full one, even if an incremental one was asked for: the chain is cut. The
archive comes last; its appearance is the snapshot. Any thread may call, one at a time for a store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from state_store import __version__
from state_store.core.checkpoint.names import (
    SharedName,
    VersionId,
)
from state_store.core.checkpoint.stored_documents import (
    FULL,
    INCREMENTAL,
    Cause,
    FileEntry,
    Manifest,
    Tail,
    pack,
)
from state_store.core.compat import zip
from state_store.core.deletion.lease import Lease
from state_store.core.engine.database import rocksdb_version, small_files, table_number
from state_store.core.files.sparse import identity_bytes
from state_store.core.files.transfer import sha256_of, sha256_of_end
from state_store.core.snapshots.context import DatabaseFile, LocalDatabase, StoreContext
from state_store.core.storage.local_disk import local_disk_errors
from state_store.errors import BusyError, DamagedError, InternalError, StateStoreError

_TRIES = 3
WRITER = f"incremental-state-store {__version__}"


class SparseFilesLostError(BusyError):
    """Files may not be shared, and are not local either: a merge has to read their rows from storage."""


@dataclass(frozen=True)
class Published:
    """A published snapshot: its base (every file has a path now), its manifest, and the files uploaded.

    `shared_files` were in storage before. `own_files` belong to no older snapshot, deltas included.
    """

    base: LocalDatabase
    manifest: Manifest
    archive_bytes: int
    shared_files: int
    new_files: int
    own_files: int
    uploaded_bytes: int
    phases: Mapping[str, float]


@local_disk_errors()
def publish(
    context: StoreContext,
    base: LocalDatabase,
    lease: Lease,
    *,
    full: bool,
    cause: Cause | None = None,
    sparse: Collection[str] = (),
) -> Published:
    """Make a snapshot of `base`.

    If the deadline of the context passes before the archive is written, or an upload fails, the uploaded
    files are deleted again. The lease has a storage without a deadline: nothing is given up half way after
    the archive may be visible.

    Args:
        context: The store.
        base: The base.
        lease: A new lease, which is given back.
        full: Share no file.
        cause: The cause of the merge, which the manifest keeps.
        sparse: Names of files of which only the tails are local.

    Raises:
        SparseFilesLostError: Such files may not be shared. Nothing is left in storage.
        BusyError: The deadline passed; or files were deleted as fast as they were uploaded.
        ConflictError: There is a snapshot of that version already (never with `full`).
        StorageError: The storage failed.
        UnknownOutcomeError: The storage failed, and the snapshot may be there.
    """
    clock_s = context.runtime.monotonic_s
    start = clock_s()
    files = _with_checksums(context, base)
    checksum_ms = (clock_s() - start) * 1000
    shared = {} if full else {name: file for name, file in files.items() if file.path is not None}
    start = clock_s()
    with lease:
        lost = lease.hold(str(file.path) for file in shared.values()) if shared else frozenset()
        stored = {name: file for name, file in shared.items() if file.path not in lost}
        uploaded: dict[str, DatabaseFile] = {}
        for _ in range(_TRIES):
            lacking = [name for name in files if name not in stored]
            new = _fresh_names(base.version, lacking, files, context.runtime.random_32())
            uploaded |= new
            try:
                if not new.keys().isdisjoint(sparse):
                    raise SparseFilesLostError(
                        f"'{files[min(new.keys() & set(sparse))].path}' and others may be deleted soon"
                    )
                _upload(context, base, lease, new)
                context.deadline.check()
            except BaseException:
                _take_back(context, uploaded)
                raise
            stored |= new
            shares = any(name not in uploaded for name in stored)
            manifest = _manifest(
                base, stored, shares=shares, created_ms=context.runtime.wall_ms(), cause=cause
            )
            _check(manifest, lease)
            archive = pack(manifest, small_files(base.directory))
            lost = lease.publish(manifest.snapshot, archive, overwrite=full)
            if not lost:
                break
            stored = {name: file for name, file in stored.items() if file.path not in lost}
        else:
            raise BusyError(f"the files of snapshot '{manifest.snapshot.path}' were deleted {_TRIES} times")
    for name in uploaded:
        context.cache.keep(str(stored[name].path), base.directory / name)
    older = {entry.path for entry in base.snapshot.files} if base.snapshot else set()
    return Published(
        base=replace(base, files=stored, snapshot=manifest),
        manifest=manifest,
        archive_bytes=len(archive),
        shared_files=len(stored) - len(uploaded),
        new_files=len(uploaded),
        own_files=sum(entry.path not in older for entry in manifest.files),
        uploaded_bytes=sum(file.size_bytes for file in uploaded.values()) + len(archive),
        phases={"checksum_ms": checksum_ms, "upload_ms": (clock_s() - start) * 1000},
    )


def publish_written(
    context: StoreContext, base: LocalDatabase, lease: Lease, *, overwrite: bool, cause: Cause | None = None
) -> Published:
    """Make a full snapshot of a base whose files have been uploaded under names that the lease has.

    Args:
        context: The store.
        base: The base; each file has its path and its checksum.
        lease: The lease, which is given back.
        overwrite: Replace a snapshot of the version.
        cause: The cause of the merge, which the manifest keeps.

    Raises:
        BusyError: A file was deleted meanwhile.
        ConflictError: There is a snapshot of that version already, and `overwrite` is false.
        StorageError: The storage failed.
        UnknownOutcomeError: The storage failed, and the snapshot may be there.
    """
    manifest = _manifest(base, base.files, shares=False, created_ms=context.runtime.wall_ms(), cause=cause)
    _check(manifest, lease)
    archive = pack(manifest, small_files(base.directory))
    if lease.publish(manifest.snapshot, archive, overwrite=overwrite):
        raise BusyError(f"files of snapshot '{manifest.snapshot.path}' were deleted before it was written")
    return Published(
        base=replace(base, snapshot=manifest),
        manifest=manifest,
        archive_bytes=len(archive),
        shared_files=0,
        new_files=len(base.files),
        own_files=len(base.files),
        uploaded_bytes=base.size_bytes + len(archive),
        phases={},
    )


def _fresh_names(
    version: VersionId, names: Iterable[str], files: Mapping[str, DatabaseFile], unique: int
) -> dict[str, DatabaseFile]:
    return {
        name: replace(files[name], path=SharedName(version.number, unique, table_number(name)).path)
        for name in names
    }


def _upload(
    context: StoreContext, base: LocalDatabase, lease: Lease, new: Mapping[str, DatabaseFile]
) -> None:
    if not new:
        return
    _check_again(context, base, new)
    lease.announce(str(file.path) for file in new.values())
    context.parallel(lambda name: context.storage.upload(base.directory / name, str(new[name].path)), new)


def _check_again(context: StoreContext, base: LocalDatabase, new: Mapping[str, DatabaseFile]) -> None:
    """Verify the files that are stored again because their first copy will be deleted.

    Perhaps no block of them has been read here yet.

    Raises:
        DamagedError: A file is damaged.
    """
    older = {entry.name: entry.sha256 for entry in base.snapshot.files} if base.snapshot else {}

    def check(name: str) -> None:
        context.deadline.check()
        file = base.directory / name
        if sha256_of(file) != older[name]:
            raise DamagedError(f"'{file}' is damaged: its SHA-256 is not {older[name]}", file=str(file))

    context.parallel(check, [name for name in new if older.get(name) == new[name].sha256])


def _take_back(context: StoreContext, uploaded: Mapping[str, DatabaseFile]) -> None:
    """Delete files that no snapshot names yet; those that cannot be deleted are left to clean-ups."""
    for file in uploaded.values():
        with contextlib.suppress(StateStoreError):
            context.storage.delete(str(file.path))


def _with_checksums(context: StoreContext, base: LocalDatabase) -> dict[str, DatabaseFile]:
    lacking = [name for name, file in base.files.items() if file.sha256 is None or file.tail is None]

    def checksum(name: str) -> DatabaseFile:
        context.deadline.check()
        path, file = base.directory / name, base.files[name]
        return replace(file, sha256=file.sha256 or sha256_of(path), tail=file.tail or tail_of(path))

    completed_files = context.parallel(checksum, lacking)
    return {**base.files, **dict(zip(lacking, completed_files, strict=True))}


def tail_of(path: Path) -> Tail | None:
    """Return the tail of a table as a manifest has it, None if it cannot be found."""
    size_bytes = identity_bytes(path)
    return None if size_bytes is None else Tail(size_bytes, sha256_of_end(path, size_bytes))


def _check(manifest: Manifest, lease: Lease) -> None:
    """Raise InternalError if a manifest contradicts itself: the snapshot must not become visible."""
    fault = manifest.contradiction()
    unheld = lease.not_held(entry.path for entry in manifest.files)
    if unheld:
        fault = f"needs '{min(unheld)}', which the writer's lease does not hold"
    if fault is not None:
        raise InternalError(
            f"snapshot '{manifest.snapshot.path}' was not published: it {fault}. The versions are as they "
            "were; the next merge tries again. Please report this with the agent's log",
            file=manifest.snapshot.path,
        )


def _manifest(
    base: LocalDatabase,
    files: Mapping[str, DatabaseFile],
    *,
    shares: bool,
    created_ms: int,
    cause: Cause | None,
) -> Manifest:
    previous = base.snapshot
    full_at = base.version if not shares else (previous.full if previous else None)
    options = next(
        (data for name, data in small_files(base.directory).items() if name.startswith("OPT")), b""
    )
    return Manifest(
        version=base.version.number,
        checkpoint_id=base.version.checkpoint_id,
        kind=INCREMENTAL if shares else FULL,
        previous=previous.version_id if previous else None,
        full=full_at,
        merges_since_full=0 if not shares else (previous.merges_since_full if previous else 0) + 1,
        deltas_since_full=base.version.number - (full_at.number if full_at else 0),
        keys=base.keys,
        files=tuple(_entry(name, files[name]) for name in sorted(files, key=table_number)),
        column_families=base.column_families,
        rocksdb_version=rocksdb_version(options),
        writer=WRITER,
        created_ms=created_ms,
        cause=cause,
    )


def _entry(name: str, file: DatabaseFile) -> FileEntry:
    assert file.path is not None and file.sha256 is not None
    return FileEntry(name, file.path, file.size_bytes, file.sha256, file.level, file.origin, file.tail)
