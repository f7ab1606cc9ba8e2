"""Spark's data types as Arrow's, from the JSON in which Spark writes schemas; and packed rows.

| Spark | Arrow |
|---|---|
| boolean, byte, short, integer, long, float, double | bool, int8, int16, int32, int64, float32, float64 |
| decimal(p,s) | decimal128(p,s) |
| string (of any collation), char, varchar | string |
| binary | binary |
| date, timestamp, timestamp_ntz, time | date32, timestamp[us, UTC], timestamp[us], time64[ns] |
| interval of days to seconds, of years to months | duration[us], int32 (months) |
| interval (calendar) | month_day_nano_interval |
| variant | struct of `value` and `metadata`, as Spark itself hands it to Arrow |
| geometry, geography | struct of `srid` and `wkb`, as Spark itself hands it to Arrow |
| struct, array, map | struct, list, map |
| void | null |

A user-defined type has the Arrow type of its storage. An int32 of months has `spark_type` in its field's
metadata.

Packed rows are many rows in one buffer, each at a multiple of 8 bytes, so that numpy reads whole words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.core.engine.rows import copy_slices
from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow


SPARK_TYPE = b"spark_type"
"""Key of a field's metadata for the Spark type, if Arrow's does not determine it."""

COLLATIONS = "__COLLATIONS"
"""Key of Spark's metadata of a field for the collations of its strings."""

GEOARROW_NAME, GEOARROW_METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"
"""Keys of the metadata that mark a GeoArrow column and name its reference system."""

SMALL_DECIMAL = 18
"""Maximum precision, in digits, of a decimal that fits into its word."""

_VARIANT_MARK = {b"variant": b"true"}

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")

_TEXT = re.compile(r"string( collate \w+)?|(var)?char\(\d+\)")

_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")

_GEOSPATIAL = re.compile(r"(geometry|geography)\((\w+:-?\w+)(?:,\s*\w+)?\)")

_SRIDS = {"OGC:CRS84": 4326, "OGC:CRS83": 4269, "OGC:CRS27": 4267, "SRID:ANY": -1}
"""Numbers of the reference systems whose names do not contain them; -1: each value has its own."""

_YEAR_MONTH = re.compile(r"interval (year|month)( to month)?")

ENCODING_VERSION = 0
"""The byte before each of Spark's rows in a state store."""

WORD = 8

_SIZE_BYTES = 4

_DELIMITER = b","


def schema_of(text: str, *, file: str) -> pyarrow.Schema:
    """Return the Arrow schema for Spark's JSON of a struct.

    Args:
        text: the JSON.
        file: the file that has it, for errors.

    Raises:
        DamagedError: the text is not such JSON.
        FormatError: a type is not known.
    """
    import pyarrow

    try:
        return pyarrow.schema([_field(field, file) for field in json.loads(text)["fields"]])
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(
            f"'{file}' is damaged: it has no schema of Spark's: {error!r}", file=file
        ) from error


def is_variant(kind: pyarrow.DataType) -> bool:
    """Return True if the struct stands for a variant."""
    return kind.num_fields == 2 and (kind.field(1).metadata or {}).get(b"variant") == b"true"


def is_geospatial(kind: pyarrow.DataType) -> bool:
    """Return True if the struct stands for a geometry or a geography."""
    marks = kind.field(1).metadata or {} if kind.num_fields == 2 else {}
    return b"geometry" in marks or b"geography" in marks


def is_collated(field: pyarrow.Field) -> bool:
    """Return True if equal strings of the field may have different bytes."""
    collation = (field.metadata or {}).get(SPARK_TYPE, b"")
    return collation.startswith(b"string collate") and b"UTF8_BINARY" not in collation.split()


def _field(described: Mapping[str, Any], file: str) -> pyarrow.Field:
    import pyarrow

    spark = described["type"]
    kind = _type(spark, file)
    metadata = {}
    collations = described.get("metadata", {}).get(COLLATIONS, {})
    if isinstance(spark, str) and (_YEAR_MONTH.fullmatch(spark) or spark.startswith("string collate")):
        metadata = {SPARK_TYPE: spark.encode()}
    elif collations:
        metadata = {SPARK_TYPE: f"string collate {' '.join(sorted(collations.values()))}".encode()}
    return pyarrow.field(described["name"], kind, bool(described.get("nullable", True)), metadata or None)


def _type(spark: Any, file: str) -> pyarrow.DataType:
    return _atomic(spark, file) if isinstance(spark, str) else _nested(spark, file)


def _nested(spark: Mapping[str, Any], file: str) -> pyarrow.DataType:
    import pyarrow

    kind = spark["type"]
    if kind == "struct":
        return pyarrow.struct([_field(field, file) for field in spark["fields"]])
    if kind == "array":
        element = _type(spark["elementType"], file)
        return pyarrow.list_(pyarrow.field("element", element, bool(spark["containsNull"])))
    if kind == "map":
        item = pyarrow.field("value", _type(spark["valueType"], file), bool(spark["valueContainsNull"]))
        return pyarrow.map_(_type(spark["keyType"], file), item)
    if kind == "udt":
        return _type(spark["sqlType"], file)
    raise _unknown(kind, file)


def _atomic(spark: str, file: str) -> pyarrow.DataType:
    import pyarrow

    if spark in _simple():
        return _simple()[spark]
    if match := _DECIMAL.fullmatch(spark):
        return pyarrow.decimal128(int(match[1]), int(match[2]))
    if _TEXT.fullmatch(spark):
        return pyarrow.string()
    if _DAY_TIME.fullmatch(spark):
        return pyarrow.duration("us")
    if _YEAR_MONTH.fullmatch(spark):
        return pyarrow.int32()
    if match := _GEOSPATIAL.fullmatch(spark):
        return _geospatial(match[1], match[2])
    if spark.startswith("time("):
        return pyarrow.time64("ns")
    raise _unknown(spark, file)


def _geospatial(name: str, system: str) -> pyarrow.DataType:
    """Return the type of a geometry or geography.

    The reference system is that of all values, or `SRID:ANY` if each has its own. Only a geometry is marked
    for readers of GeoArrow: some refuse a table with edges along a sphere.
    """
    import pyarrow

    srid = _SRIDS.get(system) or int(system.rpartition(":")[2])
    marks = {name.encode(): b"true", b"srid": str(srid).encode()}
    if name == "geometry":
        crs = {"crs": system, "crs_type": "authority_code"} if srid > 0 else {}
        marks |= {GEOARROW_NAME: b"geoarrow.wkb", GEOARROW_METADATA: json.dumps(crs).encode()}
    wkb = pyarrow.field("wkb", pyarrow.binary(), False, marks)
    return pyarrow.struct([pyarrow.field("srid", pyarrow.int32(), False), wkb])


def _simple() -> dict[str, pyarrow.DataType]:
    import pyarrow

    mark = pyarrow.field("metadata", pyarrow.binary(), False, _VARIANT_MARK)
    return {
        "boolean": pyarrow.bool_(),
        "byte": pyarrow.int8(),
        "short": pyarrow.int16(),
        "integer": pyarrow.int32(),
        "long": pyarrow.int64(),
        "float": pyarrow.float32(),
        "double": pyarrow.float64(),
        "binary": pyarrow.binary(),
        "date": pyarrow.date32(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
        "timestamp_ntz": pyarrow.timestamp("us"),
        "interval": pyarrow.month_day_nano_interval(),
        "calendarinterval": pyarrow.month_day_nano_interval(),
        "variant": pyarrow.struct([pyarrow.field("value", pyarrow.binary(), False), mark]),
        "void": pyarrow.null(),
        "null": pyarrow.null(),
    }


def _unknown(kind: str, file: str) -> FormatError:
    return FormatError(
        f"'{file}' has a column of Spark's type '{kind}', which this release does not know", file=file
    )


def width_of(kind: pyarrow.DataType) -> int | None:
    """Return the bytes of a value that rows and arrays store in place; None if the word refers to it."""
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


@dataclass(frozen=True)
class Packed:
    """Spark's rows (UnsafeRow) without the byte of their version, in one buffer.

    Attributes:
        data: the bytes, as an array of uint8.
        starts: the start of each row, as int64.
        lengths: the length of each row, as int64.
    """

    data: Any
    starts: Any
    lengths: Any

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, rows: Sequence[bytes], *, skip: int = 0) -> Packed:
        """Pack rows of a store.

        Args:
            rows: the rows, each with `skip` other bytes and the byte of the version in front.
            skip: the number of bytes before that byte.

        Raises:
            FormatError: a row has another version.
            DamagedError: a row has an impossible length.
        """
        import numpy

        gap = bytes(WORD - 1 - skip)
        lengths = numpy.fromiter(map(len, rows), numpy.int64, len(rows)) - 1 - skip
        data = numpy.frombuffer(gap + gap.join(rows) + bytes(WORD), numpy.uint8)
        uneven = (lengths % WORD != 0) | (lengths < 0)
        if uneven.any():
            wrong = int(numpy.flatnonzero(uneven)[0])
            _check_version(rows[wrong][skip : skip + 1])
            size_bytes = len(rows[wrong]) - skip
            raise DamagedError(f"a row has {size_bytes} bytes, which is not one more than a multiple of 8")
        starts = numpy.cumsum(lengths + WORD) - lengths
        if len(rows):
            versions = data[starts - 1]
            if versions.any():
                _check_version(rows[int(numpy.flatnonzero(versions)[0])][skip : skip + 1])
        return cls(data[: len(data) // WORD * WORD], starts, lengths)

    @classmethod
    def of_slices(cls, data: Any, starts: Any, lengths: Any, *, aligned: bool = True) -> Packed:
        """Pack slices of `data`, each a row with the byte of its version in front.

        They are copied if they do not begin at multiples of 8, and `aligned` demands it or all have the same
        length. Raises FormatError and DamagedError as `of`.
        """
        import numpy

        uneven = (lengths < 1) | ((lengths - 1) & (WORD - 1) != 0)
        if uneven.any() or (len(starts) and data[starts].any()):
            wrong = int(numpy.flatnonzero(uneven | (data[numpy.where(uneven, 0, starts)] != 0))[0])
            _check_version(data[starts[wrong] : starts[wrong] + 1].tobytes() if lengths[wrong] > 0 else b"")
            raise DamagedError(
                f"a row has {int(lengths[wrong])} bytes, which is not one more than a multiple of 8"
            )
        starts, lengths = starts + 1, lengths - 1
        if len(data) % WORD == 0 and not (starts & (WORD - 1)).any():
            return cls(data, starts, lengths)
        size = int(lengths[0]) if len(lengths) else 0
        if size and (lengths == size).all():
            return cls(_of_size(data, starts, size), numpy.arange(len(starts)) * size, lengths)
        if not aligned:
            return cls(data, starts, lengths)
        offsets = numpy.cumsum(lengths) - lengths
        return cls(_words(data, starts - offsets, lengths), offsets, lengths)


def joined(parts: Sequence[bytes]) -> tuple[Any, Any, Any]:
    """Return the concatenated bytes of all parts, and the start and the length of each, as numpy arrays."""
    import numpy

    lengths = numpy.fromiter(map(len, parts), numpy.int64, len(parts))
    data = numpy.frombuffer(b"".join(parts), numpy.uint8)
    return data, numpy.cumsum(lengths) - lengths, lengths


def split_values(lists: tuple[Any, Any, Any]) -> tuple[Any, tuple[Any, Any, Any]]:
    """Split lists of values into single values, which are slices of the same bytes.

    A list is its values, each after its size in 4 bytes, with a byte between two of them.

    Args:
        lists: the lists, as (data, starts, lengths).

    Returns:
        The number of the list of each value, and the values as (data, starts, lengths).

    Raises:
        DamagedError: the bytes are not a list of values.
    """
    import numpy

    data, at, lengths = lists
    limits = at + lengths
    owners = numpy.arange(len(at))
    steps = []
    while len(owners):
        if (at + _SIZE_BYTES > limits).any():
            raise DamagedError("a list of values ends within the size of a value")
        sizes = data[at[:, None] + numpy.arange(_SIZE_BYTES)].view("<i4").reshape(-1).astype(numpy.int64)
        ends = at + _SIZE_BYTES + sizes
        if ((sizes < 1) | (ends > limits)).any():
            raise DamagedError("a value in a list is longer than the list")
        steps.append((owners, at + _SIZE_BYTES, sizes))
        goes_on = ends < limits
        owners, limits, at = owners[goes_on], limits[goes_on], ends[goes_on] + len(_DELIMITER)
    if not steps:
        return owners, (data, at, lengths)
    all_owners, starts, sizes = (numpy.concatenate(parts) for parts in zip(*steps, strict=True))
    order = numpy.argsort(all_owners, kind="stable")
    return all_owners[order], (data, starts[order], sizes[order])


def merged_values(values: Sequence[bytes]) -> bytes:
    """Return a list of values that is not empty as bytes: the reverse of `split_values`."""
    return _DELIMITER.join(len(value).to_bytes(_SIZE_BYTES, "little") + value for value in values)


def gathered(data: Any, starts: Any, lengths: Any) -> Any:
    """Return the concatenated bytes of all slices of `data`."""
    import numpy

    ends = numpy.cumsum(lengths)
    copied = numpy.empty(int(ends[-1]) if len(ends) else 0, data.dtype)
    copy_slices(copied, ends - lengths, data, starts, lengths)
    return copied


def _of_size(data: Any, starts: Any, size: int) -> Any:
    """Return slices of one size, concatenated: numpy copies long items as fast as single words."""
    import numpy

    parts = numpy.ndarray((len(data) - size + 1,), f"V{size}", buffer=data, strides=(1,))
    return parts[starts].view(numpy.uint8)


def words_anywhere(data: Any) -> Any:
    """Return the 64-bit number that begins at each byte of `data`."""
    import numpy

    return numpy.ndarray((max(0, len(data) - WORD + 1),), "<i8", buffer=data, strides=(1,))


def _words(data: Any, shifts: Any, lengths: Any) -> Any:
    """Return words of `data`, as bytes; each part is `shifts` bytes after its place in the result."""
    import numpy

    total = int(lengths.sum()) // WORD
    if not total:
        return numpy.zeros(WORD, numpy.uint8)
    words = words_anywhere(data)[numpy.repeat(shifts, lengths // WORD) + numpy.arange(0, total * WORD, WORD)]
    return numpy.concatenate([words, numpy.zeros(1, "<i8")]).view(numpy.uint8)


def _check_version(first: bytes) -> None:
    if first != bytes([ENCODING_VERSION]):
        raise FormatError(f"a row starts with {first.hex() or 'nothing'}, not with encoding version 0")
