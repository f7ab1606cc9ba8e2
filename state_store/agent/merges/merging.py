"""The order of merges, and a merge of a store: from an older base and deltas to a new base and its snapshot.

**The queue** has values and a clock that is passed in, no threads. A store has at most one merge running and
two waiting: one that publishes a snapshot and one of kind `ingest`, which gives memory back. A later request
of the same sort replaces the version, and the kind if it is stronger. Merges that publish run at most as many
at a time as the store's limit says, pause after each other, and are delayed after failures, each time for
twice as long. Merges of kind `ingest` have the same limit for themselves, so that they never wait for one
that publishes, unless that is of the same store.

A merge whose files are still being fetched is not ready: it takes no slot, has no deadline and does not fail.
Stores of one group are the providers of one location, of which one merges at a time.

**The merge** (`merge_store`) is skipped if it has become needless; it starts from the newest base that there
is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from state_store.agent.messages import MergedStore, OfferedBase, Skipped
from state_store.agent.open_store import OpenStore, always_lazy, restore_lazily
from state_store.core.checkpoint.lineage import ChainDelta
from state_store.core.checkpoint.names import SNAPSHOT_DIRECTORY, SnapshotName, VersionId
from state_store.core.checkpoint.stored_documents import Cause
from state_store.core.deletion.lease import Lease, read_newest_manifest
from state_store.core.files.sparse import SparseFile
from state_store.core.files.workspace import discard
from state_store.core.settings.options import changed_texts
from state_store.core.snapshots.context import LocalDatabase, StoreContext
from state_store.core.snapshots.merge import (
    FULL,
    INCREMENTAL,
    INGEST,
    Merged,
    Published,
    SparseFilesLostError,
    merge,
    publish,
)
from state_store.core.snapshots.restore import Restored, restore
from state_store.core.snapshots.streamed_merge import StreamSizes, is_young, merge_young, publish_streamed
from state_store.core.storage.contract import Deadline
from state_store.errors import BusyError, DamagedError, MissingError, StateStoreError

MIN_BACK_OFF_MS = 1000

MAX_BACK_OFF_MS = 600_000

IsReady = Callable[[int], bool]

MAX_REASON_LENGTH = 500
"""Characters of a reason that a manifest keeps."""


# ---- the queue ------------------------------------------------------------------------------------------


def always_ready(store: int) -> bool:
    """Return True: no file of any store is being fetched."""
    return True


@dataclass(frozen=True)
class MergeRequest:
    """A merge of `version`; `kind` is `ingest`, `incremental` or `full`, `reason` is for people.

    A merge that was asked for by name is made even if the policy has no reason for it any more. One that
    `moves` is of kind `ingest`: it makes a base of the newest snapshot, in the place of bases whose files
    nobody else needs, and waits for no file.
    """

    version: VersionId
    kind: str
    reason: str
    by_name: bool = False
    moves: bool = False


@dataclass(frozen=True)
class MergeLimits:
    """Limits that the options of a store's query set."""

    concurrent: int
    pause_ms: int


@dataclass(frozen=True)
class Waiting:
    """A request that waits: the reason in words, and the seconds left where time alone decides."""

    request: MergeRequest
    why: str
    ready_in_s: float | None


@dataclass
class _StoreMerges:
    limits: MergeLimits
    group: Hashable
    order: int = 0
    publishing: MergeRequest | None = None
    ingest: MergeRequest | None = None
    running: MergeRequest | None = None
    awaited: bool = False
    not_before_s: float = 0.0
    ingest_not_before_s: float = 0.0
    failures: int = 0
    ingest_failures: int = 0
    is_removed: bool = False
    needs_files: bool = False


class MergeQueue:
    """The requests of all stores of an executor. Not safe for threads: the caller locks.

    Times are seconds of one monotonic clock. Stores are known by the number of their provider.
    """

    def __init__(self) -> None:
        self._stores: dict[int, _StoreMerges] = {}
        self._count = 0

    def add(self, store: int, limits: MergeLimits, group: Hashable = None) -> None:
        """Add a store. If `group` is None, the store has a group of its own."""
        self._stores[store] = _StoreMerges(limits, store if group is None else group)

    def remove(self, store: int) -> None:
        """Start nothing of the store any more; a running merge counts until it ends. Unknown is fine."""
        merges = self._stores.get(store)
        if merges is not None:
            merges.is_removed, merges.publishing, merges.ingest = True, None, None
            self._forget_if_over(store)

    def ask(self, store: int, request: MergeRequest) -> None:
        """Put a request in the queue; one of an unknown or removed store is dropped."""
        merges = self._stores.get(store)
        if merges is None or merges.is_removed:
            return
        if merges.publishing is None and merges.ingest is None:
            self._count += 1
            merges.order = self._count
        if request.kind == INGEST:
            moves = merges.ingest is not None and merges.ingest.moves
            merges.ingest = replace(request, moves=request.moves or moves)
        elif merges.publishing is not None and merges.publishing.kind == FULL:
            merges.publishing = replace(merges.publishing, version=request.version)
        else:
            merges.publishing = request

    def inherit(self, store: int, closed: int) -> None:
        """Give a store that asks for a merge the place of a closed provider of its location.

        It gets the place in the queue and the failures. The requests of the closed provider are dropped.
        """
        merges, old = self._stores.get(store), self._stores.get(closed)
        if merges is None or old is None:
            return
        if old.publishing is not None:
            merges.order = min(merges.order, old.order)
        merges.failures = max(merges.failures, old.failures)
        merges.not_before_s = max(merges.not_before_s, old.not_before_s)
        old.publishing = old.ingest = None

    def advance(self, store: int, version: VersionId) -> None:
        """Let waiting requests of the store merge that version instead, which was committed since."""
        merges = self._stores.get(store)
        if merges is None:
            return
        merges.publishing = merges.publishing and replace(merges.publishing, version=version)
        merges.ingest = merges.ingest and replace(merges.ingest, version=version)

    def next(self, now_s: float, is_ready: IsReady = always_ready) -> tuple[int, MergeRequest] | None:
        """Return the merge to start now, with its store. It runs from now on, until `ended` or `put_back`."""
        busy = {merges.group for merges in self._stores.values() if merges.running is not None}
        for store in sorted(self._waiting_stores(), key=lambda store: self._stores[store].order):
            merges = self._stores[store]
            merges.needs_files = False
            request = None if merges.group in busy else self._eligible(merges, now_s)
            if request is None:
                continue
            if request.moves or is_ready(store):
                self._start(merges, request)
                return store, request
            merges.needs_files = True
        return None

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until time alone makes another request ready, or None."""
        times = [
            at_s - now_s
            for merges in self._stores.values()
            if merges.running is None
            for request, at_s in (
                (merges.publishing, merges.not_before_s),
                (merges.ingest, merges.ingest_not_before_s),
            )
            if request is not None and at_s > now_s
        ]
        return min(times, default=None)

    def start_now(self, store: int, request: MergeRequest) -> bool:
        """Start a merge that somebody waits for, outside the limits.

        Returns:
            False while another merge of its location runs.
        """
        merges = self._stores[store]
        if any(other.running is not None for other in self._stores.values() if other.group == merges.group):
            return False
        merges.running, merges.awaited = request, True
        return True

    def put_back(self, store: int) -> None:
        """End the running merge of the store, which has not begun: it waits again, and nothing failed."""
        merges = self._stores.get(store)
        if merges is None or merges.running is None:
            return
        request, awaited = merges.running, merges.awaited
        merges.running, merges.awaited = None, False
        if self._forget_if_over(store) or awaited:
            return
        if request.kind == INGEST:
            merges.ingest = merges.ingest or request
        else:
            merges.publishing = merges.publishing or request

    def ended(self, store: int, now_s: float, *, succeeded: bool | None) -> int:
        """End the running merge of the store.

        A request that failed waits again, unless a newer one does or somebody waited for it.

        Args:
            store: The store.
            now_s: The time.
            succeeded: None if nothing was made and nothing failed.

        Returns:
            The number of failures in a row.
        """
        merges = self._stores.get(store)
        if merges is None or merges.running is None:
            return 0
        request, awaited = merges.running, merges.awaited
        merges.running, merges.awaited = None, False
        if self._forget_if_over(store):
            return 0
        if request.kind == INGEST:
            self._ended_ingest(merges, request, now_s, succeeded)
        else:
            self._ended_publishing(merges, request, now_s, succeeded)
            if awaited and merges.publishing is request:
                merges.publishing = None  # the caller was told
        return merges.failures + merges.ingest_failures

    def running(self, store: int) -> MergeRequest | None:
        """Return the merge of the store that runs."""
        merges = self._stores.get(store)
        return merges.running if merges is not None else None

    def owed(self, store: int) -> MergeRequest | None:
        """Return the merge that would publish a snapshot of the store, whether it waits or runs."""
        merges = self._stores.get(store)
        if merges is None:
            return None
        running = merges.running if merges.running is not None and merges.running.kind != INGEST else None
        return merges.publishing or running

    def failures(self, store: int) -> int:
        """Return how many merges of the store failed in a row."""
        merges = self._stores.get(store)
        return merges.failures + merges.ingest_failures if merges is not None else 0

    def waiting(self, store: int, now_s: float) -> list[Waiting]:
        """Return the requests of the store that wait, each with the reason in words."""
        merges = self._stores.get(store)
        if merges is None:
            return []
        requests = (
            (merges.publishing, merges.not_before_s, merges.failures),
            (merges.ingest, merges.ingest_not_before_s, merges.ingest_failures),
        )
        return [
            self._waiting(merges, request, not_before_s - now_s, failures)
            for request, not_before_s, failures in requests
            if request is not None
        ]

    def _waiting(self, merges: _StoreMerges, request: MergeRequest, left_s: float, failures: int) -> Waiting:
        if merges.running is not None:
            running = merges.running.kind
            return Waiting(request, f"a merge of kind {running} of this store is running", None)
        if left_s > 0:
            why = f"after {failures} failures in a row" if failures else "minPauseBetweenMerges"
            return Waiting(request, f"it waits {left_s:.1f} s ({why})", left_s)
        if merges.needs_files:
            return Waiting(request, "its files are still being fetched by a lazy restore", None)
        return Waiting(request, f"maxConcurrentMerges ({merges.limits.concurrent}) merges are running", None)

    def _waiting_stores(self) -> list[int]:
        return [store for store, merges in self._stores.items() if merges.publishing or merges.ingest]

    def _forget_if_over(self, store: int) -> bool:
        """Forget a removed store of which nothing runs; return True if it was forgotten."""
        merges = self._stores[store]
        is_over = merges.is_removed and merges.running is None
        if is_over:
            del self._stores[store]
        return is_over

    def _eligible(self, merges: _StoreMerges, now_s: float) -> MergeRequest | None:
        """Return the request that time and limits allow now."""
        limit = merges.limits.concurrent
        publishing, ingest = merges.publishing, merges.ingest
        if publishing is not None and now_s >= merges.not_before_s and self._running(ingest=False) < limit:
            return publishing
        if ingest is not None and now_s >= merges.ingest_not_before_s and self._running(ingest=True) < limit:
            return ingest
        return None

    def _start(self, merges: _StoreMerges, request: MergeRequest) -> None:
        merges.running = request
        merges.ingest = None  # one that publishes gives memory back as well
        if request.kind != INGEST:
            merges.publishing = None

    def _running(self, *, ingest: bool) -> int:
        """Count the running merges that a limit is for: nobody waits for them."""
        return sum(
            merges.running is not None and not merges.awaited and (merges.running.kind == INGEST) == ingest
            for merges in self._stores.values()
        )

    def _ended_publishing(
        self, merges: _StoreMerges, request: MergeRequest, now_s: float, succeeded: bool | None
    ) -> None:
        pause_s = merges.limits.pause_ms / 1000
        if succeeded is False:
            merges.failures += 1
            pause_s = _back_off_s(merges.limits, merges.failures)
            merges.publishing = merges.publishing or request
        elif succeeded:
            merges.failures = 0
            if merges.publishing is not None and (request.kind == FULL or merges.publishing.kind != FULL):
                merges.publishing = None  # asked for before this one was made; the next commit asks anew
        merges.not_before_s = now_s + pause_s

    def _ended_ingest(
        self, merges: _StoreMerges, request: MergeRequest, now_s: float, succeeded: bool | None
    ) -> None:
        merges.ingest_not_before_s = now_s
        if succeeded is False:
            merges.ingest_failures += 1
            merges.ingest_not_before_s = now_s + _back_off_s(merges.limits, merges.ingest_failures)
            merges.ingest = merges.ingest or request
        elif succeeded:
            merges.ingest_failures = 0


def _back_off_s(limits: MergeLimits, failures: int) -> float:
    first_ms = max(MIN_BACK_OFF_MS, limits.pause_ms)
    return min(MAX_BACK_OFF_MS, first_ms << min(failures - 1, 20)) / 1000


# ---- the merge ------------------------------------------------------------------------------------------


class NotReady(BusyError):
    """The files that a merge builds on are still being fetched: it has done nothing, and waits again."""


def merge_store(store: OpenStore, request: MergeRequest, deadline: Deadline) -> MergedStore | Skipped:
    """Make a merge and, unless it is of kind `ingest`, publish it. One at a time for a store.

    On failure nothing is left behind, neither locally nor in checkpoint storage.

    Args:
        store: The store.
        request: The merge.
        deadline: The end of all of it: a restore that it may begin with, downloads, checksums, the compaction
            and uploads. It is checked between files, and before the archive that makes the snapshot visible.

    Returns:
        The merge, whose base is held for the JVM; or the reason why none is needed.

    Raises:
        NotReady: The base is still being fetched.
        BusyError: The deadline passed.
        StateStoreError: A step failed.
    """
    start_s = store.context.runtime.monotonic_s()
    context = store.context.bounded(deadline)
    try:
        if request.moves:
            return _moved(store, context, request, start_s)
        _check_still_there(store, context, request)
        reason = None
        if request.kind != INGEST and _found_newer_snapshot(store, context):
            reason = _reason_to_skip(store, request)
            if store.readers.replaced() and reason is not None:
                return _moved(store, context, replace(request, kind=INGEST), start_s)
        reason = reason or _reason_of_snapshot(store, request)
        if reason is not None:
            return Skipped(reason)
        is_limited = store.bases.has_limit and not _starts_locally(store, request)
        if request.kind == INGEST and is_limited:
            return _with_loose_deltas(store, context, request, start_s)
        if is_limited and _is_too_large(store, request):
            streamed_store = _streamed(store, context, request, start_s)
            if streamed_store is not None:
                return streamed_store
        with _base_to_start_from(store, context, request) as (start, deltas):
            snapshot = start.snapshot
            if (
                request.kind == INCREMENTAL
                and snapshot is not None
                and snapshot.version_id == request.version
            ):
                return Skipped(f"version {request.version} has a snapshot already")
            size_bytes = start.size_bytes + sum(delta.size_bytes for delta in deltas)
            with store.bases.merging(size_bytes):
                merged = merge(context, start, deltas, request.version, request.kind)
        return _finish(store, context, request, merged, start_s)
    except _CheckpointRemoved as removed:
        return Skipped(removed.message)
    finally:
        store.readers.give_back()


class _CheckpointRemoved(MissingError):
    """The checkpoint was removed after its provider was closed: a merge would bring it back."""


def _starts_locally(store: OpenStore, request: MergeRequest) -> bool:
    """Return True if the newest base, from which a merge starts, is there with all of its files.

    Raises:
        NotReady: They are still being fetched.
    """
    base = store.head.begin_merge(request.version).base
    if base is None:
        return False
    is_local = _is_local(store, base)
    store.head.release(base.directory)
    return is_local


def _is_too_large(store: OpenStore, request: MergeRequest) -> bool:
    """Return True if a merge on the local disk would take more than the limit of pages leaves to merges."""
    chain = store.head.chain.back_to(request.version)
    return chain is not None and 2 * chain.size_bytes > store.bases.merge_bytes


def _streamed(
    store: OpenStore, context: StoreContext, request: MergeRequest, start_s: float
) -> MergedStore | Skipped | None:
    """Make a snapshot of a store that does not fit on the disk, and a base of it that is cached by pages.

    An incremental merge compacts young runs that fit, if they have not outgrown the oldest, and the other
    files may be shared; any other makes a full snapshot.

    Returns:
        The merge, or None if the files are local.
    """

    def read() -> Restored:
        return restore(context, request.version, thorough=False, ingest=False, is_lazy=always_lazy)

    restored = store.readers.restored(read)
    source = restored.base.directory
    try:
        if not restored.sparse:
            discard(source)
            return None
        snapshot = restored.base.snapshot
        if request.kind == INCREMENTAL and snapshot is not None and snapshot.version_id == request.version:
            discard(source)
            return Skipped(f"version {request.version} has a snapshot already")
        _check_still_there(store, context, request)
        own, room = store.context, store.bases.merge_bytes // 2
        if request.kind == INCREMENTAL and is_young(restored):
            try:
                merged = merge_young(context, restored, room)
            except DamagedError as error:  # of the oldest run, if RocksDB wants rows of it after all
                reason = error.message
            else:
                try:
                    return _finish(store, context, request, merged, start_s)
                except SparseFilesLostError as error:
                    reason = error.message
            store.log.warning(f"the merge of version {request.version} reads all rows: {reason}")
            discard(source)
            restored = store.readers.restored(read)
            source = restored.base.directory
        lease = Lease(own.storage, expiry_ms=store.options.lease_expiry_ms, runtime=own.runtime)
        published = publish_streamed(
            context,
            restored,
            lease,
            StreamSizes(room, min(room, context.settings.for_store(restored.base.size_bytes).file_bytes)),
            overwrite=request.kind == FULL,
            cause=_cause(store, request),
        )
        for warning in lease.warnings:
            store.log.warning(warning)
    except BaseException:
        discard(source)
        raise
    discard(source)
    return _finish(
        store,
        context,
        request,
        Merged(published.base, {}, frozenset(published.base.files)),
        start_s,
        published,
    )


def _finish(
    store: OpenStore,
    context: StoreContext,
    request: MergeRequest,
    merged: Merged,
    start_s: float,
    published: Published | None = None,
) -> MergedStore:
    """Publish a merged base, if it is not `published`, and offer it to the JVM.

    It is removed if a step fails.
    """
    head, base, phases = store.head, merged.base, dict(merged.phases)
    is_offered = False
    try:
        if request.kind != INGEST and published is None:
            _check_still_there(store, context, request)
            published = _publish(store, context, merged, request)
        if published is not None:
            base = published.base
            phases.update(published.phases)
        offered = _offered(store, base, is_whole=not merged.sparse)
        new_bytes_before = head.chain.new_bytes(base.version)
        chain = head.offer(base, published)
        is_offered = True
        if published is not None:
            head.published(published, phases)
        kind = request.kind if published is None else published.manifest.kind
        took_ms = (context.runtime.monotonic_s() - start_s) * 1000
        _log(store, request, kind, published, took_ms)
        return MergedStore.of(
            kind,
            request.reason,
            offered,
            published,
            new_bytes_before=new_bytes_before,
            took_ms=took_ms,
            chain=chain,
            phases=phases,
        )
    except BaseException:
        if is_offered:
            head.release(base.directory)
        else:
            discard(base.directory)
        raise


def _offered(store: OpenStore, base: LocalDatabase, *, is_whole: bool) -> OfferedBase:
    """Return the base of a merge as the JVM opens it: cached by pages if the disk has no room for it."""
    sparse: list[SparseFile] = []
    is_kept = not store.bases.has_limit or (is_whole and store.bases.take(base.directory, base.size_bytes))
    if not is_kept:
        sparse = store.bases.shed(base)
        store.readers.hold(base.directory, sparse)
    version = base.version
    return OfferedBase(
        base.directory,
        version.number,
        version.checkpoint_id,
        base.keys,
        version,
        sparse=[file.name for file in sparse],
        paging=store.bases.add(base.directory, sparse, is_paged=True),
    )


def _moved(
    store: OpenStore, context: StoreContext, request: MergeRequest, start_s: float
) -> MergedStore | Skipped:
    """Make a base of the newest snapshot for the bases whose files only their leases keep.

    Merges do not start from these any more. A failure is not a failed merge: the next look asks again.
    """
    if not store.readers.wants_to_move:
        return Skipped("no base reads files that nobody else needs")
    try:
        _found_newer_snapshot(store, context)
        merged = _with_loose_deltas(store, context, request, start_s)
    except StateStoreError as error:
        store.log.warning(
            f"no base of version {request.version} takes the place of one whose files a newer snapshot has "
            f"replaced, and it goes on reading them: {error.message}"
        )
        return Skipped("the newest snapshot cannot be restored")
    for directory in store.readers.moved(merged.base.directory):
        store.head.forget_directory(directory)
    return merged


def _with_loose_deltas(
    store: OpenStore, context: StoreContext, request: MergeRequest, start_s: float
) -> MergedStore:
    """Make a base of the newest snapshot and the deltas beside it, of which only tails are fetched.

    Nothing is ingested, since a database has to be complete for that. No merge starts from such a base.
    """
    restored = restore_lazily(store, context, request.version)
    directory = restored.base.directory
    store.head.hold(restored.base)
    try:
        paging = store.bases.add(directory, restored.sparse, is_paged=restored.is_paged)
        took_ms = (context.runtime.monotonic_s() - start_s) * 1000
        _log(store, request, INGEST, None, took_ms)
        return MergedStore.of(
            INGEST,
            request.reason,
            OfferedBase.of(request.version, restored, paging),
            None,
            took_ms=took_ms,
            chain=store.head.chain,
            phases=restored.phases,
        )
    except BaseException:
        store.bases.drop(directory)
        store.head.release(directory)
        raise


@contextmanager
def _base_to_start_from(
    store: OpenStore, context: StoreContext, request: MergeRequest
) -> Iterator[tuple[LocalDatabase, tuple[ChainDelta, ...]]]:
    """Hold the base that a merge starts from, and yield it with the deltas after it.

    That is the newest base, if its files are local, or else one that is restored now.

    Raises:
        NotReady: The base is still being fetched.
    """
    head = store.head
    start = head.begin_merge(request.version)
    base, deltas = start.base, tuple(start.deltas)
    if base is not None and not _is_local(store, base):
        head.release(base.directory)
        head.forget(base)
        base = None
    if base is None:
        base, deltas = restore(context, request.version).base, ()
        head.hold(base)
    try:
        yield base, deltas
    except (DamagedError, MissingError):
        head.forget(base)  # the damage may be that of this database: the next merge restores
        raise
    finally:
        head.release(base.directory)


def _is_local(store: OpenStore, base: LocalDatabase) -> bool:
    """Return True if all files of the newest base are local, False if some will not be.

    Raises:
        NotReady: They are still being fetched; the base is not held any more.
    """
    if store.bases.is_coming(base.directory):
        store.head.release(base.directory)
        raise NotReady(f"the files of '{base.directory}' are still being fetched")
    return store.bases.is_local(base.directory)


def _check_still_there(store: OpenStore, context: StoreContext, request: MergeRequest) -> None:
    """Raise _CheckpointRemoved if the provider is closed and the delta of the version is gone."""
    if not store.head.is_provider_closed:
        return
    for delta in store.head.chain.deltas:
        if delta.name.version_id == request.version and not context.storage.exists(delta.name.path):
            raise _CheckpointRemoved(f"'{delta.name.path}' is gone: the checkpoint was removed")


def _reason_to_skip(store: OpenStore, request: MergeRequest) -> str | None:
    """Return why a merge is not needed after another process made a snapshot, or None."""
    if request.by_name:
        return None
    chain = store.head.chain
    before = chain if chain.version == request.version else chain.back_to(request.version)
    if before is not None and store.head.due(before) is None:
        return "another process made a snapshot, and nothing is due any more"
    return None


def _reason_of_snapshot(store: OpenStore, request: MergeRequest) -> str | None:
    snapshot = store.head.chain.snapshot
    if request.kind == INCREMENTAL and snapshot is not None and snapshot.version_id == request.version:
        return f"version {request.version} has a snapshot already"
    return None


def _publish(store: OpenStore, context: StoreContext, merged: Merged, request: MergeRequest) -> Published:
    own = store.context
    lease = Lease(own.storage, expiry_ms=store.options.lease_expiry_ms, runtime=own.runtime)
    published = publish(
        context,
        merged.base,
        lease,
        full=request.kind == FULL,
        cause=_cause(store, request),
        sparse=merged.sparse,
    )
    for warning in lease.warnings:
        store.log.warning(warning)
    return published


def _cause(store: OpenStore, request: MergeRequest) -> Cause:
    before = store.head.chain.back_to(request.version)
    predicted_ms = None if before is None else round(store.head.predict_restore_ms(before))
    return Cause(request.reason[:MAX_REASON_LENGTH], predicted_ms, changed_texts(store.options))


def _found_newer_snapshot(store: OpenStore, context: StoreContext) -> bool:
    """Return True if another process (`state-store full`) published a snapshot, from which merges go on."""
    chain = store.head.chain
    own = {delta.name.version_id for delta in chain.deltas}
    if chain.snapshot is not None:
        own.add(chain.snapshot.version_id)
    if not own:
        return False
    names = [SnapshotName.parse(entry.name) for entry in context.storage.list_files(SNAPSHOT_DIRECTORY)]
    manifest, warnings = read_newest_manifest(
        context.storage, [name for name in names if name is not None and name.version_id in own]
    )
    for warning in warnings:
        store.log.warning(warning)
    return manifest is not None and store.head.saw_snapshot(chain, manifest)


def _log(
    store: OpenStore, request: MergeRequest, kind: str, published: Published | None, took_ms: float
) -> None:
    if published is None:
        store.log.info(f"merged version {request.version} ({request.reason}): {kind}, {took_ms:.0f} ms")
        return
    store.log.info(
        f"merged version {request.version} ({request.reason}): {kind}, {published.shared_files} files "
        f"shared, {published.new_files} new, {published.uploaded_bytes} bytes uploaded, {took_ms:.0f} ms"
    )
