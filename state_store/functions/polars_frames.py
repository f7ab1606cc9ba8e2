"""Arrow tables to frames of polars and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from state_store.core.compat import zip
from state_store.functions.checking import bounds, nullable
from state_store.functions.group_context import Result

if TYPE_CHECKING:
    import polars as pl

    from state_store.functions.checking import Call


def to_frame(table: pa.Table) -> pl.DataFrame:
    """Return `table` as a frame, without copies where polars holds a type as Arrow does.

    Maps are lists of structs of key and value there. Timestamps in a zone that polars does not know, such
    as an offset, are in UTC.
    """
    import polars as pl

    for i, field in enumerate(table.schema):
        if (
            pa.types.is_timestamp(field.type)
            and field.type.tz not in (None, "UTC")
            and not _is_known(field.type.tz)
        ):
            table = table.set_column(
                i, field.name, table.column(i).cast(pa.timestamp(field.type.unit, "UTC"))
            )
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _is_known(zone: str) -> bool:
    import zoneinfo

    return zone in zoneinfo.available_timezones()


def to_arrow_result(result: Result, call: Call) -> Result:
    """Return `result` with its frames as tables and its series as arrays."""
    return Result(
        output=to_table(result.output, call.context.output_schema, "Result.output", call),
        state=to_table(result.state, call.context.state_schema, "Result.state", call),
        remove=_to_array(result.remove),
        timeout=_to_array(result.timeout),
    )


def to_table(frame: Any, schema: pa.Schema, part: str, call: Call) -> pa.Table | None:
    import polars as pl

    if frame is None:
        return None
    if not isinstance(frame, pl.DataFrame):
        raise call.fail(f"{part} is a {type(frame).__name__}: return a polars.DataFrame.")
    table = frame.to_arrow()
    columns = {name: table.column(name) for name in table.column_names}
    for field in schema:
        if field.name in columns and _has_map(field.type):
            column = columns[field.name].combine_chunks()
            columns[field.name] = _with_maps(column, nullable(field.type))
    return pa.table(columns)


def _to_array(series: Any) -> Any:
    import polars as pl

    return series.to_arrow() if isinstance(series, pl.Series) else series


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _with_maps(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return `array` with maps where `kind` has them and polars has lists of structs; the rest as it is."""
    if not _has_map(kind) or not pa.types.is_nested(array.type):
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        types_by_name = {field.name: field.type for field in kind}
        parts = [
            _with_maps(part, types_by_name.get(field.name, field.type))
            for part, field in zip(array.flatten(), array.type, strict=True)
        ]
        fields = [pa.field(f.name, part.type) for f, part in zip(array.type, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return array
    offsets, mask = pa.array(bounds(array), pa.int32()), array.is_null()
    if not pa.types.is_map(kind):
        return pa.ListArray.from_arrays(offsets, _with_maps(array.values, kind.value_type), mask=mask)
    if not pa.types.is_struct(array.type.value_type) or array.type.value_type.num_fields != 2:
        return array
    keys, items = array.values.flatten()
    items = _with_maps(items, kind.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, pa.map_(keys.type, items.type), mask=mask)
