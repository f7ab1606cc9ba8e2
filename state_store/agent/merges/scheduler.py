"""Merges of all stores of an executor: found due after a commit, queued, run in threads, reported as events.

Only versions that Spark has committed are merged: the commit of version v proves v - 1, on which it builds. A
version of a batch that failed is thus never merged, whatever is due. (A snapshot that Spark asks for itself
is one of the version just committed.)

**The queue** has values and a clock that is passed in, no threads. A store has at most one merge running and
two waiting: one that publishes a snapshot and one of kind `ingest`, which gives memory back. A later request
of the same sort replaces the version, and the kind if it is stronger. Merges that publish run at most as many
at a time as the store's limit says, pause after each other, and are delayed after failures, each time for
twice as long. Merges of kind `ingest` have the same limit for themselves, so that they never wait for one
that publishes, unless that is of the same store.

A merge whose files are still being fetched is not ready: it takes no slot, has no deadline and does not fail.
Stores of one group are the providers of one location, of which one merges at a time.

**The scheduler** gives the queue its threads. A merge is owed to the store, not to its provider: when the JVM
closes a provider, a merge that was due or runs is made all the same, because the next provider may not live
long enough for one. The new provider takes over the place in the queue. A clean-up is owed after each
snapshot, unless Spark asked for one meanwhile; the store is closed after it.

Nothing here survives the agent, and nothing has to: the next commit finds out what is due.

A job of the merge threads is a merge, or the upkeep that follows merges and closed providers. It does its
work outside the scheduler's lock, and hands its end back to the scheduler exactly once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from state_store.agent.merges.merging import (
    EventLog,
    MergedStore,
    MergeEnded,
    MergeFailed,
    MergeRequest,
    NotReady,
    Skipped,
    StoreClosed,
    merge_store,
)
from state_store.agent.open_store import OpenStore, predict
from state_store.agent.supervision import (
    BackgroundJob,
    Job,
    WorkerThreads,
    as_state_store_error,
    end_safely,
)
from state_store.core.checkpoint.lineage import Chain
from state_store.core.checkpoint.names import VersionId
from state_store.core.codec import INLINE, JsonObject, json_names
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.snapshots.merge import FULL, INGEST
from state_store.core.storage.contract import Deadline
from state_store.errors import BusyError, MissingError, StateStoreError

MIN_BACK_OFF_MS = 1000

MAX_BACK_OFF_MS = 600_000

CLOSE_TIMEOUT_S = 5.0
"""Time that the close of a store waits for its merge to stop."""

IsReady = Callable[[int], bool]

Merge = Callable[[OpenStore, MergeRequest, Deadline], MergedStore | Skipped]

# ---- the queue ------------------------------------------------------------------------------------------


def always_ready(store: int) -> bool:
    """Return True: no file of any store is being fetched."""
    return True


@dataclass(frozen=True)
class MergeLimits:
    """Limits that the options of a store's query set."""

    concurrent: int
    pause_ms: int


@json_names(version=INLINE)
@dataclass(frozen=True)
class WaitingMerge:
    """A merge that waits, and the reason as a sentence.

    `ready_in_ms` is None when time alone does not make it ready.
    """

    version: VersionId
    kind: str
    reason: str
    why: str
    ready_in_ms: float | None


@dataclass
class _Lane:
    """The requests of a store of one sort: the one that waits, from when it may start, failures in a row."""

    waiting: MergeRequest | None = None
    not_before_s: float = 0.0
    failures: int = 0


@dataclass
class _StoreMerges:
    limits: MergeLimits
    group: Hashable
    order: int = 0
    publishing: _Lane = field(default_factory=_Lane)
    ingest: _Lane = field(default_factory=_Lane)
    running: MergeRequest | None = None
    awaited: bool = False
    is_removed: bool = False
    needs_files: bool = False

    @property
    def lanes(self) -> tuple[_Lane, _Lane]:
        return self.publishing, self.ingest

    @property
    def failures(self) -> int:
        return self.publishing.failures + self.ingest.failures

    def lane_of(self, request: MergeRequest) -> _Lane:
        return self.ingest if request.kind == INGEST else self.publishing

    def drop(self) -> None:
        """Drop the requests that wait."""
        self.publishing.waiting = self.ingest.waiting = None


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
            merges.is_removed = True
            merges.drop()
            self._forget_if_over(store)

    def ask(self, store: int, request: MergeRequest) -> None:
        """Put a request in the queue; one of an unknown or removed store is dropped."""
        merges = self._stores.get(store)
        if merges is None or merges.is_removed:
            return
        if not any(lane.waiting for lane in merges.lanes):
            self._count += 1
            merges.order = self._count
        lane = merges.lane_of(request)
        before = lane.waiting
        if before is not None and before.kind == FULL:
            lane.waiting = replace(before, version=request.version)
        else:
            lane.waiting = replace(request, moves=request.moves or (before is not None and before.moves))

    def inherit(self, store: int, closed: int) -> None:
        """Give a store that asks for a merge the place of a closed provider of its location.

        It gets the place in the queue and the failures. The requests of the closed provider are dropped.
        """
        merges, old = self._stores.get(store), self._stores.get(closed)
        if merges is None or old is None:
            return
        own, inherited = merges.publishing, old.publishing
        if inherited.waiting is not None:
            merges.order = min(merges.order, old.order)
        own.failures = max(own.failures, inherited.failures)
        own.not_before_s = max(own.not_before_s, inherited.not_before_s)
        old.drop()

    def advance(self, store: int, version: VersionId) -> None:
        """Let waiting requests of the store merge that version instead, which was committed since."""
        merges = self._stores.get(store)
        for lane in merges.lanes if merges is not None else ():
            lane.waiting = lane.waiting and replace(lane.waiting, version=version)

    def next(self, now_s: float, is_ready: IsReady = always_ready) -> tuple[int, MergeRequest] | None:
        """Return the merge to start now, with its store. It runs from now on, until `ended` or `put_back`."""
        running = [merges for merges in self._stores.values() if merges.running is not None]
        busy = {merges.group for merges in running}
        counts = {is_ingest: self._count_limited(running, ingest=is_ingest) for is_ingest in (False, True)}
        for store in sorted(self._waiting_stores(), key=lambda store: self._stores[store].order):
            merges = self._stores[store]
            merges.needs_files = False
            for request in () if merges.group in busy else self._eligible(merges, now_s, counts):
                if request.moves or is_ready(store):
                    self._start(merges, request)
                    return store, request
                merges.needs_files = True
        return None

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until time alone makes another request ready, or None."""
        times = [
            lane.not_before_s - now_s
            for merges in self._stores.values()
            if merges.running is None
            for lane in merges.lanes
            if lane.waiting is not None and lane.not_before_s > now_s
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
        if merges is not None and merges.running is not None:
            self._stopped(store, merges, merges.running, waits_again=True)

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
        request = merges.running
        if not self._stopped(store, merges, request, waits_again=succeeded is False):
            return 0
        lane = merges.lane_of(request)
        pause_s = 0.0 if request.kind == INGEST else merges.limits.pause_ms / 1000
        if succeeded is False:
            lane.failures += 1
            pause_s = _back_off_s(merges.limits, lane.failures)
        elif succeeded:
            lane.failures = 0
            newer = merges.publishing.waiting
            if request.kind != INGEST and (request.kind == FULL or (newer and newer.kind != FULL)):
                merges.publishing.waiting = (
                    None  # asked for before this one was made; the next commit asks anew
                )
        lane.not_before_s = now_s + pause_s
        return merges.failures

    def _stopped(self, store: int, merges: _StoreMerges, request: MergeRequest, *, waits_again: bool) -> bool:
        """Let no merge of the store run. Returns False if the store is removed, and forgotten now."""
        if waits_again and not merges.awaited and not merges.is_removed:
            lane = merges.lane_of(request)
            lane.waiting = lane.waiting or request
        merges.running, merges.awaited = None, False
        return not self._forget_if_over(store)

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
        return merges.publishing.waiting or running

    def failures(self, store: int) -> int:
        """Return how many merges of the store failed in a row."""
        merges = self._stores.get(store)
        return merges.failures if merges is not None else 0

    def waiting(self, store: int, now_s: float) -> list[WaitingMerge]:
        """Return the requests of the store that wait, each with the reason in words."""
        merges = self._stores.get(store)
        if merges is None:
            return []
        return [
            WaitingMerge(request.version, request.kind, request.reason, *self._why(merges, lane, now_s))
            for lane in merges.lanes
            if (request := lane.waiting) is not None
        ]

    def _why(self, merges: _StoreMerges, lane: _Lane, now_s: float) -> tuple[str, float | None]:
        """Return why a request waits, and the milliseconds that are left where time alone decides."""
        left_s = lane.not_before_s - now_s
        if merges.running is not None:
            return f"a merge of kind {merges.running.kind} of this store is running", None
        if left_s > 0:
            why = f"after {lane.failures} failures in a row" if lane.failures else "minPauseBetweenMerges"
            return f"it waits {left_s:.1f} s ({why})", left_s * 1000
        if merges.needs_files:
            return "its files are still being fetched by a lazy restore", None
        return f"maxConcurrentMerges ({merges.limits.concurrent}) merges are running", None

    def _waiting_stores(self) -> list[int]:
        return [store for store, merges in self._stores.items() if any(lane.waiting for lane in merges.lanes)]

    def _forget_if_over(self, store: int) -> bool:
        """Forget a removed store of which nothing runs; return True if it was forgotten."""
        merges = self._stores[store]
        is_over = merges.is_removed and merges.running is None
        if is_over:
            del self._stores[store]
        return is_over

    def _eligible(self, merges: _StoreMerges, now_s: float, counts: Mapping[bool, int]) -> list[MergeRequest]:
        """Return the requests that time and limits allow now, the one that publishes first.

        `counts` are the merges that run, of those that publish (False) and of kind `ingest` (True).
        """
        return [
            lane.waiting
            for lane in merges.lanes
            if lane.waiting is not None
            and now_s >= lane.not_before_s
            and counts[lane is merges.ingest] < merges.limits.concurrent
        ]

    def _start(self, merges: _StoreMerges, request: MergeRequest) -> None:
        merges.running = request
        merges.ingest.waiting = None  # one that publishes gives memory back as well
        merges.lane_of(request).waiting = None

    @staticmethod
    def _count_limited(running: Sequence[_StoreMerges], *, ingest: bool) -> int:
        """Count the running merges that a limit is for: nobody waits for them."""
        return sum(
            not merges.awaited and merges.running is not None and (merges.running.kind == INGEST) == ingest
            for merges in running
        )


def _back_off_s(limits: MergeLimits, failures: int) -> float:
    first_ms = max(MIN_BACK_OFF_MS, limits.pause_ms)
    return min(MAX_BACK_OFF_MS, first_ms << min(failures - 1, 20)) / 1000


# ---- the merges of a store ------------------------------------------------------------------------------


@json_names(version=INLINE)
@dataclass(frozen=True)
class RunningMerge:
    """A merge that runs, and the milliseconds since it began."""

    version: VersionId
    kind: str
    reason: str
    elapsed_ms: float


@json_names(version=INLINE)
@dataclass(frozen=True)
class EndedMerge:
    """The last merge that was made, or that failed, and the milliseconds since it ended.

    `error` is None for a merge that was made.
    """

    version: VersionId
    kind: str
    reason: str
    ended_ms_ago: float
    took_ms: float
    error: StateStoreError | None


@dataclass(frozen=True)
class MergeStatus:
    """The merges of one store."""

    running: RunningMerge | None
    waiting: Sequence[WaitingMerge]
    last_made: EndedMerge | None
    last_failed: EndedMerge | None
    failures_in_row: int


@dataclass(frozen=True)
class MergeRecord:
    """A merge that ended, for the status of its store."""

    request: MergeRequest
    ended_s: float
    took_s: float
    failure: StateStoreError | None

    def described(self, now_s: float) -> EndedMerge:
        """Return the merge as a status has it at the time `now_s`."""
        return EndedMerge(
            self.request.version,
            self.request.kind,
            self.request.reason,
            (now_s - self.ended_s) * 1000,
            self.took_s * 1000,
            self.failure,
        )


class ScheduledStore:
    """A store of the scheduler: its merges, the clean-up after them, and the life of its provider.

    Its three states change independently, under the scheduler's lock:

        merge      idle -> a `job` runs -> idle; the last ones are `last_made` and `last_failed`
        clean-up   none -> owed (`owes_cleanup`), after a snapshot -> none, when it has ended;
                   the snapshot after a clean-up by Spark (`is_cleaned`) owes none
        provider   open -> lingering (`lingers_until_s`), if something is owed when it is closed -> closed;
                   a job or a clean-up that is owed keeps the store lingering, beyond that time, too
    """

    def __init__(self, store: OpenStore) -> None:
        self.store = store
        self.job: MergeJob | None = None
        self.last_made: MergeRecord | None = None
        self.last_failed: MergeRecord | None = None
        self.owes_cleanup = False
        self.is_cleaned = False
        self.lingers_until_s: float | None = None

    @property
    def is_lingering(self) -> bool:
        """True if the provider is closed, and the store waits for a merge or a clean-up that is owed."""
        return self.lingers_until_s is not None


class MergeJob(BackgroundJob):
    """A merge that the queue has as running, since `started_s`. It may take until `deadline`."""

    def __init__(
        self,
        scheduler: MergeScheduler,
        entry: ScheduledStore,
        request: MergeRequest,
        deadline: Deadline,
        started_s: float,
    ) -> None:
        super().__init__(
            lambda: scheduler._make(self),
            lambda failure: scheduler._release(self, failure),
            lambda failure: scheduler._report(self, failure),
        )
        self._runtime = scheduler._runtime
        self.entry = entry
        self.request = request
        self.deadline = deadline
        self.started_s = started_s
        self.runs_in_worker = False
        self.result: MergedStore | Skipped | None = None
        self.failures = 0

    def run(self) -> None:
        """Make the merge: in a worker thread as other jobs, and for somebody who waits at once."""
        if self.runs_in_worker:
            self._runtime.lower_priority()
            super().run()
        else:
            self._work()

    def described(self, now_s: float) -> RunningMerge:
        """Return the merge as a status has it at the time `now_s`."""
        request = self.request
        return RunningMerge(request.version, request.kind, request.reason, (now_s - self.started_s) * 1000)


# ---- the scheduler --------------------------------------------------------------------------------------


@json_names(number="version", checkpoint_id="id")
@dataclass(frozen=True)
class FullRequest:
    """Request for a full checkpoint of version `number` as soon as the limits of merges allow it.

    `checkpoint_id` is None if the caller knows the number alone: the version on the store's chain is meant.
    """

    number: int
    checkpoint_id: str | None
    reason: str = "asked"


@json_names(version=INLINE)
@dataclass(frozen=True)
class FullAnswer(JsonObject):
    """Answer to `full`: the version that is meant, and `already` if its newest snapshot is a full one.

    Otherwise `state` is `queued`: a merge of kind `full` waits in the queue, and an event says how it ended.
    """

    version: VersionId
    state: str


class MergeScheduler:
    """Scheduler of the merges of the stores that were added. Safe for any thread.

    Args:
        events: Receives how merges ended.
        merge: Makes one merge.
        clean: Cleans a store up after a snapshot was published; None: no store is cleaned up.
        runtime: Clocks and threads.
    """

    def __init__(
        self,
        events: EventLog,
        *,
        merge: Merge = merge_store,
        clean: Callable[[OpenStore], object] | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._events = events
        self._merge = merge
        self._clean = clean
        self._runtime = runtime
        self._clock_s = runtime.monotonic_s
        self._changed = runtime.condition()
        self._queue = MergeQueue()
        self._entries: dict[int, ScheduledStore] = {}
        self._cleanups: deque[ScheduledStore] = deque()
        self._closing: deque[ScheduledStore] = deque()
        self._busy = 0
        self._idle = 0
        self._workers = WorkerThreads(runtime, self._changed, "merge", self._take)

    # ---- stores ------------------------------------------------------------------------------------------

    def add(self, store: OpenStore) -> None:
        """Merge this store from now on, when it is due."""
        options = store.options
        limits = MergeLimits(options.max_concurrent_merges, options.min_pause_between_merges_ms)
        with self._changed:
            self._entries[store.instance] = ScheduledStore(store)
            self._queue.add(store.instance, limits, store.store_id.location)

    def remove(self, store: OpenStore) -> bool:
        """Note that the provider of a store was closed.

        A merge that publishes, and waits or runs, is still made within `mergeTimeout`, and a clean-up that is
        owed or runs comes to its end; the store is closed after them. Other merges are cancelled, and waited
        for during CLOSE_TIMEOUT_S.

        Returns:
            True if the store is closed later, False if the caller has to close it.
        """
        instance = store.instance
        with self._changed:
            entry = self._entries.get(instance)
            owed = self._queue.owed(instance)
            if entry is not None and owed is None:
                self._queue.remove(instance)
                self._cancel(entry)
            is_later = entry is not None and (owed is not None or entry.owes_cleanup)
            if entry is not None and is_later:
                limit_ms = 0 if owed is None else store.options.merge_timeout_ms
                entry.lingers_until_s = self._clock_s() + limit_ms / 1000
                store.head.provider_closed()
                self._wake()
            else:
                self._forget(instance)
        self._events.forget(instance)
        return is_later

    def _cancel(self, entry: ScheduledStore) -> None:
        """Cancel the merge of a store, and wait for its end for a while."""
        if entry.job is None:
            return
        entry.job.deadline.cancel("the store was closed")
        self._changed.wait_for(lambda: entry.job is None, timeout=CLOSE_TIMEOUT_S)

    def _forget(self, instance: int) -> None:
        self._entries.pop(instance, None)
        self._queue.remove(instance)

    def cleaned(self, store: OpenStore) -> None:
        """Note that Spark had the store cleaned up."""
        with self._changed:
            entry = self._entries.get(store.instance)
            if entry is not None:
                entry.is_cleaned = True

    # ---- requests ----------------------------------------------------------------------------------------

    def committed(self, store: OpenStore, before: Chain, *, memory_short: bool) -> None:
        """Note a commit, and ask for a merge of the version before if one is due or if memory is short.

        Args:
            store: The store.
            before: The chain of the version before, which is committed for certain now.
            memory_short: The data plane wants memory back.
        """
        version = before.version
        if version is None:
            return
        due = store.head.due(before)
        with self._changed:
            self._queue.advance(store.instance, version)
            if due is not None:
                self._ask(store, MergeRequest(version, due.kind, due.reason))
            if memory_short:
                self._ask(store, MergeRequest(version, INGEST, "memory is short"))
        if not store.log.isEnabledFor(logging.DEBUG):
            return
        store.log.debug(
            f"version {version} is committed for certain: "
            + (f"a {due.kind} merge is due, {due.reason}" if due else "no merge is due")
            + (", memory is short" if memory_short else "")
        )

    def _ask(self, store: OpenStore, request: MergeRequest) -> None:
        self._queue.ask(store.instance, request)
        for instance, entry in list(self._entries.items()):
            if entry.is_lingering and entry.store.store_id.location == store.store_id.location:
                self._queue.inherit(store.instance, instance)
        self._wake()

    def move(self, instance: int) -> None:
        """Ask for a base of the newest snapshot, since a base of the store reads files nobody else needs."""
        with self._changed:
            entry = self._entries.get(instance)
            version = None if entry is None or entry.is_lingering else entry.store.head.certain
            if entry is not None and version is not None:
                reason = "a newer snapshot has taken the place of files that are read"
                self._ask(entry.store, MergeRequest(version, INGEST, reason, moves=True))

    def wake(self) -> None:
        """Look for merges that became ready. Called when a lazy restore has ended, and from time to time."""
        with self._changed:
            self._wake()

    def full(self, store: OpenStore, request: FullRequest) -> FullAnswer:
        """Put a full checkpoint into the queue, within the limits of merges; its event tells how it ended.

        A version that is committed while it waits is merged in the place of the one asked for.

        Args:
            store: The store.
            request: The version, and why it is wanted.

        Returns:
            The version that was found, a later one if a snapshot of it was published meanwhile, and whether
            nothing has to be done because that snapshot is a full one.

        Raises:
            MissingError: The chain of the store has neither that version nor a later one.
        """
        chain = store.head.chain
        versions = [delta.name.version_id for delta in chain.deltas]
        if chain.snapshot is not None:
            versions.append(chain.snapshot.version_id)
        later = [version for version in versions if version.number >= request.number]
        version = min(later, key=lambda version: version.number, default=None)
        other = (
            version is not None
            and version.number == request.number
            and version.checkpoint_id != request.checkpoint_id
        )
        if version is None or (other and request.checkpoint_id is not None):
            raise MissingError(
                f"version {request.number} is not among those that this executor has of the store: it has "
                f"{', '.join(sorted(map(str, versions))) or 'none'}. Ask again after a batch"
            )
        snapshot = chain.snapshot
        if snapshot is not None and snapshot.kind == FULL and snapshot.version_id == version:
            return FullAnswer(version, "already")
        with self._changed:
            self._ask(store, MergeRequest(version, FULL, request.reason, by_name=True))
        return FullAnswer(version, "queued")

    def merge_now(self, store: OpenStore, request: MergeRequest) -> MergedStore | Skipped:
        """Make a merge in this thread, outside the limits.

        It begins when its files are local and no other merge of the store runs.

        Returns:
            The merge, or the reason why none was made.

        Raises:
            BusyError: The store is closed, or mergeTimeout passed.
            StateStoreError: The merge failed, which counts as a failure.
        """
        deadline = self._deadline(store, request)
        while True:
            job = self._start_when_ready(store, request, deadline)
            failure: BaseException | None = None
            try:
                job.run()
            except BaseException as error:
                failure = error
            end_safely(job, failure)
            if isinstance(failure, NotReady):
                continue
            if failure is not None:
                raise as_state_store_error(failure) from failure
            assert job.result is not None
            return job.result

    def _start_when_ready(self, store: OpenStore, request: MergeRequest, deadline: Deadline) -> MergeJob:
        instance = store.instance
        with self._changed:
            while True:
                entry = self._entries.get(instance)
                if entry is None or entry.is_lingering:
                    raise BusyError("the store is closed")
                if store.bases.has_hydrated and self._queue.start_now(instance, request):
                    return self._started(entry, request, deadline)
                deadline.check()
                self._changed.wait(deadline.left_s())

    # ---- jobs, taken under the lock ----------------------------------------------------------------------

    def _wake(self) -> None:
        """Let a thread look at the queue: there is one more than there are jobs under way."""
        self._workers.ensure(self._busy + 1)
        self._changed.notify_all()

    def _take(self) -> Job | None:
        while True:
            job = self._next()
            if job is not None:
                self._workers.ensure(self._busy + 1)
                return job
            if self._idle:
                return None
            self._idle += 1
            try:
                self._changed.wait(self._wait_s())
            finally:
                self._idle -= 1

    def _next(self) -> Job | None:
        now_s = self._clock_s()
        self._expire(now_s)
        next_request = self._queue.next(now_s, self._is_ready)
        if next_request is not None:
            instance, request = next_request
            entry = self._entries[instance]
            try:
                merging = self._started(entry, request, self._deadline(entry.store, request))
                merging.runs_in_worker = True
            except BaseException:
                self._queue.put_back(instance)
                raise
            job: Job = merging
        elif self._closing:
            job = self._close(self._closing.popleft())
        elif self._cleanups:
            job = self._clean_up(self._cleanups.popleft())
        else:
            return None
        self._busy += 1
        return job

    def _started(self, entry: ScheduledStore, request: MergeRequest, deadline: Deadline) -> MergeJob:
        entry.job = MergeJob(self, entry, request, deadline, self._clock_s())
        return entry.job

    def _make(self, job: MergeJob) -> None:
        job.result = self._merge(job.entry.store, job.request, job.deadline)

    def _close(self, entry: ScheduledStore) -> Job:
        store = entry.store
        closed = StoreClosed(store.instance)
        return self._upkeep(entry, "the close of a store", store.close, lambda: self._events.add(closed))

    def _clean_up(self, entry: ScheduledStore) -> Job:
        clean = self._clean
        assert clean is not None, "a clean-up is owed, and nobody makes it"
        return self._upkeep(entry, "a clean-up after a snapshot", lambda: clean(entry.store))

    def _upkeep(
        self,
        entry: ScheduledStore,
        subject: str,
        work: Callable[[], object],
        after: Callable[[], None] | None = None,
    ) -> Job:
        """Return the job of a work that is called `subject` in the log; `after` follows it, failed or not."""

        def begin() -> None:
            self._runtime.lower_priority()
            work()

        def report(failure: BaseException | None) -> None:
            if failure is not None:
                entry.store.log.warning(f"{subject} failed: {as_state_store_error(failure)}")
            if after is not None:
                after()

        return BackgroundJob(begin, lambda _: self._upkeep_ended(entry), report)

    def _is_ready(self, instance: int) -> bool:
        return self._entries[instance].store.bases.has_hydrated

    def _wait_s(self) -> float | None:
        now_s = self._clock_s()
        times = [
            entry.lingers_until_s - now_s
            for entry in self._entries.values()
            if entry.lingers_until_s is not None and entry.job is None
        ]
        queued_s = self._queue.wait_s(now_s)
        return min((max(0.0, time_s) for time_s in (*times, queued_s) if time_s is not None), default=None)

    def _expire(self, now_s: float) -> None:
        """Close the stores without a provider whose last merges are done, or have been awaited too long.

        Such a store lingers until then; a running job or a clean-up that is left to do keeps it open longer.
        """
        for instance, entry in list(self._entries.items()):
            if entry.lingers_until_s is None or entry.job is not None or entry.owes_cleanup:
                continue
            if now_s >= entry.lingers_until_s or self._queue.owed(instance) is None:
                self._closing.append(entry)
                self._forget(instance)

    # ---- ends of jobs ------------------------------------------------------------------------------------

    def _release(self, job: MergeJob, failure: BaseException | None) -> None:
        """Give back what a merge took, and note the number of failures in a row."""
        entry, instance, now_s = job.entry, job.entry.store.instance, self._clock_s()
        error = None if failure is None else as_state_store_error(failure)
        record = MergeRecord(job.request, now_s, now_s - job.started_s, error)
        succeeded = None if isinstance(job.result, Skipped) or job.deadline.cancelled else failure is None
        with self._changed:
            if entry.job is job:  # unless this failed half way before
                entry.job = None
                self._busy -= job.runs_in_worker
            if isinstance(failure, NotReady):
                self._queue.put_back(instance)
                job.failures = self._queue.failures(instance)
            else:
                job.failures = self._queue.ended(instance, now_s, succeeded=succeeded)
                if succeeded:
                    entry.last_made = record
                    self._owe_cleanup(entry, job)
                elif succeeded is False:
                    entry.last_failed = record
            self._wake()

    def _owe_cleanup(self, entry: ScheduledStore, job: MergeJob) -> None:
        """Clean up after a snapshot, unless Spark does so between one snapshot and the next."""
        if self._clean is None or not job.runs_in_worker or job.request.kind == INGEST:
            return
        if not entry.is_cleaned and not entry.owes_cleanup:
            entry.owes_cleanup = True
            self._cleanups.append(entry)
        entry.is_cleaned = False

    def _report(self, job: MergeJob, failure: BaseException | None) -> None:
        """Report the end of a merge: to the log, and as an event unless the provider is closed."""
        failures, store, request, result = job.failures, job.entry.store, job.request, job.result
        if isinstance(failure, NotReady):
            store.log.debug(f"the merge of version {request.version} waits: {failure}")
        elif job.deadline.cancelled and failure is not None:
            store.log.info(f"the merge of version {request.version} was cancelled: {failure}")
        elif failure is not None:
            error = as_state_store_error(failure)
            store.log.warning(
                f"a merge of version {request.version} ({request.kind}) failed, {failures} in a row; nothing "
                f"is lost, the chain of deltas stays longer: {error}"
            )
            if not job.entry.is_lingering:
                version = request.version.number
                self._events.add(
                    MergeFailed(store.instance, version, request.kind, request.reason, error, failures)
                )
        elif isinstance(result, Skipped):
            store.log.debug(f"a merge of version {request.version} was skipped: {result.why}")
        elif result is not None:
            self._offer(job, result)

    def _offer(self, job: MergeJob, result: MergedStore) -> None:
        """Give the base of a merge to the JVM; without a provider nobody takes it."""
        store = job.entry.store
        try:
            if not job.entry.is_lingering:
                ages, prediction = store.head.ages(), predict(store, result.chain)
                self._events.add(MergeEnded(store.instance, result, ages, prediction, job.failures))
                return
        except BaseException:
            job.result = None
            store.head.release(result.base.directory)
            raise
        store.head.release(result.base.directory)

    def _upkeep_ended(self, entry: ScheduledStore) -> None:
        with self._changed:
            self._busy -= 1
            entry.owes_cleanup = False
            self._wake()

    # ---- for people --------------------------------------------------------------------------------------

    def status(self, store: OpenStore) -> MergeStatus:
        """Return the merges of a store: the one that runs, those that wait, and the last ones that ended."""
        instance = store.instance
        with self._changed:
            now_s = self._clock_s()
            entry = self._entries.get(instance) or ScheduledStore(store)
            return MergeStatus(
                running=None if entry.job is None else entry.job.described(now_s),
                waiting=self._queue.waiting(instance, now_s),
                last_made=None if entry.last_made is None else entry.last_made.described(now_s),
                last_failed=None if entry.last_failed is None else entry.last_failed.described(now_s),
                failures_in_row=self._queue.failures(instance),
            )

    def _deadline(self, store: OpenStore, request: MergeRequest) -> Deadline:
        subject = f"the {request.kind} merge of version {request.version}"
        limit_ms = store.options.merge_timeout_ms
        return Deadline(subject, limit_ms, option=PREFIX + "mergeTimeout", runtime=self._runtime)
