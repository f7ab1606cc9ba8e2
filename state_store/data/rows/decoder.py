"""Spark's rows as Arrow's columns: UnsafeRow decoded with numpy, without a Python object for each row.

An UnsafeRow is a null bitmap of 8-byte words, one 8-byte word a field (the value, or offset and length of the
bytes that follow, relative to the row), then the bytes. A nested struct is such a row again. An array is the
number of its elements, a null bitmap, the elements in their own width and the bytes that they refer to. A map
is the size of an array of keys, that array and one of values. All numbers are little-endian, and all parts
begin at multiples of 8.

A key that is encoded for range or prefix scans has another layout:

- plain: a row;
- prefix: 4 bytes with the size of the first part, a row of the first columns, a row of the others;
- range: the same, but the columns of the first part order the rows.

A column that orders rows is a number as bytes that sort as the numbers do: a byte that says negative (0), not
negative (1) or null (2), then the bytes of the number, big-endian; the bits of a negative float are inverted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.data.rows.types import (
    SMALL_DECIMAL,
    WORD,
    Packed,
    gathered,
    is_geospatial,
    is_variant,
    joined,
    width_of,
    words_anywhere,
)
from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow

_SIZE_BYTES = 4
_NEGATIVE, _NOT_NEGATIVE, _NULL = 0, 1, 2


def decode(rows: Sequence[bytes] | Packed, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Decode rows into a batch.

    Args:
        rows: the rows, with the byte of the version, or packed.
        schema: the fields of Spark's schema in order, with the types of `state_store.data.rows.types`.

    Raises:
        FormatError: a field has another type, or a row another encoding.
        DamagedError: a row is too short or refers to bytes outside of it.
    """
    import pyarrow

    packed = rows if isinstance(rows, Packed) else Packed.of(rows)
    columns = _fields_of(Region.of(packed), list(schema))
    if not columns:
        return pyarrow.RecordBatch.from_struct_array(_empty_structs(len(packed)))
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def decode_fields(
    rows: Sequence[bytes] | tuple[Any, Any, Any],
    fields: Sequence[pyarrow.Field],
    only: Collection[int] | None = None,
    *,
    skip: int = 0,
) -> list[pyarrow.Array]:
    """Decode columns of rows that have the byte of their version in front.

    Args:
        rows: the rows, as a list or as parts of one buffer (data, starts, lengths).
        fields: the columns of the rows.
        only: the numbers of the columns to decode, in order; None is all.
        skip: the number of other bytes before each row.

    Raises:
        FormatError: as `decode`.
        DamagedError: as `decode`.
    """
    if not isinstance(rows, tuple):
        return _fields_of(Region.of(Packed.of(rows, skip=skip)), fields, only)
    decoded_fields = [field for number, field in enumerate(fields) if only is None or number in only]
    data, starts, lengths = rows
    aligned = not all(_lies_anywhere(field.type) for field in decoded_fields)
    packed = Packed.of_slices(data, starts + skip, lengths - skip, aligned=aligned)
    return _fields_of(Region.of(packed), fields, only)


def _lies_anywhere(kind: pyarrow.DataType) -> bool:
    """Return True if values may begin at any byte: other types are read by words."""
    import pyarrow

    types = pyarrow.types
    is_bytes = types.is_string(kind) or types.is_binary(kind)
    return is_bytes or types.is_null(kind) or width_of(kind) is not None


def _fields_of(
    region: Region, fields: Sequence[pyarrow.Field], only: Collection[int] | None = None
) -> list[pyarrow.Array]:
    """Return the columns numbered `only` (None: all), in order, of the rows in a region."""
    import numpy

    bitmap_bytes = _bitmap_bytes(len(fields))
    region.check_room(bitmap_bytes + len(fields) * WORD, len(fields))
    columns: list[pyarrow.Array] = []
    none = numpy.zeros(len(region.starts), bool)
    bitmap, missing = none, 0
    for index, field in enumerate(fields):
        if index % 64 == 0:
            bitmap = region.words(index // 64 * WORD)
            missing = int(numpy.bitwise_or.reduce(bitmap))
        if only is not None and index not in only:
            continue
        nulls = (bitmap >> (index % 64)) & 1 == 1 if missing >> (index % 64) & 1 else none
        words = region.words(bitmap_bytes + index * WORD)
        columns.append(_array(field, _narrowed(words, field.type), nulls, region))
    return columns


def _array(field: pyarrow.Field, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    """Return one column; `raw` are its values in their width, or words that refer to bytes of `region`."""
    import pyarrow

    kind, types = field.type, pyarrow.types
    if types.is_null(kind):
        return pyarrow.nulls(len(raw))
    if types.is_string(kind) or types.is_binary(kind):
        return strings(field, region.parts(raw, nulls), nulls)
    if types.is_decimal128(kind):
        return decimals(kind, raw, nulls, region)
    if types.is_struct(kind):
        return _structs(kind, raw, nulls, region)
    if types.is_map(kind):
        return _maps(kind, raw, nulls, region)
    if types.is_list(kind):
        return _lists(kind, raw, nulls, region)
    if types.is_interval(kind):
        return calendar_intervals(kind, raw, nulls, region)
    if width_of(kind) is None:
        raise FormatError(f"column '{field.name}' has type {kind}, which cannot be read from Spark's rows")
    return built(kind, nulls, [raw])


def _narrowed(words: Any, kind: pyarrow.DataType) -> Any:
    """Return the numbers in the low bytes of the words."""
    width = width_of(kind)
    return words if width in (None, 8) else words.astype(f"<i{width}")


def _structs(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    import numpy
    import pyarrow

    present = numpy.flatnonzero(~nulls)
    parts = region.parts(raw, nulls).taken(present)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    if is_variant(kind):
        columns = _variant_columns(fields, parts)
    elif is_geospatial(kind):
        columns = _geospatial_columns(fields, parts)
    else:
        columns = _fields_of(parts, fields)
    structs = (
        pyarrow.StructArray.from_arrays(columns, fields=fields) if fields else _empty_structs(len(present))
    )
    return _spread(structs, nulls)


def _variant_columns(fields: list[pyarrow.Field], parts: Region) -> list[pyarrow.Array]:
    """Split a variant: 4 bytes with the size of the value, the value, the metadata."""
    import numpy

    if (parts.ends - parts.starts < 4).any():
        raise DamagedError("a variant has less than 4 bytes")
    middles = parts.starts + 4 + parts.at(parts.starts, "<u4")
    if (middles > parts.ends).any():
        raise DamagedError("a variant is longer than its slot")
    present = numpy.zeros(len(parts.starts), bool)
    return [
        strings(fields[0], Region(parts.data, parts.starts + 4, middles), present),
        strings(fields[1], Region(parts.data, middles, parts.ends), present),
    ]


def _geospatial_columns(fields: list[pyarrow.Field], parts: Region) -> list[pyarrow.Array]:
    """Split a geometry or geography: 4 bytes with the reference system, and the shape as WKB."""
    import numpy

    if (parts.ends - parts.starts < 4).any():
        raise DamagedError("a geometry or geography has less than 4 bytes")
    present = numpy.zeros(len(parts.starts), bool)
    systems = built(fields[0].type, present, [parts.at(parts.starts, "<i4")])
    return [systems, strings(fields[1], Region(parts.data, parts.starts + 4, parts.ends), present)]


def _spread(values: pyarrow.Array, nulls: Any) -> pyarrow.Array:
    """Return the values, in order, in the positions without a null."""
    import numpy
    import pyarrow

    if not nulls.any():
        return values
    return values.take(pyarrow.array(numpy.cumsum(~nulls) - 1, mask=nulls))


def _lists(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    parts = region.parts(raw, nulls)
    offsets, elements = _elements(kind.value_field, parts, nulls)
    return built(kind, nulls, [offsets], children=[elements])


def _maps(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    import numpy
    import pyarrow

    parts = region.parts(raw, nulls)
    present = ~nulls
    if (parts.ends - parts.starts < WORD)[present].any():
        raise DamagedError("a map has less than 8 bytes")
    firsts = numpy.where(nulls, parts.starts, parts.starts + WORD)
    middles = numpy.where(nulls, parts.starts, firsts + parts.at(numpy.where(nulls, 0, parts.starts), "<i8"))
    if ((middles < firsts) | (middles > parts.ends)).any():
        raise DamagedError("a map is longer than its slot")
    offsets, keys = _elements(kind.key_field, Region(parts.data, firsts, middles), nulls)
    item_offsets, items = _elements(kind.item_field, Region(parts.data, middles, parts.ends), nulls)
    if (offsets != item_offsets).any():
        raise DamagedError("a map has different numbers of keys and values")
    entries = pyarrow.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return built(kind, nulls, [offsets], children=[entries])


def _elements(field: pyarrow.Field, arrays: Region, nulls: Any) -> tuple[Any, pyarrow.Array]:
    """Return the offsets of all arrays, and their elements."""
    import numpy

    if (arrays.starts % WORD != 0).any():
        raise DamagedError("an array does not begin at a multiple of 8 bytes")
    sizes = arrays.ends - arrays.starts
    if (sizes[~nulls] < WORD).any():
        raise DamagedError("an array has less than 8 bytes")
    counts = numpy.where(nulls, 0, arrays.at(numpy.where(nulls, 0, arrays.starts), "<i8"))
    width = width_of(field.type) or WORD
    first = WORD + (counts + 63) // 64 * WORD
    if ((counts < 0) | (counts > sizes) | ((first + counts * width > sizes) & ~nulls)).any():
        raise DamagedError("an array is longer than its slot")
    offsets = numpy.zeros(len(counts) + 1, numpy.int32)
    numpy.cumsum(counts, out=offsets[1:])
    owners = numpy.repeat(numpy.arange(len(counts)), counts)
    positions = numpy.arange(int(offsets[-1])) - offsets[:-1][owners]
    starts = arrays.starts[owners]
    bitmap = arrays.at(starts + WORD + positions // 64 * WORD, "<i8")
    missing = (bitmap >> (positions % 64)) & 1 == 1
    raw = arrays.at(starts + first[owners] + positions * width, f"<i{width}")
    return offsets, _array(field, raw, missing, arrays.taken(owners))


def _bitmap_bytes(fields: int) -> int:
    return (fields + 63) // 64 * WORD


def _empty_structs(count: int) -> pyarrow.Array:
    import pyarrow

    return pyarrow.Array.from_buffers(pyarrow.struct([]), count, [None])


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

    def taken(self, selection: Any) -> Region:
        """Return the slices with these numbers."""
        return Region(self.data, self.starts[selection], self.ends[selection])

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


_FEW = 4096
"""So many texts are copied sooner than Arrow's functions of arrays are imported."""


def strings(field: pyarrow.Field, parts: Region, nulls: Any) -> pyarrow.Array:
    """Return strings or binaries.

    If many lie one after the other, Arrow copies every second slice between the consecutive bounds.
    """
    import numpy
    import pyarrow

    count = len(nulls)
    starts, ends = parts.starts, parts.ends
    if nulls.any():
        before = numpy.maximum.accumulate(numpy.where(nulls, 0, ends))
        starts, ends = numpy.where(nulls, before, starts), numpy.where(nulls, before, ends)
    if count > _FEW and len(parts.data) < 1 << 31 and (starts[1:] >= ends[:-1]).all():
        bounds = numpy.empty(2 * count, numpy.int32)
        bounds[::2], bounds[1::2] = starts, ends
        buffers = [None, pyarrow.py_buffer(bounds), pyarrow.py_buffer(parts.data)]
        stretches = pyarrow.Array.from_buffers(pyarrow.binary(), 2 * count - 1, buffers)
        texts = stretches.take(pyarrow.array(numpy.arange(0, 2 * count, 2)))
        _, offsets, data = texts.buffers()
    else:
        lengths = ends - starts
        bounds = numpy.zeros(count + 1, numpy.int32)
        numpy.cumsum(lengths, out=bounds[1:])
        offsets = pyarrow.py_buffer(bounds)
        data = pyarrow.py_buffer(numpy.ascontiguousarray(gathered(parts.data, starts, lengths)))
    validity = pyarrow.py_buffer(numpy.packbits(~nulls, bitorder="little")) if nulls.any() else None
    array = pyarrow.Array.from_buffers(field.type, count, [validity, offsets, data])
    if pyarrow.types.is_string(field.type):
        try:
            array.validate(full=True)
        except pyarrow.ArrowInvalid as error:
            raise DamagedError(
                f"column '{field.name}' has a string that is not UTF-8 ({error}). If verify finds no damage, "
                "the query has made it, by a cast of a binary: others can be read (--columns, columns=)"
            ) from error
    return array


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
    present = ~nulls
    if (present & ((sizes < 1) | (sizes > 16))).any() or (parts.starts % WORD)[present].any():
        raise DamagedError(f"a value of type {kind} has not 1 to 16 bytes")
    offsets = numpy.where(present, parts.starts, 0)
    high = parts.at(offsets, "<i8").byteswap()
    low = parts.at(numpy.minimum(offsets + WORD, len(parts.data) - WORD), "<i8").byteswap().view("u8")
    unused_bits = numpy.where(present, (16 - sizes) * 8, 0)
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


@dataclass(frozen=True)
class KeyLayout:
    """The encoding of keys.

    Attributes:
        first: the numbers of the columns in the first part; empty for a plain key.
        is_ordered: True if these columns order the rows.
    """

    first: tuple[int, ...] = ()
    is_ordered: bool = False

    def others(self, count: int) -> list[int]:
        """Return the numbers of the columns, out of `count`, that are not in the first part."""
        return [number for number in range(count) if number not in self.first]


def decode_keys(
    keys: Sequence[bytes] | tuple[Any, Any, Any],
    fields: Sequence[pyarrow.Field],
    layout: KeyLayout,
    *,
    skip: int = 0,
    only: Sequence[int] | None = None,
) -> list[pyarrow.Array]:
    """Decode columns of encoded keys.

    Args:
        keys: the keys, as a list or as parts of one buffer (data, starts, lengths).
        fields: the columns of the key.
        layout: the encoding.
        skip: the number of other bytes before each key.
        only: the numbers of the columns to decode; None is all.

    Raises:
        FormatError: as `decode`.
        DamagedError: as `decode`.
    """
    numbers = list(range(len(fields))) if only is None else list(only)
    if not layout.first:
        return decode_fields(keys, fields, numbers, skip=skip)
    first, rest = _parts(keys if isinstance(keys, tuple) else joined(keys), skip)
    others = layout.others(len(fields))
    columns = dict(zip(layout.first, _first_columns(first, fields, layout), strict=True))
    if others:
        columns |= zip(others, decode_fields(rest, [fields[number] for number in others]), strict=True)
    return [columns[number] for number in numbers]


def _parts(keys: tuple[Any, Any, Any], skip: int) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    import numpy

    data, starts, lengths = keys
    starts, lengths = starts + skip, lengths - skip
    if (lengths < _SIZE_BYTES).any():
        raise DamagedError("a key with a prefix has less than 4 bytes")
    sizes = data[starts[:, None] + numpy.arange(_SIZE_BYTES)].view("<i4").reshape(-1).astype(numpy.int64)
    if ((sizes < 1) | (sizes > lengths - _SIZE_BYTES)).any():
        raise DamagedError("the prefix of a key is longer than the key")
    middles = starts + _SIZE_BYTES + sizes
    return (data, starts + _SIZE_BYTES, sizes), (data, middles, lengths - _SIZE_BYTES - sizes)


def _first_columns(
    part: tuple[Any, Any, Any], fields: Sequence[pyarrow.Field], layout: KeyLayout
) -> list[pyarrow.Array]:
    import pyarrow

    first_fields = [fields[number] for number in layout.first]
    if not layout.is_ordered:
        return decode_fields(part, first_fields)
    encoded = decode_fields(part, [pyarrow.field(field.name, pyarrow.binary()) for field in first_fields])
    return [ordered_numbers(field, column) for field, column in zip(first_fields, encoded, strict=True)]


def ordered_numbers(field: pyarrow.Field, encoded: pyarrow.Array) -> pyarrow.Array:
    """Decode numbers from bytes that sort alike.

    Raises:
        FormatError: the type cannot order keys.
        DamagedError: the bytes have another length.
    """
    import numpy
    import pyarrow

    width, count = _width(field.name, field.type), len(encoded)
    data = numpy.frombuffer(encoded.buffers()[2] or b"", numpy.uint8)[: count * (width + 1)]
    if encoded.null_count or len(data) != count * (width + 1):
        raise DamagedError(f"a key has not {width + 1} bytes for column '{field.name}'")
    table = data.reshape(count, width + 1)
    values = numpy.ascontiguousarray(table[:, 1:]).view(f">i{width}").reshape(-1).astype(f"<i{width}")
    if pyarrow.types.is_floating(field.type):
        values = numpy.where(table[:, 0] == _NEGATIVE, ~values, values)
    nulls = table[:, 0] == _NULL
    validity = pyarrow.py_buffer(numpy.packbits(~nulls, bitorder="little")) if nulls.any() else None
    return pyarrow.Array.from_buffers(field.type, count, [validity, pyarrow.py_buffer(values)])


def ordered_bytes(column: pyarrow.Array) -> Any:
    """Encode numbers as bytes that sort alike: a numpy table of uint8 with a row for each.

    Raises:
        FormatError: the type cannot order keys.
    """
    import numpy
    import pyarrow

    width, count = _width("", column.type), len(column)
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    stored = numpy.frombuffer(column.buffers()[1] or b"", f"<i{width}")[column.offset : column.offset + count]
    values = numpy.where(nulls, 0, stored)
    is_negative = values < 0
    if pyarrow.types.is_floating(column.type):
        values = numpy.where(is_negative, ~values, values)
    table = numpy.empty((count, width + 1), numpy.uint8)
    table[:, 0] = numpy.where(nulls, _NULL, numpy.where(is_negative, _NEGATIVE, _NOT_NEGATIVE))
    table[:, 1:] = values.astype(f">i{width}").view(numpy.uint8).reshape(count, width)
    return table


def binary_of(table: Any) -> pyarrow.Array:
    """Return the rows of a numpy table of bytes as binary values."""
    import numpy
    import pyarrow

    count, width = table.shape
    data = pyarrow.py_buffer(numpy.ascontiguousarray(table))
    return pyarrow.Array.from_buffers(pyarrow.binary(width), count, [None, data]).cast(pyarrow.binary())


def _width(name: str, kind: pyarrow.DataType) -> int:
    import pyarrow

    width = width_of(kind)
    if width is None or pyarrow.types.is_boolean(kind) or pyarrow.types.is_decimal(kind):
        raise FormatError(f"column '{name}' of type {kind} cannot order keys")
    return width
