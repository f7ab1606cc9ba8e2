"""Spark's rows as Arrow's columns: UnsafeRow decoded with numpy, without a Python object for each row.

An UnsafeRow is a null bitmap of 8-byte words, one 8-byte word a field (the value, or offset and length of the
bytes that follow, relative to the row), then the bytes. A nested struct is such a row again. An array is the
number of its elements, a null bitmap, the elements in their own width and the bytes that they refer to. A map
is the size of an array of keys, that array and one of values. All numbers are little-endian, and all parts
begin at multiples of 8.

A key that is encoded for range or prefix scans has another layout (`state_store.data.rows.key_layouts`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from state_store.data.rows.packed import WORD, Packed
from state_store.data.rows.plain_columns import Region, built, calendar_intervals, decimals, strings
from state_store.data.rows.types import is_geospatial, is_variant, width_of
from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow


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
    wanted = [field for number, field in enumerate(fields) if only is None or number in only]
    data, starts, lengths = rows
    aligned = not all(_lies_anywhere(field.type) for field in wanted)
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

    known = numpy.flatnonzero(~nulls)
    parts = region.parts(raw, nulls).taken(known)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    if is_variant(kind):
        columns = _variant_columns(fields, parts)
    elif is_geospatial(kind):
        columns = _geospatial_columns(fields, parts)
    else:
        columns = _fields_of(parts, fields)
    structs = (
        pyarrow.StructArray.from_arrays(columns, fields=fields) if fields else _empty_structs(len(known))
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
    known = ~nulls
    if (parts.ends - parts.starts < WORD)[known].any():
        raise DamagedError("a map has less than 8 bytes")
    firsts = numpy.where(nulls, parts.starts, parts.starts + WORD)
    middles = numpy.where(nulls, parts.starts, firsts + parts.at(numpy.where(nulls, 0, parts.starts), "<i8"))
    if ((middles < firsts) | (middles > parts.ends)).any():
        raise DamagedError("a map is longer than its slot")
    offsets, keys = _elements(kind.key_field, Region(parts.data, firsts, middles), nulls)
    item_offsets, items = _elements(kind.item_field, Region(parts.data, middles, parts.ends), nulls)
    if (offsets != item_offsets).any():
        raise DamagedError("a map has other numbers of keys and values")
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
