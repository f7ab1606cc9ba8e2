"""The partition of a key as Spark finds it: Murmur3 over the columns with the seed 42, modulo the partitions.

Spark's variant of Murmur3 mixes the bytes after the last full word of a text one by one, as signed numbers.
Nulls do not change the hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.data.rows.types import is_collated, is_geospatial, is_variant, width_of
from state_store.data.rows.values import unscaled_numbers
from state_store.errors import FormatError

if TYPE_CHECKING:
    import pyarrow

SEED = 42

_LONG_SLICE = 1024
"""Bytes from which a slice is hashed for itself: all others take as many steps as the longest has words."""


def partitions_of(columns: Sequence[pyarrow.Array], fields: Sequence[pyarrow.Field], partitions: int) -> Any:
    """Return the number of the partition of each row, as a numpy array of int64.

    Raises:
        FormatError: Spark does not partition by a type, or its equal values may differ in their bytes.
    """
    import numpy

    count = len(columns[0]) if columns else 0
    seeds = numpy.full(count, SEED, numpy.uint32)
    for column, field in zip(columns, fields, strict=True):
        if is_collated(field):
            raise FormatError(f"column '{field.name}' has a collation, whose hash is Spark's own")
        seeds = _hashed(column, seeds)
    return seeds.view(numpy.int32).astype(numpy.int64) % partitions


def _hashed(column: pyarrow.Array, seeds: Any) -> Any:
    import numpy
    import pyarrow

    nulls = column.is_null().to_numpy(zero_copy_only=False)
    kind, types = column.type, pyarrow.types
    if types.is_null(kind) or not len(column):
        return seeds
    if types.is_struct(kind) and not is_variant(kind) and not is_geospatial(kind):
        hashes = seeds
        for inner in column.flatten():
            hashes = _hashed(inner, hashes)
    elif types.is_list(kind):
        return _of_lists(column, seeds, nulls)
    elif types.is_string(kind) or types.is_binary(kind):
        hashes = _of_bytes(column, seeds)
    elif types.is_decimal128(kind) and width_of(kind) is None:
        hashes = _of_large_decimals(column, seeds, nulls)
    elif width_of(kind) is None:
        raise FormatError(f"Spark does not partition by values of type {kind}")
    else:
        hashes = _of_numbers(column, seeds)
    return numpy.where(nulls, seeds, hashes)


def _of_numbers(column: pyarrow.Array, seeds: Any) -> Any:
    import numpy
    import pyarrow

    kind, types = column.type, pyarrow.types
    count, offset = len(column), column.offset
    if types.is_boolean(kind):
        values = column.fill_null(False).to_numpy(zero_copy_only=False).astype(numpy.int32)
        return _of_ints(values, seeds)
    if types.is_decimal128(kind):
        return _of_longs(numpy.frombuffer(column.buffers()[1], "<i8")[::2][offset : offset + count], seeds)
    if types.is_floating(kind):
        values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        values = numpy.where(values == 0, values.dtype.type(0), values)  # -0.0 hashes as 0.0
        values = numpy.where(numpy.isnan(values), values.dtype.type("nan"), values)
        if types.is_float32(kind):
            return _of_ints(values.view(numpy.int32), seeds)
        return _of_longs(values.view(numpy.int64), seeds)
    width = width_of(kind)
    values = numpy.frombuffer(column.buffers()[1], f"<i{width}")[offset : offset + count]
    return _of_longs(values, seeds) if width == 8 else _of_ints(values.astype(numpy.int32), seeds)


def _of_bytes(column: pyarrow.Array, seeds: Any) -> Any:
    import numpy
    import pyarrow

    plain = column.cast(pyarrow.large_binary())
    bounds = numpy.frombuffer(plain.buffers()[1], "<i8")[plain.offset : plain.offset + len(plain) + 1]
    data = numpy.frombuffer((plain.buffers()[2] or b""), numpy.uint8)
    return _of_slices(data, bounds[:-1], numpy.diff(bounds), seeds)


def _of_large_decimals(column: pyarrow.Array, seeds: Any, nulls: Any) -> Any:
    """Hash the fewest bytes that hold each number, big-endian."""
    import numpy

    numbers = [_fewest_bytes(number) for number in unscaled_numbers(column)]
    lengths = numpy.array([len(number) for number in numbers], numpy.int64)
    data = numpy.frombuffer(b"".join(numbers), numpy.uint8)
    return _of_slices(data, numpy.cumsum(lengths) - lengths, lengths, seeds)


def _fewest_bytes(number: int) -> bytes:
    magnitude = number if number >= 0 else -number - 1
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _of_slices(data: Any, starts: Any, lengths: Any, seeds: Any) -> Any:
    """Hash slices: four bytes at a time, then single bytes."""
    import numpy

    hashes = seeds.copy()
    are_long = lengths >= _LONG_SLICE
    for number in numpy.flatnonzero(are_long).tolist():
        words = data[starts[number] : starts[number] + lengths[number] // 4 * 4].copy().view("<u4")
        hashes[number] = _after_words(int(hashes[number]), words)
    short = numpy.where(are_long, 0, lengths)
    for number in range(int(short.max(initial=0)) // 4):
        has = short >= 4 * (number + 1)
        offsets = starts[has, None] + 4 * number + numpy.arange(4)
        words = numpy.ascontiguousarray(data[offsets]).view("<u4").reshape(-1)
        hashes[has] = _mixed(hashes[has], words)
    aligned = lengths // 4 * 4
    for number in range(3):
        has = aligned + number < lengths
        single = data[(starts + aligned + number)[has]].view(numpy.int8).astype(numpy.int32)
        hashes[has] = _mixed(hashes[has], single.view(numpy.uint32))
    return _finished(hashes, lengths.astype(numpy.uint32))


def _after_words(state: int, words: Any) -> int:
    """Return the state of one hash after many words."""
    import numpy

    parts = _rotated(words * numpy.uint32(0xCC9E2D51), 15) * numpy.uint32(0x1B873593)
    for part in parts.tolist():
        state ^= part
        state = ((state << 13 | state >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    return state


def _of_lists(column: pyarrow.Array, seeds: Any, nulls: Any) -> Any:
    import numpy
    import pyarrow

    bounds = column.offsets.to_numpy(zero_copy_only=False).astype(numpy.int64)
    counts = numpy.where(nulls, 0, numpy.diff(bounds))
    hashes = seeds.copy()
    for number in range(int(counts.max(initial=0))):
        has = counts > number
        elements = column.values.take(pyarrow.array(bounds[:-1][has] + number))
        hashes[has] = _hashed(elements, hashes[has])
    return hashes


def _of_ints(values: Any, seeds: Any) -> Any:
    import numpy

    return _finished(_mixed(seeds, values.view(numpy.uint32)), numpy.uint32(4))


def _of_longs(values: Any, seeds: Any) -> Any:
    import numpy

    unsigned = numpy.ascontiguousarray(values).view(numpy.uint64)
    low = (unsigned & numpy.uint64(0xFFFFFFFF)).astype(numpy.uint32)
    high = (unsigned >> numpy.uint64(32)).astype(numpy.uint32)
    return _finished(_mixed(_mixed(seeds, low), high), numpy.uint32(8))


def _mixed(hashes: Any, words: Any) -> Any:
    import numpy

    words = _rotated(words * numpy.uint32(0xCC9E2D51), 15) * numpy.uint32(0x1B873593)
    return _rotated(hashes ^ words, 13) * numpy.uint32(5) + numpy.uint32(0xE6546B64)


def _rotated(words: Any, bits: int) -> Any:
    import numpy

    return (words << numpy.uint32(bits)) | (words >> numpy.uint32(32 - bits))


def _finished(hashes: Any, lengths: Any) -> Any:
    import numpy

    hashes = hashes ^ lengths
    hashes = (hashes ^ (hashes >> numpy.uint32(16))) * numpy.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> numpy.uint32(13))) * numpy.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> numpy.uint32(16))
