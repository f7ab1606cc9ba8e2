"""The files of a plan become a base: fetched, verified and put together in a directory of their own.

The tables of the snapshot make a database, and the deltas are ingested, or lie beside it as they are. Of far
files of a large state only the ends may be fetched.

Functions keep no state; any thread may call them, with a `StoreContext` of its own store.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Optional

from state_store.core.checkpoint.archive import Archive
from state_store.core.checkpoint.attempts import ObservedAttempts
from state_store.core.checkpoint.lineage import Plan
from state_store.core.checkpoint.listing import Listing
from state_store.core.checkpoint.manifest import FULL, Manifest
from state_store.core.checkpoint.names import VersionId
from state_store.core.compat import zip
from state_store.core.deletion.reading import read_archive
from state_store.core.engine.database import Database, tidy
from state_store.core.files.sparse import SparseFile, make_sparse
from state_store.core.files.sst_end import is_plain, is_plain_tail
from state_store.core.files.transfer import Background, Fetched, Wanted
from state_store.core.files.workspace import make_private
from state_store.core.planning.chain import Chain, ChainDelta
from state_store.core.planning.restore_work import RestoreWork
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.ingestion import check_files, check_version, describe, ingest_deltas
from state_store.core.snapshots.local_database import LocalDatabase
from state_store.core.snapshots.stored_chain import read_full_manifest
from state_store.core.snapshots.wanted_files import database_files, wanted_deltas, wanted_tables
from state_store.errors import StateStoreError

MOST_MAPPED_BYTES = (1 << 31) - 1
"""Larger files have no mapping in a JVM, whose reader therefore does without them."""

BESIDE = "deltas"
"""The directory below a base's for deltas that lie beside it."""

LEAST_SPARSE_DELTA_BYTES = 1 << 20
"""Of a delta that is read before it is there as a whole. Most are as large as a batch; that of a query's
first batch, or of a state that was imported, is as large as the state."""


IsLazy = Callable[[RestoreWork], bool]
"""Whether of these files, which are not local, only what the first row takes is fetched."""


FullManifest = Callable[[], Optional[Manifest]]

Came = Callable[[Path, SparseFile], object]
"""Told of a file in a directory of which the end is there."""


def never_mind(directory: Path, file: SparseFile) -> None:
    """Who has no use for a file before all are there."""


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
    ends are there, which took `end_requests` requests. `needs_rocksdb` says whether RocksDB has to read a
    table of `base`: a compressed one, or one that is too large for a mapping.
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
    end_requests: int = 0
    seen: ObservedAttempts = frozenset()
    needs_rocksdb: bool = False


@dataclass
class Progress:
    """How it is to be done, and what piles up over several attempts."""

    clock_s: Callable[[], float]
    thorough: bool
    ingest: bool
    is_lazy: IsLazy | None
    came: Came
    end_requests: int = 0
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


def assemble(context: StoreContext, plan: Plan, listing: Listing, progress: Progress) -> Restored:
    with progress.phase("choose_ms"):
        archive = None if plan.snapshot is None else read_archive(context.storage, plan.snapshot)
    snapshot = archive.manifest if archive else None
    with _full_manifest(context, listing, snapshot) as full:
        while True:
            directory = context.workspace.new_base(plan.version.number)
            try:
                restored = _fetch_and_open(context, plan, listing, archive, directory, progress, full)
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            if restored is not None:
                return restored
            shutil.rmtree(directory, ignore_errors=True)  # and again, with what was learned


@contextmanager
def _full_manifest(
    context: StoreContext, listing: Listing, snapshot: Manifest | None
) -> Iterator[FullManifest]:
    """That of the full snapshot before `snapshot`: where it is far, it is read beside the body."""

    def read() -> Manifest | None:
        return read_full_manifest(context.storage, listing, snapshot)

    if context.storage.is_local or snapshot is None or snapshot.kind == FULL:
        yield read
    else:
        with Background(read, runtime=context.runtime) as reading:
            yield reading.result


def _fetch_and_open(
    context: StoreContext,
    plan: Plan,
    listing: Listing,
    archive: Archive | None,
    directory: Path,
    progress: Progress,
    full: FullManifest,
) -> Restored | None:
    """None when it has to be done again, with what was learned."""
    deltas = [ChainDelta.from_listing(name, listing.deltas[name]) for name in plan.deltas]
    tables = wanted_tables(archive.manifest if archive else None, directory)
    is_empty = archive is None and not deltas
    if not progress.ingest and not is_empty:
        return _fetch_beside(context, plan, archive, directory, deltas, tables, progress, full)
    with context.workspace.scratch() as scratch:
        return _fetch_and_ingest(context, plan, archive, directory, scratch, deltas, tables, progress, full)


def _fetch_and_ingest(
    context: StoreContext,
    plan: Plan,
    archive: Archive | None,
    directory: Path,
    scratch: Path,
    deltas: list[ChainDelta],
    tables: list[Wanted],
    progress: Progress,
    full: FullManifest,
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
    restored = _restored(plan, base, deltas, fetched, progress, full)
    return replace(restored, needs_rocksdb=_needs_rocksdb(base))


def _fetch_beside(
    context: StoreContext,
    plan: Plan,
    archive: Archive | None,
    directory: Path,
    deltas: list[ChainDelta],
    tables: list[Wanted],
    progress: Progress,
    full: FullManifest,
) -> Restored | None:
    """Links or downloads, and opens nothing; but where tables are compressed, which RocksDB has to read, it
    ingests the deltas. None where tables are not there that RocksDB has to read: they are fetched now.
    """
    beside = directory / BESIDE
    if deltas:
        make_private(beside)
    changes = wanted_deltas(deltas, beside)
    with progress.phase("fetch_ms"):
        sparse, fetched = _fetch(context, tables, changes, directory, progress)
        paths = {file.path for file in sparse}
        whole = [file for file in (*tables, *changes) if file.path not in paths]
    plain: set[str] = set()

    def look(file: Wanted, end: bytes) -> None:
        if is_plain_tail(end):
            plain.add(file.target.name)

    with progress.phase("verify_ms"):
        progress.warnings += context.verify(whole, thorough=progress.thorough, local=fetched.local, look=look)
    with progress.phase("choose_ms"):
        base = _unopened(archive, directory)
    lie_beside = tuple(
        DeltaBeside(delta.name.version_id, change.target, delta.size_bytes)
        for delta, change in zip(deltas, changes, strict=True)
    )
    needs_rocksdb = _needs_rocksdb(base, plain)
    if needs_rocksdb:
        if sparse:
            progress.is_lazy = None
            return None
        if deltas:
            base, lie_beside = _ingest_beside(context, plan, base, deltas, changes, progress), ()
    restored = _restored(plan, base, deltas, fetched, progress, full)
    return replace(restored, deltas=lie_beside, sparse=tuple(sparse), needs_rocksdb=needs_rocksdb)


def _needs_rocksdb(base: LocalDatabase, plain: Collection[str] = ()) -> bool:
    """`plain` are the names of files that are known to be."""
    return any(
        file.size_bytes > MOST_MAPPED_BYTES or (name not in plain and not is_plain(base.directory / name))
        for name, file in base.files.items()
    )


def _restored(
    plan: Plan,
    base: LocalDatabase,
    deltas: list[ChainDelta],
    fetched: Fetched,
    progress: Progress,
    full: FullManifest,
) -> Restored:
    with progress.phase("choose_ms"):
        full_manifest = full()
    return Restored(
        version=plan.version,
        base=base,
        thorough=progress.thorough,
        chain=Chain.from_listing(plan.version, base.snapshot, deltas, full_manifest),
        fetched=fetched,
        phases=progress.phases,
        warnings=tuple(progress.warnings),
        end_requests=progress.end_requests,
    )


def _ingest_beside(
    context: StoreContext,
    plan: Plan,
    base: LocalDatabase,
    deltas: list[ChainDelta],
    changes: list[Wanted],
    progress: Progress,
) -> LocalDatabase:
    """The base with the deltas in it that lie beside it."""
    with progress.phase("verify_ms"):
        progress.warnings += context.verify(changes)
    with progress.phase("ingest_ms"), context.workspace.scratch() as scratch:
        for change in changes:
            change.target.rename(scratch / change.target.name)
        changes[0].target.parent.rmdir()
        return _with_deltas(context, plan, base, deltas, scratch)


def _fetch(
    context: StoreContext,
    tables: list[Wanted],
    changes: list[Wanted],
    directory: Path,
    progress: Progress,
) -> tuple[list[SparseFile], Fetched]:
    """Files of which only the ends were fetched, and what was done for the others, at the same time."""
    worthwhile = _worthwhile(context, tables, changes, progress.is_lazy)
    paths = {file.path for file in worthwhile}
    others = [file for file in (*tables, *changes) if file.path not in paths]
    if not worthwhile:
        return [], context.fetch(others)

    def make(wanted: Wanted) -> tuple[SparseFile | None, int]:
        file, requests = make_sparse(context.storage, wanted, directory)
        if file is not None:
            progress.came(directory, file)
        return file, requests

    with Background(lambda: context.fetch(others), runtime=context.runtime) as fetching:
        made = context.parallel_small(make, worthwhile)
    progress.end_requests = sum(requests for file, requests in made if file is not None)
    refused = [wanted for wanted, (file, _) in zip(worthwhile, made, strict=True) if file is None]
    return [file for file, _ in made if file is not None], fetching.result().plus(context.fetch(refused))


def _worthwhile(
    context: StoreContext, tables: list[Wanted], changes: list[Wanted], is_lazy: IsLazy | None
) -> list[Wanted]:
    """Those of which only the ends are to be fetched: files that are far, where that is worth it. A small
    delta takes no more requests as a whole.
    """
    if is_lazy is None or context.storage.is_local:
        return []
    far_tables, far_changes = (
        [file for file in wanted if context.cache.find(file.path) is None] for wanted in (tables, changes)
    )
    sizes = ([file.size_bytes for file in wanted] for wanted in (far_tables, far_changes))
    if not is_lazy(RestoreWork.of_sizes(*sizes)):
        return []
    return [
        file
        for file in (*far_tables, *far_changes)
        if not file.names_itself or file.size_bytes >= LEAST_SPARSE_DELTA_BYTES
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
