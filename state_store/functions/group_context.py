"""Values of a call of many groups: errors, the JVM's header, a function's context and its result.

The last part is about the worker: it makes up for differences of PySpark 4.0 and 4.1, which have other rules
for pandas frames and Arrow types with UTC, and keeps Python's garbage collector from imports.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from pyspark.sql.types import StructType

GROUP = "__group"

EXISTS = "__exists"

TIMEOUT = "__timeout_ms"

NO_TIMESTAMP = -1
"""Stands for "no timestamp" on the wire and in state rows."""

_LONG = 1 << 63

_modules_when_frozen = 0


def as_long(milliseconds: float) -> int:
    """Return a timeout as the JVM takes it from the text that PySpark's operator sends.

    Of an integer it keeps the low 64 bits; a float is cut to an integer, and ends at the bounds of a long.
    """
    if isinstance(milliseconds, int):
        return (milliseconds + _LONG) % (2 * _LONG) - _LONG
    return min(max(int(milliseconds), -_LONG), _LONG - 1)


# ---- the values of a call -------------------------------------------------------------------------------


class BadResultError(ValueError):
    """A function returned something that cannot be applied; names the column, the group and the rule.

    Raised before anything of that call is written to the state store.
    """


class GroupTooLargeError(ValueError):
    """The rows of one group exceed the limit up to which groups are handed over whole."""


class VectorizationWarning(UserWarning):
    """A marked function runs group by group, because the session lacks the extension."""


@dataclasses.dataclass(frozen=True)
class Context:
    """The facts that are the same for all groups of a call.

    batch_time_ms
        Start of the micro-batch, milliseconds since the epoch; the same when a batch is run again.
    watermark_ms
        The event-time watermark in milliseconds since the epoch, `None` where the query sets none.
    timeout_conf
        `NoTimeout`, `ProcessingTimeTimeout` or `EventTimeTimeout`.
    timed_out
        True if the groups of this call have timed out; they then have no rows.
    continued, more
        Only for functions that take groups in pieces: the first group of this call began in the call before;
        the last group of this call goes on in the next.
    state_schema, output_schema
        The Arrow schemas that `Result.state` and `Result.output` have to meet.
    """

    batch_time_ms: int
    watermark_ms: int | None
    timeout_conf: str
    timed_out: bool
    continued: bool
    more: bool
    state_schema: pa.Schema
    output_schema: pa.Schema


def to_arrow_schema(schema: Any, time_zone: str, large_types: bool) -> pa.Schema:
    """Return the pyarrow schema for a schema of Spark, with moments in `time_zone`.

    Args:
        schema: a `pyspark.sql.types.StructType`.
        time_zone: the name of a time zone.
        large_types: whether strings and binaries have offsets of 64 bits.
    """
    from pyspark.sql.pandas import types

    if is_older_spark():
        return _older_schema(schema, time_zone, large_types)
    return types.to_arrow_schema(schema, timezone=time_zone, prefers_large_types=large_types)


@dataclasses.dataclass(frozen=True)
class Header:
    """The facts that are the same for all batches of a stream, as the JVM wrote them into its first row.

    Schemas are Spark's (`pyspark.sql.types.StructType`); times are milliseconds, -1 for none;
    `runner` is the worker configuration of Spark's pandas functions.
    """

    key: Any
    rows: Any
    state: Any
    output: Any
    timeout_conf: str
    timed_out: bool
    batch_time_ms: int
    watermark_ms: int
    watermark_present: bool
    time_zone: str
    large_types: bool
    max_group_bytes: int
    max_records: int
    runner: dict[str, str]

    @staticmethod
    def parse(text: str) -> Header:
        """Return the header in `text`, a JSON object with the fields of this class."""
        from pyspark.sql.types import StructType

        fields = json.loads(text)
        for name in ("key", "rows", "state", "output"):
            fields[name] = StructType.fromJson(fields[name])
        return Header(**fields)

    def arrow(self, schema: Any) -> pa.Schema:
        """Return the pyarrow schema for a schema of Spark, with moments in the session's time zone."""
        return to_arrow_schema(schema, self.time_zone, self.large_types)

    @functools.cached_property
    def state_schema(self) -> pa.Schema:
        """The schema of the state, as pyarrow has it."""
        return self.arrow(self.state)

    @functools.cached_property
    def output_schema(self) -> pa.Schema:
        """The schema of the function's output, as pyarrow has it."""
        return self.arrow(self.output)

    @functools.cached_property
    def row_schema(self) -> pa.Schema:
        """The schema of the input rows, as pyarrow has it."""
        return self.arrow(self.rows)

    @functools.cached_property
    def key_schema(self) -> pa.Schema:
        """The schema of the grouping columns, as pyarrow has it."""
        return self.arrow(self.key)

    def flag(self, name: str) -> bool:
        """Return a boolean setting of the worker, false where Spark does not have it."""
        return self.runner.get(name, "false") == "true"

    def context(self, *, continued: bool = False, more: bool = False) -> Context:
        """Return the context of one call."""
        return Context(
            batch_time_ms=self.batch_time_ms,
            watermark_ms=self.watermark_ms if self.watermark_present else None,
            timeout_conf=self.timeout_conf,
            timed_out=self.timed_out,
            continued=continued,
            more=more,
            state_schema=self.state_schema,
            output_schema=self.output_schema,
        )


@dataclasses.dataclass
class Result:
    """The result of a call. A group that no part names keeps its state and its timeout.

    output
        Rows to emit, with the columns of the output schema: a table (or frame, as the function's `frame`
        says), or `None` for none.
    state
        New states. Without a `__group` column: one row for each row of `states`, in its order. With it:
        rows for the groups that it names. Columns of `states` that are not state columns may stay in and are
        not read.
    remove
        Groups whose state is removed: group indexes, or one boolean for each row of `states`.
    timeout
        New timeouts, one for each row of `states`, null for none: integers are milliseconds since the
        epoch, as are timestamps; durations count from the start of the batch and need
        `ProcessingTimeTimeout`. A group that gets a new state or is removed, and no timeout, has none
        afterwards, as with `GroupState`.
    """

    output: Any = None
    state: Any = None
    remove: Any = None
    timeout: Any = None


@dataclasses.dataclass
class Changes:
    """A checked result for `n` groups.

    `updated` and `removed` are boolean arrays of length n, `timeout` an int64 array of length n (-1:
    none set), `state` a struct array with the new states of the updated groups in ascending order,
    `output` a struct array.
    """

    updated: np.ndarray
    removed: np.ndarray
    timeout: np.ndarray
    state: pa.StructArray
    output: pa.StructArray


# ---- PySpark 4.0 and 4.1 --------------------------------------------------------------------------------


def is_older_spark() -> bool:
    """Return True if PySpark is 4.0 or 4.1, whose rules for pandas and Arrow differ."""
    import pyspark

    return pyspark.__version__.startswith(("4.0.", "4.1."))


def _is_oldest_spark() -> bool:
    import pyspark

    return pyspark.__version__.startswith("4.0.")


def _older_schema(schema: StructType, time_zone: str, large_types: bool) -> pa.Schema:
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


def older_series(table: pa.Table | pa.RecordBatch, time_zone: str) -> list[pd.Series]:
    """Return the columns of `table` as the series that `applyInPandasWithState` would get."""
    from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer

    rules = ArrowStreamPandasUDFSerializer(time_zone, False, False)
    more = () if _is_oldest_spark() else (0,)
    return [rules.arrow_to_pandas(column, *more) for column in table.columns]


def older_struct(
    frame: pd.DataFrame, schema: pa.Schema, time_zone: str, *, safe: bool, by_name: bool, decimals: bool
) -> pa.StructArray:
    """Return `frame` as a struct array of `schema`, by PySpark's rules for results.

    safe: whether values that do not fit are errors. by_name: whether columns are found by their names.
    decimals: whether Spark 4.1 makes decimals of integers.
    """
    from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer

    rules = ArrowStreamPandasUDFSerializer(time_zone, safe, by_name)
    if not _is_oldest_spark():
        # A column that Arrow cannot make at once is made with the type of its values, and then cast.
        rules = ArrowStreamPandasUDFSerializer(
            time_zone, safe, by_name, arrow_cast=True, int_to_decimal_coercion_enabled=decimals
        )
    in_utc = pa.struct([_zoned(field, "UTC") for field in schema])  # as Spark's errors name the types
    struct, kind = rules._create_struct_array(frame, in_utc), pa.struct(list(schema))
    return struct if in_utc == kind else struct.cast(kind)


# ---- errors ---------------------------------------------------------------------------------------------


def keep_cause(error: Exception) -> None:
    """Let PySpark's worker show the cause of an error that was raised outside of the user's code.

    The worker simplifies tracebacks: of an error with frames of other code than PySpark's it hides those of
    PySpark and the cause, such as the user's line that raised `StopIteration`. Frames of this package are
    not to count as other code. The worker ends after the error, and with it its environment.
    """
    import pyspark

    own = (str(Path(pyspark.__file__).parent), f"{Path(__file__).parents[1]}{os.sep}")
    if all(frame.filename.startswith(own) for frame in traceback.extract_tb(error.__traceback__)):
        os.environ.pop("SPARK_SIMPLIFIED_TRACEBACK", None)


# ---- garbage collection ---------------------------------------------------------------------------------


def exempt_imports() -> None:
    """Exempt all objects that live now from collections, if modules were imported since the last call.

    Spark's worker collects everything after each task; modules of pandas and pyarrow alone make that last
    tens of milliseconds. Call it at the begin of a task, before the user's function is loaded, so that no
    object of a task is exempt: garbage in cycles that is exempt would stay.
    """
    global _modules_when_frozen
    if len(sys.modules) != _modules_when_frozen:
        gc.collect()
        gc.freeze()
        _modules_when_frozen = len(sys.modules)


def fields_without_state(header: Header) -> dict[str, Any]:
    """Return the fields of PySpark's `GroupState` of a group without state, as its constructor sets them."""
    from pyspark.sql.streaming.state import GroupState

    return vars(
        GroupState(
            optionalValue=None,
            batchProcessingTimeMs=header.batch_time_ms,
            eventTimeWatermarkMs=header.watermark_ms,
            timeoutConf=header.timeout_conf,
            hasTimedOut=header.timed_out,
            watermarkPresent=header.watermark_present,
            defined=False,
            updated=False,
            removed=False,
            timeoutTimestamp=NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=header.state,
        )
    )
