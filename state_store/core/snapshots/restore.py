"""Restore: make a local database (a base) of the files of a version.

It takes the newest snapshot on the version's lineage and the deltas after it. Files that this machine still
has are linked, the others downloaded in parallel. If a snapshot is missing or damaged, an older one with
more deltas takes its place, with a warning that names the file. The result is exactly the requested version,
or an error that names the file and the versions that can still be restored: never another version.

A thorough restore verifies each file as a whole. Any other takes a time by the number of files, not of bytes:
it only makes sure that each is the right file, and the reader of a block verifies its checksum. A reader that
finds a damaged block restores again, thoroughly. That fetches the file from storage again or does without it.

In the order in which they run: `restore` lists the store and plans; `assemble` reads the snapshot's archive;
a `Restoration` fetches, verifies and puts the files together in a directory. The tables of the snapshot make
a database. The deltas are ingested, or stay loose beside it as they are. Only the tails of a large state's
remote files may be fetched.

Functions keep no state; any thread may call them, with a `StoreContext` of its own store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from state_store.core.checkpoint.lineage import (
    Chain,
    ChainDelta,
    Lineages,
    Listing,
    ObservedAttempts,
    Plan,
    describe_restorable,
)
from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import FULL, Archive, Manifest
from state_store.core.deletion.lease import read_archive, read_listing
from state_store.core.engine.database import Database, tidy
from state_store.core.files.sparse import SparseFile, make_sparse
from state_store.core.files.transfer import MAX_AT_ONCE, Background, Fetched, Wanted, parallel, verify_stored
from state_store.core.files.workspace import make_private
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.snapshots.context import (
    LocalDatabase,
    StoreContext,
    check_files,
    check_version,
    database_files,
    describe,
    ingest_deltas,
    wanted_deltas,
    wanted_tables,
    workspace_of,
)
from state_store.core.storage.contract import Storage
from state_store.core.storage.local_disk import of_local_disk
from state_store.errors import ConflictError, DamagedError, FormatError, MissingError, StateStoreError

LOOSE_DIRECTORY = "deltas"
"""Directory below that of a base for its loose deltas."""

MIN_SPARSE_DELTA_BYTES = 1 << 20
"""Size from which a delta may be read before it is local. Most deltas are as large as a batch; the delta of a
query's first batch, or of an imported state, is as large as the state.
"""

_TRIES = 3
_PAUSE_S = 0.2

IsLazy = Callable[[RestoreWork], bool]
"""Decision for a set of remote files: True if only their tails are fetched."""

OnTail = Callable[[Path, SparseFile], object]
"""Observer of a restore: receives the directory and the file whose tail is local now. Any thread calls it."""

FullManifest = Callable[[], Manifest | None]


class LimitedDisk(Protocol):
    """Local disk with a limit, which has room for some bases as a whole, and for pages of the others."""

    def take(self, directory: Path, size_bytes: int) -> bool:
        """Take room for all files of a base. Returns False if there is none: it has pages alone."""

    def link_pages(self, file: Wanted, directory: Path) -> SparseFile | None:
        """Link the pages of a file, which another base has, to its target below a directory.

        Returns:
            The file, or None if no base has it.
        """


@dataclass(frozen=True)
class RestoredDelta:
    """A loose delta: the delta that made `version`, as a local file that is not part of the database."""

    version: VersionId
    path: Path
    size_bytes: int


@dataclass(frozen=True)
class Restored:
    """A base of exactly the requested version, the chain behind it, and its cost (milliseconds by phase).

    `seen` are the attempts at later versions that were in storage when it was chosen. With loose `deltas`
    the `base` is a database of the snapshot's version (empty without one), and they have the later changes.
    `thorough` is True if every file was verified as a whole. Only the tails of the tables and deltas in
    `sparse` are local, for which `end_requests` requests were made; if it `is_paged`, they stay sparse.
    """

    version: VersionId
    base: LocalDatabase
    thorough: bool
    chain: Chain
    fetched: Fetched
    phases: Mapping[str, float]
    warnings: tuple[str, ...]
    deltas: tuple[RestoredDelta, ...] = ()
    sparse: tuple[SparseFile, ...] = ()
    end_requests: int = 0
    seen: ObservedAttempts = frozenset()
    is_paged: bool = False

    def teach(self, cost: CostModel) -> None:
        """Fit a model to what the restore took."""
        archives = RestoreWork.of_chain(self.chain).archives
        cost.observe_choice(self.phases["choose_ms"], archives, is_lazy=bool(self.sparse))
        if not self.sparse and not self.fetched.local_files:
            cost.observe_fetch(self.fetched.files, self.fetched.size_bytes, self.phases["fetch_ms"])
        if not (self.thorough and self.sparse):  # files came from storage for that
            files, size_bytes = len(self.base.files) + len(self.deltas), self.chain.size_bytes
            cost.observe_verification(files, size_bytes, self.phases["verify_ms"], thorough=self.thorough)


@dataclass
class RestoreRun:
    """Settings of a restore, and the timings and warnings of all its attempts.

    `is_lazy` None fetches every file as a whole; `on_tail` None observes nothing; without a `disk` every base
    has room.
    """

    clock_s: Callable[[], float]
    thorough: bool
    ingest: bool
    is_lazy: IsLazy | None
    on_tail: OnTail | None
    disk: LimitedDisk | None = None
    warnings: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(
        default_factory=lambda: {"choose_ms": 0.0, "fetch_ms": 0.0, "verify_ms": 0.0}
    )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the body to a phase."""
        start = self.clock_s()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + (self.clock_s() - start) * 1000


@of_local_disk(workspace_of)
def restore(
    context: StoreContext,
    version: VersionId,
    *,
    start: VersionId | None = None,
    thorough: bool = True,
    ingest: bool = True,
    is_lazy: IsLazy | None = None,
    on_tail: OnTail | None = None,
    disk: LimitedDisk | None = None,
) -> Restored:
    """Make a base of a version.

    Args:
        context: The store.
        version: The version. Without an id its number stands for the attempt that counts
            (`Attempts.resolve`).
        start: The version of the snapshot to start from; None lets the restore choose. Without an id it is
            the version on the lineage of `version`.
        thorough: Verify every file as a whole. Those of which only the tails are fetched are read from
            storage for that, and not kept.
        ingest: Make the deltas part of the database. Otherwise they stay loose beside it, and their reader
            checks each one's reserved record.
        is_lazy: Decides for the remote files whether only their tails are fetched, but small deltas as a
            whole. A restore that ingests ignores it.
        on_tail: Observes each tail as it becomes local, of a base that has room as a whole. The directory is
            removed again if the restore fails, or goes on in another.
        disk: Says if there is room for all files. Of a base without room only the tails of files are
            fetched, and what other bases have of them is linked, but not if the restore is thorough.

    Raises:
        MissingError: A file is gone, and the version cannot be made without it.
        DamagedError: A file is damaged, and the version cannot be made without it.
        FormatError: A file is of a newer format.
        ConflictError: Two deltas claim to be one version.
        StorageError: The storage or the local disk failed.
    """
    run = RestoreRun(context.runtime.monotonic_s, thorough, ingest, is_lazy, on_tail, disk)
    for attempt in range(_TRIES):
        try:
            return _restore_listed(context, version, start, run)
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
    context: StoreContext, version: VersionId, start: VersionId | None, run: RestoreRun
) -> Restored:
    with run.phase("choose_ms"):
        listing = read_listing(context.storage)
        version, start = _named(listing, version, start)
    snapshots = set(listing.snapshots)
    failure: StateStoreError | None = None
    while True:
        with run.phase("choose_ms"):
            plan = _plan(listing, snapshots, version, start, failure)
        try:
            result = assemble(context, plan, listing, run)
            return replace(result, seen=listing.attempts.after(version.number))
        except (DamagedError, MissingError) as error:
            if plan.snapshot is None or start is not None or _deltas_at_fault(error, plan):
                raise _unrestorable(error, listing, snapshots, plan) from error
            run.warnings.append(f"snapshot '{plan.snapshot.path}' is not used: {error.message}")
            snapshots.discard(plan.snapshot)
            failure = failure or error


def _named(
    listing: Listing, version: VersionId, start: VersionId | None
) -> tuple[VersionId, VersionId | None]:
    """Return both versions with their ids, as far as they have any."""
    if version.checkpoint_id is None:
        version = listing.attempts.resolve(version.number) or version
    if start is not None and start.checkpoint_id is None:
        lineage = Lineages(listing.deltas, listing.snapshots).history(version)
        start = next((ancestor for ancestor in lineage if ancestor.number == start.number), start)
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


def _deltas_at_fault(error: StateStoreError, plan: Plan) -> set[DeltaName]:
    return {delta for delta in plan.deltas if error.file and error.file.endswith(delta.path)}


def _unrestorable(
    error: DamagedError | MissingError, listing: Listing, snapshots: set[SnapshotName], plan: Plan
) -> StateStoreError:
    """Return the same error, with the versions that can be restored without the file that it names."""
    bad = _deltas_at_fault(error, plan)
    bad_snapshots = {plan.snapshot} if plan.snapshot and not bad else set()
    restorable = Lineages(set(listing.deltas) - bad, snapshots - bad_snapshots).restorable()
    message = f"version {plan.version} cannot be restored: {error.message}; {describe_restorable(restorable)}"
    return type(error)(message, file=error.file)


def assemble(context: StoreContext, plan: Plan, listing: Listing, run: RestoreRun) -> Restored:
    """Make the base that a plan describes.

    Args:
        context: The store.
        plan: The snapshot and the deltas.
        listing: The listing that the plan was made from.
        run: Settings, and the phases and warnings so far.

    Raises:
        DamagedError: A file is damaged in storage.
        MissingError: A file is gone.
        StorageError: The storage or the local disk failed.
    """
    with run.phase("choose_ms"):
        archive = None if plan.snapshot is None else read_archive(context.storage, plan.snapshot)
    with (
        _full_manifest(context, listing, archive.manifest if archive else None) as full,
        context.workspace.new_base(plan.version.number) as directory,
    ):
        return Restoration(context, plan, listing, archive, directory, run, full).make()


@contextmanager
def _full_manifest(
    context: StoreContext, listing: Listing, snapshot: Manifest | None
) -> Iterator[FullManifest]:
    """Yield a function that returns the manifest of the full snapshot before `snapshot`.

    It is read from remote storage while the body runs.
    """

    def read() -> Manifest | None:
        return read_full_manifest(context.storage, listing, snapshot)

    if context.storage.is_local or snapshot is None or snapshot.kind == FULL:
        yield read
    else:
        with Background(read, runtime=context.runtime) as reading:
            yield reading.result


class Restoration:
    """An attempt at a base in one directory: fetch, verify, open. Used by one thread, once.

    Args:
        context: The store.
        plan: The snapshot and the deltas.
        listing: The listing that the plan was made from.
        archive: The archive of the snapshot, None without one.
        directory: An empty directory. The caller removes it if `make` raises.
        run: Settings, and the phases and warnings of all attempts.
        full_manifest: Returns the manifest of the full snapshot before the plan's.
    """

    def __init__(
        self,
        context: StoreContext,
        plan: Plan,
        listing: Listing,
        archive: Archive | None,
        directory: Path,
        run: RestoreRun,
        full_manifest: FullManifest,
    ) -> None:
        self._context = context
        self._plan = plan
        self._archive = archive
        self._directory = directory
        self._run = run
        self._is_paged = False
        self._full_manifest = full_manifest
        self._deltas = [ChainDelta.from_listing(name, listing.deltas[name]) for name in plan.deltas]
        self._tables = wanted_tables(archive.manifest if archive else None, directory)
        self._end_requests = 0

    def make(self) -> Restored:
        """Make the base. Raises StateStoreError as `assemble` does."""
        is_empty = self._archive is None and not self._deltas
        if not self._run.ingest and not is_empty:
            sizes = [
                *(file.size_bytes for file in self._tables),
                *(delta.size_bytes for delta in self._deltas),
            ]
            disk = self._run.disk
            self._is_paged = disk is not None and not disk.take(self._directory, sum(sizes))
            return self._with_loose_deltas()
        return self._with_ingested_deltas()

    # ---- the deltas become part of the database ----------------------------------------------------------

    def _with_ingested_deltas(self) -> Restored:
        with self._context.workspace.scratch() as scratch:
            changes = wanted_deltas(self._deltas, scratch)
            with self._run.phase("fetch_ms"):
                fetched = self._context.fetch([*self._tables, *changes])
            self._verify_whole(changes, [], fetched)
            with self._run.phase("ingest_ms"):
                base = self._unopened()
                if self._deltas or self._archive is None:
                    base = self._ingested(base, scratch)
            return self._restored(base, fetched)

    # ---- the deltas stay beside the database -------------------------------------------------------------

    def _with_loose_deltas(self) -> Restored:
        """Link or download the files, and open no database."""
        loose = self._directory / LOOSE_DIRECTORY
        if self._deltas:
            make_private(loose)
        changes = wanted_deltas(self._deltas, loose)
        with self._run.phase("fetch_ms"):
            sparse, fetched = self._fetch(changes)
        self._verify_whole(changes, sparse, fetched)
        with self._run.phase("choose_ms"):
            base = self._unopened()
        deltas = tuple(
            RestoredDelta(delta.name.version_id, change.target, delta.size_bytes)
            for delta, change in zip(self._deltas, changes, strict=True)
        )
        return replace(
            self._restored(base, fetched),
            deltas=deltas,
            sparse=tuple(sparse),
            is_paged=self._is_paged and bool(sparse),
        )

    def _fetch(self, changes: list[Wanted]) -> tuple[list[SparseFile], Fetched]:
        """Fetch the tails of some files and, at the same time, the others as a whole.

        Returns:
            The files of which only the tail is local, and what was fetched of the others.
        """
        context = self._context
        tails = self._worth_a_tail(changes)
        paths = {file.path for file in tails}
        others = [file for file in (*self._tables, *changes) if file.path not in paths]
        if not tails:
            return [], context.fetch(others)
        with Background(lambda: context.fetch(others), runtime=context.runtime) as fetching:
            tail_results = context.parallel_small(self._fetch_tail, tails)
        self._end_requests = sum(requests for file, requests in tail_results if file is not None)
        refused = [
            wanted_file for wanted_file, (file, _) in zip(tails, tail_results, strict=True) if file is None
        ]
        fetched = fetching.result().plus(context.fetch(refused))
        return [file for file, _ in tail_results if file is not None], fetched

    def _fetch_tail(self, wanted_file: Wanted) -> tuple[SparseFile | None, int]:
        disk = self._run.disk
        if self._is_paged and disk and not self._run.thorough:  # pages may be damaged here
            linked = disk.link_pages(wanted_file, self._directory)
            if linked is not None:
                return linked, 0
        file, requests = make_sparse(self._context.storage, wanted_file, self._directory)
        if file is not None and self._run.on_tail is not None and not self._is_paged:
            self._run.on_tail(self._directory, file)
        return file, requests

    def _worth_a_tail(self, changes: list[Wanted]) -> list[Wanted]:
        """Return the remote files whose tails alone are fetched: a small delta as a whole costs no more."""
        context, is_lazy = self._context, self._run.is_lazy
        if context.storage.is_local or (is_lazy is None and not self._is_paged):
            return []
        tables, deltas = (
            [file for file in wanted_files if self._is_paged or context.cache.find(file.path) is None]
            for wanted_files in (self._tables, changes)
        )
        sizes = ([file.size_bytes for file in wanted_files] for wanted_files in (tables, deltas))
        if not self._is_paged and not (is_lazy and is_lazy(RestoreWork.of_sizes(*sizes))):
            return []
        return [
            file
            for file in (*tables, *deltas)
            if not file.names_itself or file.size_bytes >= MIN_SPARSE_DELTA_BYTES
        ]

    def _verify_whole(self, changes: list[Wanted], sparse: list[SparseFile], fetched: Fetched) -> None:
        """Verify the files that are not sparse, and in a thorough restore those that are, too."""
        paths = {file.path for file in sparse}
        with self._run.phase("verify_ms"):
            self._run.warnings += self._context.verify(
                [file for file in (*self._tables, *changes) if file.path not in paths],
                thorough=self._run.thorough or self._run.ingest,
                local=fetched.local,
            )
            if self._run.thorough:
                self._verify_sparse(sparse)

    def _verify_sparse(self, sparse: list[SparseFile]) -> None:
        context = self._context
        warnings = parallel(
            min(MAX_AT_ONCE, context.transfer_threads),
            lambda file: verify_stored(context.storage, file.wanted(self._directory))[1],
            sparse,
            runtime=context.runtime,
        )
        self._run.warnings += [warning for warning in warnings if warning is not None]

    # ---- the database ------------------------------------------------------------------------------------

    def _unopened(self) -> LocalDatabase:
        """Return the database of the snapshot as its manifest describes it, or an empty one."""
        archive = self._archive
        if archive is None:
            return LocalDatabase(self._directory, VersionId(0, None), {}, 0, {}, None)
        for name, data in archive.database.items():
            (self._directory / name).write_bytes(data)
        manifest = archive.manifest
        return LocalDatabase(
            self._directory,
            manifest.version_id,
            database_files(manifest),
            manifest.keys,
            manifest.column_families,
            manifest,
        )

    def _ingested(self, base: LocalDatabase, scratch: Path) -> LocalDatabase:
        """Return the base after the deltas, which lie in `scratch`, were ingested."""
        context, version = self._context, self._plan.version
        newest = self._deltas[-1].name if self._deltas else None
        with Database(base.directory, context.settings, create=base.snapshot is None) as database:
            check_files(database, base.files)
            ingested = ingest_deltas(database, self._deltas, scratch)
            files = describe(database, {**base.files, **ingested}, version)
            keys, families = check_version(database, version, newest, context.storage)
        tidy(base.directory, set(files))
        return replace(base, version=version, files=files, keys=keys, column_families=families)

    def _restored(self, base: LocalDatabase, fetched: Fetched) -> Restored:
        with self._run.phase("choose_ms"):
            full_manifest = self._full_manifest()
        return Restored(
            version=self._plan.version,
            base=base,
            thorough=self._run.thorough,
            chain=Chain.from_listing(self._plan.version, base.snapshot, self._deltas, full_manifest),
            fetched=fetched,
            phases=self._run.phases,
            warnings=tuple(self._run.warnings),
            end_requests=self._end_requests,
        )


def read_full_manifest(storage: Storage, listing: Listing, snapshot: Manifest | None) -> Manifest | None:
    """Return the manifest of the full snapshot that `snapshot` names, which may be itself.

    It only has sizes and times. So it is None if its archive is gone, as those of versions that are not
    retained are, or cannot be read.

    Raises:
        StorageError: The storage failed.
    """
    if snapshot is None or snapshot.kind == FULL or snapshot.full is None:
        return snapshot if snapshot is not None and snapshot.kind == FULL else None
    name = SnapshotName(*snapshot.full)
    if name not in listing.snapshots:
        return None
    try:
        return read_archive(storage, name).manifest
    except (DamagedError, FormatError, MissingError):
        return None


def read_chain(storage: Storage, version: VersionId) -> tuple[Chain, list[str]]:
    """Return the chain of a version, and a warning for each damaged archive, which counts as absent.

    If the version cannot be made without the archive, the chain has only the deltas after it. That is enough
    to go on from a state in memory.

    Raises:
        MissingError: The files of the version do not exist.
        FormatError: A file is of a newer format.
        StateStoreError: The storage failed.
    """
    listing = read_listing(storage)
    snapshots = set(listing.snapshots)
    plan = Lineages(listing.deltas, snapshots).plan(version)
    warnings: list[str] = []
    manifest = None
    while plan.snapshot is not None:
        try:
            manifest = read_archive(storage, plan.snapshot).manifest
            break
        except (DamagedError, MissingError) as error:
            warnings.append(f"snapshot '{plan.snapshot.path}' counts as absent: {error.message}")
            snapshots.discard(plan.snapshot)
        try:
            plan = Lineages(listing.deltas, snapshots).plan(version)
        except MissingError:
            break
    deltas = [ChainDelta.from_listing(name, listing.deltas[name]) for name in plan.deltas]
    full = read_full_manifest(storage, listing, manifest)
    return Chain.from_listing(version, manifest, deltas, full), warnings
