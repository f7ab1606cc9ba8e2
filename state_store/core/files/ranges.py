"""Sets of whole numbers, as the ranges that they consist of."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Ranges:
    """A set of offsets. Not safe for threads."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add the offsets with `start <= offset < end`."""
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:  # these overlap with the new range, or touch it
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return start and end of the ranges between `start` and `end` that are not in the set, in order."""
        gaps = []
        i = bisect_right(self._ends, start)
        while start < end and i < len(self._starts) and self._starts[i] < end:
            if start < self._starts[i]:
                gaps.append((start, self._starts[i]))
            start = self._ends[i]
            i += 1
        if start < end:
            gaps.append((start, end))
        return gaps
