"""Merges of all stores of an executor: found due after a commit, queued, run in threads, reported as events.

Only versions that Spark has committed are merged: the commit of version v proves v - 1, on which it builds. A
version of a batch that failed is thus never merged, whatever is due. (A snapshot that Spark asks for itself
is one of the version just committed.)

A merge is owed to the store, not to its provider: when the JVM closes a provider, a merge that was due or
runs is made all the same, because the next provider may not live long enough for one. The new provider takes
over the place in the queue. A clean-up is owed after each snapshot, unless Spark asked for one meanwhile.

Nothing here survives the agent, and nothing has to: the next commit finds out what is due.

A job of the merge threads is a merge, or the upkeep that follows merges and closed providers. It does its
work outside the scheduler's lock, and hands its end back to the scheduler exactly once. Events of merges and
stores are kept until the JVM has acknowledged them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

from state_store.agent.merges.merging import MergeLimits, MergeQueue, MergeRequest, NotReady, merge_store
from state_store.agent.messages import (
    EndedMerge,
    Event,
    FullAsked,
    FullRequest,
    MergedStore,
    MergeEnded,
    MergeFailed,
    MergeStatus,
    RunningMerge,
    Skipped,
    StoreClosed,
)
from state_store.agent.open_store import OpenStore, predict
from state_store.agent.supervision import (
    BackgroundJob,
    Job,
    WorkerThreads,
    as_state_store_error,
    end_safely,
    lower_priority,
)
from state_store.core.checkpoint.lineage import Chain
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.snapshots.merge import FULL, INGEST
from state_store.core.storage.contract import Deadline
from state_store.errors import BusyError, MissingError, StateStoreError

MAX_EVENTS = 100_000
"""Events that nobody fetches are those of a JVM that is gone; the oldest are dropped."""

Merge = Callable[[OpenStore, MergeRequest, Deadline], Union[MergedStore, Skipped]]

CLOSE_TIMEOUT_S = 5.0
"""Time that the close of a store waits for its merge to stop."""


class EventLog:
    """The events that the JVM has not yet acknowledged, oldest first. Safe for any thread.

    Events are numbered. The JVM polls with the number of the last that it has handled, so that none is lost
    when a connection breaks between.
    """

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        self._changed = runtime.condition()
        self._events: deque[tuple[int, Event]] = deque(maxlen=MAX_EVENTS)
        self._last = 0

    def add(self, event: Event) -> None:
        """Add an event under the next number, and wake the calls that wait for it."""
        with self._changed:
            self._events.append((self._last + 1, event))
            self._last += 1
            self._changed.notify_all()

    def after(self, number: int, *, wait_s: float) -> list[tuple[int, Event]]:
        """Forget the events up to `number`, and return the later ones, each with its number.

        Waits for the first of them, at most `wait_s` seconds, then returns none.
        """
        with self._changed:
            while self._events and self._events[0][0] <= number:
                self._events.popleft()
            self._changed.wait_for(lambda: bool(self._events), timeout=wait_s)
            return list(self._events)

    def forget(self, store: int) -> None:
        """Drop the events of a store that is closed."""
        with self._changed:
            self._events = deque(
                ((number, event) for number, event in self._events if event.store != store),
                maxlen=MAX_EVENTS,
            )


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
    """A store of the scheduler: its running merge, its last ones, and the work that is owed to it."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store
        self.job: MergeJob | None = None
        self.made: MergeRecord | None = None
        self.failed: MergeRecord | None = None
        self.is_cleaned = False
        self.owes_cleanup = False
        self.lingers_until_s: float | None = None

    @property
    def is_lingering(self) -> bool:
        """True if the provider is closed, and the store waits for a merge that is owed."""
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
        self.entry = entry
        self.request = request
        self.deadline = deadline
        self.started_s = started_s
        self.is_in_crew = False
        self.result: MergedStore | Skipped | None = None
        self.failures = 0

    def run(self) -> None:
        """Make the merge: in a worker thread as other jobs, and for somebody who waits at once."""
        if self.is_in_crew:
            lower_priority()
            super().run()
        else:
            self._work()

    def described(self, now_s: float) -> RunningMerge:
        """Return the merge as a status has it at the time `now_s`."""
        request = self.request
        return RunningMerge(request.version, request.kind, request.reason, (now_s - self.started_s) * 1000)


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

        A merge that publishes, and waits or runs, is still made within `mergeTimeout`; the store is closed
        after it. Other merges are cancelled, and waited for during CLOSE_TIMEOUT_S.

        Returns:
            True if the store is closed later, False if the caller has to close it.
        """
        instance = store.instance
        with self._changed:
            entry = self._entries.get(instance)
            owed = self._queue.owed(instance)
            if entry is not None and owed is not None:
                entry.lingers_until_s = self._clock_s() + store.options.merge_timeout_ms / 1000
                store.head.provider_closed()
                self._wake()
            else:
                self._cancel(entry)
                self._forget(instance)
        self._events.forget(instance)
        return owed is not None

    def _cancel(self, entry: ScheduledStore | None) -> None:
        """Cancel the merge of a store, and wait for its end for a while."""
        if entry is None or entry.job is None:
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

    def full(self, store: OpenStore, request: FullRequest) -> FullAsked:
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
            return FullAsked(version, "already")
        with self._changed:
            self._ask(store, MergeRequest(version, FULL, request.reason, by_name=True))
        return FullAsked(version, "queued")

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
                if store.bases.is_settled and self._queue.start_now(instance, request):
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
                merging.is_in_crew = True
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
            lower_priority()
            work()

        def report(failure: BaseException | None) -> None:
            if failure is not None:
                entry.store.log.warning(f"{subject} failed: {as_state_store_error(failure)}")
            if after is not None:
                after()

        return BackgroundJob(begin, lambda _: self._upkeep_ended(entry), report)

    def _is_ready(self, instance: int) -> bool:
        return self._entries[instance].store.bases.is_settled

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
                self._busy -= job.is_in_crew
            if isinstance(failure, NotReady):
                self._queue.put_back(instance)
                job.failures = self._queue.failures(instance)
            else:
                job.failures = self._queue.ended(instance, now_s, succeeded=succeeded)
                if succeeded:
                    entry.made = record
                    self._owe_cleanup(entry, job)
                elif succeeded is False:
                    entry.failed = record
            self._wake()

    def _owe_cleanup(self, entry: ScheduledStore, job: MergeJob) -> None:
        """Clean up after a snapshot, unless Spark does so between one snapshot and the next."""
        if self._clean is None or not job.is_in_crew or job.request.kind == INGEST:
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
                last_made=None if entry.made is None else entry.made.described(now_s),
                last_failed=None if entry.failed is None else entry.failed.described(now_s),
                failures_in_row=self._queue.failures(instance),
            )

    def _deadline(self, store: OpenStore, request: MergeRequest) -> Deadline:
        subject = f"the {request.kind} merge of version {request.version}"
        limit_ms = store.options.merge_timeout_ms
        return Deadline(subject, limit_ms, option=PREFIX + "mergeTimeout", runtime=self._runtime)
