"""Merge a base and the deltas after it into a newer base, and publish that as a snapshot.

**Merge** is a pure function of files. It works in a new directory of hard links: open, ingest the deltas as
they are, compact as the kind asks. `ingest` compacts only if reads would suffer from the number of files, and
is never published. `incremental` lets RocksDB compact young files with each other, so that the snapshot
shares most files with the one before; it rewrites everything when the young files have grown to about the
size of the old ones. `full` rewrites everything: no file of it is older than the merge. The directories of
the inputs are only read.

**Publish** makes the snapshot in checkpoint storage, by the lease protocol (docs/deletion.md). The writer's
lease names every stored file that the snapshot will share. After that the writer looks which of them are
condemned or gone, and uploads those again from its own hard links, under new names. A snapshot that turns out
to share nothing is a full one, even if an incremental one was asked for: the chain is cut. The archive comes
last; its appearance is the snapshot.

Any thread may call, one at a time for a store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from state_store import __version__
from state_store.core.checkpoint.lineage import ChainDelta
from state_store.core.checkpoint.names import SharedName, VersionId
from state_store.core.checkpoint.stored_documents import (
    FULL,
    INCREMENTAL,
    INGEST,
    Cause,
    Manifest,
    Tail,
    pack,
)
from state_store.core.deletion.lease import Lease
from state_store.core.engine.database import (
    Database,
    TableFile,
    rocksdb_version,
    small_files,
    table_number,
    tidy,
)
from state_store.core.files.sparse import identity_bytes
from state_store.core.files.transfer import sha256_of, sha256_of_end
from state_store.core.snapshots.context import (
    DatabaseFile,
    LocalDatabase,
    StoreContext,
    check_files,
    check_rows,
    check_version,
    describe,
    ingest_deltas,
    wanted_deltas,
    workspace_of,
)
from state_store.core.storage.contract import Storage
from state_store.core.storage.local_disk import link_or_copy, of_local_disk
from state_store.errors import BusyError, DamagedError, InternalError, StateStoreError

KINDS = (INGEST, INCREMENTAL, FULL)

MAX_RUNS = 16
"""Sorted runs of a base above which even an `ingest` compacts: every look-up asks each of them."""

_TRIES = 3

WRITER = f"incremental-state-store {__version__}"


# ---- merge ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merged:
    """The new base, and the milliseconds by phase: link, fetch (remote deltas), ingest, compact.

    Only the tails of the files with a name in `sparse` are local.
    """

    base: LocalDatabase
    phases: dict[str, float]
    sparse: frozenset[str] = frozenset()


@of_local_disk(workspace_of)
def merge(
    context: StoreContext,
    base: LocalDatabase,
    deltas: Sequence[ChainDelta],
    version: VersionId,
    kind: str,
) -> Merged:
    """Make the base of `version`. On failure nothing is left behind.

    Args:
        context: The store.
        base: The base to start from.
        deltas: The deltas from there to `version`.
        version: The version.
        kind: A member of KINDS.

    Raises:
        DamagedError: A delta is damaged.
        MissingError: A delta does not exist.
        BusyError: The deadline of the context passed.
        StorageError: The disk fails.
    """
    clock = Laps(context.runtime.monotonic_s)
    with context.workspace.new_base(version.number) as directory:
        link_database(base, directory)
        clock.lap("link_ms")
        with context.workspace.scratch() as scratch:
            wanted_files = wanted_deltas(deltas, scratch)
            context.fetch(wanted_files)
            context.deadline.check()
            context.verify(wanted_files)
            clock.lap("fetch_ms")
            size_bytes = base.size_bytes + sum(delta.size_bytes for delta in deltas)
            with Database(directory, context.settings.for_store(size_bytes)) as database:
                check_files(database, base.files)
                known_files = {**base.files, **ingest_deltas(database, deltas, scratch)}
                clock.lap("ingest_ms")
                _compact(database, kind, lambda: context.deadline.passed)
                files = describe(database, known_files, version)
                keys, families = check_version(
                    database, version, deltas[-1].name if deltas else None, context.storage
                )
                check_rows(database, version, keys, context.storage, are_current=kind == FULL)
        if kind == FULL and not files.keys().isdisjoint(known_files):
            raise InternalError(
                f"a full merge of version {version} kept older files: {sorted(files.keys() & known_files)}"
            )
        tidy(directory, set(files))
        clock.lap("compact_ms")
        return Merged(LocalDatabase(directory, version, files, keys, families, base.snapshot), clock.phases)


def link_database(base: LocalDatabase, directory: Path) -> None:
    """Make a database in `directory` that may be changed, of hard links to the SSTs and copies of the rest.

    On a file system without hard links the SSTs are copied, too.
    """
    for name in base.files:
        try:
            link_or_copy(base.directory / name, directory / name)
        except FileNotFoundError as error:
            file = f"{base.directory}/{name}"
            raise DamagedError(f"the database lost '{file}'", file=file) from error
    for name, data in small_files(base.directory).items():
        (directory / name).write_bytes(data)


def _compact(database: Database, kind: str, deadline: Callable[[], bool]) -> None:
    if kind == FULL:
        database.compact_all(deadline=deadline)
    elif kind == INCREMENTAL or sorted_runs(database.files()) > MAX_RUNS:
        database.compact_runs(deadline=deadline)


def sorted_runs(files: Sequence[TableFile]) -> int:
    """Return the number of sorted runs: the files of level 0, and the other levels that have files."""
    return sum(file.level == 0 for file in files) + len({file.level for file in files if file.level})


class Laps:
    """A stop watch by phase, in milliseconds."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.phases: dict[str, float] = {}
        self._clock_s = clock_s
        self._last = clock_s()

    def lap(self, name: str) -> None:
        """Add a phase, which began with the end of the one before."""
        now = self._clock_s()
        self.phases[name] = (now - self._last) * 1000
        self._last = now


# ---- publish --------------------------------------------------------------------------------------------


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


@of_local_disk(workspace_of)
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
                take_back(context.storage, (str(file.path) for file in uploaded.values()))
                raise
            stored |= new
            shares = any(name not in uploaded for name in stored)
            manifest = _manifest(
                base, stored, shares=shares, created_ms=context.runtime.wall_ms(), cause=cause
            )
            _check_leased(manifest, lease)
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
    _check_leased(manifest, lease)
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
            raise DamagedError.of(file, f"its SHA-256 is not {older[name]}")

    context.parallel(check, [name for name in new if older.get(name) == new[name].sha256])


def take_back(storage: Storage, paths: Iterable[str]) -> None:
    """Delete files that no snapshot names yet; those that cannot be deleted are left to clean-ups."""
    for path in paths:
        with contextlib.suppress(StateStoreError):
            storage.delete(path)


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


def _check_leased(manifest: Manifest, lease: Lease) -> None:
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
        files=tuple(files[name].entry(name) for name in sorted(files, key=table_number)),
        column_families=base.column_families,
        rocksdb_version=rocksdb_version(options),
        writer=WRITER,
        created_ms=created_ms,
        cause=cause,
    )
