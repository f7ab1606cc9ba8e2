"""Regions of bytes, which have the values of many rows, and columns of plain values built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.data.rows.packed import WORD, Packed, gathered, words_anywhere
from state_store.data.rows.types import SMALL_DECIMAL
from state_store.errors import DamagedError

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Region:
    """Slices of `data`, to whose starts offsets are relative.

    Attributes:
        data: the bytes, as a uint8 array.
        starts: the start of each slice.
        ends: the end of each slice.
        stride: the distance between starts, if it is constant; else None.
        aligned: True if the starts are multiples of 8.
    """

    data: Any
    starts: Any
    ends: Any
    stride: int | None = None
    aligned: bool = True

    @classmethod
    def of(cls, packed: Packed) -> Region:
        """Return the region of packed rows."""
        starts, ends = packed.starts, packed.starts + packed.lengths
        if len(packed.data) % WORD or (starts & (WORD - 1)).any():
            return cls(packed.data, starts, ends, aligned=False)
        steps = starts[1:] - starts[:-1]
        is_even = len(steps) > 0 and steps[0] > 0 and bool((steps == steps[0]).all())
        return cls(packed.data, starts, ends, int(steps[0]) if is_even else None)

    def taken(self, chosen: Any) -> Region:
        """Return the slices with these numbers."""
        return Region(self.data, self.starts[chosen], self.ends[chosen])

    def parts(self, words: Any, nulls: Any) -> Region:
        """Return the slices that words (offset, length) refer to, empty for nulls. Raises DamagedError."""
        import numpy

        offsets = numpy.where(nulls, 0, words >> 32)
        sizes = numpy.where(nulls, 0, words & 0xFFFFFFFF)
        starts = self.starts + offsets
        ends = starts + sizes
        wrong = (offsets < 0) | (ends > self.ends)
        if wrong.any():
            row = int(numpy.flatnonzero(wrong)[0])
            first = int(offsets[row])
            raise DamagedError(
                f"a row of {self.ends[row] - self.starts[row]} bytes refers to bytes {first} to "
                f"{first + int(sizes[row])}"
            )
        return Region(self.data, starts, ends)

    def at(self, offsets: Any, kind: str) -> Any:
        """Return the number of numpy type `kind` at each offset, a multiple of its size."""
        import numpy

        view = self.data.view(kind)
        return view[offsets // numpy.dtype(kind).itemsize]

    def words(self, offset: int) -> Any:
        """Return the 64-bit word of each row, `offset` bytes after its start."""
        if not self.aligned:
            return words_anywhere(self.data)[self.starts + offset]
        words = self.data.view("<i8")
        if self.stride is None:
            return words[(self.starts + offset) >> 3]
        first = (int(self.starts[0]) + offset) // WORD
        step = self.stride // WORD
        return words[first : first + step * (len(self.starts) - 1) + 1 : step]

    def check_room(self, least: int, fields: int) -> None:
        """Raise DamagedError if a row has less than `least` bytes."""
        import numpy

        short = self.ends - self.starts < least
        if short.any():
            row = int(numpy.flatnonzero(short)[0])
            length = int(self.ends[row] - self.starts[row])
            raise DamagedError(
                f"a row of {fields} fields has {length + 1} bytes, but needs at least {least + 1}: it was "
                "written with other columns than those of Spark's schema file, or is damaged"
            )


def built(kind: pyarrow.DataType, nulls: Any, data: list[Any], **options: Any) -> pyarrow.Array:
    """Return an array from numpy arrays; booleans are bytes, true unless 0."""
    import numpy
    import pyarrow

    if pyarrow.types.is_boolean(kind):
        data = [numpy.packbits(data[0] != 0, bitorder="little")]
    validity = pyarrow.py_buffer(numpy.packbits(~nulls, bitorder="little")) if nulls.any() else None
    buffers = [pyarrow.py_buffer(numpy.ascontiguousarray(part)) for part in data]
    return pyarrow.Array.from_buffers(kind, len(nulls), [validity, *buffers], **options)


def strings(field: pyarrow.Field, parts: Region, nulls: Any) -> pyarrow.Array:
    """Return strings or binaries.

    If they lie one after the other, Arrow copies every second slice between the consecutive bounds.
    """
    import numpy
    import pyarrow

    count = len(nulls)
    starts, ends = parts.starts, parts.ends
    if nulls.any():
        before = numpy.maximum.accumulate(numpy.where(nulls, 0, ends))
        starts, ends = numpy.where(nulls, before, starts), numpy.where(nulls, before, ends)
    if count and len(parts.data) < 1 << 31 and (starts[1:] >= ends[:-1]).all():
        bounds = numpy.empty(2 * count, numpy.int32)
        bounds[::2], bounds[1::2] = starts, ends
        buffers = [None, pyarrow.py_buffer(bounds), pyarrow.py_buffer(parts.data)]
        stretches = pyarrow.Array.from_buffers(pyarrow.binary(), 2 * count - 1, buffers)
        taken = stretches.take(pyarrow.array(numpy.arange(0, 2 * count, 2)))
        _, offsets, data = taken.buffers()
    else:
        lengths = ends - starts
        bounds = numpy.zeros(count + 1, numpy.int32)
        numpy.cumsum(lengths, out=bounds[1:])
        offsets = pyarrow.py_buffer(bounds)
        data = pyarrow.py_buffer(numpy.ascontiguousarray(gathered(parts.data, starts, lengths)))
    validity = pyarrow.py_buffer(numpy.packbits(~nulls, bitorder="little")) if nulls.any() else None
    binaries = pyarrow.Array.from_buffers(pyarrow.binary(), count, [validity, offsets, data])
    if pyarrow.types.is_binary(field.type):
        return binaries
    try:
        return binaries.cast(pyarrow.string())
    except pyarrow.ArrowInvalid as error:
        raise DamagedError(f"column '{field.name}' has a string that is not UTF-8: {error}") from error


def decimals(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    """Return decimals of 128 bits.

    Small ones are in the word; others are up to 16 bytes, big-endian, from the start of a word.
    """
    import numpy

    halves = numpy.empty((len(raw), 2), "<i8")
    if kind.precision <= SMALL_DECIMAL:
        halves[:, 0], halves[:, 1] = raw, raw >> 63
        return built(kind, nulls, [halves])
    parts = region.parts(raw, nulls)
    sizes = parts.ends - parts.starts
    known = ~nulls
    if (known & ((sizes < 1) | (sizes > 16))).any() or (parts.starts % WORD)[known].any():
        raise DamagedError(f"a value of type {kind} has not 1 to 16 bytes")
    offsets = numpy.where(known, parts.starts, 0)
    high = parts.at(offsets, "<i8").byteswap()
    low = parts.at(numpy.minimum(offsets + WORD, len(parts.data) - WORD), "<i8").byteswap().view("u8")
    unused_bits = numpy.where(known, (16 - sizes) * 8, 0)
    small, large = numpy.minimum(unused_bits, 63), numpy.clip(unused_bits - 64, 0, 63)
    carried = numpy.where(small == 0, 0, (high.view("u8") << ((64 - small) & 63).astype("u8")))
    halves[:, 0] = numpy.where(
        unused_bits < 64, ((low >> small.astype("u8")) | carried).view("<i8"), high >> large
    )
    halves[:, 1] = numpy.where(unused_bits < 64, high >> small, high >> 63)
    return built(kind, nulls, [halves])


def calendar_intervals(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    """Return intervals: 32 bits of months, 32 bits of days, and microseconds, made nanoseconds."""
    import numpy

    parts = region.parts(raw, nulls)
    if ((parts.ends - parts.starts)[~nulls] != 16).any():
        raise DamagedError("an interval has not 16 bytes")
    offsets = numpy.where(nulls, 0, parts.starts)
    halves = numpy.empty((len(raw), 2), "<i8")
    halves[:, 0] = parts.at(offsets, "<i8")
    halves[:, 1] = parts.at(numpy.minimum(offsets + WORD, len(parts.data) - WORD), "<i8") * 1000
    return built(kind, nulls, [halves])
