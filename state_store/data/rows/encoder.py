"""Arrow's columns as the rows that Spark's own writer makes: the reverse of the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.core.engine.rows import copy_slices
from state_store.data.rows.key_layouts import KeyLayout, binary_of, ordered_bytes
from state_store.data.rows.packed import ENCODING_VERSION, WORD
from state_store.data.rows.types import is_geospatial, is_variant, width_of
from state_store.data.rows.values import DECIMAL_BYTES, element_counts, nulls_of, numbers_in_place
from state_store.errors import FormatError

if TYPE_CHECKING:
    import pyarrow


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


def encode(columns: Sequence[pyarrow.Array], count: int, *, before: bytes = b"") -> list[bytes]:
    """Return `count` rows as stores have them, with the byte of the version, and `before` in front of that.

    The types of the columns are those of `state_store.data.rows.types`. Raises FormatError for another.
    """
    return texts_of(_rows(columns, count), before=before + bytes([ENCODING_VERSION]))


def encode_keys(
    columns: Sequence[pyarrow.Array], count: int, layout: KeyLayout, *, before: bytes = b""
) -> list[bytes]:
    """Return keys in their layout, each with `before` in front.

    Raises FormatError as `encode`, and for a type that cannot order keys.
    """
    if not layout.first:
        return encode(columns, count, before=before)
    chosen = [columns[number] for number in layout.first]
    first = encode(
        [binary_of(ordered_bytes(column)) for column in chosen] if layout.is_ordered else chosen, count
    )
    rest = encode([columns[number] for number in layout.others(len(columns))], count)
    return [
        before + len(part).to_bytes(4, "little") + part + other
        for part, other in zip(first, rest, strict=True)
    ]


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
        known = ~nulls | (blobs.sizes > 0)  # a decimal or an interval keeps its room if it is null
        fixed[:, index] = numpy.where(known, cursors * WORD << 32 | blobs.lengths, 0)
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
    shown = numpy.where(
        (moved < DECIMAL_BYTES) & ~nulls[:, None],
        numpy.take_along_axis(table, numpy.minimum(moved, DECIMAL_BYTES - 1), 1),
        0,
    ).astype(numpy.uint8)
    return _in_two_words(numpy.ascontiguousarray(shown).view("<i8").reshape(-1, 2), lengths, keeps_room)


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
        b"".join(parts) for parts in zip(map(bytes, heads), *(texts_of(each) for each in blobs), strict=True)
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
