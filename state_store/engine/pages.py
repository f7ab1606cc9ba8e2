"""Many records of a table at once, with numpy: RocksDB's iterator makes Python objects of each key and value.

A data block has records after each other, each with what its key does not share with the key before, and at
its end where those begin that share nothing (its restarts, every 16 records). So the first records after all
restarts of many blocks are read at once, then the second ones, and so on.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from state_store.engine.table import KEY_FOOTER_BYTES, PUT, REMOVED, UNCOMPRESSED, Block, blocks, content_of
from state_store.errors import DamagedError, FormatError

_GROUP_BYTES = 4 << 20
"""Of blocks that are read at once."""

_MATRIX_BYTES = 256 << 20
_MARGIN = 16
"""Bytes after the last block, so that nothing reads past the end."""

KEY_PLACE = 5
"""Where keys begin, modulo 8: three bytes later, after the id of a column family and the version of a row, is
a multiple of 8."""


class Stretches(NamedTuple):
    """Parts of `data` (numpy bytes): `lengths[i]` bytes from `starts[i]`."""

    data: Any
    starts: Any
    lengths: Any

    def taken(self, chosen: Any) -> Stretches:
        return Stretches(self.data, self.starts[chosen], self.lengths[chosen])

    def texts(self) -> Iterator[bytes]:
        """Each of them."""
        data = self.data.tobytes()
        bounds = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return (data[start:end] for start, end in bounds)


@dataclass(frozen=True)
class Page:
    """Records in order of their keys; `removed` says of each whether it removes its key."""

    keys: Stretches
    values: Stretches
    removed: Any

    def __len__(self) -> int:
        return len(self.removed)

    def taken(self, chosen: Any) -> Page:
        """Some of the records: numbers, or true for each that is wanted."""
        return Page(self.keys.taken(chosen), self.values.taken(chosen), self.removed[chosen])


def pages(path: Path, start: bytes, end: bytes) -> Iterator[Page]:
    """The records of a table with keys from `start` up to `end` (excluded), both of two bytes.

    Raises DamagedError for a file that is no table, FormatError for one of another kind.
    """
    if not path.stat().st_size:
        raise DamagedError(f"'{path}' is damaged: it is empty", file=str(path))
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # until the last view of it is gone
    group: list[Block] = []
    group_bytes = 0
    for block in blocks(data, path):
        if block.separator < start:
            continue
        group.append(block)
        group_bytes += block.size
        is_last = block.separator[: len(end)] >= end
        if group_bytes >= _GROUP_BYTES or is_last:
            yield from _page(data, group, path, start, end)
            group, group_bytes = [], 0
        if is_last:
            return
    if group:
        yield from _page(data, group, path, start, end)


def _page(data: mmap.mmap, group: list[Block], path: Path, start: bytes, end: bytes) -> Iterator[Page]:
    import numpy

    content, begins, ends = _content(data, group)
    try:
        found = _records(content, begins, ends)
    except IndexError as error:
        raise DamagedError(f"'{path}' is damaged: its blocks do not fit", file=str(path)) from error
    if found is None:  # keys of very different lengths
        middle = len(group) // 2
        yield from _page(data, group[:middle], path, start, end)
        yield from _page(data, group[middle:], path, start, end)
        return
    keys, values, kinds = found
    if not numpy.isin(kinds, (PUT, *REMOVED)).all():
        raise FormatError(f"'{path}' has records of a kind that is not known", file=str(path))
    families = keys.data[keys.starts].astype(numpy.uint16) << 8 | keys.data[keys.starts + 1]
    low, high = int.from_bytes(start, "big"), int.from_bytes(end, "big")
    page = Page(keys, values, kinds != PUT)
    wanted = (families >= low) & (families < high)
    if wanted.all():
        yield page
    elif wanted.any():
        yield page.taken(wanted)


def _content(data: mmap.mmap, group: list[Block]) -> tuple[Any, Any, Any]:
    """The blocks, uncompressed, and where each begins and ends there."""
    import numpy

    margin = numpy.zeros(_MARGIN, numpy.uint8)
    kinds = {data[block.offset + block.size] for block in group}
    if kinds == {UNCOMPRESSED}:
        first, last = group[0].offset, group[-1].offset + group[-1].size
        begins = numpy.array([block.offset - first for block in group], numpy.int64)
        sizes = numpy.array([block.size for block in group], numpy.int64)
        whole = numpy.frombuffer(data, numpy.uint8, last - first, first)
        return numpy.concatenate([whole, margin]), begins, begins + sizes
    parts = [content_of(data, block.offset, block.size) for block in group]
    lengths = numpy.array([len(part) for part in parts], numpy.int64)
    ends = numpy.cumsum(lengths)
    content = numpy.frombuffer(b"".join(parts), numpy.uint8)
    return numpy.concatenate([content, margin]), ends - lengths, ends


class _Step(NamedTuple):
    """One record after each of the restarts `active`: what its key shares with the one before, and where the
    rest of the key and the value are."""

    active: Any
    shared: Any
    key_at: Any
    value_at: Any
    value_bytes: Any

    @property
    def key_bytes(self) -> Any:
        return self.shared + (self.value_at - self.key_at)


def _records(data: Any, begins: Any, ends: Any) -> tuple[Stretches, Stretches, Any] | None:
    """Keys without footer, values and kinds of all records of the blocks; None where the matrix of keys would
    be too large, and there are several blocks."""
    import numpy

    steps, counts = _steps(data, *_restarts(data, begins, ends))
    count = int(counts.sum())
    longest = max((int(step.key_bytes.max()) for step in steps), default=0)
    width = -(-(KEY_PLACE + longest) // 8) * 8
    if count * width > _MATRIX_BYTES and len(begins) > 1:
        return None
    firsts = numpy.cumsum(counts) - counts
    matrix = numpy.empty((count, width // 8), "<u8")
    lengths, value_at, value_bytes = (numpy.empty(count, numpy.int64) for _ in range(3))
    words = _KeyWords(data, len(counts), longest, width // 8)
    for number, step in enumerate(steps):
        places = firsts[step.active] + number
        matrix[places] = words.of(step)
        lengths[places] = step.key_bytes
        value_at[places], value_bytes[places] = step.value_at, step.value_bytes
    if (lengths < KEY_FOOTER_BYTES).any():
        raise IndexError
    flat = matrix.view(numpy.uint8).reshape(-1)
    starts = numpy.arange(count) * width + KEY_PLACE
    kinds = flat[starts + lengths - KEY_FOOTER_BYTES]
    keys = Stretches(flat, starts, lengths - KEY_FOOTER_BYTES)
    return keys, Stretches(data, value_at, value_bytes), kinds


def _steps(data: Any, restarts: Any, limits: Any) -> tuple[list[_Step], Any]:
    """The records after all restarts, and how many each has."""
    import numpy

    steps = []
    counts = numpy.zeros(len(restarts), numpy.int64)
    at, active = restarts, numpy.arange(len(restarts))
    while len(active):
        shared, at = _varints(data, at)
        fresh, at = _varints(data, at)
        value_bytes, at = _varints(data, at)
        steps.append(_Step(active, shared, at, at + fresh, value_bytes))
        at = at + fresh + value_bytes
        counts[active] += 1
        ends = limits[active]
        if (at > ends).any():
            raise IndexError
        goes_on = at < ends
        if not goes_on.all():
            active, at = active[goes_on], at[goes_on]
    return steps, counts


class _KeyWords:
    """Keys with their footers as words, a row of `width` for each restart, in which they begin at
    `KEY_PLACE`; what a key shares with the one before is taken from there, byte by byte."""

    def __init__(self, data: Any, restarts: int, longest: int, width: int) -> None:
        import numpy

        self._lead = longest + 8
        room = numpy.zeros(self._lead, numpy.uint8), numpy.zeros(8 * width + 8, numpy.uint8)
        self._data = numpy.concatenate([room[0], data, room[1]])
        self._current = numpy.zeros((restarts, width), "<u8")
        self._offsets = self._lead - KEY_PLACE + 8 * numpy.arange(width)
        places = numpy.arange(8 * width) - KEY_PLACE
        own = numpy.where(places >= numpy.arange(longest + 1)[:, None], 0xFF, 0).astype(numpy.uint8)
        self._own = own.view("<u8")
        """By how many bytes are shared: ones where a key has bytes of its own."""

    def of(self, step: _Step) -> Any:
        """The keys of a step; those of the step before were given before."""
        import numpy

        every = numpy.ndarray((len(self._data) - 7,), "<u8", buffer=self._data, strides=(1,))
        found = every[(step.key_at - step.shared)[:, None] + self._offsets]
        is_all = len(step.active) == len(self._current)
        if step.shared.any():
            own = self._own[step.shared]
            before = self._current if is_all else self._current[step.active]
            found = (found & own) | (before & ~own)
        if is_all:
            self._current = found
        else:
            self._current[step.active] = found
        return found


def _restarts(data: Any, begins: Any, ends: Any) -> tuple[Any, Any]:
    """Where records begin that share nothing with the one before, and where the records of each end."""
    import numpy

    counts = _words(data, ends - 4)
    tables = ends - 4 - 4 * counts
    if ((counts < 1) | (counts >= 1 << 31) | (tables < begins)).any():
        raise IndexError
    owners = numpy.repeat(numpy.arange(len(begins)), counts)
    within = numpy.arange(int(counts.sum())) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    restarts = begins[owners] + _words(data, tables[owners] + 4 * within)
    limits = numpy.empty_like(restarts)
    limits[:-1] = restarts[1:]
    lasts = numpy.cumsum(counts) - 1
    limits[lasts] = tables
    kept = restarts < limits  # a block without records has a restart, too
    return restarts[kept], limits[kept]


def _words(data: Any, places: Any) -> Any:
    """32-bit numbers, wherever they are."""
    import numpy

    parts = data[places[:, None] + numpy.arange(4)]
    return numpy.ascontiguousarray(parts).view("<u4").reshape(-1).astype(numpy.int64)


def _varints(data: Any, at: Any) -> tuple[Any, Any]:
    """The numbers that begin at these places, 7 bits a byte, and where they end."""
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
