"""Restores of an open store: files of checkpoint storage that the JVM opens, and parts of them.

1. A restore makes a base of a version. Files of it may stay in checkpoint storage, under a lease.
2. The JVM fetches parts of such files when it reads them, and reports damage.
3. The deltas of a lineage are fetched as they are, for the change feed.

The request and the answer of a call stand before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from state_store.agent.lazy.remote_bases import NO_PAGES, Paging
from state_store.agent.open_store import OpenStore, SeenAttempts, SnapshotAges, learn_age
from state_store.core.checkpoint.lineage import ChainDelta, Lineages, Listing
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import ColumnFamily
from state_store.core.codec import INLINE, JsonObject, json_names
from state_store.core.deletion.lease import read_listing
from state_store.core.planning.cost import RestoreWork
from state_store.core.settings.options import FILES
from state_store.core.settings.session import FORMAT_KEY
from state_store.core.snapshots.context import MeasuredStorage, StoreContext, wanted_deltas
from state_store.core.snapshots.restore import IsLazy, Restored, restore
from state_store.errors import InternalError, MissingError, OptionError, StateStoreError

# ---- a base of a version --------------------------------------------------------------------------------


@json_names(version=INLINE)
@dataclass(frozen=True)
class RestoreRequest:
    """Request for a base of `version`, made from exactly the snapshot of `from_version` if that is given.

    With `thorough` every file is verified as a whole.
    """

    version: VersionId
    from_version: int | None
    from_id: str | None
    thorough: bool = True

    @property
    def start(self) -> VersionId | None:
        """Version of the snapshot to start from; None lets the restore choose."""
        return None if self.from_version is None else VersionId(self.from_version, self.from_id)


@json_names(version=INLINE)
@dataclass(frozen=True)
class LooseDelta(JsonObject):
    """A delta as a local file that is not part of a database."""

    version: VersionId
    path: Path


@json_names(paging=INLINE)
@dataclass(frozen=True)
class OfferedBase(JsonObject):
    """A base that the JVM may open read-only; it is the JVM's until the JVM releases it.

    With `loose_deltas` the database is one of `base`, and so are `keys`.
    """

    directory: Path
    version: int
    id: str | None
    keys: int
    base: VersionId
    loose_deltas: Sequence[LooseDelta] = ()
    sparse: Sequence[str] = ()
    paging: Paging = NO_PAGES

    @classmethod
    def of(cls, version: VersionId, result: Restored, paging: Paging) -> OfferedBase:
        """Return the base that a restore has made of a version."""
        base = result.base
        return cls(
            base.directory,
            version.number,
            version.checkpoint_id,
            base.keys,
            base.version,
            [LooseDelta(delta.version, delta.path) for delta in result.deltas],
            [file.name for file in result.sparse],
            paging,
        )


@json_names(offered=INLINE)
@dataclass(frozen=True)
class RestoreAnswer(JsonObject):
    """Answer to `restore`: a base to open, the cost of the restore, and the predicted cost.

    With loose deltas the `column_families` are those of the database.
    """

    offered: OfferedBase
    attempts: SeenAttempts
    column_families: Mapping[str, ColumnFamily]
    bytes: int
    files: int
    snapshot_version: int | None
    deltas: int
    local_files: int
    fetched_files: int
    fetched_bytes: int
    predicted_ms: float
    phases: Mapping[str, float]
    ages: SnapshotAges
    warnings: Sequence[str]

    @classmethod
    def of(cls, result: Restored, predicted_ms: float, ages: SnapshotAges, paging: Paging) -> RestoreAnswer:
        """Return the answer for a restore that was made."""
        base, chain = result.base, result.chain
        return cls(
            offered=OfferedBase.of(result.version, result, paging),
            attempts=SeenAttempts(result.version.number, result.seen),
            column_families=base.column_families,
            bytes=base.size_bytes + sum(delta.size_bytes for delta in result.deltas),
            files=len(base.files) + len(result.deltas),
            snapshot_version=chain.snapshot.version if chain.snapshot else None,
            deltas=len(chain.deltas),
            local_files=result.fetched.local_files,
            fetched_files=result.fetched.files,
            fetched_bytes=result.fetched.size_bytes,
            predicted_ms=predicted_ms,
            phases=result.phases,
            ages=ages,
            warnings=result.warnings,
        )


def restore_store(store: OpenStore, request: RestoreRequest) -> RestoreAnswer:
    """Make a database of exactly that version, which is the JVM's until the JVM releases it.

    Raises:
        MissingError: A file is gone; the message says which versions can be restored.
        DamagedError: A file is damaged; the message says which versions can be restored.
        OptionError: The version exists under an id of Spark's, and its number alone was given.
        StateStoreError: The storage or the local disk failed. Nothing is left behind.
    """
    location = store.store_id.location
    reports = store.damage_reports.of(location)
    thorough = request.thorough or reports > 0 or store.options.restore_verification == FILES
    forecast = store.head.forecast()
    try:
        result = restore_lazily(
            store,
            _measured(store),
            request.version,
            start=request.start,
            thorough=thorough,
            is_lazy=None if thorough else store.head.is_lazy,
        )
    except MissingError as error:
        _refuse_number(read_listing(store.context.storage), request.version, error)
        raise
    directory = result.base.directory
    with _removed_on_failure(store, directory):
        if thorough:
            store.damage_reports.clear(location, reports)
        paging = store.bases.add(directory, result.sparse, is_paged=result.is_paged)
        if result.sparse and store.request_times is not None:
            store.request_times.observe_ends(len(result.sparse), result.end_requests)
        predicted_ms = forecast.predict_restore_ms(RestoreWork.of_chain(result.chain))
        store.head.restored(result)
        learn_age(store, result.chain)
        _log(store, result, predicted_ms)
        return RestoreAnswer.of(result, predicted_ms, store.head.ages(), paging)


def always_lazy(work: RestoreWork) -> bool:
    """Return True: a base that only gives way to another is never fetched before."""
    return True


def restore_lazily(
    store: OpenStore,
    context: StoreContext,
    version: VersionId,
    *,
    start: VersionId | None = None,
    thorough: bool = False,
    is_lazy: IsLazy | None = always_lazy,
) -> Restored:
    """Restore a version, as `core.snapshots.restore` does, with a lease on the files that stay remote.

    If the disk has room for all files, the first of these are being fetched already.
    """
    return store.readers.restored(
        lambda: restore(
            context,
            version,
            start=start,
            thorough=thorough,
            ingest=False,
            is_lazy=is_lazy,
            on_tail=store.bases.begin,
            disk=store.bases if store.bases.has_limit else None,
        )
    )


def _measured(store: OpenStore) -> StoreContext:
    """Return the context of the store, which times requests if the storage is remote."""
    if store.request_times is None:
        return store.context
    measured = MeasuredStorage(store.context.storage, store.request_times, store.context.runtime)
    return replace(store.context, storage=measured)


@contextmanager
def _removed_on_failure(store: OpenStore, directory: Path) -> Iterator[None]:
    """Own a base until the body ends: on a failure the base, its hydration and its holds are given up."""
    try:
        yield
    except BaseException:
        store.bases.drop(directory)
        store.head.forget_directory(directory)
        store.head.release(directory)
        store.readers.give_back()
        raise


def _log(store: OpenStore, result: Restored, predicted_ms: float) -> None:
    for warning in result.warnings:
        store.log.warning(warning)
    store.log.debug(
        f"restored version {result.version}: {result.chain.snapshot_files} files of snapshot "
        f"{result.chain.snapshot.version_id if result.chain.snapshot else 'none'}, "
        f"{len(result.chain.deltas)} deltas, {result.fetched.local_files} of them local; "
        f"{sum(result.phases.values()):.0f} ms, predicted {predicted_ms:.0f} ms"
    )


# ---- reading a base -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RangesRequest:
    """Ranges of sparse files in the directory of a base: name, offset and length of each."""

    directory: Path
    ranges: tuple[tuple[Any, ...], ...]

    def checked(self) -> list[tuple[str, int, int]]:
        """Return the ranges.

        Raises:
            InternalError: A range is malformed.
        """
        for part in self.ranges:
            if [type(field) for field in part] != [str, int, int]:
                raise InternalError(f"{part!r} is not a name, an offset and a length")
        return [(name, offset, length) for name, offset, length in self.ranges]


@dataclass(frozen=True)
class ReadRanges(JsonObject):
    """Answer to `ranges`: this many bytes are there now."""

    bytes: int


def read_ranges(store: OpenStore, request: RangesRequest) -> ReadRanges:
    """Fetch parts of sparse files.

    Raises:
        InternalError: The directory is not a base of this store.
        StateStoreError: The storage failed.
    """
    directory, ranges = request.directory, request.checked()
    if not store.context.workspace.owns(directory):
        raise InternalError(f"'{directory}' is not a base of this store")
    try:
        return ReadRanges(store.bases.read(directory, ranges))
    except MissingError:
        _lost_file(store, directory)
        raise


def report_damage(store: OpenStore, directory: Path, error: StateStoreError) -> None:
    """Note that a stored file of a base is missing or damaged."""
    store.log.warning(f"a file of '{directory}' cannot be fetched: {error.message}")
    if isinstance(error, MissingError):
        _lost_file(store, directory)
    else:
        found_damage(store, directory)


def _lost_file(store: OpenStore, directory: Path) -> None:
    """Note that a stored file of a base is gone, since a newer snapshot has taken its place.

    That is not damage: the next restore is lazy, and fails if nothing has taken its place. No merge starts
    from the base any more, and another is offered to the JVM.
    """
    store.head.forget_directory(directory)
    store.readers.lost_file(directory)


def found_damage(store: OpenStore, directory: Path) -> None:
    """Note that a database has a damaged block.

    No merge starts from it any more, and the next restore of the store verifies every file.
    """
    store.damage_reports.add(store.store_id.location)
    store.head.forget_directory(directory)


# ---- the deltas of a lineage ----------------------------------------------------------------------------


@json_names(version=INLINE)
@dataclass(frozen=True)
class DeltasRequest:
    """Request for the deltas of the versions `first` to `version`."""

    version: VersionId
    first: int


@dataclass(frozen=True)
class DeltaFiles(JsonObject):
    """Answer to `deltas`: local copies, oldest first, all in one directory that the JVM has to release."""

    directory: Path
    files: Sequence[LooseDelta]


def fetch_deltas(store: OpenStore, request: DeltasRequest) -> DeltaFiles:
    """Fetch the deltas from version `first` to `version`, on the lineage of the latter.

    Raises:
        MissingError: A delta does not exist.
        DamagedError: A delta is damaged.
        OptionError: The version exists under an id of Spark's, and its number alone was given.
    """
    context = store.context
    listing = read_listing(context.storage)
    names = {name.version_id: name for name in listing.deltas}
    path: list[DeltaName] = []
    version = request.version
    if version.checkpoint_id is None:
        version = listing.attempts.resolve(version.number) or version
    current: VersionId | None = version
    while current is not None and current.number >= request.first:
        if current not in names:
            _refuse_number(listing, version, None)
            Lineages(listing.deltas, []).plan(version)  # says what is missing
            break
        path.append(names[current])
        current = names[current].builds_on
    deltas = [ChainDelta.from_listing(name, listing.deltas[name]) for name in reversed(path)]
    with context.workspace.new_base(request.version.number) as directory:
        delta_files = wanted_deltas(deltas, directory)
        context.fetch(delta_files)
        context.verify(delta_files)
    files = [LooseDelta(delta.name.version_id, directory / delta.name.name) for delta in deltas]
    return DeltaFiles(directory, files)


def _refuse_number(listing: Listing, version: VersionId, cause: Exception | None) -> None:
    """Raise OptionError if no id is given, and only Spark's ids can say which attempt `version` is."""
    if version.checkpoint_id is not None:
        return
    files = listing.attempts.paths_with_spark_ids(version.number)
    if files:
        raise OptionError(
            f"version {version.number} was committed in checkpoint format 2 ('{files[0]}'), and this "
            f"session names versions by their numbers alone: set {FORMAT_KEY} to 2",
            file=files[0],
            option=FORMAT_KEY,
        ) from cause
