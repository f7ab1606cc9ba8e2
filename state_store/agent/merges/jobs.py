"""Jobs of the merge threads: a merge, and the upkeep that follows merges and closed providers.

A job does its work outside the scheduler's lock, and hands its end back to the scheduler exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

from state_store.agent.jvm_connections import background
from state_store.agent.merges.merge_queue import MergeRequest
from state_store.agent.open_store import OpenStore
from state_store.agent.supervision import as_state_store_error, lower_priority
from state_store.agent.wire.answers import EndedMerge, MergedStore, RunningMerge, Skipped
from state_store.core.files.deadline import Deadline
from state_store.errors import StateStoreError

Merge = Callable[[OpenStore, MergeRequest, Deadline], Union[MergedStore, Skipped]]


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


class MergeJob:
    """A merge that the queue has as running.

    Args:
        entry: The store.
        request: The merge that is made.
        deadline: The time until which it may take.
        started_s: The time at which it began.
        merge: Makes it.
        release: Gives back what the merge took, given its failure or None, and returns the number of
            failures in a row. Takes the scheduler's lock.
        report: Reports the end of the merge, given its failure or None and the failures in a row.
    """

    def __init__(
        self,
        entry: ScheduledStore,
        request: MergeRequest,
        deadline: Deadline,
        started_s: float,
        *,
        merge: Merge,
        release: Callable[[MergeJob, BaseException | None], int],
        report: Callable[[MergeJob, BaseException | None, int], None],
    ) -> None:
        self.entry = entry
        self.request = request
        self.deadline = deadline
        self.started_s = started_s
        self.is_in_crew = False
        self.result: MergedStore | Skipped | None = None
        self._merge = merge
        self._release = release
        self._report = report
        self._failures: int | None = None
        self._is_reported = False

    def run(self) -> None:
        """Make the merge, in a thread of the crew with lower priority and as background work."""
        if not self.is_in_crew:
            self.result = self._merge(self.entry.store, self.request, self.deadline)
            return
        lower_priority()
        with background():
            self.result = self._merge(self.entry.store, self.request, self.deadline)

    def end(self, failure: BaseException | None) -> float:
        """Release and report the merge, each once, even if this is called again after an error."""
        if self._failures is None:
            self._failures = self._release(self, failure)
        if not self._is_reported:
            self._report(self, failure, self._failures)
            self._is_reported = True
        return 0.0

    def described(self, now_s: float) -> RunningMerge:
        """Return the merge as a status has it at the time `now_s`."""
        request = self.request
        return RunningMerge(request.version, request.kind, request.reason, (now_s - self.started_s) * 1000)


class UpkeepJob:
    """Work on a store that follows a merge, or the close of its provider.

    Args:
        entry: The store.
        subject: The noun for the work in the log.
        work: Does it.
        release: Gives back what the job took. Takes the scheduler's lock.
        after: Is called when the job has ended, failed or not; None: nothing is.
    """

    def __init__(
        self,
        entry: ScheduledStore,
        subject: str,
        work: Callable[[], object],
        *,
        release: Callable[[ScheduledStore], None],
        after: Callable[[], None] | None = None,
    ) -> None:
        self._entry = entry
        self._subject = subject
        self._work = work
        self._release = release
        self._after = after
        self._is_released = False

    def run(self) -> None:
        """Do the work with lower priority, as background work."""
        lower_priority()
        with background():
            self._work()

    def end(self, failure: BaseException | None) -> float:
        """Release the job once, and log its failure."""
        if not self._is_released:
            self._release(self._entry)
            self._is_released = True
        if failure is not None:
            self._entry.store.log.warning(f"{self._subject} failed: {as_state_store_error(failure)}")
        if self._after is not None:
            self._after()
        return 0.0
