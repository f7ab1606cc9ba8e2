"""Restore: the files of a version become a local database (a base).

The newest snapshot on the version's lineage and the deltas after it; files that this machine still has are
linked, the others downloaded in parallel. Where a snapshot is missing or damaged an older one
with more deltas is taken, with a warning that names the file. Exactly the asked version, or an error that
names the file and the versions that can still be restored: never another version.

A thorough restore verifies each file as a whole. One that is not costs a time by the number of files, not of
bytes: it only makes sure that each is the file that is meant, and who reads a block verifies its checksum.
Who finds a damaged block restores again, thoroughly, which takes the file from storage again or does without
it.

Functions keep no state; any thread may call them, with a `StoreContext` of its own store.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from state_store.checkpoint.archive import Archive
from state_store.checkpoint.attempts import Seen
from state_store.checkpoint.lineage import Lineages, Plan, describe_restorable
from state_store.checkpoint.listing import Listing
from state_store.checkpoint.manifest import Manifest
from state_store.checkpoint.names import SnapshotName, VersionId
from state_store.deletion.catalog import read_archive, read_listing
from state_store.engine.database import Database, tidy
from state_store.errors import ConflictError, DamagedError, MissingError, StateStoreError
from state_store.files.sparse import SparseFile, make_sparse
from state_store.files.sst_end import is_plain
from state_store.files.transfer import Background, Fetched, Wanted
from state_store.files.workspace import make_private
from state_store.planning.chain import Chain, ChainDelta
from state_store.snapshots.context import StoreContext
from state_store.snapshots.ingestion import check_files, check_version, describe, ingest_deltas
from state_store.snapshots.local_database import DatabaseFile, LocalDatabase
from state_store.snapshots.stored_chain import read_full_manifest

_TRIES = 3
_PAUSE_S = 0.2
BESIDE = "deltas"
"""The directory below a base's for deltas that lie beside it."""

LEAST_SPARSE_DELTA_BYTES = 1 << 20
"""Of a delta that is read before it is there as a whole. Most are as large as a batch; that of a query's
first batch, or of a state that was imported, is as large as the state."""


@dataclass(frozen=True)
class DeltaBeside:
    """The delta that made `version`, as a local file that is not part of the database."""

    version: VersionId
    path: Path
    size_bytes: int


@dataclass(frozen=True)
class Restored:
    """A base of exactly the asked version, the chain behind it, and what it took (milliseconds by phase).

    `seen` are the attempts at later versions that were in storage when it was chosen. `deltas` lie beside
    `base`, which then is a database of the snapshot's version (empty without one): they hold what came after.
    `thorough` says whether every file was verified as a whole. Of the tables and deltas in `sparse` only the
    ends are there.
    """

    version: VersionId
    base: LocalDatabase
    thorough: bool
    chain: Chain
    fetched: Fetched
    phases: Mapping[str, float]
    warnings: tuple[str, ...]
    deltas: tuple[DeltaBeside, ...] = ()
    sparse: tuple[SparseFile, ...] = ()
    seen: Seen = frozenset()


@dataclass
class _Progress:
    """How it is to be done, and what piles up over several attempts."""

    clock_s: Callable[[], float]
    thorough: bool
    ingest: bool
    lazy_from_bytes: int | None
    warnings: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(
        default_factory=lambda: {"choose_ms": 0.0, "fetch_ms": 0.0, "verify_ms": 0.0, "ingest_ms": 0.0}
    )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = self.clock_s()
        try:
            yield
        finally:
            self.phases[name] += (self.clock_s() - start) * 1000


def restore(
    context: StoreContext,
    version: VersionId,
    *,
    start: VersionId | None = None,
    thorough: bool = True,
    ingest: bool = True,
    lazy_from_bytes: int | None = None,
) -> Restored:
    """Makes a base of `version`; with `start`, from exactly the snapshot of that version.

    Without an id the number stands for the attempt that counts (see `Attempts.meant`), and `start` for the
    one on its lineage. Without `ingest` the deltas are left beside the base where they say themselves what
    they are: each has to be asked by its reader, for its reserved record. Of files that are not local and
    have `lazy_from_bytes` bytes together, such a restore that is not thorough only fetches the ends, but
    small deltas as a whole.

    Raises MissingError or DamagedError when it cannot be made, FormatError for a format not known,
    ConflictError when two deltas claim to be one version, StorageError when the storage fails.
    """
    lazy_from_bytes = None if thorough else lazy_from_bytes
    progress = _Progress(context.runtime.monotonic_s, thorough, ingest, lazy_from_bytes)
    for attempt in range(_TRIES):
        try:
            return _restore_listed(context, version, start, progress)
        except MissingError:
            # A cleanup may have removed what this listing still showed, with a newer snapshot in its place.
            if attempt == _TRIES - 1 or start is not None:
                raise
        except ConflictError:
            # An attempt may be at work that is about to be refused.
            if attempt == _TRIES - 1:
                raise
            context.runtime.sleep(_PAUSE_S)
    raise AssertionError("unreachable")


def _restore_listed(
    context: StoreContext, version: VersionId, start: VersionId | None, progress: _Progress
) -> Restored:
    with progress.phase("choose_ms"):
        listing = read_listing(context.storage)
        version, start = _named(listing, version, start)
    snapshots = set(listing.snapshots)
    failure: StateStoreError | None = None
    while True:
        with progress.phase("choose_ms"):
            plan = _plan(listing, snapshots, version, start, failure)
        try:
            restored = _restore_plan(context, plan, listing, progress)
            return replace(restored, seen=listing.attempts.after(version.number))
        except (DamagedError, MissingError) as error:
            if plan.snapshot is None or start is not None or _is_delta_at_fault(error, plan):
                raise _unrestorable(error, listing, snapshots, plan) from error
            progress.warnings.append(f"snapshot '{plan.snapshot.path}' is not used: {error.message}")
            snapshots.discard(plan.snapshot)
            failure = failure or error


def _named(
    listing: Listing, version: VersionId, start: VersionId | None
) -> tuple[VersionId, VersionId | None]:
    """Both with their ids, where they have any."""
    if version.checkpoint_id is None:
        version = listing.attempts.meant(version.number) or version
    if start is not None and start.checkpoint_id is None:
        lineage = Lineages(listing.deltas, listing.snapshots).history(version)
        start = next((one for one in lineage if one.number == start.number), start)
    return version, start


def _plan(
    listing: Listing,
    snapshots: set[SnapshotName],
    version: VersionId,
    start: VersionId | None,
    failure: StateStoreError | None,
) -> Plan:
    try:
        return Lineages(listing.deltas, snapshots).plan(version, start=start)
    except MissingError as error:
        if failure is None:
            raise
        message = f"{failure.message}; without that snapshot, {error.message}"
        raise type(failure)(message, file=failure.file) from error  # type: ignore[call-arg]


def _restore_plan(context: StoreContext, plan: Plan, listing: Listing, progress: _Progress) -> Restored:
    with progress.phase("choose_ms"):
        archive = None if plan.snapshot is None else read_archive(context.storage, plan.snapshot)
    while True:
        directory = context.workspace.new_base(plan.version.number)
        try:
            restored = _fetch_and_open(context, plan, listing, archive, directory, progress)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        if restored is not None:
            return restored
        shutil.rmtree(directory, ignore_errors=True)  # and again, with what was learned


def _fetch_and_open(
    context: StoreContext,
    plan: Plan,
    listing: Listing,
    archive: Archive | None,
    directory: Path,
    progress: _Progress,
) -> Restored | None:
    """None when it has to be done again, with what was learned."""
    deltas = [ChainDelta.from_listing(name, listing.deltas[name]) for name in plan.deltas]
    tables = wanted_tables(archive.manifest if archive else None, directory)
    is_empty = archive is None and not deltas
    if not progress.ingest and not is_empty and all(name.crc is not None for name in plan.deltas):
        return _fetch_beside(context, plan, listing, archive, directory, deltas, tables, progress)
    with context.workspace.scratch() as scratch:
        return _fetch_and_ingest(
            context, plan, listing, archive, directory, scratch, deltas, tables, progress
        )


def _fetch_and_ingest(
    context: StoreContext,
    plan: Plan,
    listing: Listing,
    archive: Archive | None,
    directory: Path,
    scratch: Path,
    deltas: list[ChainDelta],
    tables: list[Wanted],
    progress: _Progress,
) -> Restored | None:
    """None when a damaged local file was replaced while the database was already open on it.

    The tables are verified while the deltas, which were verified before, are ingested.
    """
    changes = wanted_deltas(deltas, scratch)
    with progress.phase("fetch_ms"):
        fetched = context.fetch([*tables, *changes])
    with progress.phase("verify_ms"):
        progress.warnings += context.verify(changes)
    with Background(
        lambda: context.verify(tables, thorough=progress.thorough), runtime=context.runtime
    ) as verification:
        base, failure = None, None
        with progress.phase("ingest_ms"):
            try:
                base = _unopened(archive, directory)
                if deltas or archive is None:
                    base = _with_deltas(context, plan, base, deltas, scratch)
            except StateStoreError as error:
                failure = error
        with progress.phase("verify_ms"):
            replaced = verification.result()
    progress.warnings += replaced
    if replaced and (deltas or failure):
        return None
    if failure is not None:
        raise failure
    assert base is not None
    return _restored(context, plan, listing, base, deltas, fetched, progress)


def _fetch_beside(
    context: StoreContext,
    plan: Plan,
    listing: Listing,
    archive: Archive | None,
    directory: Path,
    deltas: list[ChainDelta],
    tables: list[Wanted],
    progress: _Progress,
) -> Restored | None:
    """Links or downloads, and opens nothing; but where tables are compressed, which RocksDB has to read, it
    ingests the deltas. None where tables are not there that RocksDB has to read: they are fetched now."""
    beside = directory / BESIDE
    if deltas:
        make_private(beside)
    changes = wanted_deltas(deltas, beside)
    with progress.phase("fetch_ms"):
        sparse = _fetch_ends(context, [*tables, *changes], directory, progress.lazy_from_bytes)
        paths = {file.path for file in sparse}
        whole = [file for file in (*tables, *changes) if file.path not in paths]
        fetched = context.fetch(whole)
    with progress.phase("verify_ms"):
        progress.warnings += context.verify(whole, thorough=progress.thorough)
    with progress.phase("choose_ms"):
        base = _unopened(archive, directory)
    lie_beside = tuple(
        DeltaBeside(delta.name.version_id, change.target, delta.size_bytes)
        for delta, change in zip(deltas, changes, strict=True)
    )
    if not all(is_plain(table.target) for table in tables):
        if sparse:
            progress.lazy_from_bytes = None
            return None
        if deltas:
            base, lie_beside = _ingest_beside(context, plan, base, deltas, changes, progress), ()
    restored = _restored(context, plan, listing, base, deltas, fetched, progress)
    return replace(restored, deltas=lie_beside, sparse=tuple(sparse))


def _restored(
    context: StoreContext,
    plan: Plan,
    listing: Listing,
    base: LocalDatabase,
    deltas: list[ChainDelta],
    fetched: Fetched,
    progress: _Progress,
) -> Restored:
    with progress.phase("choose_ms"):
        full = read_full_manifest(context.storage, listing, base.snapshot)
    return Restored(
        version=plan.version,
        base=base,
        thorough=progress.thorough,
        chain=Chain.from_listing(plan.version, base.snapshot, deltas, full),
        fetched=fetched,
        phases=progress.phases,
        warnings=tuple(progress.warnings),
    )


def _ingest_beside(
    context: StoreContext,
    plan: Plan,
    base: LocalDatabase,
    deltas: list[ChainDelta],
    changes: list[Wanted],
    progress: _Progress,
) -> LocalDatabase:
    """The base with the deltas in it that lie beside it."""
    with progress.phase("verify_ms"):
        progress.warnings += context.verify(changes)
    with progress.phase("ingest_ms"), context.workspace.scratch() as scratch:
        for change in changes:
            change.target.rename(scratch / change.target.name)
        changes[0].target.parent.rmdir()
        return _with_deltas(context, plan, base, deltas, scratch)


def _fetch_ends(
    context: StoreContext, wanted: list[Wanted], directory: Path, lazy_from_bytes: int | None
) -> list[SparseFile]:
    """Of the files that are far, where that is worth it; they are all that is fetched of these. A small delta
    takes no more requests as a whole."""
    if lazy_from_bytes is None or context.storage.is_local:
        return []
    far = [file for file in wanted if context.cache.find(file.path) is None]
    if sum(file.size_bytes for file in far) < lazy_from_bytes:
        return []
    worthwhile = [
        file for file in far if not file.names_itself or file.size_bytes >= LEAST_SPARSE_DELTA_BYTES
    ]
    made = context.parallel(lambda file: make_sparse(context.storage, file, directory), worthwhile)
    return [file for file in made if file is not None]


def wanted_tables(manifest: Manifest | None, directory: Path) -> list[Wanted]:
    """The SSTs of a snapshot, under their names in the database below `directory`."""
    return [
        Wanted(
            entry.path,
            entry.size_bytes,
            directory / entry.name,
            sha256=entry.sha256,
            tail_bytes=entry.tail.size_bytes if entry.tail else 0,
            tail_sha256=entry.tail.sha256 if entry.tail else None,
        )
        for entry in (manifest.files if manifest else ())
    ]


def wanted_deltas(deltas: list[ChainDelta], directory: Path) -> list[Wanted]:
    """The deltas, under their names in checkpoint storage below `directory`."""
    return [
        Wanted(
            delta.name.path,
            delta.size_bytes,
            directory / delta.name.name,
            crc32=delta.crc32,
            names_itself=delta.name.crc is not None,
        )
        for delta in deltas
    ]


def _unopened(archive: Archive | None, directory: Path) -> LocalDatabase:
    """The database of a snapshot, whose tables are there, as its manifest says it is; empty without one."""
    if archive is None:
        return LocalDatabase(directory, VersionId(0, None), {}, 0, {}, None)
    for name, data in archive.database.items():
        (directory / name).write_bytes(data)
    manifest = archive.manifest
    files = database_files(manifest)
    return LocalDatabase(
        directory, manifest.version_id, files, manifest.keys, manifest.column_families, manifest
    )


def _with_deltas(
    context: StoreContext, plan: Plan, base: LocalDatabase, deltas: list[ChainDelta], scratch: Path
) -> LocalDatabase:
    """The database after the deltas, which lie in `scratch`, were ingested."""
    with Database(base.directory, context.settings, create=base.snapshot is None) as database:
        check_files(database, base.files)
        ingested = ingest_deltas(database, deltas, scratch)
        files = describe(database, {**base.files, **ingested}, plan.version)
        keys, families = check_version(
            database, plan.version, deltas[-1].name if deltas else None, context.storage
        )
    tidy(base.directory, set(files))
    return replace(base, version=plan.version, files=files, keys=keys, column_families=families)


def database_files(manifest: Manifest) -> dict[str, DatabaseFile]:
    """The files of a snapshot's database by name."""
    return {
        entry.name: DatabaseFile(
            entry.path, entry.size_bytes, entry.sha256, entry.origin, entry.level, entry.tail
        )
        for entry in manifest.files
    }


def _is_delta_at_fault(error: StateStoreError, plan: Plan) -> bool:
    return any(error.file and error.file.endswith(delta.path) for delta in plan.deltas)


def _unrestorable(
    error: DamagedError | MissingError, listing: Listing, snapshots: set[SnapshotName], plan: Plan
) -> StateStoreError:
    """The same error, with the versions that can be restored without the file that it blames."""
    bad = {delta for delta in plan.deltas if error.file and error.file.endswith(delta.path)}
    bad_snapshots = {plan.snapshot} if plan.snapshot and not bad else set()
    left = Lineages(set(listing.deltas) - bad, snapshots - bad_snapshots).restorable()
    message = f"version {plan.version} cannot be restored: {error.message}; {describe_restorable(left)}"
    return type(error)(message, file=error.file)
