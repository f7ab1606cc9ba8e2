"""Times of requests to remote storage, fitted to those of restores, and times of many requests together.

A request takes a fixed time, which depends on its kind, and a time for each byte. A regression over the
requests of all kinds that carry bytes finds both; recent requests weigh most. Requests are measured while
others run, so the times include a network or a service that they share.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

LIST, READ, DOWNLOAD, PART = "list", "read", "download", "part"
"""Kinds of requests: a listing, a file into memory, a file to disk, a part of a file to disk."""

_OPENS = 2
"""Listings that take as long as a read: a read asks for the file first, and then for its bytes."""

_LEASE_REQUESTS = 4
"""Requests for the lease on files that stay remote: a write and three listings, each as long as a listing."""

SMALL_AT_ONCE = 2
"""Small requests that run at once for each large one: they wait for the storage, not for bytes."""

_DECAY = 0.97
_MIB = 1 << 20
_PRIOR_WEIGHT = 1.0
"""Weight of the prior rate in the regression, as a sum of squared deviations of sizes, in MiB^2."""


@dataclass
class _Sums:
    """Sums over the requests of a kind: number, MiB, milliseconds, and the products for a regression."""

    count: float = 0.0
    mib: float = 0.0
    ms: float = 0.0
    mib_mib: float = 0.0
    mib_ms: float = 0.0

    def add(self, mib: float, ms: float) -> None:
        self.count = self.count * _DECAY + 1
        self.mib = self.mib * _DECAY + mib
        self.ms = self.ms * _DECAY + ms
        self.mib_mib = self.mib_mib * _DECAY + mib * mib
        self.mib_ms = self.mib_ms * _DECAY + mib * ms


@dataclass(frozen=True)
class RequestLine:
    """Time of requests of a kind: `request_ms`, and `mib_ms` for each MiB."""

    request_ms: float
    mib_ms: float

    def ms(self, size_bytes: float) -> float:
        """Return the time of a request for this many bytes."""
        return self.request_ms + size_bytes / _MIB * self.mib_ms


class RequestTimes:
    """Times of the requests to one storage, shared by all stores of a process. Safe for any thread.

    Args:
        lock: is held during each access.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._sums: dict[str, _Sums] = {}
        self._ends, self._end_requests = 1.0, 1.0

    def observe(self, kind: str, size_bytes: int, ms: float) -> None:
        """Note that a request fetched this many bytes in `ms`."""
        with self._lock:
            self._sums.setdefault(kind, _Sums()).add(size_bytes / _MIB, ms)

    def observe_ends(self, files: int, requests: int) -> None:
        """Note that the ends of `files` files (one or more) took this many requests, one or two for each."""
        with self._lock:
            self._ends = self._ends * _DECAY + files
            self._end_requests = self._end_requests * _DECAY + requests

    @property
    def requests_per_end(self) -> float:
        """Average number of requests for the end of a file."""
        with self._lock:
            return self._end_requests / self._ends

    @property
    def are_known(self) -> bool:
        """True once a request was noted."""
        return bool(self._sums)

    def copy(self) -> RequestTimes:
        """Return a copy that later requests do not change."""
        with self._lock:
            found = RequestTimes(self._lock)
            found._sums = copy.deepcopy(self._sums)
            found._ends, found._end_requests = self._ends, self._end_requests
            return found

    def line(self, kind: str, expected_mib_ms: float) -> RequestLine:
        """Return the time of requests of that kind; for a kind that was not noted, that of the others.

        Args:
            kind: the kind of the requests.
            expected_mib_ms: prior of the time for each MiB.
        """
        with self._lock:
            own, listed = self._sums.get(kind), self._sums.get(LIST)
            if kind == LIST:
                return RequestLine(own.ms / own.count if own else 0.0, 0.0)
            carried = [sums for name, sums in self._sums.items() if name != LIST]
            mib_ms = _slope(carried, expected_mib_ms)
            known = [own] if own else carried
            if known:
                count, mib, ms = (sum(getattr(sums, of) for sums in known) for of in ("count", "mib", "ms"))
                request_ms = (ms - mib * mib_ms) / count
                return RequestLine(request_ms, mib_ms) if request_ms >= 0 else RequestLine(0.0, ms / mib)
            return RequestLine(_OPENS * listed.ms / listed.count if listed else 0.0, mib_ms)


def _slope(carried: Sequence[_Sums], expected_mib_ms: float) -> float:
    """Return milliseconds per MiB, 0 or more; the prior weighs as much as a few small requests."""
    count, mib, ms, mib_mib, mib_ms = (
        sum(getattr(sums, of) for sums in carried) for of in ("count", "mib", "ms", "mib_mib", "mib_ms")
    )
    if not count:
        return expected_mib_ms
    spread, common = mib_mib - mib * mib / count, mib_ms - mib * ms / count
    return max(0.0, (common + _PRIOR_WEIGHT * expected_mib_ms) / (max(0.0, spread) + _PRIOR_WEIGHT))


@dataclass(frozen=True)
class RemoteTransfers:
    """Model of fetches from remote storage: the way that files come and the time that it takes.

    Attributes:
        times: times of the requests.
        threads: requests at a time.
        part_bytes: larger files are fetched in parts of about this size.
        least_sparse_bytes: a lazy restore fetches smaller deltas as a whole.
    """

    times: RequestTimes
    threads: int
    part_bytes: int
    least_sparse_bytes: int

    def choice_ms(self, archives: int, *, is_lazy: bool = False) -> float:
        """Return the time until it is known which files are needed: two listings and the first archive.

        Other archives are read while files are fetched. A lazy restore takes a lease on the files, too.
        """
        archive_ms = self.times.line(READ, 0.0).request_ms if archives else 0.0
        requests = 2 + _LEASE_REQUESTS * is_lazy
        return requests * self.times.line(LIST, 0.0).request_ms + archive_ms

    def files_ms(self, sizes: Iterable[int], stream_mib_ms: float) -> float:
        """Return the time to fetch files of these sizes (bytes) as a whole."""
        known = list(sizes)
        large = [size for size in known if size > self.part_bytes]
        small = [size for size in known if size <= self.part_bytes]
        parts = sum(max(1, (size + self.part_bytes // 2) // self.part_bytes) for size in large)
        part, file = (self.times.line(kind, stream_mib_ms) for kind in (PART, DOWNLOAD))
        part_ms, small_ms = part.ms(sum(large) / max(1, parts)), file.ms(sum(small) / max(1, len(small)))
        longest_ms = part.ms(self.part_bytes) if large else file.ms(max(small, default=0)) if small else 0.0
        return max(longest_ms, _rounds_ms(self.threads, parts, part_ms, len(small), small_ms))

    def ends_ms(
        self,
        tables: Sequence[int],
        deltas: Sequence[int],
        end_bytes: Callable[[int], int],
        stream_mib_ms: float,
    ) -> float:
        """Return the time to fetch the ends of files of these sizes (bytes), and small deltas as a whole."""
        sparse = [*tables, *(size for size in deltas if size >= self.least_sparse_bytes)]
        small = [size for size in deltas if size < self.least_sparse_bytes]
        line, more = self.times.line(PART, stream_mib_ms), self.times.requests_per_end - 1
        ends_ms = [line.ms(end_bytes(size)) + more * line.request_ms for size in sparse]
        average_ms = sum(ends_ms) / max(1, len(ends_ms))
        at_once = SMALL_AT_ONCE * self.threads
        small_ms = self.files_ms(small, stream_mib_ms) if small else 0.0
        return max(_rounds_ms(at_once, len(sparse), average_ms, 0, 0.0), small_ms, *ends_ms)


def _rounds_ms(threads: int, large: int, large_ms: float, small: int, small_ms: float) -> float:
    """Return the time until all requests are done, `threads` at a time, the large ones first."""
    rounds, rest = divmod(large, threads)
    taken_ms = rounds * large_ms
    if rest:
        meanwhile = (threads - rest) * round(large_ms / small_ms) if small and small_ms > 0 else small
        taken_ms += large_ms
        small = max(0, small - meanwhile)
    return taken_ms + -(-small // threads) * small_ms
