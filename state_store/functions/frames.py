"""Arrow tables to frames of pandas and polars, and back; and many frames of pandas as one.

A function gets its rows and states as a frame of the library that it chose, and gives its results so: each
library has a way there (`pandas_frame`, `polars_frame`), and a way back for one frame (`pandas_table`,
`polars_table`) and for a `Result` (`pandas_result`, `polars_result`). Those of pandas follow the rules of
PySpark's own functions; those of polars copy nothing where polars holds a type as Arrow does. Either library
is imported when its first frame is made.

`FrameRuns` concatenates the many small frames that a function returns, as `pd.concat` does, in a tenth of its
time. Frames that one function returns mostly have the same columns, in blocks of the same types. Of these
only the values are kept, which are joined block by block; where a frame differs from the one before, a new
run begins, and `pd.concat` joins the runs. As a run has the blocks of each of its frames, the types that come
out are those that `pd.concat` of all the frames gives.

The blocks of a frame are internals of pandas, which have been the same since pandas 2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from state_store.functions.checking import Call, bounds, nullable, readable
from state_store.functions.group_context import (
    GROUP,
    Header,
    Result,
    is_older_spark,
    older_series,
    older_struct,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql.types import StructType


def pandas_series(table: pa.Table | pa.RecordBatch, header: Header) -> list[pd.Series]:
    """Return the columns of `table` as the series that `applyInPandasWithState` would get."""
    if any(map(pa.types.is_nested, table.schema.types)):
        columns = [
            pa.chunked_array([readable(part) for part in column.chunks], column.type)
            if isinstance(column, pa.ChunkedArray)
            else readable(column)
            for column in table.columns
        ]
        table = type(table).from_arrays(columns, schema=table.schema)
    if is_older_spark():
        return older_series(table, header.time_zone)
    from pyspark.sql.conversion import ArrowBatchTransformer

    return ArrowBatchTransformer.to_pandas(
        table,
        timezone=header.time_zone,
        struct_in_pandas="dict",
        ndarray_as_list=False,
        prefer_int_ext_dtype=header.flag("spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"),
        df_for_struct=False,
    )


def pandas_frame(table: pa.Table, header: Header) -> pd.DataFrame:
    """Return `table` as one frame with a fresh range index."""
    import pandas as pd

    return pd.DataFrame(dict(zip(table.column_names, pandas_series(table, header), strict=True)), copy=False)


def pandas_struct(frames: list[pd.DataFrame], schema: StructType, header: Header) -> pa.StructArray:
    """Return `frames`, one below the other, as a struct array of `schema`, by PySpark's rules for results."""
    import pandas as pd

    frame = pd.concat(frames, ignore_index=True) if len(frames) != 1 else frames[0].reset_index(drop=True)
    safe = header.flag("spark.sql.execution.pandas.convertToArrowArraySafely")
    by_name = header.flag("spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName")
    decimals = header.flag("spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled")
    if is_older_spark():
        return older_struct(
            frame, header.arrow(schema), header.time_zone, safe=safe, by_name=by_name, decimals=decimals
        )
    from pyspark.sql.conversion import PandasToArrowConversion
    from pyspark.sql.types import StructField, StructType

    batch = PandasToArrowConversion.convert(
        [frame],
        StructType([StructField("_0", schema)]),
        timezone=header.time_zone,
        safecheck=safe,
        arrow_cast=True,
        assign_cols_by_name=by_name,
        int_to_decimal_coercion_enabled=decimals,
        prefers_large_types=header.large_types,
    )
    return batch.column(0)


def pandas_result(result: Result, call: Call, header: Header) -> Result:
    """Return `result` with its frames as tables; masks and timeouts may stay series."""
    return Result(
        output=pandas_table(result.output, header.output, "Result.output", call, header),
        state=pandas_table(result.state, header.state, "Result.state", call, header),
        remove=result.remove,
        timeout=_naive_to_session(result.timeout, header),
    )


def pandas_table(frame: Any, schema: StructType, part: str, call: Call, header: Header) -> Any:
    import pandas as pd

    if frame is None:
        return None
    if not isinstance(frame, pd.DataFrame):
        raise call.fail(f"{part} is a {type(frame).__name__}: return a pandas.DataFrame.")
    names = [str(c) for c in frame.columns]
    fields = [f for f in schema.fields if f.name in names]
    columns: dict[str, Any] = dict.fromkeys(names)
    if fields:
        named = frame[[f.name for f in fields]]
        try:
            struct = pandas_struct([named], type(schema)(fields), header)
        except Exception as error:
            raise call.fail(f"{part}: {error}") from error
        columns.update(zip([f.name for f in fields], struct.flatten(), strict=True))
    if GROUP in columns:
        columns[GROUP] = pa.array(frame[GROUP], from_pandas=True)
    return pa.table({n: pa.nulls(len(frame)) if c is None else c for n, c in columns.items()})


def _naive_to_session(timeout: Any, header: Header) -> Any:
    """Return `timeout` with the session's zone, in which pandas shows timestamps without one."""
    import pandas as pd

    if isinstance(timeout, pd.Series) and pd.api.types.is_datetime64_dtype(timeout.dtype):
        return timeout.dt.tz_localize(header.time_zone, ambiguous=False)
    return timeout


def polars_frame(table: pa.Table) -> pl.DataFrame:
    """Return `table` as a frame, without copies where polars holds a type as Arrow does.

    Maps are lists of structs of key and value there. Timestamps in a zone that polars does not know, such
    as an offset, are in UTC.
    """
    import polars as pl

    for i, field in enumerate(table.schema):
        if (
            pa.types.is_timestamp(field.type)
            and field.type.tz not in (None, "UTC")
            and not _is_zone_of_polars(field.type.tz)
        ):
            table = table.set_column(
                i, field.name, table.column(i).cast(pa.timestamp(field.type.unit, "UTC"))
            )
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _is_zone_of_polars(zone: str) -> bool:
    import zoneinfo

    return zone in zoneinfo.available_timezones()


def polars_result(result: Result, call: Call) -> Result:
    """Return `result` with its frames as tables and its series as arrays."""
    return Result(
        output=polars_table(result.output, call.context.output_schema, "Result.output", call),
        state=polars_table(result.state, call.context.state_schema, "Result.state", call),
        remove=_polars_array(result.remove),
        timeout=_polars_array(result.timeout),
    )


def polars_table(frame: Any, schema: pa.Schema, part: str, call: Call) -> pa.Table | None:
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


def _polars_array(series: Any) -> Any:
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


class FrameRuns:
    """Frames with at least one row, in the order in which they were added; their indexes are not kept.

    Args:
        taken: the function that gives what is kept of the values of a block; by default these themselves,
            so that a frame must not change before `runs`.
    """

    def __init__(self, taken: Callable[[Any], Any] = lambda values: values) -> None:
        self.rows = 0
        self._taken = taken
        self._done: list[Any] = []
        self._first: Any = None
        self._labels: list[Any] = []
        self._layout: list[Any] = []
        self._values: list[list[Any]] = []

    def add(self, frame: Any) -> None:
        """Append the rows of `frame`, a pandas frame."""
        blocks = frame._mgr.blocks
        layout = [
            (block.dtype, place if isinstance(place := block.mgr_locs.indexer, slice) else place.tolist())
            for block in blocks
        ]
        taken = [self._taken(block.values) for block in blocks]
        if self._fits(frame.columns, layout):
            for values, of_block in zip(self._values, taken, strict=True):
                values.append(of_block)
        else:
            self._end_run()
            self._first = _frame(frame, taken) if taken else frame.copy()
            self._labels, self._layout = frame.columns.tolist(), layout
            self._values = [[of_block] for of_block in taken]
        self.rows += len(frame)

    def runs(self) -> list[Any]:
        """Return all frames as few frames, one below the other."""
        self._end_run()
        return self._done

    def _fits(self, columns: Any, layout: list[Any]) -> bool:
        if self._first is None or layout != self._layout or not layout:
            return False
        try:
            return columns.tolist() == self._labels
        except (TypeError, ValueError):  # labels that cannot be compared, such as pandas.NA
            return False

    def _end_run(self) -> None:
        if self._first is None:
            return
        if not self._values or len(self._values[0]) == 1:
            self._done.append(self._first)
        else:
            self._done.append(_frame(self._first, [_joined(values) for values in self._values]))
        self._first = None


def _frame(like: Any, values: list[Any]) -> Any:
    import pandas as pd

    manager = like._mgr
    blocks = tuple(b.make_block(v) for b, v in zip(manager.blocks, values, strict=True))
    return frame_of(type(manager)(blocks, [like.columns, pd.RangeIndex(blocks[0].shape[1])]))


def frame_of(manager: Any) -> Any:
    """Return the frame of a block manager. The constructor of pandas before 2.1 takes one."""
    import pandas as pd

    make = getattr(pd.DataFrame, "_from_mgr", None)
    return pd.DataFrame(manager) if make is None else make(manager, axes=manager.axes)


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(values, axis=1)
    if first.ndim == 2:
        return type(first)._concat_same_type(values, axis=1)
    return type(first)._concat_same_type(values)
