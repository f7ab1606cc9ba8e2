"""Spark's data types as Arrow's, from the JSON in which Spark writes schemas.

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
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
