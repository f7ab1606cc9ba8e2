"""Restores, and the deltas of a lineage: files of checkpoint storage that the JVM opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from state_store.agent.committing import learn_age
from state_store.agent.open_store import OpenStore
from state_store.agent.wire.answers import (
    NO_PAGES,
    DeltaFiles,
    LooseDelta,
    Paging,
    ReadRange,
    RestoredStore,
    SeenAttempts,
)
from state_store.agent.wire.requests import (
    AttemptsRequest,
    DeltasRequest,
    RangeRequest,
    RangesRequest,
    RestoreRequest,
)
from state_store.core.checkpoint.lineage import Lineages, Listing
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.deletion.contents import read_listing
from state_store.core.files.sparse import SparseFile
from state_store.core.planning.chain import ChainDelta
from state_store.core.planning.cost import RestoreWork
from state_store.core.settings.options import FILES
from state_store.core.settings.session import FORMAT_KEY
from state_store.core.snapshots.attempt import look
from state_store.core.snapshots.context import MeasuredStorage, StoreContext, wanted_deltas
from state_store.core.snapshots.restore import IsLazy, Restored, restore
from state_store.errors import InternalError, MissingError, OptionError, StateStoreError


def always_lazy(work: RestoreWork) -> bool:
    """Return True: a base that is cached by pages is never fetched as a whole."""
    return True


def restore_store(store: OpenStore, request: RestoreRequest) -> RestoredStore:
    """Make a database of exactly that version, which is the JVM's until the JVM releases it.

    Raises:
        MissingError: A file is gone; the message says which versions can be restored.
        DamagedError: A file is damaged; the message says which versions can be restored.
        OptionError: The version exists under an id of Spark's, and its number alone was given.
        StateStoreError: The storage or the local disk failed. Nothing is left behind.
    """
    location = store.store_id.location
    suspicion = store.suspicions.of(location)
    thorough = request.thorough or suspicion > 0 or store.options.restore_verification == FILES
    forecast = store.head.forecast()
    paged = store.hydrations.caches_pages
    # The disk may be smaller than the state: a restore that verifies all of it keeps to that, too.
    may_be_lazy = paged or not thorough or store.options.hydration_disk_budget_bytes > 0
    is_lazy = always_lazy if paged else store.head.is_lazy
    try:
        restored = restore_lazily(
            store,
            _measured(store),
            request.version,
            start=request.start,
            thorough=thorough,
            ingest=request.ingest,
            is_lazy=is_lazy if may_be_lazy else None,
        )
    except MissingError as error:
        _refuse_number(read_listing(store.context.storage), request.version, error)
        raise
    directory = restored.base.directory
    with _removed_on_failure(store, directory):
        if thorough:
            store.suspicions.settled(location, suspicion)
        paging = begin_paging(store, restored)
        if restored.sparse and store.request_times is not None:
            store.request_times.observe_ends(len(restored.sparse), restored.end_requests)
        predicted_ms = forecast.predict_restore_ms(RestoreWork.of_chain(restored.chain))
        store.head.restored(restored)
        learn_age(store, restored.chain)
        _log(store, restored, predicted_ms)
        return RestoredStore.of(restored, predicted_ms, store.head.ages(), paging)


def restore_lazily(
    store: OpenStore,
    context: StoreContext,
    version: VersionId,
    *,
    start: VersionId | None = None,
    thorough: bool = False,
    ingest: bool = False,
    is_lazy: IsLazy | None = always_lazy,
) -> Restored:
    """Restore a version, as `core.snapshots.restore` does, with a lease on the files that stay remote.

    If the store caches no pages, and the restore is not thorough, the first of these files are being fetched
    already.
    """
    hydrations = store.hydrations
    paged = hydrations.caches_pages

    def on_tail(directory: Path, file: SparseFile) -> None:
        hydrations.add_file(directory, file, _report_damage_of(store, directory))

    return store.readers.restored(
        lambda: restore(
            context,
            version,
            start=start,
            thorough=thorough,
            ingest=ingest,
            is_lazy=is_lazy,
            on_tail=None if paged or thorough else on_tail,
            link_pages=hydrations.link_pages if paged else None,
        )
    )


def begin_paging(store: OpenStore, restored: Restored) -> Paging:
    """Cache the files of a base that stay remote by pages, or fetch them in the background.

    Returns:
        The rules by which the JVM reads them.
    """
    directory = restored.base.directory
    if not restored.sparse:
        return NO_PAGES
    if store.hydrations.caches_pages:
        return store.hydrations.cache_pages(directory, restored.sparse)
    store.hydrations.begin(directory, restored.sparse, _report_damage_of(store, directory))
    return Paging.of_whole_files(restored.sparse)


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
        store.hydrations.drop(directory)
        store.head.forget_directory(directory)
        store.head.release(directory)
        store.readers.give_back()
        raise


def _log(store: OpenStore, restored: Restored, predicted_ms: float) -> None:
    for warning in restored.warnings:
        store.log.warning(warning)
    store.log.debug(
        f"restored version {restored.version}: {restored.chain.snapshot_files} files of snapshot "
        f"{restored.chain.snapshot.version_id if restored.chain.snapshot else 'none'}, "
        f"{len(restored.chain.deltas)} deltas, {restored.fetched.local_files} of them local; "
        f"{sum(restored.phases.values()):.0f} ms, predicted {predicted_ms:.0f} ms"
    )


def read_range(store: OpenStore, request: RangeRequest) -> ReadRange:
    """Fetch a part of a sparse file.

    Raises:
        InternalError: The directory is no base of this store.
        StateStoreError: The storage failed.
    """
    ranges = [(request.name, request.offset, request.length)]
    return _read_ranges(store, request.directory, ranges)


def read_ranges(store: OpenStore, request: RangesRequest) -> ReadRange:
    """Fetch many parts of sparse files, as `read_range` does each."""
    return _read_ranges(store, request.directory, request.checked())


def _read_ranges(store: OpenStore, directory: Path, ranges: list[tuple[str, int, int]]) -> ReadRange:
    if not store.context.workspace.owns(directory):
        raise InternalError(f"'{directory}' is no base of this store")
    try:
        return ReadRange(store.hydrations.read_all(directory, ranges, _report_damage_of(store, directory)))
    except MissingError:
        _lost_file(store, directory)
        raise


def _report_damage_of(store: OpenStore, directory: Path) -> Callable[[StateStoreError], None]:
    def tell(error: StateStoreError) -> None:
        store.log.warning(f"a file of '{directory}' cannot be fetched: {error.message}")
        if isinstance(error, MissingError):
            _lost_file(store, directory)
        else:
            found_damage(store, directory)

    return tell


def _lost_file(store: OpenStore, directory: Path) -> None:
    """Note that a stored file of a base is gone, since a newer snapshot has taken its place.

    That is no damage: the next restore is lazy, and fails if nothing has taken its place. No merge starts
    from the base any more, and another is offered to the JVM.
    """
    store.head.forget_directory(directory)
    store.readers.lost_file(directory)


def found_damage(store: OpenStore, directory: Path) -> None:
    """Note that a database has a damaged block.

    No merge starts from it any more, and the next restore of the store verifies every file.
    """
    store.suspicions.raised(store.store_id.location)
    store.head.forget_directory(directory)


def seen_attempts(store: OpenStore, request: AttemptsRequest) -> SeenAttempts:
    """Return the attempts above a version, from one listing."""
    return SeenAttempts(request.version, look(store.context.storage, request.version).after(request.version))


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
    directory = context.workspace.new_base(request.version.number)
    try:
        wanted = wanted_deltas(deltas, directory)
        context.fetch(wanted)
        context.verify(wanted)
    except BaseException:
        store.head.release(directory)
        raise
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
