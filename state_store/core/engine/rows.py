"""All rows of a range of keys of a local database, page by page, with numpy.

`rows` reads the sorted runs of a database at the same time, a page of each (`pages`), and merges them to the
newest record of each key (`merged`). A page has many records of a table, whose keys and values are slices of
a few arrays of bytes (`Page`, `ByteSlices`); RocksDB's iterator makes objects of each key.

A data block is a sequence of records. Each has the part of its key that differs from the key before. At the
end of the block are its restarts, the positions of records that share nothing (every 16th). So the first
records after all restarts of many blocks are read at once, then the second ones, and so on.

Records up to a key that the pages of all runs have reached are merged; if only one run has records there,
they are not copied. So the memory is that of a page of each run, and of a part of the index of its table.
"""

from __future__ import annotations

import bisect
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from state_store.core.engine.database import Database, DatabaseSettings, TableFile
from state_store.core.engine.table import (
    KEY_FOOTER_BYTES,
    PUT,
    REMOVED,
    UNCOMPRESSED,
    Block,
    TableIndex,
    content_of,
    mapped,
)
from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow


WORD = 8
KEY_PLACE = 5
"""Offset of keys modulo 8: three bytes later, after the id of a column family and the version of a row, is a
multiple of 8."""

_LONG_SLICE = 40
"""Number of items from which a slice is copied for itself, in half a microsecond; 15 ns an item else."""

PAGE_BYTES = 2 << 20
"""Bytes of the blocks that are read at once."""
_ENTRIES = 8192
"""Entries of an index that are read at once, of some 32 MB of blocks."""
_MATRIX_BYTES = 256 << 20
_SPARE_BYTES = 8 << 20
"""Bytes that the matrices of `_key_bytes` may take beyond four times those of the keys."""
_PADDING = 256
"""Bytes before the first and after the last block, so that words can be read at any key."""

_FEW = 64
"""If a page has this many times the records of all newer pages, each of their keys is searched in it."""

_FEW_KEYS = 4096
"""So many keys are told apart sooner than Arrow's functions of arrays are imported."""

_YOUNG_BYTES = 32 << 20
"""Bytes of the pages of all younger runs together, unless there are very many runs."""

_MIN_PAGE_BYTES = 256 << 10


class ByteSlices(NamedTuple):
    """Slices of an array of bytes: slice i has `lengths[i]` bytes from `starts[i]`.

    Attributes:
        data: numpy array of uint8.
        starts: numpy array of int64.
        lengths: numpy array of int64.
    """

    data: Any
    starts: Any
    lengths: Any

    @classmethod
    def of(cls, texts: pyarrow.Array) -> ByteSlices:
        """Return the bytes of an array of large_binary without nulls; they follow each other, from 0 on."""
        import numpy

        bounds = numpy.frombuffer(texts.buffers()[1], numpy.int64)[
            texts.offset : texts.offset + len(texts) + 1
        ]
        first, end = int(bounds[0]), int(bounds[-1])
        data = numpy.frombuffer(texts.buffers()[2] or b"", numpy.uint8)[first:end]
        return cls(data, bounds[:-1] - first, numpy.diff(bounds))

    def take(self, selection: Any) -> ByteSlices:
        """Return some of the slices: by their numbers, a slice, or a mask."""
        return ByteSlices(self.data, self.starts[selection], self.lengths[selection])

    def value(self, number: int) -> bytes:
        """Return the bytes of a slice."""
        start = int(self.starts[number])
        return bytes(self.data[start : start + int(self.lengths[number])])

    def to_arrow(self) -> pyarrow.Array:
        """Return an array of large_binary with copies; slices follow each other in `data`."""
        import numpy
        import pyarrow

        count = len(self.starts)
        bounds = numpy.empty(2 * count, numpy.int64)
        bounds[::2], bounds[1::2] = self.starts, self.starts + self.lengths
        buffers = [None, pyarrow.py_buffer(bounds), pyarrow.py_buffer(self.data)]
        slices_and_gaps = pyarrow.Array.from_buffers(pyarrow.large_binary(), max(0, 2 * count - 1), buffers)
        return slices_and_gaps.take(pyarrow.array(numpy.arange(0, 2 * count, 2)))

    def to_list(self) -> list[bytes]:
        """Return the bytes of all slices."""
        data = self.data.tobytes()
        bounds = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return [data[start:end] for start, end in bounds]


@dataclass(frozen=True)
class Page:
    """Records in order of their keys; `removed` is a mask of those that remove their key."""

    keys: ByteSlices
    values: ByteSlices
    removed: Any

    def __len__(self) -> int:
        return len(self.removed)

    def between(self, first: int, end: int) -> Page:
        """Return the records from number `first` to `end` (excluded)."""
        return self.take(slice(first, end))

    def take(self, selection: Any) -> Page:
        """Return some of the records: by their numbers, a slice, or a mask."""
        return Page(self.keys.take(selection), self.values.take(selection), self.removed[selection])


def rows(directory: Path, settings: DatabaseSettings, start: bytes, end: bytes) -> Iterator[Page]:
    """Yield the rows of a range of keys, without removals, in no order.

    They are in the order of their keys if there is one sorted run. The memory is that of a page of each run.

    Args:
        directory: the database; nobody else uses it.
        settings: how the database is opened.
        start: the first key, two bytes.
        end: the key after the last one, two bytes.

    Raises:
        DamagedError: If a file is damaged.
        FormatError: If a file has records or blocks of an unknown kind.
    """
    with Database(directory, replace(settings, keeps_indexes=False)) as database:
        runs = database.runs()
    few = min(PAGE_BYTES, max(_MIN_PAGE_BYTES, _YOUNG_BYTES // max(1, len(runs))))
    yield from merged(
        [
            _of_run(
                directory, run, start, end, PAGE_BYTES if run is runs[-1] else few
            )  # the oldest has most rows
            for run in runs
        ]
    )


def _of_run(
    directory: Path, run: list[TableFile], start: bytes, end: bytes, page_bytes: int
) -> Iterator[Page]:
    for file in run:
        yield from pages(directory / file.name, start, end, page_bytes)


def pages(path: Path, start: bytes, end: bytes, page_bytes: int = PAGE_BYTES) -> Iterator[Page]:
    """Yield the records of a table in a range of keys, page by page.

    Args:
        path: the table.
        start: the first key, two bytes.
        end: the key after the last one, two bytes.
        page_bytes: bytes of the blocks of a page, or a little more.

    Raises:
        DamagedError: If the file is not a table.
        FormatError: If it has records or blocks of an unknown kind.
    """
    import numpy

    data = mapped(path)
    try:
        index = TableIndex(data, path)
        low, high = (bisect.bisect_left(index, Block(key, 0, 0)) for key in (start, end))
    except (IndexError, ValueError) as error:
        raise DamagedError.of(path, "its blocks do not fit") from error
    assert not isinstance(data, bytes)  # an empty file has no index
    for entry in range(low, min(high + 1, len(index)), _ENTRIES):
        try:
            blocks = _blocks(index, entry, min(entry + _ENTRIES, high + 1))
        except IndexError as error:
            raise DamagedError.of(path, "its blocks do not fit") from error
        reached = numpy.cumsum(blocks.sizes) // page_bytes
        bounds = numpy.flatnonzero(numpy.diff(reached, prepend=0)) + 1
        for first, last in pairwise([0, *bounds.tolist(), len(reached)]):
            if first < last:
                yield from _page(data, blocks.between(first, last), path, start, end)
                _leave(data, int(blocks.offsets[first]), int(blocks.offsets[last - 1]))


def _leave(data: mmap.mmap, start: int, end: int) -> None:
    """Unmap the memory of a part that was read; who still has a view of it reads it again.

    Otherwise the whole file would be in the resident memory of the process, which YARN limits.
    """
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    if end > first and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED, first, end - first)


def _page(data: mmap.mmap, blocks: _Blocks, path: Path, start: bytes, end: bytes) -> Iterator[Page]:
    import numpy

    try:
        keys, values, kinds = _records_of_blocks(*_content(data, blocks))
    except (IndexError, ValueError) as error:
        raise DamagedError.of(path, "its blocks do not fit") from error
    if not len(kinds):
        return
    removed = kinds != PUT
    if removed.any() and not numpy.isin(kinds[removed], REMOVED).all():
        raise FormatError(f"'{path}' has records of a kind that is not known", file=str(path))
    page = Page(keys, values, removed)
    if keys.value(0) >= start and keys.value(len(page) - 1) < end:
        yield page
        return
    families = keys.data[keys.starts].astype(numpy.uint16) << 8 | keys.data[keys.starts + 1]
    in_range = (families >= int.from_bytes(start, "big")) & (families < int.from_bytes(end, "big"))
    if in_range.any():
        yield page.take(in_range)


class _Blocks(NamedTuple):
    """Data blocks in order: offsets and sizes."""

    offsets: Any
    sizes: Any

    def between(self, first: int, last: int) -> _Blocks:
        """Return the blocks from number `first` to `last` (excluded)."""
        return _Blocks(*(column[first:last] for column in self))


def _blocks(index: TableIndex, first: int, last: int) -> _Blocks:
    """Return the blocks of an index from number `first` to `last` (excluded), or to its end."""
    import numpy

    data = numpy.frombuffer(index.content, numpy.uint8)
    count = min(last, len(index)) - first
    restarts = numpy.frombuffer(index.content, "<u4", count, index.restarts_at + 4 * first)
    key_bytes, key_at = _varints(data, restarts.astype(numpy.int64) + 1)
    if index.has_lengths:
        _, key_at = _varints(data, key_at)
    offsets, at = _varints(data, key_at + key_bytes)
    sizes, _ = _varints(data, at)
    return _Blocks(offsets, sizes)


def _content(data: mmap.mmap, blocks: _Blocks) -> tuple[Any, Any, Any]:
    """Return the uncompressed blocks and the index at which each begins and ends; no copy if possible."""
    import numpy

    if (numpy.frombuffer(data, numpy.uint8)[blocks.offsets + blocks.sizes] == UNCOMPRESSED).all():
        first, last = int(blocks.offsets[0]), int(blocks.offsets[-1] + blocks.sizes[-1])
        before, after = min(first, _PADDING), min(len(data) - last, _PADDING)
        content = numpy.frombuffer(data, numpy.uint8, before + last - first + after, first - before)
        if before < _PADDING or after < _PADDING:
            padding = numpy.zeros(_PADDING - before, numpy.uint8), numpy.zeros(_PADDING - after, numpy.uint8)
            content = numpy.concatenate([padding[0], content, padding[1]])
        begins = blocks.offsets + (_PADDING - first)
        return content, begins, begins + blocks.sizes
    places = zip(blocks.offsets.tolist(), blocks.sizes.tolist(), strict=True)
    parts = [content_of(data, offset, size) for offset, size in places]
    lengths = numpy.array([len(part) for part in parts], numpy.int64)
    ends = numpy.cumsum(lengths) + _PADDING
    content = numpy.frombuffer(b"".join([bytes(_PADDING), *parts, bytes(_PADDING)]), numpy.uint8)
    return content, ends - lengths, ends


def _restarts(data: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    """Return the index of each restart, and that at which its records end."""
    import numpy

    counts = _words(data, ends - 4)
    tables = ends - 4 - 4 * counts
    if (tables < begins).any():
        raise IndexError
    owners = numpy.repeat(numpy.arange(len(begins)), counts)
    within = numpy.arange(int(counts.sum())) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    restarts = begins[owners] + _words(data, tables[owners] + 4 * within)
    limits = numpy.empty_like(restarts)
    limits[:-1] = restarts[1:]
    lasts = numpy.cumsum(counts) - 1
    limits[lasts] = tables
    if (restarts[lasts - counts + 1] != begins).any() or (restarts > limits).any():
        raise IndexError
    has_records = restarts < limits  # a block without records has a restart, too
    return restarts[has_records], limits[has_records]


class _Walk(NamedTuple):
    """The records after all restarts: row n has the n-th records, a column for each restart.

    Attributes:
        shared: bytes that a key shares with the one before; 0 if there is no record.
        key_at: index of the rest of the key.
        value_at: index of the value.
        value_bytes: bytes of the value.
        exists: mask of the records that exist.
    """

    shared: Any
    key_at: Any
    value_at: Any
    value_bytes: Any
    exists: Any


def _records_of_blocks(data: Any, begins: Any, ends: Any) -> tuple[ByteSlices, ByteSlices, Any]:
    """Return keys without footer, values and kinds of all records of the blocks."""
    import numpy

    walk = _walked(data, *_restarts(data, begins, ends))
    if not walk.exists.size:
        nothing = ByteSlices(data, *(numpy.zeros(0, numpy.int64) for _ in range(2)))
        return nothing, nothing, numpy.zeros(0, numpy.uint8)
    fresh = walk.value_at - walk.key_at
    key_bytes = walk.shared + fresh
    if walk.shared[0].any() or (walk.shared[1:] > key_bytes[:-1]).any():
        raise IndexError
    longest = int(key_bytes.max())
    has_own_footers = bool(((fresh >= KEY_FOOTER_BYTES) | ~walk.exists).all())
    width = -(-(KEY_PLACE + longest - (KEY_FOOTER_BYTES if has_own_footers else 0)) // 8)
    if not has_own_footers and ((key_bytes < KEY_FOOTER_BYTES) & walk.exists).any():
        raise IndexError
    exists = walk.exists.T
    if (walk.exists.size + longest) * width * WORD <= _SPARE_BYTES + 4 * int(key_bytes[walk.exists].sum()):
        flat = _key_bytes(data, walk, longest, width)
        starts = numpy.flatnonzero(exists) * (WORD * width) + KEY_PLACE
    else:
        flat, places = _uneven_keys(data, walk, key_bytes)
        starts = numpy.ascontiguousarray(places.T)[exists]
    lengths, value_at, value_bytes = (
        numpy.ascontiguousarray(matrix.T)[exists] for matrix in (key_bytes, walk.value_at, walk.value_bytes)
    )
    lengths -= KEY_FOOTER_BYTES
    kinds = data[value_at - KEY_FOOTER_BYTES] if has_own_footers else flat[starts + lengths]
    return ByteSlices(flat, starts, lengths), ByteSlices(data, value_at, value_bytes), kinds


def _walked(data: Any, restarts: Any, limits: Any) -> _Walk:
    import numpy

    rows: list[tuple[Any, ...]] = []
    at, exists = restarts, numpy.ones(len(restarts), bool)
    while exists.any():
        head = gather_bytes(data, at, WORD).view("<i8")
        if ((head & 0x808080) * exists).any():
            shared, fresh, value_bytes, key_at = _long_heads(data, at, exists)
        else:  # three numbers of a byte each
            head = head * exists
            shared, fresh, value_bytes = head & 0x7F, head >> 8 & 0x7F, head >> 16 & 0x7F
            key_at = at + 3 * exists
        value_at = key_at + fresh
        rows.append((shared, key_at, value_at, value_bytes, exists))
        if len(rows) * len(restarts) > _MATRIX_BYTES:
            raise IndexError
        at = value_at + value_bytes
        if (at > limits).any():
            raise IndexError
        exists = at < limits
    if not rows:
        nothing = numpy.zeros((0, 0), numpy.int64)
        return _Walk(nothing, nothing, nothing, nothing, nothing.astype(bool))
    return _Walk(*map(numpy.stack, zip(*rows, strict=True)))


def _long_heads(data: Any, at: Any, exists: Any) -> tuple[Any, Any, Any, Any]:
    """Return the three numbers before each key, of any size, and the index of the key."""
    import numpy

    places = numpy.flatnonzero(exists)
    ends, numbers = at[places], []
    for _ in range(3):
        number, ends = _varints(data, ends)
        every = numpy.zeros_like(at)
        every[places] = number
        numbers.append(every)
    key_at = at.copy()
    key_at[places] = ends
    return numbers[0], numbers[1], numbers[2], key_at


def _key_bytes(data: Any, walk: _Walk, longest: int, width: int) -> Any:
    """Return the keys, each in `width` words from `KEY_PLACE` on, those of a restart one after the other.

    The bytes that a key shares with the one before are copied from there. A word follows the last key.
    """
    import numpy

    lead = 0
    if longest + 8 > _PADDING or WORD * width + 8 > _PADDING:  # else the data have that padding
        lead = longest + 8
        padding = numpy.zeros(lead, numpy.uint8), numpy.zeros(WORD * width + 8, numpy.uint8)
        data = numpy.concatenate([padding[0], data, padding[1]])
    places = numpy.arange(WORD * width) - KEY_PLACE
    own = numpy.where(places >= numpy.arange(longest + 1)[:, None], 0xFF, 0).astype(numpy.uint8).reshape(-1)
    steps, restarts = walk.exists.shape
    words = numpy.empty(restarts * steps * width + 1, "<u8")
    matrix = words[:-1].reshape(restarts, steps, width)
    key: Any = None
    for number in range(steps):
        shared = walk.shared[number]
        begins = numpy.where(walk.exists[number], walk.key_at[number] - shared, _PADDING)
        current = gather_bytes(data, begins + (lead - KEY_PLACE), WORD * width).view("<u8").reshape(-1, width)
        if key is not None and shared.any():  # shared bytes come from the key before
            current ^= key
            current &= gather_bytes(own, shared * (WORD * width), WORD * width).view("<u8").reshape(-1, width)
            current ^= key
        matrix[:, number] = key = current
    return words.view(numpy.uint8)


def _uneven_keys(data: Any, walk: _Walk, key_bytes: Any) -> tuple[Any, Any]:
    """Return the keys, each in as many words as it needs, and the index of each; a word follows each key.

    A few long keys among many short ones would make the matrix of `_key_bytes` much larger than the keys are.
    """
    import numpy

    sizes = numpy.where(walk.exists, (KEY_PLACE + key_bytes + 2 * WORD - 1) // WORD * WORD, 0)
    ends = numpy.cumsum(sizes.T.reshape(-1)).reshape(sizes.T.shape).T
    places = ends - sizes + KEY_PLACE
    keys = numpy.zeros(int(ends[-1, -1]), numpy.uint8)
    for number in range(len(sizes)):
        pages = numpy.flatnonzero(walk.exists[number])
        shared, key_at, at = walk.shared[number][pages], walk.key_at[number][pages], places[number][pages]
        copy_slices(keys, at + shared, data, key_at, walk.value_at[number][pages] - key_at)
        if number:
            copy_slices(keys, at, keys, places[number - 1][pages], shared)
    return keys, places


def _words(data: Any, places: Any) -> Any:
    """Return the 32-bit numbers at these indexes."""
    import numpy

    return gather_bytes(data, places, 4).view("<u4").astype(numpy.int64)


def _varints(data: Any, at: Any) -> tuple[Any, Any]:
    """Return the numbers that begin at these indexes, 7 bits a byte, and the indexes after them."""
    import numpy

    byte = data[at]
    numbers = (byte & 0x7F).astype(numpy.int64)
    at = at + 1
    more = numpy.flatnonzero(byte & 0x80)
    shift = 7
    while len(more):
        byte = data[at[more]]
        numbers[more] |= (byte & 0x7F).astype(numpy.int64) << shift
        at[more] += 1
        more = more[(byte & 0x80) != 0]
        shift += 7
        if shift > 35:
            raise IndexError
    return numbers, at


def merged(runs: Sequence[Iterator[Page]]) -> Iterator[Page]:
    """Yield the newest record of each key, unless it removes the key, in no order.

    Args:
        runs: the pages of each sorted run, in order of their keys; the newest run first.
    """
    cursors = [cursor for cursor in map(_RunCursor, runs) if cursor.has_more]
    while len(cursors) > 1:
        bound = min(cursor.last_key for cursor in cursors)
        yield from _newest([cursor.take_up_to(bound) for cursor in cursors])
        cursors = [cursor for cursor in cursors if cursor.has_more]
    for cursor in cursors:
        yield from _newest([cursor.rest()])
        for page in cursor.pages:
            yield from _newest([page])


class _RunCursor:
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

    def take_up_to(self, bound: bytes) -> Page:
        """Return the records up to a key, which is at most the last one of the page, and go on after them."""
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

    if len(keys.lengths) <= _FEW_KEYS:
        seen: set[bytes] = set()
        return numpy.array([not (key in seen or seen.add(key)) for key in keys.to_list()], bool)  # type: ignore[func-returns-value]
    numbers = keys.to_arrow().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    highest = numpy.maximum.accumulate(numbers)
    is_first = numpy.ones(len(numbers), bool)
    is_first[1:] = highest[1:] > highest[:-1]
    return is_first


def concatenate(parts: Sequence[Page]) -> Page:
    """Return the records of pages as one page; a single page is not copied."""
    import numpy

    if len(parts) == 1:
        return parts[0]
    keys, values = ([getattr(part, name) for part in parts] for name in ("keys", "values"))
    return Page(
        _concatenate_slices(keys),
        _concatenate_slices(values),
        numpy.concatenate([part.removed for part in parts]),
    )


def _concatenate_slices(parts: Sequence[ByteSlices]) -> ByteSlices:
    """Return slices one after the other; a slice that begins at a multiple of 8 still does."""
    import numpy

    data, starts, size = [], [], 0
    for part in parts:
        first = int(part.starts[0]) // WORD * WORD
        part_data = part.data[first : int(part.starts[-1] + part.lengths[-1])]
        padding = -len(part_data) % WORD
        data += [part_data, numpy.zeros(padding, numpy.uint8)]
        starts.append(part.starts + (size - first))
        size += len(part_data) + padding
    lengths = numpy.concatenate([part.lengths for part in parts])
    return ByteSlices(numpy.concatenate(data), numpy.concatenate(starts), lengths)


def copy_slices(target: Any, places: Any, source: Any, starts: Any, lengths: Any) -> None:
    """Copy slices of an array to their places in another one, which may be the same if nothing overlaps.

    Short slices are copied by an index for each item, which takes several times their memory; long ones each
    for itself.

    Args:
        target: the array that receives the items.
        places: the index in `target` of each slice.
        source: the array of the same type that has the items.
        starts: the index in `source` of each slice.
        lengths: the number of items of each slice.
    """
    import numpy

    are_long = lengths >= _LONG_SLICE
    if are_long.any():
        long_columns = (column[are_long].tolist() for column in (places, starts, lengths))
        for place, start, length in zip(*long_columns, strict=True):
            target[place : place + length] = source[start : start + length]
        places, starts, lengths = (column[~are_long] for column in (places, starts, lengths))
    if not len(lengths):
        return
    ends = numpy.cumsum(lengths)
    within = numpy.arange(int(ends[-1]))
    target[numpy.repeat(places - (ends - lengths), lengths) + within] = source[
        numpy.repeat(starts - (ends - lengths), lengths) + within
    ]


def gather_bytes(data: Any, places: Any, size: int) -> Any:
    """Return `size` bytes of `data` from each of the indexes `places`, as a new array of voids of that size.

    Numpy copies voids several times as fast as numbers that are not aligned.
    """
    import numpy

    count = max(0, len(data) - size + 1)
    return numpy.ndarray((count,), f"V{size}", buffer=data, strides=(1,))[places]
