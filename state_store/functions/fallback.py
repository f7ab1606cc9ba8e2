"""A vectorised function on Spark's own operator: one call per group, with equal results.

Rows reach the worker as pandas frames here, and pandas loses differences: a long above 2**53 in a column with
a null is rounded, and NaN and null in a column of doubles are the same.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from state_store.core.compat import zip
from state_store.functions import binding, pandas_frames
from state_store.functions.checking import STATE_EXTRAS, Call
from state_store.functions.group_context import EXISTS, GROUP, NO_TIMESTAMP, BadResultError, Changes, Header
from state_store.functions.stream import check_names, key_names

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState
    from pyspark.sql.types import StructField

    from state_store.functions.binding import Caller, ManyGroups


def run(
    function: ManyGroups, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Call `function` for one group and apply its result to `state`; yield its output as one frame.

    Raises:
        BadResultError: The function needs what only the extension gives, or its result breaks a rule.
    """
    if function.schemas is None:
        raise BadResultError(
            f"{function.__name__} was not passed to applyInPandasWithState on a data frame, "
            f"so its schemas are not known; or {binding.HOW_TO_SET}."
        )
    if function.stored_timeout:
        raise BadResultError(
            f"{function.__name__} asks for stored timeouts, which Spark's own operator does not tell: "
            f"{binding.HOW_TO_SET}."
        )
    _warn_once(function)
    pdfs = [] if state.hasTimedOut else list(frames)
    header, caller = _prepared(function, _times(state))
    states, call = _states(function, header, key, state)
    changes = yield from caller.call(_rows(pdfs, header), states, call, lambda output: _frame(output, header))
    _apply(changes, call, state)
    if len(changes.output):
        yield _frame(changes.output, header)


def _states(
    function: ManyGroups, header: Header, key: tuple[Any, ...], state: GroupState
) -> tuple[pa.Table, Call]:
    """Return the table `states` of a call with one group, and the call."""
    keys = [_key_column(value, field, header) for field, value in zip(header.key.fields, key, strict=True)]
    names = key_names(header.key.names, header.state.names)
    check_names(header, False, function.__name__)
    column_names = frozenset([*names, *header.state.names]) | STATE_EXTRAS
    call = Call(function.__name__, header.context(), keys, header.key.names, column_names, 1)
    columns = [*keys, *_stored(state, header), pa.array([state.exists]), pa.array([0], pa.int32())]
    return pa.Table.from_arrays(columns, names=[*names, *header.state.names, EXISTS, GROUP]), call


def _key_column(value: Any, field: StructField, header: Header) -> pa.Array:
    """Return one grouping value as an array of length 1; a column alone, since names may come twice."""
    import pandas as pd
    from pyspark.sql.types import StructType

    frame = pd.DataFrame({field.name: pd.Series([value])})
    return pandas_frames.to_struct([frame], StructType([field]), header).field(0)


def _rows(pdfs: list[pd.DataFrame], header: Header) -> pa.Table:
    if pdfs:
        columns = pandas_frames.to_struct(pdfs, header.rows, header).flatten()
    else:
        columns = [pa.array([], type=field.type) for field in header.row_schema]
    count = len(columns[0])
    return pa.Table.from_arrays(
        [*columns, pa.array(np.zeros(count, dtype=np.int32))], names=[*header.rows.names, GROUP]
    )


def _stored(state: GroupState, header: Header) -> list[pa.Array]:
    """Return the state as arrays of length 1, null without state."""
    value = state.getOption
    if value is None:
        return [pa.nulls(1, field.type) for field in header.state_schema]
    return [
        pa.array([_to_arrow(item, field.type)], type=field.type)
        for item, field in zip(value, header.state_schema, strict=True)
    ]


def _to_arrow(value: Any, dtype: pa.DataType) -> Any:
    """Return a value of `GroupState` as pyarrow takes it.

    The fields of a row are matched by position, because Spark's worker turns nested names into lower case.
    """
    if value is None:
        return None
    if pa.types.is_struct(dtype):
        return {f.name: _to_arrow(item, f.type) for f, item in zip(dtype, tuple(value), strict=True)}
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return value.astimezone(datetime.timezone.utc)  # naive, in the worker's zone
    return value


def _from_arrow(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_from_arrow(item) for item in value.values())
    return value


def _apply(changes: Changes, call: Call, state: GroupState) -> None:
    if changes.updated[0]:
        state.update(_python(changes.state))
    elif changes.removed[0]:
        state.remove()
    timeout = int(changes.timeout[0])
    if timeout != NO_TIMESTAMP:
        if call.context.timeout_conf == "EventTimeTimeout":
            state.setTimeoutTimestamp(timeout)
        else:
            state.setTimeoutDuration(timeout - call.context.batch_time_ms)


def _python(states: pa.StructArray) -> tuple[Any, ...]:
    return tuple(_from_arrow(column[0].as_py()) for column in states.flatten())


def _frame(output: pa.StructArray, header: Header) -> pd.DataFrame:
    """Return the output as a frame from which Spark gets the same values: integers stay integers."""
    exact = dataclasses.replace(
        header, runner={"spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype": "true"}
    )
    return pandas_frames.to_frame(pa.Table.from_struct_array(output), exact)


@functools.lru_cache(maxsize=8)
def _prepared(function: ManyGroups, times: tuple[tuple[str, Any], ...]) -> tuple[Header, Caller]:
    """Return the header that the JVM would send, and the caller of the function: the same for all groups."""
    from pyspark.sql.types import StructType

    schemas = function.schemas
    assert schemas is not None
    rows, key, state, output = (
        StructType.fromJson(json.loads(text))
        for text in (schemas.rows, schemas.key, schemas.state, schemas.output)
    )
    header = Header(
        key=key,
        rows=rows,
        state=state,
        output=output,
        time_zone=_time_zone() or schemas.time_zone,
        large_types=False,
        max_group_bytes=0,
        max_records=0,
        runner={},
        **dict(times),
    )
    return header, function.caller(header)


def _time_zone() -> str | None:
    """Return the session's zone when the query was started, if it was set by then.

    The zone may have been changed after the function was passed to `applyInPandasWithState`. Spark sends the
    settings of the query with each task.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    return None if task is None else task.getLocalProperty("spark.sql.session.timeZone")


def _times(state: GroupState) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a `Header` about times, which are the same for all groups of a pass."""
    return (
        ("timeout_conf", state._timeout_conf),
        ("timed_out", state.hasTimedOut),
        ("batch_time_ms", state.getCurrentProcessingTimeMs()),
        ("watermark_ms", state._event_time_watermark_ms),
        ("watermark_present", state._watermark_present),
    )


_warned = False


def _warn_once(function: ManyGroups) -> None:
    """Write one line to the log of a worker process, if the driver has not warned already."""
    global _warned
    if not _warned and function.schemas is not None and not function.schemas.warned:
        print(
            f"{function.__name__} runs group by group in worker {os.getpid()}: {binding.HOW_TO_SET}.",
            file=sys.stderr,
        )
    _warned = True
