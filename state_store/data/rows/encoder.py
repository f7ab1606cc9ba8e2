"""Arrow's columns as Spark's rows, and the partition in which Spark looks for a key.

Partitions are found by Murmur3 over the columns of a key with the seed 42, modulo their number. Spark's
variant of Murmur3 mixes the bytes after the last full word of a text one by one, as signed numbers. Nulls do
not change the hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.core.engine.rows import copy_slices
from state_store.data.rows.decoder import KeyLayout, binary_of, ordered_bytes
from state_store.data.rows.types import (
    ENCODING_VERSION,
    SMALL_DECIMAL,
    WORD,
    is_collated,
    is_geospatial,
    is_variant,
    width_of,
)
from state_store.errors import FormatError

if TYPE_CHECKING:
    import pyarrow

DECIMAL_BYTES = 16
"""Bytes of a decimal in Arrow."""

SEED = 42

_LONG_SLICE = 1024
"""Bytes from which a slice is hashed for itself: all others take as many steps as the longest has words."""


def numbers_in_place(column: pyarrow.Array, width: int) -> Any:
    """Return the numbers of a column as unsigned integers of `width` bytes (signed for 8)."""
    import numpy
    import pyarrow

    kind = column.type
    count, offset = len(column), column.offset
    if pyarrow.types.is_boolean(kind):
        bits = numpy.frombuffer(column.buffers()[1], numpy.uint8)
        return numpy.unpackbits(bits, bitorder="little")[offset : offset + count]
    if pyarrow.types.is_decimal128(kind):
        assert kind.precision <= SMALL_DECIMAL
        return numpy.frombuffer(column.buffers()[1], "<i8")[2 * offset : 2 * (offset + count) : 2]
    sign = "i" if width == WORD else "u"
    return numpy.frombuffer(column.buffers()[1], f"<{sign}{width}")[offset : offset + count]


def unscaled_numbers(column: pyarrow.Array) -> list[int]:
    """Return decimals of any precision without their point; 0 for nulls."""
    data = column.buffers()[1].to_pybytes()
    offsets = range(
        DECIMAL_BYTES * column.offset, DECIMAL_BYTES * (column.offset + len(column)), DECIMAL_BYTES
    )
    numbers = (int.from_bytes(data[at : at + DECIMAL_BYTES], "little", signed=True) for at in offsets)
    return [0 if null else number for number, null in zip(numbers, nulls_of(column).tolist(), strict=True)]


def element_counts(column: pyarrow.Array) -> Any:
    """Return the number of elements of each list or map, 0 for nulls, as a numpy array of int64."""
    import numpy

    bounds = column.offsets.to_numpy(zero_copy_only=False).astype(numpy.int64)
    return numpy.where(nulls_of(column), 0, numpy.diff(bounds))


def nulls_of(column: pyarrow.Array) -> Any:
    """Return a numpy array that is True for nulls."""
    return column.is_null().to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class Blobs:
    """Slices of bytes, each of which begins at a multiple of 8 and is padded with zeros.

    Attributes:
        words: the bytes, as an array of int64.
        starts: the start of each slice, in words.
        lengths: the length of each slice, in bytes.
    """

    words: Any
    starts: Any
    lengths: Any

    @property
    def sizes(self) -> Any:
        """Words of each slice."""
        return (self.lengths + WORD - 1) // WORD


@dataclass(frozen=True)
class RoomyBlobs(Blobs):
    """Slices with room for two words each, regardless of their lengths."""

    @property
    def sizes(self) -> Any:
        """Words of each slice: two."""
        import numpy

        return numpy.full(len(self.lengths), 2)


def texts_of(blobs: Blobs, *, before: bytes = b"") -> list[bytes]:
    """Return the bytes of each slice, with `before` in front."""
    data = blobs.words.tobytes()
    starts = (blobs.starts * WORD).tolist()
    ends = (blobs.starts * WORD + blobs.lengths).tolist()
    return [before + data[start:end] for start, end in zip(starts, ends, strict=True)]


def copy(words: Any, starts: Any, blobs: Blobs) -> None:
    """Copy each slice to its start, given in words, in `words`."""
    copy_slices(words, starts, blobs.words, blobs.starts, blobs.sizes)


def padded(data: Any, firsts: Any, lengths: Any) -> Blobs:
    """Return slices of `data`, a uint8 array, as blobs."""
    import numpy

    sizes = (lengths + WORD - 1) // WORD
    starts = numpy.cumsum(sizes) - sizes
    copied = numpy.zeros(int(sizes.sum()) * WORD, numpy.uint8)
    copy_slices(copied, starts * WORD, data, firsts, lengths)
    return Blobs(copied.view("<i8"), starts, lengths)


def encode(columns: Sequence[pyarrow.Array], count: int, *, before: bytes = b"") -> pyarrow.LargeBinaryArray:
    """Return `count` rows as stores have them, with the byte of the version, and `before` in front of that.

    The types of the columns are those of `state_store.data.rows.types`. Raises FormatError for another.
    """
    import numpy
    import pyarrow

    rows = _rows(columns, count)
    bounds = numpy.append(rows.starts, len(rows.words)) * WORD
    buffers = [None, pyarrow.py_buffer(bounds), pyarrow.py_buffer(rows.words)]
    texts = pyarrow.Array.from_buffers(pyarrow.large_binary(), count, buffers)
    return prefixed(before + bytes([ENCODING_VERSION]), texts)


def encode_keys(
    columns: Sequence[pyarrow.Array], count: int, layout: KeyLayout, *, before: bytes = b""
) -> pyarrow.LargeBinaryArray:
    """Return keys in their layout, each with `before` in front.

    Raises FormatError as `encode`, and for a type that cannot order keys.
    """
    if not layout.first:
        return encode(columns, count, before=before)
    firsts = [columns[number] for number in layout.first]
    first = encode(
        [binary_of(ordered_bytes(column)) for column in firsts] if layout.is_ordered else firsts, count
    )
    rest = encode([columns[number] for number in layout.others(len(columns))], count)
    return _concatenated(before, _sizes(first), first, rest)


def prefixed(prefix: bytes, texts: pyarrow.LargeBinaryArray) -> pyarrow.LargeBinaryArray:
    """Return bytes with the same ones in front of each."""
    return _concatenated(prefix, texts)


def _concatenated(prefix: bytes, *parts: pyarrow.LargeBinaryArray) -> pyarrow.LargeBinaryArray:
    import pyarrow
    import pyarrow.compute

    before, nothing = (pyarrow.scalar(text, pyarrow.large_binary()) for text in (prefix, b""))
    return pyarrow.compute.binary_join_element_wise(before, *parts, nothing)


def _sizes(texts: pyarrow.LargeBinaryArray) -> pyarrow.LargeBinaryArray:
    """Return the length of each text in 4 bytes."""
    import numpy
    import pyarrow

    lengths = numpy.diff(numpy.frombuffer(texts.buffers()[1], "<i8", len(texts) + 1, 8 * texts.offset))
    buffers = [None, pyarrow.py_buffer(lengths.astype("<u4"))]
    four_bytes = pyarrow.Array.from_buffers(pyarrow.binary(4), len(texts), buffers)
    return four_bytes.cast(pyarrow.large_binary())


def _rows(columns: Sequence[pyarrow.Array], count: int) -> Blobs:
    import numpy

    bitmap_words = (len(columns) + 63) // 64
    fixed = numpy.zeros((count, bitmap_words + len(columns)), "<i8")
    variable: list[tuple[int, Any, Blobs]] = []
    for index, column in enumerate(columns):
        nulls = nulls_of(column)
        fixed[:, index // 64] |= numpy.where(nulls, _bit(index % 64), 0)
        width = width_of(column.type)
        if width is not None:
            numbers = numbers_in_place(column, width).astype("<i8")
            fixed[:, bitmap_words + index] = numpy.where(nulls, 0, numbers)
        elif not _is_null(column.type):
            variable.append((bitmap_words + index, nulls, _blobs(column, keeps_room=True)))
    return _laid_out(fixed, variable)


def _laid_out(fixed: Any, variable: list[tuple[int, Any, Blobs]]) -> Blobs:
    """Return rows of their fixed words and the blobs after these, with offsets and sizes filled in."""
    import numpy

    count, width = fixed.shape
    cursors = numpy.full(count, width, numpy.int64)
    places = []
    for index, nulls, blobs in variable:
        has_blob = ~nulls | (blobs.sizes > 0)  # a decimal or an interval keeps its room if it is null
        fixed[:, index] = numpy.where(has_blob, cursors * WORD << 32 | blobs.lengths, 0)
        places.append(cursors)
        cursors = cursors + blobs.sizes
    starts = numpy.cumsum(cursors) - cursors
    words = numpy.zeros(int(cursors.sum()), "<i8")
    words[starts[:, None] + numpy.arange(width)] = fixed
    for (_, _, blobs), place in zip(variable, places, strict=True):
        copy(words, starts + place, blobs)
    return Blobs(words, starts, cursors * WORD)


def _blobs(column: pyarrow.Array, *, keeps_room: bool) -> Blobs:
    """Return the blobs of a column's words; with `keeps_room` some nulls have room, as in Spark."""
    import pyarrow

    kind, types = column.type, pyarrow.types
    if types.is_string(kind) or types.is_binary(kind):
        return _bytes(column)
    if types.is_decimal128(kind):
        return _decimals(column, keeps_room=keeps_room)
    if types.is_interval(kind):
        return _intervals(column, keeps_room=keeps_room)
    if types.is_struct(kind):
        if is_variant(kind):
            return _variants(column)
        return _geospatial(column) if is_geospatial(kind) else _structs(column)
    if types.is_map(kind):
        return _maps(column)
    if types.is_list(kind):
        return _arrays(column.flatten(), element_counts(column), nulls_of(column))
    raise FormatError(f"values of type {kind} cannot be written as Spark's rows")


def _bytes(column: pyarrow.Array) -> Blobs:
    import numpy
    import pyarrow

    plain = column.cast(pyarrow.large_binary())
    bounds = numpy.frombuffer(plain.buffers()[1], "<i8")[plain.offset : plain.offset + len(plain) + 1]
    data = numpy.frombuffer(plain.buffers()[2] or b"", numpy.uint8)
    lengths = numpy.where(nulls_of(column), 0, numpy.diff(bounds))
    return padded(data, bounds[:-1], lengths)


def _decimals(column: pyarrow.Array, *, keeps_room: bool) -> Blobs:
    """Return the fewest bytes of each number, big-endian, in 16 bytes."""
    import numpy

    halves = numpy.frombuffer(column.buffers()[1], "<i8").reshape(-1, 2)[
        column.offset : column.offset + len(column)
    ]
    nulls = nulls_of(column)
    table = numpy.ascontiguousarray(halves[:, ::-1].byteswap()).view(numpy.uint8).reshape(-1, DECIMAL_BYTES)
    sign = numpy.where(table[:, 0] & 0x80, 0xFF, 0).astype(numpy.uint8)
    differs = table != sign[:, None]
    first = numpy.where(differs.any(1), differs.argmax(1), DECIMAL_BYTES - 1)
    at_first = table[numpy.arange(len(table)), first]
    first = numpy.where(differs.any(1) & ((at_first ^ sign) & 0x80 != 0), first - 1, first)
    lengths = numpy.where(nulls, 0, DECIMAL_BYTES - first)
    moved = numpy.arange(DECIMAL_BYTES) + first[:, None]
    words = numpy.where(
        (moved < DECIMAL_BYTES) & ~nulls[:, None],
        numpy.take_along_axis(table, numpy.minimum(moved, DECIMAL_BYTES - 1), 1),
        0,
    ).astype(numpy.uint8)
    return _in_two_words(numpy.ascontiguousarray(words).view("<i8").reshape(-1, 2), lengths, keeps_room)


def _intervals(column: pyarrow.Array, *, keeps_room: bool) -> Blobs:
    import numpy

    halves = (
        numpy.frombuffer(column.buffers()[1], "<i8")
        .reshape(-1, 2)[column.offset : column.offset + len(column)]
        .copy()
    )
    nulls = nulls_of(column)
    halves[:, 1] //= 1000
    halves[nulls] = 0
    return _in_two_words(halves, numpy.where(nulls & (not keeps_room), 0, DECIMAL_BYTES), keeps_room)


def _in_two_words(halves: Any, lengths: Any, keeps_room: bool) -> Blobs:
    import numpy

    words, starts = halves.reshape(-1), numpy.arange(len(halves)) * 2
    return RoomyBlobs(words, starts, lengths) if keeps_room else Blobs(words, starts, lengths)


def _structs(column: pyarrow.Array) -> Blobs:
    import numpy

    nulls = nulls_of(column)
    rows = _rows(column.flatten(), len(column))
    return Blobs(rows.words, rows.starts, numpy.where(nulls, 0, rows.lengths))


def _variants(column: pyarrow.Array) -> Blobs:
    """Return the size of each value in 4 bytes, the value, the metadata."""
    import numpy

    value, metadata = (_bytes(part) for part in column.flatten())
    sizes = value.lengths.astype("<u4").view(numpy.uint8).reshape(-1, 4)
    return _joined(column, sizes, value, metadata)


def _geospatial(column: pyarrow.Array) -> Blobs:
    """Return the number of each reference system in 4 bytes, and the shape as WKB."""
    import numpy
    import pyarrow

    systems, shape = column.flatten()
    numbers = systems.fill_null(0).cast(pyarrow.int32()).to_numpy(zero_copy_only=False).astype("<i4")
    return _joined(column, numbers.view(numpy.uint8).reshape(-1, 4), _bytes(shape))


def _joined(column: pyarrow.Array, heads: Any, *blobs: Blobs) -> Blobs:
    """Return the 4 bytes of each head and the blobs after it, empty for nulls of the column."""
    import numpy

    nulls = nulls_of(column)
    parts = [
        b"".join(parts) for parts in zip(map(bytes, heads), *(texts_of(blob) for blob in blobs), strict=True)
    ]
    lengths = numpy.array([0 if null else len(part) for part, null in zip(parts, nulls, strict=True)], "<i8")
    data = numpy.frombuffer(b"".join(parts), numpy.uint8)
    every = numpy.array([len(part) for part in parts], "<i8")
    return padded(data, numpy.cumsum(every) - every, lengths)


def _maps(column: pyarrow.Array) -> Blobs:
    """Return the size of each array of keys in a word, that array, and the array of values."""
    import numpy

    nulls, counts = nulls_of(column), element_counts(column)
    first = column.offsets[0].as_py()
    within = slice(first, column.offsets[len(column)].as_py())
    keys = _arrays(column.keys[within], counts, nulls)
    items = _arrays(column.items[within], counts, nulls)
    sizes = numpy.where(nulls, 0, 1 + keys.sizes + items.sizes)
    starts = numpy.cumsum(sizes) - sizes
    words = numpy.zeros(int(sizes.sum()), "<i8")
    words[starts[~nulls]] = keys.lengths[~nulls]
    copy(words, starts + 1, keys)
    copy(words, starts + 1 + keys.sizes, items)
    return Blobs(words, starts, sizes * WORD)


def _arrays(elements: pyarrow.Array, counts: Any, nulls: Any) -> Blobs:
    """Return arrays of `counts` consecutive elements."""
    import numpy

    missing, width = nulls_of(elements), width_of(elements.type)
    bitmap_words = (counts + 63) // 64
    blobs = None if width is not None or _is_null(elements.type) else _blobs(elements, keeps_room=False)
    step = WORD if width is None else width
    fixed_words = (counts * step + WORD - 1) // WORD
    ends = numpy.cumsum(counts)
    owners = numpy.repeat(numpy.arange(len(counts)), counts)
    positions = numpy.arange(len(elements)) - (ends - counts)[owners]
    inner = numpy.zeros(len(elements), numpy.int64) if blobs is None else numpy.where(missing, 0, blobs.sizes)
    before = numpy.cumsum(inner) - inner
    firsts = before[(ends - counts)[counts > 0]]
    first_of = numpy.zeros(len(counts), numpy.int64)
    first_of[counts > 0] = firsts
    contents = numpy.bincount(owners, inner, len(counts)).astype(numpy.int64)
    sizes = numpy.where(nulls, 0, 1 + bitmap_words + fixed_words + contents)
    starts = numpy.cumsum(sizes) - sizes
    words = numpy.zeros(int(sizes.sum()), "<i8")
    words[starts[~nulls]] = counts[~nulls]
    lost = numpy.flatnonzero(missing)
    bits = numpy.left_shift(1, (positions[lost] % 64).astype("u8"), dtype="u8").view("<i8")
    numpy.bitwise_or.at(words, starts[owners[lost]] + 1 + positions[lost] // 64, bits)
    begins = (starts + 1 + bitmap_words)[owners] * WORD + positions * step
    if width is not None:
        values = numpy.where(missing, 0, numbers_in_place(elements, width)).astype(f"<u{width}")
        words.view(f"<u{width}")[begins // width] = values
    elif blobs is not None:
        inside = (1 + bitmap_words + fixed_words)[owners] + before - first_of[owners]
        words[begins // WORD] = numpy.where(missing, 0, inside * WORD << 32 | blobs.lengths)
        copy(words, starts[owners] + inside, blobs)
    return Blobs(words, starts, sizes * WORD)


def _is_null(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_null(kind))


def _bit(number: int) -> int:
    """Return the bit as a signed 64-bit number."""
    return 1 << number if number < 63 else -(1 << 63)


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
