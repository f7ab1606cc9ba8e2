"""Spark's rows as Arrow's columns: UnsafeRow decoded column by column, with numpy, no Python object a row.

An UnsafeRow is a null bitmap of 8-byte words, one 8-byte word a field (the value, or offset and length of the
bytes that follow, relative to the row), then the bytes. A nested struct is such a row again; an array is the
number of its elements, a null bitmap, the elements in their own width and what they refer to; a map is the
size of an array of keys, that array and one of values. All is little-endian, and begins at multiples of 8.

A key that is encoded for range or prefix scans has another layout (`state_store.rows.keys`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from state_store.errors import DamagedError, FormatError
from state_store.rows.packed import WORD, Packed, gathered
from state_store.rows.region import Region
from state_store.rows.types import is_geospatial, is_variant

if TYPE_CHECKING:
    import pyarrow

SMALL_DECIMAL = 18
"""Digits of a decimal that fits into its word."""


def decode(rows: Sequence[bytes] | Packed, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """The rows as columns of `schema`, which has the fields of Spark's schema in order, their types as
    `state_store.rows.types` maps them.

    Raises FormatError for a field of another type or a row of another encoding, DamagedError for a row that
    is too short or refers to bytes outside of it.
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
    """The columns numbered `only`, in order (None: all), of rows with the byte of their version in front,
    each after `skip` other bytes: texts, or parts of bytes (data, starts, lengths). Raises as `decode`."""
    if not isinstance(rows, tuple):
        return _fields_of(Region.of(Packed.of(rows, skip=skip)), fields, only)
    wanted = [field for number, field in enumerate(fields) if only is None or number in only]
    data, starts, lengths = rows
    aligned = not all(_lies_anywhere(field.type) for field in wanted)
    packed = Packed.of_slices(data, starts + skip, lengths - skip, aligned=aligned)
    return _fields_of(Region.of(packed), fields, only)


def _lies_anywhere(kind: pyarrow.DataType) -> bool:
    """Whether values are read wherever they begin: others by words, which begin at multiples of 8."""
    import pyarrow

    types = pyarrow.types
    is_bytes = types.is_string(kind) or types.is_binary(kind)
    return is_bytes or types.is_null(kind) or width_of(kind) is not None


def _fields_of(
    region: Region, fields: Sequence[pyarrow.Field], only: Collection[int] | None = None
) -> list[pyarrow.Array]:
    """The columns of rows that lie there; those numbered `only`, in order (None: all)."""
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
    """One column. `raw` are its values in their width, or words that refer to bytes of `region`."""
    import pyarrow

    kind, types = field.type, pyarrow.types
    if types.is_null(kind):
        return pyarrow.nulls(len(raw))
    if types.is_string(kind) or types.is_binary(kind):
        return _bytes(field, region.parts(raw, nulls), nulls)
    if types.is_decimal128(kind):
        return _decimals(kind, raw, nulls, region)
    if types.is_struct(kind):
        return _structs(kind, raw, nulls, region)
    if types.is_map(kind):
        return _maps(kind, raw, nulls, region)
    if types.is_list(kind):
        return _lists(kind, raw, nulls, region)
    if types.is_interval(kind):
        return _calendar_intervals(kind, raw, nulls, region)
    if width_of(kind) is None:
        raise FormatError(
            f"column '{field.name}' has type {kind}, which cannot be read from Spark's rows yet"
        )
    return _built(kind, nulls, [raw])


def width_of(kind: pyarrow.DataType) -> int | None:
    """Bytes of a value that is stored in place, in an array as in a row; None where the word refers to it."""
    import pyarrow

    types = pyarrow.types
    if types.is_boolean(kind) or types.is_int8(kind):
        return 1
    if types.is_int16(kind):
        return 2
    if types.is_int32(kind) or types.is_date32(kind) or types.is_float32(kind):
        return 4
    if types.is_int64(kind) or types.is_float64(kind):
        return 8
    if (types.is_timestamp(kind) or types.is_duration(kind)) and kind.unit == "us":
        return 8
    if types.is_time64(kind) or (types.is_decimal128(kind) and kind.precision <= SMALL_DECIMAL):
        return 8
    return None


def _narrowed(words: Any, kind: pyarrow.DataType) -> Any:
    """What is in the low bytes of the words."""
    width = width_of(kind)
    return words if width in (None, 8) else words.astype(f"<i{width}")


def _built(kind: pyarrow.DataType, nulls: Any, data: list[Any], **more: Any) -> pyarrow.Array:
    """An array from numpy arrays; booleans are bytes that are not 0."""
    import numpy
    import pyarrow

    if pyarrow.types.is_boolean(kind):
        data = [numpy.packbits(data[0] != 0, bitorder="little")]
    validity = pyarrow.py_buffer(numpy.packbits(~nulls, bitorder="little")) if nulls.any() else None
    buffers = [pyarrow.py_buffer(numpy.ascontiguousarray(one)) for one in data]
    return pyarrow.Array.from_buffers(kind, len(nulls), [validity, *buffers], **more)


def _bytes(field: pyarrow.Field, parts: Region, nulls: Any) -> pyarrow.Array:
    """Strings or binaries. Where they lie one after the other, Arrow copies every second one of the stretches
    that their bounds make."""
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
    found = pyarrow.Array.from_buffers(pyarrow.binary(), count, [validity, offsets, data])
    if pyarrow.types.is_binary(field.type):
        return found
    try:
        return found.cast(pyarrow.string())
    except pyarrow.ArrowInvalid as error:
        raise DamagedError(f"column '{field.name}' has a string that is not UTF-8: {error}") from error


def _decimals(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    """128 bits each: from the word, or from up to 16 bytes, big-endian, from the begin of a word on."""
    import numpy

    halves = numpy.empty((len(raw), 2), "<i8")
    if kind.precision <= SMALL_DECIMAL:
        halves[:, 0], halves[:, 1] = raw, raw >> 63
        return _built(kind, nulls, [halves])
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
    return _built(kind, nulls, [halves])


def _calendar_intervals(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    """Months and days, 32 bits each, and microseconds; Arrow has nanoseconds."""
    import numpy

    parts = region.parts(raw, nulls)
    if ((parts.ends - parts.starts)[~nulls] != 16).any():
        raise DamagedError("an interval has not 16 bytes")
    places = numpy.where(nulls, 0, parts.starts)
    halves = numpy.empty((len(raw), 2), "<i8")
    halves[:, 0] = parts.at(places, "<i8")
    halves[:, 1] = parts.at(numpy.minimum(places + WORD, len(parts.data) - WORD), "<i8") * 1000
    return _built(kind, nulls, [halves])


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
    found = pyarrow.StructArray.from_arrays(columns, fields=fields) if fields else _empty_structs(len(known))
    return _spread(found, nulls)


def _variant_columns(fields: list[pyarrow.Field], parts: Region) -> list[pyarrow.Array]:
    """4 bytes that tell the size of the value, the value, the metadata."""
    import numpy

    if (parts.ends - parts.starts < 4).any():
        raise DamagedError("a variant has less than 4 bytes")
    middles = parts.starts + 4 + parts.at(parts.starts, "<u4")
    if (middles > parts.ends).any():
        raise DamagedError("a variant is longer than its place")
    present = numpy.zeros(len(parts.starts), bool)
    return [
        _bytes(fields[0], Region(parts.data, parts.starts + 4, middles), present),
        _bytes(fields[1], Region(parts.data, middles, parts.ends), present),
    ]


def _geospatial_columns(fields: list[pyarrow.Field], parts: Region) -> list[pyarrow.Array]:
    """4 bytes that tell the reference system, and the shape as WKB."""
    import numpy

    if (parts.ends - parts.starts < 4).any():
        raise DamagedError("a geometry or geography has less than 4 bytes")
    present = numpy.zeros(len(parts.starts), bool)
    systems = _built(fields[0].type, present, [parts.at(parts.starts, "<i4")])
    return [systems, _bytes(fields[1], Region(parts.data, parts.starts + 4, parts.ends), present)]


def _spread(found: pyarrow.Array, nulls: Any) -> pyarrow.Array:
    """The values of `found` where there is no null, in order."""
    import numpy
    import pyarrow

    if not nulls.any():
        return found
    return found.take(pyarrow.array(numpy.cumsum(~nulls) - 1, mask=nulls))


def _lists(kind: pyarrow.DataType, raw: Any, nulls: Any, region: Region) -> pyarrow.Array:
    parts = region.parts(raw, nulls)
    offsets, elements = _elements(kind.value_field, parts, nulls)
    return _built(kind, nulls, [offsets], children=[elements])


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
        raise DamagedError("a map is longer than its place")
    offsets, keys = _elements(kind.key_field, Region(parts.data, firsts, middles), nulls)
    item_offsets, items = _elements(kind.item_field, Region(parts.data, middles, parts.ends), nulls)
    if (offsets != item_offsets).any():
        raise DamagedError("a map has not as many values as keys")
    entries = pyarrow.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return _built(kind, nulls, [offsets], children=[entries])


def _elements(field: pyarrow.Field, arrays: Region, nulls: Any) -> tuple[Any, pyarrow.Array]:
    """The elements of all arrays, and where those of each begin."""
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
        raise DamagedError("an array is longer than its place")
    offsets = numpy.zeros(len(counts) + 1, numpy.int32)
    numpy.cumsum(counts, out=offsets[1:])
    owners = numpy.repeat(numpy.arange(len(counts)), counts)
    places = numpy.arange(int(offsets[-1])) - offsets[:-1][owners]
    starts = arrays.starts[owners]
    bitmap = arrays.at(starts + WORD + places // 64 * WORD, "<i8")
    missing = (bitmap >> (places % 64)) & 1 == 1
    raw = arrays.at(starts + first[owners] + places * width, f"<i{width}")
    return offsets, _array(field, raw, missing, arrays.taken(owners))


def _bitmap_bytes(fields: int) -> int:
    return (fields + 63) // 64 * WORD


def _empty_structs(count: int) -> pyarrow.Array:
    import pyarrow

    return pyarrow.Array.from_buffers(pyarrow.struct([]), count, [None])
