"""Which merge of which store runs next: values and a clock that is passed in, no threads.

A store has at most one merge running and two waiting: one that publishes a snapshot and one of kind `ingest`,
which gives memory back. A later request for the same replaces the version, and the kind when it is stronger.
Merges that publish run at most as many at a time as the store's limit says, pause after each other, and are
put off after failures, each time for twice as long. Merges of kind `ingest` have the same limit for
themselves, so that they never wait for one that publishes, unless that is of the same store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from state_store.agent.merging import MergeRequest
from state_store.checkpoint.names import VersionId
from state_store.snapshots.merge import FULL, INGEST

LEAST_BACK_OFF_MS = 1000
MOST_BACK_OFF_MS = 600_000


@dataclass(frozen=True)
class MergeLimits:
    """What the options of a store's query allow."""

    concurrent: int
    pause_ms: int


@dataclass
class _Store:
    limits: MergeLimits
    order: int = 0
    publishing: MergeRequest | None = None
    ingest: MergeRequest | None = None
    running: MergeRequest | None = None
    claimed: bool = False
    not_before_s: float = 0.0
    ingest_not_before_s: float = 0.0
    failures: int = 0
    ingest_failures: int = 0


class MergeQueue:
    """See the module. Times are seconds of one monotonic clock. Not safe for threads: the caller locks."""

    def __init__(self) -> None:
        self._stores: dict[int, _Store] = {}
        self._asked = 0

    def add(self, store: int, limits: MergeLimits) -> None:
        self._stores[store] = _Store(limits)

    def remove(self, store: int) -> None:
        """Nothing of the store runs any more; unknown is fine."""
        self._stores.pop(store, None)

    def ask(self, store: int, request: MergeRequest) -> None:
        """Puts a request in the queue; one of a store that is not known (any more) is dropped."""
        one = self._stores.get(store)
        if one is None:
            return
        if one.publishing is None and one.ingest is None:
            self._asked += 1
            one.order = self._asked
        if request.kind == INGEST:
            one.ingest = request
        elif one.publishing is not None and one.publishing.kind == FULL:
            one.publishing = replace(one.publishing, version=request.version)
        else:
            one.publishing = request

    def advance(self, store: int, version: VersionId) -> None:
        """What waits for the store merges that version instead, which was committed since."""
        one = self._stores.get(store)
        if one is None:
            return
        one.publishing = one.publishing and replace(one.publishing, version=version)
        one.ingest = one.ingest and replace(one.ingest, version=version)

    def next(self, now_s: float) -> tuple[int, MergeRequest] | None:
        """The merge to start now; from then on it runs, until `ended`."""
        waiting = ((one.order, store) for store, one in self._stores.items() if one.publishing or one.ingest)
        for _, store in sorted(waiting):
            one = self._stores[store]
            request = self._ready(one, now_s)
            if request is not None:
                self._start(one, request)
                return store, request
        return None

    def wait_s(self, now_s: float) -> float | None:
        """How long until time alone makes another one ready; None when it does not."""
        times = [
            at_s - now_s
            for one in self._stores.values()
            if one.running is None
            for request, at_s in (
                (one.publishing, one.not_before_s),
                (one.ingest, one.ingest_not_before_s),
            )
            if request is not None and at_s > now_s
        ]
        return min(times, default=None)

    def claim(self, store: int, request: MergeRequest) -> bool:
        """Starts a merge that somebody waits for, outside the limits; false while another of it runs."""
        one = self._stores[store]
        if one.running is not None:
            return False
        one.running, one.claimed = request, True
        return True

    def ended(self, store: int, now_s: float, *, succeeded: bool | None) -> int:
        """The running merge of the store has ended; None: nothing was made, and nothing failed.

        A request that failed waits again, unless a newer one does or somebody waited for it. Failures in a
        row since then.
        """
        one = self._stores.get(store)
        if one is None or one.running is None:
            return 0
        request, claimed = one.running, one.claimed
        one.running, one.claimed = None, False
        if request.kind == INGEST:
            self._ended_ingest(one, request, now_s, succeeded)
        else:
            self._ended_publishing(one, request, now_s, succeeded)
            if claimed and one.publishing is request:
                one.publishing = None  # whoever asked for it was told
        return one.failures + one.ingest_failures

    def is_running(self, store: int) -> bool:
        one = self._stores.get(store)
        return one is not None and one.running is not None

    def describe(self, store: int, now_s: float) -> str:
        """Why what waits for a store does not run yet, for the log; empty when nothing waits."""
        one = self._stores.get(store)
        if one is None or one.publishing is None:
            return ""
        if one.running is not None:
            return f"a merge of kind {one.running.kind} of this store is running"
        if one.not_before_s > now_s:
            why = f"after {one.failures} failures in a row" if one.failures else "minPauseBetweenMerges"
            return f"it waits {one.not_before_s - now_s:.1f} s ({why})"
        return f"maxConcurrentMerges ({one.limits.concurrent}) merges are running"

    def _ready(self, one: _Store, now_s: float) -> MergeRequest | None:
        if one.running is not None:
            return None
        most = one.limits.concurrent
        if one.publishing is not None and now_s >= one.not_before_s and self._running(ingest=False) < most:
            return one.publishing
        if one.ingest is not None and now_s >= one.ingest_not_before_s and self._running(ingest=True) < most:
            return one.ingest
        return None

    def _start(self, one: _Store, request: MergeRequest) -> None:
        one.running = request
        one.ingest = None  # one that publishes gives memory back as well
        if request.kind != INGEST:
            one.publishing = None

    def _running(self, *, ingest: bool) -> int:
        """How many run of those that count for a limit: nobody waits for them."""
        return sum(
            one.running is not None and not one.claimed and (one.running.kind == INGEST) == ingest
            for one in self._stores.values()
        )

    def _ended_publishing(
        self, one: _Store, request: MergeRequest, now_s: float, succeeded: bool | None
    ) -> None:
        pause_s = one.limits.pause_ms / 1000
        if succeeded is False:
            one.failures += 1
            pause_s = _back_off_s(one.limits, one.failures)
            one.publishing = one.publishing or request
        elif succeeded:
            one.failures = 0
            if one.publishing is not None and (request.kind == FULL or one.publishing.kind != FULL):
                one.publishing = None  # asked for before this one was made; the next commit asks anew
        one.not_before_s = now_s + pause_s

    def _ended_ingest(self, one: _Store, request: MergeRequest, now_s: float, succeeded: bool | None) -> None:
        one.ingest_not_before_s = now_s
        if succeeded is False:
            one.ingest_failures += 1
            one.ingest_not_before_s = now_s + _back_off_s(one.limits, one.ingest_failures)
            one.ingest = one.ingest or request
        elif succeeded:
            one.ingest_failures = 0


def _back_off_s(limits: MergeLimits, failures: int) -> float:
    first_ms = max(LEAST_BACK_OFF_MS, limits.pause_ms)
    return min(MOST_BACK_OFF_MS, first_ms << min(failures - 1, 20)) / 1000
