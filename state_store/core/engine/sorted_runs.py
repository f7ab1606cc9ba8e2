"""Merge of sorted runs while they are read: the newest record of each key, with numpy and Arrow.

All runs are read at the same time, a page of each. Records up to a key that all pages have reached are
merged; if only one run has records there, they are not copied. So the memory is that of a page of each run.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from state_store.core.engine.pages import ByteSlices, Page, concatenate

_FEW = 64
"""If a page has this many times the records of all newer pages, each of their keys is searched in it."""


def merged(runs: Sequence[Iterator[Page]]) -> Iterator[Page]:
    """Yield the newest record of each key, unless it removes the key, in no order.

    Args:
        runs: the pages of each sorted run, in order of their keys; the newest run first.
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


class _Keys(Sequence[bytes]):
    """The keys of a page, as a sequence that makes each key on access."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def __len__(self) -> int:
        return len(self._page)

    def __getitem__(self, number: Any) -> Any:
        if number >= len(self):
            raise IndexError
        return self._page.keys.value(number)


class _Cursor:
    """A position in a run."""

    def __init__(self, pages: Iterator[Page]) -> None:
        self.pages = pages
        self._page = next(pages, None)
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._page is not None

    @property
    def last_key(self) -> bytes:
        """The last key of the page; the run may have more."""
        assert self._page is not None
        return self._page.keys.value(len(self._page) - 1)

    def up_to(self, bound: bytes) -> Page:
        """Return the records up to a key, which is at most the last one of the page."""
        page, first = self._page, self._at
        assert page is not None
        if page.keys.value(first) > bound:
            return page.between(first, first)
        end = bisect.bisect_right(_Keys(page), bound, lo=first)
        self._at = end
        if end == len(page):
            self._page, self._at = next(self.pages, None), 0
        return page.between(first, end)

    def rest(self) -> Page:
        """Return the remaining records of the page."""
        assert self._page is not None
        return self._page.between(self._at, len(self._page))


def _newest(parts: Sequence[Page]) -> Iterator[Page]:
    """Yield the newest record of each key of pages in one range of keys, the newest page first."""
    pages = [part for part in parts if len(part)]
    if len(pages) < 2:
        for page in pages:
            yield from _kept(page, ~page.removed)
    elif sum(map(len, pages[:-1])) * _FEW < len(pages[-1]):
        newer, oldest = concatenate(pages[:-1]), pages[-1]
        yield from _kept(newer, _first_occurrences(newer.keys))
        yield from _kept(oldest, ~_among(_Keys(oldest), _Keys(newer)))
    else:
        page = concatenate(pages)
        yield from _kept(page, _first_occurrences(page.keys))


def _kept(page: Page, stays: Any) -> Iterator[Page]:
    """Yield the records of a page that stay, without removals."""
    stays = stays & ~page.removed
    if stays.all():
        yield page
    elif stays.any():
        yield page.take(stays)


def _among(texts: Sequence[bytes], keys: Iterable[bytes]) -> Any:
    """Return a mask of the sorted keys `texts` that are among a few `keys`."""
    import numpy

    are_among = numpy.zeros(len(texts), bool)
    for key in keys:
        at = bisect.bisect_left(texts, key)
        are_among[at : at + 1] |= at < len(texts) and texts[at] == key
    return are_among


def _first_occurrences(keys: ByteSlices) -> Any:
    """Return a mask of the keys that did not occur before.

    Arrow numbers different keys in the order of their first occurrence, so a new key has the highest number.
    """
    import numpy

    numbers = keys.to_arrow().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    highest = numpy.maximum.accumulate(numbers)
    found = numpy.ones(len(numbers), bool)
    found[1:] = highest[1:] > highest[:-1]
    return found
