"""An open store of the agent, and the calls about it: commit, restore, clean-up.

1. `OpenStore` has a store's identity, its directories, and the knowledge about it.
2. A commit makes a version in checkpoint storage of a delta that the JVM wrote.
3. A restore, and a call for the deltas of a lineage, fetch files of checkpoint storage that the JVM opens.
4. A clean-up deletes files that no retained version needs, in checkpoint storage and on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import LoggerAdapter
from pathlib import Path
from typing import Any

from state_store.agent.head import StoreHead
from state_store.agent.jvm_connections import background
from state_store.agent.lazy.reader_leases import Readers
from state_store.agent.lazy.remote_bases import RemoteBases
from state_store.agent.messages import (
    AttemptsRequest,
    Cleaned,
    CommitRequest,
    Committed,
    DeltaFiles,
    DeltasRequest,
    LooseDelta,
    Prediction,
    RangesRequest,
    ReadRanges,
    RestoredStore,
    RestoreRequest,
    SeenAttempts,
    StoreId,
)
from state_store.core.checkpoint.lineage import (
    Chain,
    ChainDelta,
    Lineages,
    Listing,
    ObservedAttempts,
    list_attempts,
    store_attempt,
    touch,
)
from state_store.core.checkpoint.names import DELTA_DIRECTORY, SHARED_DIRECTORY, DeltaName, VersionId
from state_store.core.deletion.lease import StoreContents, read_listing
from state_store.core.deletion.retention import Cleanup, Retention
from state_store.core.files.transfer import crc32_of
from state_store.core.planning.cost import RequestTimes, RestoreWork
from state_store.core.runtime import Lock, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import FILES, Options
from state_store.core.settings.session import FORMAT_KEY
from state_store.core.snapshots.context import MeasuredStorage, StoreContext, wanted_deltas
from state_store.core.snapshots.restore import IsLazy, Restored, read_chain, restore
from state_store.core.storage.contract import BoundedStorage, Deadline
from state_store.errors import (
    ConflictError,
    DamagedError,
    InternalError,
    MissingError,
    OptionError,
    StateStoreError,
)


class DamageReports:
    """Counts, by the location of a store, of blocks found damaged since its files were verified last.

    The next restore of such a store verifies every file as a whole. All providers of an executor share them:
    the provider that finds a damaged block is closed with its query, and the next one starts anew. Safe for
    any thread.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._counts: dict[str, int] = {}

    def of(self, location: str) -> int:
        """Return the number of damaged blocks that were reported since."""
        with self._lock:
            return self._counts.get(location, 0)

    def add(self, location: str) -> None:
        """Note that a block was found damaged."""
        with self._lock:
            self._counts[location] = self._counts.get(location, 0) + 1

    def clear(self, location: str, count: int) -> None:
        """Forget `count` reports, after which all files were verified, unless more have come since."""
        with self._lock:
            if self._counts.get(location) == count:
                del self._counts[location]


@dataclass(frozen=True)
class OpenStore:
    """An open store, which every operation gets. Safe for any thread.

    Args:
        instance: The number of the provider in the JVM. A store that is opened again has another.
        store_id: The identity of the store.
        options: The options in force.
        context: Storage, local files and directories.
        head: The chain, the registry and the newest base.
        retention: The deletion of files, one clean-up at a time.
        cleanup_storage: The storage of clean-ups, on which they set their deadline.
        cleaning: The lock that a clean-up holds.
        log: The log of the store.
        prune: Bounds the local files that all stores keep.
        damage_reports: The damage that the JVM has found, in all stores of the executor.
        bases: The bases that have sparse files.
        readers: The leases on the files that they have not fetched.
        request_times: The times of requests to the service that has the checkpoint, shared by its stores;
            None if the storage is on this machine.
    """

    instance: int
    store_id: StoreId
    options: Options
    context: StoreContext
    head: StoreHead
    retention: Retention
    cleanup_storage: BoundedStorage
    cleaning: Lock
    log: LoggerAdapter[Any]
    prune: Callable[[], object]
    damage_reports: DamageReports
    bases: RemoteBases
    readers: Readers
    request_times: RequestTimes | None

    def close(self) -> None:
        """Remove the local directories of the store, but not the files that local recovery keeps."""
        self.bases.stop()
        self.context.workspace.remove()
        self.readers.close()
        if not self.options.local_recovery:
            self.context.cache.remove()
        self.context.storage.close()


@dataclass(frozen=True)
class CommitResult:
    """An answer, and the chain of the version before, which is certain now: Spark builds on it."""

    answer: Committed
    before: Chain


def commit(store: OpenStore, request: CommitRequest) -> CommitResult:
    """Store the delta under its name, whose appearance is the commit. The same commit again is fine.

    If the data plane has stored it already, this only learns of it.

    Raises:
        DamagedError: The local file has other bytes than the JVM announced.
        MissingError: The local file or the version before does not exist.
        ConflictError: Another delta has that name; or, without Spark's ids, the attempt is refused (see
            `store_attempt`).
        StateStoreError: The storage failed.
    """
    clock_s = store.context.runtime.monotonic_s
    start_s = clock_s()
    delta = store.store_id.delta(request.version, request.parent, request.crc32)
    before = _chain_before(store, delta)
    _check_follows(delta, before)
    stored_from_s = clock_s()
    seen: ObservedAttempts = frozenset()
    if request.is_stored:
        pass
    elif store.store_id.has_checkpoint_ids:
        _store_delta(store, delta, request)
    else:
        touch(request.path)
        seen = store_attempt(
            store.context.storage, delta, request.seen, lambda: _store_delta(store, delta, request)
        )
    store.context.cache.adopt(delta.path, request.path)
    stored_until_s = clock_s()
    chain = store.head.committed(ChainDelta(delta, request.size_bytes, request.crc32), before, request.keys)
    phases = {
        "chain_ms": (stored_from_s - start_s) * 1000,
        "store_ms": (stored_until_s - stored_from_s) * 1000,
    }
    attempts = SeenAttempts(delta.version, seen)
    hydration = store.bases.progress()
    answer = Committed(chain, predict(store, chain), store.head.ages(), attempts, phases, hydration)
    return CommitResult(answer, before)


def predict(store: OpenStore, chain: Chain) -> Prediction:
    """Return the time that a restore of the last version of `chain` would take now, and its objective."""
    return Prediction(store.head.predict_restore_ms(chain), store.options.restore_objective_ms)


def _check_follows(delta: DeltaName, before: Chain) -> None:
    """Raise InternalError unless the delta follows the chain: it must not become visible otherwise."""
    if before.version not in (delta.builds_on, delta.version_id):
        raise InternalError(
            f"'{delta.path}' was not stored: it builds on version {delta.builds_on}, and what the agent "
            f"knows leads to {before.version}. Run the batch again; please report this with the agent's log",
            file=delta.path,
        )


def learn_age(store: OpenStore, chain: Chain) -> None:
    """Learn the age of the chain from its oldest file, if full checkpoints depend on it and it is unknown."""
    options = store.options
    if not (options.full_interval_ms or options.full_schedule) or store.head.knows_full_age:
        return
    paths = chain.paths()
    times = [
        entry.modified_ms
        for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY)
        for entry in store.context.storage.list_files(directory)
        if f"{directory}/{entry.name}" in paths
    ]
    store.head.note_chain_start(min(times, default=store.context.runtime.wall_ms()))


def _chain_before(store: OpenStore, delta: DeltaName) -> Chain:
    chain_in_memory = store.head.chain_before(delta)
    if chain_in_memory is not None:
        if chain_in_memory.version is None:
            learn_age(store, chain_in_memory)
        return chain_in_memory
    before = delta.builds_on
    assert before is not None
    chain, warnings = read_chain(store.context.storage, before)
    for warning in warnings:
        store.log.warning(warning)
    store.head.found(chain)
    learn_age(store, chain)
    return chain


def _store_delta(store: OpenStore, delta: DeltaName, request: CommitRequest) -> None:
    """Write the delta durably under its name; the same delta again is a success."""
    storage, path, size_bytes, name = store.context.storage, request.path, request.size_bytes, delta.path
    try:
        received_bytes = path.stat().st_size
    except FileNotFoundError:
        if _is_stored(store, delta, size_bytes):
            return
        file = f"{storage.location}/{name}"
        raise MissingError(f"'{path}', which should become '{file}', does not exist", file=file) from None
    crc = crc32_of(path)
    if received_bytes != size_bytes or crc != request.crc32:
        file = f"{storage.location}/{name}"
        raise DamagedError(
            f"'{path}', which should become '{file}', has {received_bytes} bytes and CRC-32 {crc:08x} "
            f"instead of {size_bytes} and {request.crc32:08x}: run the batch again",
            file=file,
        )
    try:
        storage.upload(path, name)
    except ConflictError:
        if not _is_stored(store, delta, size_bytes):
            raise


def _is_stored(store: OpenStore, delta: DeltaName, size_bytes: int) -> bool:
    directory, _, name = delta.path.partition("/")
    entries = store.context.storage.list_files(directory)
    return any(entry.name == name and entry.size_bytes == size_bytes for entry in entries)


def always_lazy(work: RestoreWork) -> bool:
    """Return True: a base that only gives way to another is never fetched before."""
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
    reports = store.damage_reports.of(location)
    thorough = request.thorough or reports > 0 or store.options.restore_verification == FILES
    forecast = store.head.forecast()
    try:
        restored = restore_lazily(
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
    directory = restored.base.directory
    with _removed_on_failure(store, directory):
        if thorough:
            store.damage_reports.clear(location, reports)
        paging = store.bases.add(directory, restored.sparse, is_paged=restored.is_paged)
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


def _log(store: OpenStore, restored: Restored, predicted_ms: float) -> None:
    for warning in restored.warnings:
        store.log.warning(warning)
    store.log.debug(
        f"restored version {restored.version}: {restored.chain.snapshot_files} files of snapshot "
        f"{restored.chain.snapshot.version_id if restored.chain.snapshot else 'none'}, "
        f"{len(restored.chain.deltas)} deltas, {restored.fetched.local_files} of them local; "
        f"{sum(restored.phases.values()):.0f} ms, predicted {predicted_ms:.0f} ms"
    )


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


def seen_attempts(store: OpenStore, request: AttemptsRequest) -> SeenAttempts:
    """Return the attempts above a version, from one listing."""
    return SeenAttempts(
        request.version, list_attempts(store.context.storage, request.version).after(request.version)
    )


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
        delta_files = wanted_deltas(deltas, directory)
        context.fetch(delta_files)
        context.verify(delta_files)
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


def clean_up_after_merge(store: OpenStore) -> Cleaned:
    """Clean up after a merge, seen from the newest version that Spark has committed for certain.

    This retains more files than a clean-up that Spark asks for, whose version is newer. So Spark's next
    clean-up has to read the files again.

    Raises:
        StateStoreError: As `clean_up`.
    """
    certain = store.head.certain
    if certain is None:
        return Cleaned(0, 0, [])
    try:
        return clean_up(store, certain)
    finally:
        store.head.forget_registry()


def clean_up(store: OpenStore, newest: VersionId) -> Cleaned:
    """Delete the files that no retained version needs, seen from the newest version.

    If nothing is due, no request is made of checkpoint storage.

    Raises:
        BusyError: The time for clean-ups is over; the next one finds the remaining files.
        StateStoreError: As `Retention.cleanup`.
    """
    head, retention = store.head, store.retention
    registry = head.registry
    floor = newest.number - store.store_id.retention(store.options).keep
    due = registry is None or retention.is_due(registry, newest) or head.superseded_below(floor + 1)
    if not due:
        store.log.debug(f"clean-up at version {newest}: nothing is due, the storage is not asked")
        cleanup = Cleanup(floor + 1)
        registry = head.retire_below(cleanup.floor)
        return Cleaned(0, 0, registry.checkpoints() if registry is not None else [])
    with store.cleaning, background():
        restores = head.begin_inventory()
        try:
            cleanup = _clean(store, newest)
            if cleanup.registry is None and head.registry is None:  # there are too few versions to decide on
                read = StoreContents.read(store.cleanup_storage).registry(cleanup.floor)
                cleanup = replace(cleanup, registry=read)
        except BaseException:
            head.end_inventory(None, 0, restores)
            raise
        registry = head.end_inventory(cleanup.registry, cleanup.floor, restores)
    for warning in cleanup.warnings:
        store.log.warning(warning)
    if cleanup.skipped:
        store.log.warning(f"nothing was deleted: {cleanup.skipped}")
    store.log.debug(
        f"clean-up at version {newest}: versions below {cleanup.floor} are retired, "
        f"{len(cleanup.deleted)} files deleted: {', '.join(cleanup.deleted)}"
    )
    if head.chain.version == newest:
        store.context.cache.retain(head.chain.paths())
    store.prune()
    retained = registry.checkpoints() if registry is not None else []
    return Cleaned(len(cleanup.deleted), cleanup.deleted_bytes, retained)


def _clean(store: OpenStore, newest: VersionId) -> Cleanup:
    """Clean up within the time that `cleanupTimeout` allows.

    A lease's expiry bounds it, too: if the tombstone turns out to be damaged, it counts for that long, and a
    cleaner that stood still for longer must delete nothing more.
    """
    limit_ms = min(store.options.cleanup_timeout_ms, store.options.lease_expiry_ms)
    store.cleanup_storage.deadline = Deadline(
        "a clean-up", limit_ms, option=PREFIX + "cleanupTimeout", runtime=store.context.runtime
    )
    return store.retention.cleanup(newest)
