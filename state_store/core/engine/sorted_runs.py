"""Sorted runs merged while they are read: of each key its newest record, with numpy and Arrow.

All runs are read side by side, a page of each at a time. What lies between two bounds that all of them have
reached is merged; where only one run has something, its records go through as they are. So memory is for a
page of each run, however large they are.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from state_store.core.engine.pages import ByteSlices, Page, concatenate

_FEW = 64
"""A page with more than this many times the records of all newer ones is searched for their keys."""


def merged(runs: Sequence[Iterator[Page]]) -> Iterator[Page]:
    """The records of sorted runs, the newest run first, each with pages in order of their keys: of each key
    that of the newest run, unless it removes the key. In no order.
    """
    cursors = [cursor for cursor in map(_Cursor, runs) if cursor.has_more]
    while len(cursors) > 1:
        bound = min(cursor.last_key for cursor in cursors)
        yield from _newest([cursor.up_to(bound) for cursor in cursors])
        cursors = [cursor for cursor in cursors if cursor.has_more]
    for cursor in cursors:
        yield from _newest([cursor.rest()])
        for page in cursor.pages:
            yield from _newest([page])


class _Texts(Sequence[bytes]):
    """The keys of a page, each made when it is asked for."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def __len__(self) -> int:
        return len(self._page)

    def __getitem__(self, number: Any) -> Any:
        if number >= len(self):
            raise IndexError
        return self._page.keys.value(number)


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
        return self._page.keys.value(len(self._page) - 1)

    def up_to(self, bound: bytes) -> Page:
        """What there is up to a key, which is not beyond the page."""
        page, first = self._page, self._at
        assert page is not None
        if page.keys.value(first) > bound:
            return page.between(first, first)
        end = bisect.bisect_right(_Texts(page), bound, lo=first)
        self._at = end
        if end == len(page):
            self._page, self._at = next(self.pages, None), 0
        return page.between(first, end)

    def rest(self) -> Page:
        """What is left of the page."""
        assert self._page is not None
        return self._page.between(self._at, len(self._page))


def _newest(parts: Sequence[Page]) -> Iterator[Page]:
    """Of pages with keys between the same bounds, the newest first, what counts of each key."""
    left = [part for part in parts if len(part)]
    if len(left) < 2:
        for page in left:
            yield from _kept(page, ~page.removed)
    elif sum(map(len, left[:-1])) * _FEW < len(left[-1]):
        newer, oldest = concatenate(left[:-1]), left[-1]
        yield from _kept(newer, _first_ones(newer.keys))
        yield from _kept(oldest, ~_among(_Texts(oldest), _Texts(newer)))
    else:
        page = concatenate(left)
        yield from _kept(page, _first_ones(page.keys))


def _kept(page: Page, stays: Any) -> Iterator[Page]:
    """What stays of a page, but what removes its key."""
    stays = stays & ~page.removed
    if stays.all():
        yield page
    elif stays.any():
        yield page.take(stays)


def _among(texts: Sequence[bytes], keys: Iterable[bytes]) -> Any:
    """Which of the texts, which are in order, are among a few keys."""
    import numpy

    are_among = numpy.zeros(len(texts), bool)
    for key in keys:
        at = bisect.bisect_left(texts, key)
        are_among[at : at + 1] |= at < len(texts) and texts[at] == key
    return are_among


def _first_ones(keys: ByteSlices) -> Any:
    """Which of the keys have not been there before. Arrow numbers different keys in the order in which they
    come: a key that is new has a number above all before it.
    """
    import numpy

    numbers = keys.to_arrow().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    highest = numpy.maximum.accumulate(numbers)
    found = numpy.ones(len(numbers), bool)
    found[1:] = highest[1:] > highest[:-1]
    return found
