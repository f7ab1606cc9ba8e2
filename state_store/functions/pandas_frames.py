"""Arrow tables to pandas frames and back, by the rules of PySpark's own pandas functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from state_store.core.compat import zip
from state_store.functions import older_spark
from state_store.functions.checking import readable
from state_store.functions.group_context import GROUP, Result

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.types import StructType

    from state_store.functions.checking import Call
    from state_store.functions.group_context import Header


def to_series(table: pa.Table | pa.RecordBatch, header: Header) -> list[pd.Series]:
    """Return the columns of `table` as the series that `applyInPandasWithState` would get."""
    if any(map(pa.types.is_nested, table.schema.types)):
        columns = [
            pa.chunked_array([readable(part) for part in column.chunks], column.type)
            if isinstance(column, pa.ChunkedArray)
            else readable(column)
            for column in table.columns
        ]
        table = type(table).from_arrays(columns, schema=table.schema)
    if older_spark.is_installed():
        return older_spark.to_series(table, header.time_zone)
    from pyspark.sql.conversion import ArrowBatchTransformer

    return ArrowBatchTransformer.to_pandas(
        table,
        timezone=header.time_zone,
        struct_in_pandas="dict",
        ndarray_as_list=False,
        prefer_int_ext_dtype=header.flag("spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"),
        df_for_struct=False,
    )


def to_frame(table: pa.Table, header: Header) -> pd.DataFrame:
    """Return `table` as one frame with a fresh range index."""
    import pandas as pd

    return pd.DataFrame(dict(zip(table.column_names, to_series(table, header), strict=True)), copy=False)


def to_struct(frames: list[pd.DataFrame], schema: StructType, header: Header) -> pa.StructArray:
    """Return `frames`, one below the other, as a struct array of `schema`, by PySpark's rules for results."""
    import pandas as pd

    frame = pd.concat(frames, ignore_index=True) if len(frames) != 1 else frames[0].reset_index(drop=True)
    safe = header.flag("spark.sql.execution.pandas.convertToArrowArraySafely")
    by_name = header.flag("spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName")
    if older_spark.is_installed():
        arrow = header.arrow(schema)
        return older_spark.to_struct(frame, arrow, header.time_zone, safe=safe, by_name=by_name)
    from pyspark.sql.conversion import PandasToArrowConversion
    from pyspark.sql.types import StructField, StructType

    batch = PandasToArrowConversion.convert(
        [frame],
        StructType([StructField("_0", schema)]),
        timezone=header.time_zone,
        safecheck=safe,
        arrow_cast=True,
        assign_cols_by_name=by_name,
        int_to_decimal_coercion_enabled=header.flag(
            "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
        ),
        prefers_large_types=header.large_types,
    )
    return batch.column(0)


def to_arrow_result(result: Result, call: Call, header: Header) -> Result:
    """Return `result` with its frames as tables; masks and timeouts may stay series."""
    return Result(
        output=to_table(result.output, header.output, "Result.output", call, header),
        state=to_table(result.state, header.state, "Result.state", call, header),
        remove=result.remove,
        timeout=_naive_to_session(result.timeout, header),
    )


def to_table(frame: Any, schema: StructType, part: str, call: Call, header: Header) -> Any:
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
            struct = to_struct([named], type(schema)(fields), header)
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
