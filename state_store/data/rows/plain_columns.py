"""Columns whose values have no others in them, made of what lies in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from state_store.data.rows.packed import WORD, gathered
from state_store.data.rows.region import Region
from state_store.data.rows.widths import SMALL_DECIMAL
from state_store.errors import DamagedError

if TYPE_CHECKING:
    import pyarrow


def built(kind: pyarrow.DataType, nulls: Any, data: list[Any], **more: Any) -> pyarrow.Array:
    """An array from numpy arrays; booleans are bytes that are not 0."""
    import numpy
    import pyarrow

    if pyarrow.types.is_boolean(kind):
        data = [numpy.packbits(data[0] != 0, bitorder="little")]
    validity = pyarrow.py_buffer(numpy.packbits(~nulls, bitorder="little")) if nulls.any() else None
    buffers = [pyarrow.py_buffer(numpy.ascontiguousarray(one)) for one in data]
    return pyarrow.Array.from_buffers(kind, len(nulls), [validity, *buffers], **more)


def strings(field: pyarrow.Field, parts: Region, nulls: Any) -> pyarrow.Array:
    """Strings or binaries. Where they lie one after the other, Arrow copies every second one of the stretches
    that their bounds make.
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
    """128 bits each: from the word, or from up to 16 bytes, big-endian, from the begin of a word on."""
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
    places = numpy.where(known, parts.starts, 0)
    high = parts.at(places, "<i8").byteswap()
    low = parts.at(numpy.minimum(places + WORD, len(parts.data) - WORD), "<i8").byteswap().view("u8")
    away = numpy.where(known, (16 - sizes) * 8, 0)
    small, large = numpy.minimum(away, 63), numpy.clip(away - 64, 0, 63)
    carried = numpy.where(small == 0, 0, (high.view("u8") << ((64 - small) & 63).astype("u8")))
    halves[:, 0] = numpy.where(away < 64, ((low >> small.astype("u8")) | carried).view("<i8"), high >> large)
    halves[:, 1] = numpy.where(away < 64, high >> small, high >> 63)
    return built(kind, nulls, [halves])


def calendar_intervals(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    """Months and days, 32 bits each, and microseconds; Arrow has nanoseconds."""
    import numpy

    parts = region.parts(raw, nulls)
    if ((parts.ends - parts.starts)[~nulls] != 16).any():
        raise DamagedError("an interval has not 16 bytes")
    places = numpy.where(nulls, 0, parts.starts)
    halves = numpy.empty((len(raw), 2), "<i8")
    halves[:, 0] = parts.at(places, "<i8")
    halves[:, 1] = parts.at(numpy.minimum(places + WORD, len(parts.data) - WORD), "<i8") * 1000
    return built(kind, nulls, [halves])
