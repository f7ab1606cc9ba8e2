"""Differences of PySpark 4.0 and 4.1: rules for pandas frames in a serializer, Arrow types with UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.types import StructType


def is_installed() -> bool:
    """Return True if PySpark is one of these."""
    import pyspark

    return pyspark.__version__.startswith(("4.0.", "4.1."))


def arrow_schema(schema: StructType, time_zone: str, large_types: bool) -> pa.Schema:
    """Return `schema` as pyarrow has it, with moments in `time_zone`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    in_utc = to_arrow_schema(schema, prefers_large_types=large_types)
    return pa.schema([_zoned(field, time_zone) for field in in_utc])


def _zoned(field: pa.Field, time_zone: str) -> pa.Field:
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        kind = pa.timestamp(kind.unit, time_zone)
    elif pa.types.is_list(kind):
        kind = pa.list_(_zoned(kind.value_field, time_zone))
    elif pa.types.is_map(kind):
        kind = pa.map_(_zoned(kind.key_field, time_zone), _zoned(kind.item_field, time_zone))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_zoned(inner, time_zone) for inner in kind])
    return field.with_type(kind)


def to_series(table: pa.Table | pa.RecordBatch, time_zone: str) -> list[pd.Series]:
    """Return the columns of `table` as the series that `applyInPandasWithState` would get."""
    from pyspark.sql.pandas.types import _create_converter_to_pandas, from_arrow_type

    def converted(column: Any) -> pd.Series:
        convert = _create_converter_to_pandas(
            data_type=from_arrow_type(column.type, prefer_timestamp_ntz=True),
            nullable=True,
            timezone=time_zone,
            struct_in_pandas="dict",
            error_on_duplicated_field_names=True,
            ndarray_as_list=False,
        )
        return convert(column.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True))

    return [converted(column) for column in table.columns]


def to_struct(
    frame: pd.DataFrame, schema: pa.Schema, time_zone: str, *, safe: bool, by_name: bool
) -> pa.StructArray:
    """Return `frame` as a struct array of `schema`, by PySpark's rules for results.

    safe: whether values that do not fit are errors. by_name: whether columns are found by their names.
    """
    from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer

    rules = ArrowStreamPandasUDFSerializer(time_zone, safe, by_name)
    return rules._create_struct_array(frame, pa.struct(list(schema)))
