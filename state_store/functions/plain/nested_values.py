"""Conversion between Arrow columns and plain values of nested types; the codec of each type of Spark."""

from __future__ import annotations

import array
import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types

from state_store.core.compat import pairwise, zip
from state_store.functions.plain.flat_values import (
    Binary,
    Codec,
    Date,
    Decimal,
    LocalTimestamp,
    Number,
    Timestamp,
    UnfitValueError,
    by_position,
    from_numpy,
    plain,
)
from state_store.functions.plain.row_classes import row_class
from state_store.functions.plain.session_zone import SessionZone
from state_store.functions.returned_columns import bounds, nullable


class _Struct(Codec):
    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [], ())
        self.names = spark.names
        self.fields = [codec(f.dataType, a.type, zone) for f, a in zip(spark.fields, arrow, strict=True)]
        self._row = row_class(tuple(self.names))

    def values(self, column: pa.Array) -> list[Any]:
        children = [c.values(a) for c, a in zip(self.fields, column.flatten(), strict=True)]
        rows: list[Any] = list(map(self._row, zip(*children, strict=True))) or [self._row(())] * len(column)
        return _with_nulls(rows, column)

    def own(self, value: Any) -> tuple[Any, ...]:
        return tuple(
            None if v is None else _own(c, v, f"{self.name}, {n!r}")
            for v, c, n in zip(by_position(value, self.names), self.fields, self.names, strict=True)
        )

    def column(self, values: list[Any]) -> pa.Array:
        if not self.fields:
            return pa.array([None if v is None else {} for v in values], self.arrow)
        nothing = (None,) * len(self.fields)
        children = list(zip(*(nothing if v is None else v for v in values), strict=True)) or [()] * len(
            nothing
        )
        arrays = [c.column(list(child)) for c, child in zip(self.fields, children, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=_mask(values))


class _List(Codec):
    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [], (list, tuple, array.array))
        self._element = codec(spark.elementType, arrow.value_type, zone)

    def values(self, column: pa.Array) -> list[Any]:
        offsets = bounds(column).tolist()
        flat = self._element.values(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
        first = offsets[0]
        lists = [flat[a - first : b - first] for a, b in pairwise(offsets)]
        return _with_nulls(lists, column)

    def own(self, value: Any) -> list[Any]:
        items = super().own(from_numpy(value) if isinstance(value, np.ndarray) else value)
        return [None if v is None else _own(self._element, v, self.name) for v in items]

    def column(self, values: list[Any]) -> pa.Array:
        flat = [item for value in values if value is not None for item in value]
        return pa.ListArray.from_arrays(
            _offsets(values), self._element.column(flat), type=self.arrow, mask=_mask(values)
        )


class _Map(Codec):
    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [], (dict,))
        self._key = codec(spark.keyType, arrow.key_type, zone)
        self._item = codec(spark.valueType, arrow.item_type, zone)

    def values(self, column: pa.Array) -> list[Any]:
        offsets = bounds(column).tolist()
        first, count = offsets[0], offsets[-1] - offsets[0]
        keys = self._key.values(column.keys.slice(first, count))
        items = self._item.values(column.items.slice(first, count))
        pairs = list(zip(keys, items, strict=True))
        maps = [dict(pairs[a - first : b - first]) for a, b in pairwise(offsets)]
        return _with_nulls(maps, column)

    def own(self, value: Any) -> dict[Any, Any]:
        pairs = super().own(value).items()
        if any(k is None for k, _ in pairs):
            raise UnfitValueError(f"{value!r} has a key None, which a {self.name} cannot have")
        return {
            _own(self._key, k, self.name): None if v is None else _own(self._item, v, self.name)
            for k, v in pairs
        }

    def column(self, values: list[Any]) -> pa.Array:
        keys = [k for value in values if value is not None for k in value]
        items = [v for value in values if value is not None for v in value.values()]
        return pa.MapArray.from_arrays(
            _offsets(values), self._key.column(keys), self._item.column(items), self.arrow, mask=_mask(values)
        )


class _UserDefined(Codec):
    """A user-defined type: its class converts the values of its SQL type."""

    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [], ())
        self._udt = spark
        self._inner = codec(spark.sqlType(), arrow, zone)

    def values(self, column: pa.Array) -> list[Any]:
        return [None if v is None else self._udt.deserialize(v) for v in self._inner.values(column)]

    def own(self, value: Any) -> Any:
        return self._inner.own(self._udt.serialize(value))

    def column(self, values: list[Any]) -> pa.Array:
        return self._inner.column(values)


class _Rare(Codec):
    """Types that PySpark alone knows (variants, geometries): its own conversions, value by value."""

    def __init__(self, arrow: pa.DataType, spark: Any) -> None:
        from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion

        super().__init__(arrow, spark, [], ())
        self._from_arrow: Callable[[Any], Any] = ArrowTableToRowsConversion._create_converter(spark)
        self._to_arrow: Callable[[Any], Any] = LocalDataToArrowConversion._create_converter(spark)

    def values(self, column: pa.Array) -> list[Any]:
        return [self._from_arrow(value) for value in column.to_pylist()]

    def own(self, value: Any) -> Any:
        try:
            return self._to_arrow(value)
        except (AssertionError, ValueError, TypeError) as error:
            raise self.unfit(value) from error


# A type of Spark, its codec, and the classes of values that are good as they are, and that are made so.
_SCALARS: tuple[tuple[Any, type[Codec], list[type], tuple[type, ...]], ...] = (
    (types.BooleanType, Number, [bool], (bool,)),
    (types.IntegralType, Number, [int], (int,)),
    ((types.FloatType, types.DoubleType), Number, [float, int], (float, int)),
    (types.StringType, Codec, [str], (str,)),
    (types.BinaryType, Binary, [bytes], (bytes, bytearray, memoryview)),
    (types.DateType, Date, [datetime.date], (datetime.date,)),
    (types.TimestampNTZType, LocalTimestamp, [datetime.datetime], (datetime.datetime,)),
    (types.DayTimeIntervalType, Codec, [datetime.timedelta], (datetime.timedelta,)),
    (types.NullType, Codec, [], ()),
)


def codec(spark: Any, arrow: pa.DataType, zone: SessionZone) -> Codec:
    """Return the codec of a type of Spark (`pyspark.sql.types.DataType`) whose Arrow type is `arrow`."""
    arrow = nullable(arrow)
    for kind, scalar, exact, kinds in _SCALARS:
        if isinstance(spark, kind):
            return scalar(arrow, spark, exact, kinds)
    if isinstance(spark, types.DecimalType):
        return Decimal(arrow, spark)
    if isinstance(spark, types.TimestampType):
        return Timestamp(arrow, spark, zone)
    if isinstance(spark, types.StructType):
        return _Struct(arrow, spark, zone)
    if isinstance(spark, types.ArrayType):
        return _List(arrow, spark, zone)
    if isinstance(spark, types.MapType):
        return _Map(arrow, spark, zone)
    if isinstance(spark, types.UserDefinedType):
        return _UserDefined(arrow, spark, zone)
    return _Rare(arrow, spark)


def _own(part: Codec, value: Any, where: str) -> Any:
    if type(value) in part.exact:
        return value
    value = plain(value)
    try:
        return None if value is None else part.own(value)
    except UnfitValueError as error:
        raise UnfitValueError(f"{error} (in {where})") from None


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if not column.null_count:
        return values
    valid = column.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


def _mask(values: list[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: list[Any]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int32())
