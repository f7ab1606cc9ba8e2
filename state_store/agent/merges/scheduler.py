"""Merges of all stores of an executor: found due after a commit, queued, run in threads, reported as events.

Only versions that Spark has committed are merged: the commit of version v proves v - 1, on which it builds. A
version of a batch that failed is thus never merged, whatever is due. (A snapshot that Spark asks for itself
is one of the version just committed.)

Nothing here survives the agent, and nothing has to: the next commit finds out what is due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Union

from state_store.agent.events import EventLog
from state_store.agent.failures import as_state_store_error
from state_store.agent.files import background
from state_store.agent.merges.merge_queue import MergeLimits, MergeQueue
from state_store.agent.merges.merging import MergeRequest, merge_store
from state_store.agent.merges.priority import lower_priority
from state_store.agent.open_store import OpenStore
from state_store.agent.wire.answers import FullAsked, MergedStore, MergeEnded, MergeFailed, Skipped
from state_store.agent.wire.requests import FullRequest
from state_store.agent.wire.status import EndedMerge, MergeStatus, RunningMerge, WaitingMerge
from state_store.core.files.deadline import Deadline
from state_store.core.planning.chain import Chain
from state_store.core.runtime import SYSTEM, Running, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.snapshots.merge import FULL, INGEST
from state_store.errors import BusyError, MissingError, StateStoreError

CLOSE_TIMEOUT_S = 5.0
"""How long the close of a store waits for its merge to stop."""

Merge = Callable[[OpenStore, MergeRequest, Deadline], Union[MergedStore, Skipped]]


@dataclass(frozen=True)
class _Record:
    request: MergeRequest
    ended_s: float
    took_s: float
    failure: StateStoreError | None


@dataclass
class _Records:
    """Merges of one store, for `status`."""

    started_s: float = 0.0
    made: _Record | None = None
    failed: _Record | None = None


def _ended(record: _Record | None, now_s: float) -> EndedMerge | None:
    if record is None:
        return None
    request = record.request
    return EndedMerge(
        request.version,
        request.kind,
        request.reason,
        (now_s - record.ended_s) * 1000,
        record.took_s * 1000,
        record.failure,
    )


class MergeScheduler:
    """Runs the merges of the stores that were added. Safe for any thread. `merge` makes one."""

    def __init__(
        self,
        events: EventLog,
        *,
        merge: Merge = merge_store,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._events = events
        self._merge = merge
        self._runtime = runtime
        self._clock_s = runtime.monotonic_s
        self._changed = runtime.condition()
        self._queue = MergeQueue()
        self._stores: dict[int, OpenStore] = {}
        self._deadlines: dict[int, Deadline] = {}
        self._records: dict[int, _Records] = {}
        self._dispatcher: Running | None = None

    def add(self, store: OpenStore) -> None:
        options = store.options
        limits = MergeLimits(options.max_concurrent_merges, options.min_pause_between_merges_ms)
        with self._changed:
            self._stores[store.instance] = store
            self._records[store.instance] = _Records()
            self._queue.add(store.instance, limits)

    def remove(self, store: OpenStore) -> None:
        """No merge of the store starts any more; one that runs is cancelled, and waited for, for a while."""
        with self._changed:
            self._stores.pop(store.instance, None)
            deadline = self._deadlines.get(store.instance)
            if deadline is not None:
                deadline.cancel("the store was closed")
            self._changed.wait_for(
                lambda: not self._queue.is_running(store.instance), timeout=CLOSE_TIMEOUT_S
            )
            self._queue.remove(store.instance)
            self._records.pop(store.instance, None)
        self._events.forget(store.instance)

    def committed(self, store: OpenStore, before: Chain, *, memory_short: bool) -> None:
        """A version after the one that `before` ends at was committed: that one is merged if it is due, or if
        memory is short.
        """
        version = before.version
        if version is None:
            return
        due = store.head.due(before)
        with self._changed:
            self._queue.advance(store.instance, version)
            if due is not None:
                self._queue.ask(store.instance, MergeRequest(version, due.kind, due.reason))
            if memory_short:
                self._queue.ask(store.instance, MergeRequest(version, INGEST, "memory is short"))
            if due is not None or memory_short:
                self._dispatch_soon()
        if not store.log.isEnabledFor(logging.DEBUG):
            return
        store.log.debug(
            f"version {version} is committed for certain: "
            + (f"a {due.kind} merge is due, {due.reason}" if due else "no merge is due")
            + (", memory is short" if memory_short else "")
        )

    def merge_now(self, store: OpenStore, request: MergeRequest) -> MergedStore | Skipped:
        """Makes a merge in this thread, outside the limits, after one of the same store that runs.

        Raises what the merge raises, which counts as a failure; BusyError past mergeTimeout.
        """
        deadline = self._deadline(store, request)
        with self._changed:
            while store.instance not in self._stores or not self._queue.start_now(store.instance, request):
                if store.instance not in self._stores:
                    raise BusyError("the store is closed")
                deadline.check()
                self._changed.wait(deadline.left_s())
            self._deadlines[store.instance] = deadline
        return self._run(store, request, deadline)

    def full(self, store: OpenStore, asked: FullRequest) -> FullAsked:
        """Put a full checkpoint into the queue, within the limits of merges; its event tells how it ended.

        A version that is committed while it waits is merged in the place of the one asked for.

        Args:
            store: The store.
            asked: The version, and why it is wanted.

        Returns:
            The version that was found, a later one if a snapshot of it was published meanwhile, and whether
            nothing has to be done because that snapshot is a full one.

        Raises:
            MissingError: The chain of the store has neither that version nor a later one.
        """
        chain = store.head.chain
        known = [delta.name.version_id for delta in chain.deltas]
        if chain.snapshot is not None:
            known.append(chain.snapshot.version_id)
        later = [version for version in known if version.number >= asked.number]
        version = min(later, key=lambda version: version.number, default=None)
        other = (
            version is not None
            and version.number == asked.number
            and version.checkpoint_id != asked.checkpoint_id
        )
        if version is None or (other and asked.checkpoint_id is not None):
            raise MissingError(
                f"version {asked.number} is not among those that this executor has of the store: it has "
                f"{', '.join(sorted(str(version) for version in known)) or 'none'}. Ask again after a batch"
            )
        snapshot = chain.snapshot
        if snapshot is not None and snapshot.kind == FULL and snapshot.version_id == version:
            return FullAsked(version, "already")
        with self._changed:
            self._queue.ask(store.instance, MergeRequest(version, FULL, asked.reason))
            self._dispatch_soon()
        return FullAsked(version, "queued")

    def _dispatch_soon(self) -> None:
        if self._dispatcher is None:
            self._dispatcher = self._runtime.start(self._dispatch, name="merges")
        self._changed.notify_all()

    def _dispatch(self) -> None:
        while True:
            with self._changed:
                entry = self._queue.next(self._clock_s())
                if entry is None:
                    self._changed.wait(self._queue.wait_s(self._clock_s()))
                    continue
                instance, request = entry
                store = self._stores.get(instance)
                if store is None:
                    self._queue.ended(instance, self._clock_s(), succeeded=None)
                    continue
                deadline = self._deadlines[instance] = self._deadline(store, request)
            run = partial(self._run_in_background, store, request, deadline)
            self._runtime.start(run, name=f"merge-{instance}")

    def _run_in_background(self, store: OpenStore, request: MergeRequest, deadline: Deadline) -> None:
        lower_priority()
        try:
            with background():
                self._run(store, request, deadline)
        except StateStoreError:
            return  # told as an event

    def _run(self, store: OpenStore, request: MergeRequest, deadline: Deadline) -> MergedStore | Skipped:
        """Makes the merge that the queue has as running; what comes of it becomes an event, too."""
        self._started(store)
        try:
            result = self._merge(store, request, deadline)
        except BaseException as error:
            failure = as_state_store_error(error)
            self._failed(store, request, deadline, failure)
            raise failure from error
        if not isinstance(result, Skipped):
            self._record(store, request, None)
        failures = self._ended(store, succeeded=None if isinstance(result, Skipped) else True)
        if isinstance(result, Skipped):
            store.log.debug(f"a merge of version {request.version} was skipped: {result.why}")
        else:
            self._events.add(MergeEnded(store.instance, result, store.head.ages(), failures))
        return result

    def _failed(
        self, store: OpenStore, request: MergeRequest, deadline: Deadline, failure: StateStoreError
    ) -> None:
        if deadline.cancelled:
            self._ended(store, succeeded=None)
            store.log.info(f"the merge of version {request.version} was cancelled: {failure}")
            return
        self._record(store, request, failure)
        failures = self._ended(store, succeeded=False)
        store.log.warning(
            f"a merge of version {request.version} ({request.kind}) failed, {failures} in a row; nothing is "
            f"lost, the chain of deltas stays longer: {failure}"
        )
        event = MergeFailed(
            store.instance, request.version.number, request.kind, request.reason, failure, failures
        )
        self._events.add(event)

    def _started(self, store: OpenStore) -> None:
        with self._changed:
            records = self._records.get(store.instance)
            if records is not None:
                records.started_s = self._clock_s()

    def _record(self, store: OpenStore, request: MergeRequest, failure: StateStoreError | None) -> None:
        """Note the end of a merge for `status`."""
        with self._changed:
            records = self._records.get(store.instance)
            if records is None:
                return
            now_s = self._clock_s()
            record = _Record(request, now_s, now_s - records.started_s, failure)
            if failure is None:
                records.made = record
            else:
                records.failed = record

    def _ended(self, store: OpenStore, *, succeeded: bool | None) -> int:
        with self._changed:
            self._deadlines.pop(store.instance, None)
            failures = self._queue.ended(store.instance, self._clock_s(), succeeded=succeeded)
            waiting = self._queue.waiting(store.instance, self._clock_s())
            self._changed.notify_all()
        for entry in waiting:
            store.log.debug(f"another merge is due: {entry.why}")
        return failures

    def status(self, store: OpenStore) -> MergeStatus:
        """Return the merges of a store: the one that runs, those that wait, and the last ones that ended."""
        instance = store.instance
        with self._changed:
            now_s = self._clock_s()
            request, records = self._queue.running(instance), self._records.get(instance, _Records())
            return MergeStatus(
                running=None
                if request is None
                else RunningMerge(
                    request.version, request.kind, request.reason, (now_s - records.started_s) * 1000
                ),
                waiting=[
                    WaitingMerge(
                        entry.request.version,
                        entry.request.kind,
                        entry.request.reason,
                        entry.why,
                        None if entry.ready_in_s is None else entry.ready_in_s * 1000,
                    )
                    for entry in self._queue.waiting(instance, now_s)
                ],
                last_made=_ended(records.made, now_s),
                last_failed=_ended(records.failed, now_s),
                failures_in_row=self._queue.failures(instance),
            )

    def ask(self, store: OpenStore, request: MergeRequest) -> MergeRequest:
        """Put a merge that a person asked for into the queue; it keeps to the limits, and waits its turn.

        Returns:
            The request as it waits now, perhaps joined with one that waited before: the same or a newer
            version, the same or a stronger kind.

        Raises:
            BusyError: The store is closed.
        """
        with self._changed:
            self._queue.ask(store.instance, request)
            entries = self._queue.waiting(store.instance, self._clock_s())
            self._dispatch_soon()
        for entry in entries:
            if entry.request.kind != INGEST:
                return entry.request
        raise BusyError("the store is closed")

    def _deadline(self, store: OpenStore, request: MergeRequest) -> Deadline:
        what, limit_ms = (
            f"the {request.kind} merge of version {request.version}",
            store.options.merge_timeout_ms,
        )
        return Deadline(what, limit_ms, option=PREFIX + "mergeTimeout", runtime=self._runtime)
