"""The order of merges: values and a clock that is passed in, no threads.

A store has at most one merge running and two waiting: one that publishes a snapshot and one of kind `ingest`,
which gives memory back. A later request of the same sort replaces the version, and the kind if it is
stronger. Merges that publish run at most as many at a time as the store's limit says, pause after each other,
and are delayed after failures, each time for twice as long. Merges of kind `ingest` have the same limit for
themselves, so that they never wait for one that publishes, unless that is of the same store.

A merge whose files are still being fetched is not ready: it takes no slot, has no deadline and does not fail.
Stores of one group are the providers of one location, of which one merges at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from state_store.core.checkpoint.names import VersionId
from state_store.core.snapshots.merge import FULL, INGEST

MIN_BACK_OFF_MS = 1000
MAX_BACK_OFF_MS = 600_000

IsReady = Callable[[int], bool]


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
        unready = 0
        for store in sorted(self._waiting_stores(), key=lambda store: self._stores[store].order):
            merges = self._stores[store]
            merges.needs_files = False
            request = None if merges.group in busy else self._eligible(merges, now_s)
            if request is None:
                continue
            if request.moves or is_ready(store):
                self._start(merges, request)
                return store, request
            merges.needs_files = unready < merges.limits.concurrent
            unready += 1
        return None

    @property
    def in_need(self) -> list[int]:
        """Stores that would merge now if their files were local: as many as may merge at a time."""
        return [store for store, merges in self._stores.items() if merges.needs_files]

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
