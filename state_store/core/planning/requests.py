"""What requests of far storage take, learned from those of restores, and what many of them take together.

A request takes a time of its own, by its kind, and a time for each byte: both are found by a regression over
the requests of all kinds that carry bytes, of which recent ones count most. As they are measured while others
are under way, a network or a service that all of them share is in it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

LIST, READ, DOWNLOAD, PART = "list", "read", "download", "part"
"""The kinds: of a directory, of a file into memory, of a file to disk, of a part of one to disk."""

_OPENS = 2
"""A read takes about this many times as long as a listing: it asks for the file first, and then for bytes."""

SMALL_AT_ONCE = 2
"""How many requests that bring little are under way for each of those that bring much: they wait for the
storage, and not for bytes."""

_DECAY = 0.97
_MIB = 1 << 20
_PRIOR_WEIGHT = 1.0
"""In MiB squared, as the spread of sizes that the expected rate counts as."""


@dataclass
class _Sums:
    """Of the requests of a kind: their number, MiB, milliseconds, and what a regression needs of them."""

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
    """What requests of a kind take: `request_ms`, and `mib_ms` for each MiB."""

    request_ms: float
    mib_ms: float

    def ms(self, size_bytes: float) -> float:
        """Of a request for this many bytes."""
        return self.request_ms + size_bytes / _MIB * self.mib_ms


class RequestTimes:
    """Of the requests of one storage, shared by all stores of a process that are in it. Safe for any thread:
    `lock` is held for each look at it.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._sums: dict[str, _Sums] = {}
        self._ends, self._end_requests = 1.0, 1.0

    def observe(self, kind: str, size_bytes: int, ms: float) -> None:
        """A request brought this many bytes in `ms`."""
        with self._lock:
            self._sums.setdefault(kind, _Sums()).add(size_bytes / _MIB, ms)

    def observe_ends(self, files: int, requests: int) -> None:
        """The ends of `files` files, one or more, took this many requests: one for each tells whether
        another is needed.
        """
        with self._lock:
            self._ends = self._ends * _DECAY + files
            self._end_requests = self._end_requests * _DECAY + requests

    @property
    def requests_per_end(self) -> float:
        """How many requests the end of a file takes, on the average."""
        with self._lock:
            return self._end_requests / self._ends

    @property
    def are_known(self) -> bool:
        """Whether any request was seen."""
        return bool(self._sums)

    def copy(self) -> RequestTimes:
        """As they are now."""
        with self._lock:
            found = RequestTimes(self._lock)
            found._sums = copy.deepcopy(self._sums)
            found._ends, found._end_requests = self._ends, self._end_requests
            return found

    def line(self, kind: str, expected_mib_ms: float) -> RequestLine:
        """What requests of that kind take; `expected_mib_ms`: what a MiB was expected to take before any was
        seen. A kind that was not seen takes what others take.
        """
        with self._lock:
            own, listed = self._sums.get(kind), self._sums.get(LIST)
            if kind == LIST:
                return RequestLine(own.ms / own.count if own else 0.0, 0.0)
            carried = [sums for name, sums in self._sums.items() if name != LIST]
            mib_ms = _slope(carried, expected_mib_ms)
            known = [own] if own else carried
            if known:
                count, mib, ms = (sum(getattr(one, of) for one in known) for of in ("count", "mib", "ms"))
                request_ms = (ms - mib * mib_ms) / count
                return RequestLine(request_ms, mib_ms) if request_ms >= 0 else RequestLine(0.0, ms / mib)
            return RequestLine(_OPENS * listed.ms / listed.count if listed else 0.0, mib_ms)


def _slope(carried: Sequence[_Sums], expected_mib_ms: float) -> float:
    """Milliseconds a MiB, 0 or more; what is expected has the weight of a few small requests."""
    count, mib, ms, mib_mib, mib_ms = (
        sum(getattr(sums, of) for sums in carried) for of in ("count", "mib", "ms", "mib_mib", "mib_ms")
    )
    if not count:
        return expected_mib_ms
    spread, common = mib_mib - mib * mib / count, mib_ms - mib * ms / count
    return max(0.0, (common + _PRIOR_WEIGHT * expected_mib_ms) / (max(0.0, spread) + _PRIOR_WEIGHT))


@dataclass(frozen=True)
class FarStorage:
    """How files come from storage of another machine: `threads` requests at a time, files of more than
    `part_bytes` in parts of about that; a restore that is lazy fetches deltas of less than
    `least_sparse_bytes` as a whole.
    """

    times: RequestTimes
    threads: int
    part_bytes: int
    least_sparse_bytes: int

    def choice_ms(self, archives: int) -> float:
        """Until it is known which files are wanted: two listings, and an archive, if there is one. Others are
        read while files come.
        """
        archive_ms = self.times.line(READ, 0.0).request_ms if archives else 0.0
        return 2 * self.times.line(LIST, 0.0).request_ms + archive_ms

    def files_ms(self, sizes: Iterable[int], stream_mib_ms: float) -> float:
        """Until files of these bytes are there as a whole."""
        known = list(sizes)
        large = [size for size in known if size > self.part_bytes]
        small = [size for size in known if size <= self.part_bytes]
        parts = sum(max(1, (size + self.part_bytes // 2) // self.part_bytes) for size in large)
        part, whole = (self.times.line(kind, stream_mib_ms) for kind in (PART, DOWNLOAD))
        part_ms, small_ms = part.ms(sum(large) / max(1, parts)), whole.ms(sum(small) / max(1, len(small)))
        longest_ms = part.ms(self.part_bytes) if large else whole.ms(max(small, default=0)) if small else 0.0
        return max(longest_ms, _rounds_ms(self.threads, parts, part_ms, len(small), small_ms))

    def ends_ms(
        self,
        tables: Sequence[int],
        deltas: Sequence[int],
        end_bytes: Callable[[int], int],
        stream_mib_ms: float,
    ) -> float:
        """Until the ends of files of these bytes are there, and beside them small deltas as a whole."""
        sparse = [*tables, *(size for size in deltas if size >= self.least_sparse_bytes)]
        whole = [size for size in deltas if size < self.least_sparse_bytes]
        line, more = self.times.line(PART, stream_mib_ms), self.times.requests_per_end - 1
        ends_ms = [line.ms(end_bytes(size)) + more * line.request_ms for size in sparse]
        average_ms = sum(ends_ms) / max(1, len(ends_ms))
        at_once = SMALL_AT_ONCE * self.threads
        whole_ms = self.files_ms(whole, stream_mib_ms) if whole else 0.0
        return max(_rounds_ms(at_once, len(sparse), average_ms, 0, 0.0), whole_ms, *ends_ms)


def _rounds_ms(threads: int, large: int, large_ms: float, small: int, small_ms: float) -> float:
    """Until all are done, where as many go on at a time as there are threads, and the large ones begin."""
    rounds, rest = divmod(large, threads)
    taken_ms = rounds * large_ms
    if rest:
        beside = (threads - rest) * round(large_ms / small_ms) if small and small_ms > 0 else small
        taken_ms += large_ms
        small = max(0, small - beside)
    return taken_ms + -(-small // threads) * small_ms
