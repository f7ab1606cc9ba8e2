"""Which merge of which store runs next: values and a clock that is passed in, no threads.

A store has at most one merge running and two waiting: one that publishes a snapshot and one of kind `ingest`,
which gives memory back. A later request for the same replaces the version, and the kind when it is stronger.
Merges that publish run at most as many at a time as the store's limit says, pause after each other, and are
put off after failures, each time for twice as long. Merges of kind `ingest` have the same limit for
themselves, so that they never wait for one that publishes, unless that is of the same store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from state_store.agent.merges.merging import MergeRequest
from state_store.core.checkpoint.names import VersionId
from state_store.core.snapshots.merge import FULL, INGEST

LEAST_BACK_OFF_MS = 1000
MOST_BACK_OFF_MS = 600_000


@dataclass(frozen=True)
class MergeLimits:
    """What the options of a store's query allow."""

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


class MergeQueue:
    """See the module. Times are seconds of one monotonic clock. Not safe for threads: the caller locks."""

    def __init__(self) -> None:
        self._stores: dict[int, _StoreMerges] = {}
        self._asked = 0

    def add(self, store: int, limits: MergeLimits) -> None:
        self._stores[store] = _StoreMerges(limits)

    def remove(self, store: int) -> None:
        """Nothing of the store starts any more; what runs counts until it has ended. Unknown is fine."""
        merges = self._stores.get(store)
        if merges is not None:
            merges.is_removed, merges.publishing, merges.ingest = True, None, None
            self._forget_if_over(store)

    def ask(self, store: int, request: MergeRequest) -> None:
        """Puts a request in the queue; one of a store that is not known (any more) is dropped."""
        merges = self._stores.get(store)
        if merges is None or merges.is_removed:
            return
        if merges.publishing is None and merges.ingest is None:
            self._asked += 1
            merges.order = self._asked
        if request.kind == INGEST:
            merges.ingest = request
        elif merges.publishing is not None and merges.publishing.kind == FULL:
            merges.publishing = replace(merges.publishing, version=request.version)
        else:
            merges.publishing = request

    def advance(self, store: int, version: VersionId) -> None:
        """What waits for the store merges that version instead, which was committed since."""
        merges = self._stores.get(store)
        if merges is None:
            return
        merges.publishing = merges.publishing and replace(merges.publishing, version=version)
        merges.ingest = merges.ingest and replace(merges.ingest, version=version)

    def next(self, now_s: float) -> tuple[int, MergeRequest] | None:
        """The merge to start now; from then on it runs, until `ended`."""
        waiting = (
            (merges.order, store)
            for store, merges in self._stores.items()
            if merges.publishing or merges.ingest
        )
        for _, store in sorted(waiting):
            merges = self._stores[store]
            request = self._ready(merges, now_s)
            if request is not None:
                self._start(merges, request)
                return store, request
        return None

    def wait_s(self, now_s: float) -> float | None:
        """How long until time alone makes another one ready; None when it does not."""
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
        """Starts a merge that somebody waits for, outside the limits; false while another of it runs."""
        merges = self._stores[store]
        if merges.running is not None:
            return False
        merges.running, merges.awaited = request, True
        return True

    def ended(self, store: int, now_s: float, *, succeeded: bool | None) -> int:
        """The running merge of the store has ended; None: nothing was made, and nothing failed.

        A request that failed waits again, unless a newer one does or somebody waited for it. Failures in a
        row since then.
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
                merges.publishing = None  # whoever asked for it was told
        return merges.failures + merges.ingest_failures

    def _forget_if_over(self, store: int) -> bool:
        """Forgets a store that was removed and of which nothing runs any more; whether it was one."""
        merges = self._stores[store]
        is_over = merges.is_removed and merges.running is None
        if is_over:
            del self._stores[store]
        return is_over

    def is_running(self, store: int) -> bool:
        merges = self._stores.get(store)
        return merges is not None and merges.running is not None

    def running(self, store: int) -> MergeRequest | None:
        """Return the merge of the store that runs."""
        merges = self._stores.get(store)
        return merges.running if merges is not None else None

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
        return Waiting(request, f"maxConcurrentMerges ({merges.limits.concurrent}) merges are running", None)

    def _ready(self, merges: _StoreMerges, now_s: float) -> MergeRequest | None:
        if merges.running is not None:
            return None
        most = merges.limits.concurrent
        if (
            merges.publishing is not None
            and now_s >= merges.not_before_s
            and self._running(ingest=False) < most
        ):
            return merges.publishing
        if (
            merges.ingest is not None
            and now_s >= merges.ingest_not_before_s
            and self._running(ingest=True) < most
        ):
            return merges.ingest
        return None

    def _start(self, merges: _StoreMerges, request: MergeRequest) -> None:
        merges.running = request
        merges.ingest = None  # one that publishes gives memory back as well
        if request.kind != INGEST:
            merges.publishing = None

    def _running(self, *, ingest: bool) -> int:
        """How many run of those that count for a limit: nobody waits for them."""
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
    first_ms = max(LEAST_BACK_OFF_MS, limits.pause_ms)
    return min(MOST_BACK_OFF_MS, first_ms << min(failures - 1, 20)) / 1000
