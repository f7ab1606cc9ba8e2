"""Sorted runs merged while they are read: of each key its newest record, with numpy and Arrow.

All runs are read side by side, a page of each at a time. What lies between two bounds that all of them have
reached is merged; where only one run has something, its records go through as they are. So memory is for a
page of each run, however large they are.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from state_store.engine.pages import Page, Stretches

if TYPE_CHECKING:
    import pyarrow

_HASHES = 1 << 17
"""Of keys; two keys with the same one are compared."""

_PRIME = 0x9E3779B97F4A7C15
_ALL = (1 << 64) - 1


def merged(runs: Sequence[Iterator[Page]]) -> Iterator[Page]:
    """The records of sorted runs, the newest run first, each with pages in order of their keys: of each key
    that of the newest run, unless it removes the key. In no order."""
    cursors = [cursor for cursor in map(_Cursor, runs) if cursor.has_more]
    while len(cursors) > 1:
        bound = min(cursor.last_key for cursor in cursors)
        yield from _newest([cursor.up_to(bound) for cursor in cursors])
        cursors = [cursor for cursor in cursors if cursor.has_more]
    for cursor in cursors:
        yield from _newest([cursor.rest()])
        for page in cursor.pages:
            yield from _newest([page])


class _Cursor:
    """How far a run has been read."""

    def __init__(self, pages: Iterator[Page]) -> None:
        self.pages = pages
        self._page = next(pages, None)
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._page is not None

    @property
    def last_key(self) -> bytes:
        """Of the page; the run may have more."""
        assert self._page is not None
        return self._page.keys.text(len(self._page) - 1)

    def up_to(self, bound: bytes) -> Page:
        """What there is up to a key, which is not beyond the page."""
        page, first = self._page, self._at
        assert page is not None
        if page.keys.text(first) > bound:
            return page.between(first, first)
        end = bisect.bisect_right(range(len(page)), bound, lo=first, key=page.keys.text)
        self._at = end
        if end == len(page):
            self._page, self._at = next(self.pages, None), 0
        return page.between(first, end)

    def rest(self) -> Page:
        """What is left of the page."""
        assert self._page is not None
        return self._page.between(self._at, len(self._page))


def _newest(parts: Sequence[Page]) -> Iterator[Page]:
    """Of pages with keys between the same bounds, the newest first, what counts of each."""
    newer = _Keys()
    left = [part for part in parts if len(part)]
    for number, page in enumerate(left):
        stays = ~newer.among(page.keys)
        if number < len(left) - 1:
            newer.add(page.keys.taken(stays) if not stays.all() else page.keys)
        stays &= ~page.removed
        if stays.all():
            yield page
        elif stays.any():
            yield page.taken(stays)


class _Keys:
    """Keys that newer runs have."""

    def __init__(self) -> None:
        self._known: list[pyarrow.Array] = []
        self._hashes: Any = None

    def add(self, keys: Stretches) -> None:
        import numpy

        if self._hashes is None:
            self._hashes = numpy.zeros(_HASHES, bool)
        self._hashes[_hashes_of(keys)] = True
        self._known.append(keys.to_arrow())

    def among(self, keys: Stretches) -> Any:
        """Which of the keys are known."""
        import numpy
        import pyarrow
        import pyarrow.compute

        found = numpy.zeros(len(keys.starts), bool)
        if not self._known:
            return found
        candidates = numpy.flatnonzero(self._hashes[_hashes_of(keys)])
        if len(candidates):
            self._known = [pyarrow.concat_arrays(self._known)]
            array = keys.taken(candidates).to_arrow()
            known = pyarrow.compute.is_in(array, self._known[0])
            found[candidates] = known.to_numpy(zero_copy_only=False)
        return found


def _hashes_of(keys: Stretches) -> Any:
    """Below `_HASHES`, equal for equal keys."""
    import numpy

    found = numpy.zeros(len(keys.starts), numpy.uint64)
    all_bits, lengths = numpy.uint64(_ALL), keys.lengths
    if len(lengths) and (lengths == lengths[0]).all():
        lengths = lengths[:1]
    for at in range(0, int(lengths.max(initial=0)), 8):
        left = numpy.clip(lengths - at, 0, 8)
        masks = all_bits >> ((8 - left) * 8 % 64).astype(numpy.uint64)
        masks[left == 0] = 0
        mixed = (found ^ (keys.words(at) & masks)) * numpy.uint64(_PRIME)
        mixed ^= mixed >> numpy.uint64(29)
        found = numpy.where(left > 0, mixed, found)
    return (found >> numpy.uint64(65 - _HASHES.bit_length())).astype(numpy.int64)
