"""The worker's side of a vectorised function: calls with many groups, or with one on Spark's own operator.

With the session extension, batches of groups come in, and batches of changes and output go out (`run`). The
layouts of both are those of the JVM's `GroupsCall` and `StateChanges`: checked changes become batches of one
row (`ChangeWriter`). A group may come in several calls (`OpenGroup`). Every piece sees the state that the
piece before left, and the store sees only the end: the last update or removal, the last timeout. This is what
`GroupState` does within one call.

Without it, Spark's own operator calls the function once per group, with equal results (`run_group`). Rows
reach the worker as pandas frames there, and pandas loses differences: a long above 2**53 in a column with a
null is rounded, and NaN and null in a column of doubles are the same.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from state_store.functions import binding, frames
from state_store.functions.checking import STATE_EXTRAS, Call, bounds, check, readable, struct_type
from state_store.functions.group_context import (
    EXISTS,
    GROUP,
    NO_TIMESTAMP,
    TIMEOUT,
    BadResultError,
    Changes,
    GroupTooLargeError,
    Header,
    Result,
    keep_cause,
)

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState
    from pyspark.sql.types import StructField

    from state_store.functions.binding import Caller, ManyGroups

CONTINUED, MORE = 1, 2

PUT, KEEP, CLEAR, REMOVE = 0, 1, 2, 3


def run(function: ManyGroups, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call `function` for every batch of the stream; one output batch for each, or several."""
    stream = None
    try:
        for batch in batches:
            if stream is None:
                stream = GroupStream(function, Header.parse(batch.column(0)[0].as_py()))
            yield from stream.answers(batch)
    except RuntimeError as error:  # also of a function that stops
        keep_cause(error)
        raise


class GroupStream:
    """A pass over the groups of a partition. Not thread-safe; used by the one thread of a worker."""

    def __init__(self, function: ManyGroups, header: Header) -> None:
        self._function = function
        self._caller = function.caller(header)
        self._header = header
        self._writer = ChangeWriter(header.output_schema, struct_type(header.state_schema))
        self._next_group = 0
        self._open: OpenGroup | None = None
        self._row_names = [*header.rows.names, GROUP]
        self._key_names = key_names(header.key.names, header.state.names)
        self._state_names = [*self._key_names, *header.state.names, EXISTS, GROUP]
        if function.stored_timeout:
            self._state_names.append(TIMEOUT)
        check_names(header, function.stored_timeout, function.__name__)

    def answers(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the changes and output of the groups in `batch`; early output has a batch of its own."""
        flags = batch.column(1).to_numpy()
        continued, more = bool(flags[0] & CONTINUED), bool(flags[-1] & MORE)
        first = self._next_group - continued
        keys = batch.column(3).flatten()
        call = Call(
            self._function.__name__,
            self._header.context(continued=continued, more=more),
            keys,
            self._header.key.names,
            frozenset(self._state_names) | STATE_EXTRAS,
            batch.num_rows,
        )
        if more and not self._function.split_groups:
            raise self._too_large(call)
        seen = self._states(batch.column(4), continued)
        rows, states = self._tables(batch, keys, seen)
        changes = yield from self._caller.call(
            rows, states, call, lambda output: self._writer.write_output(output, first)
        )
        if continued and self._open is not None:
            changes = self._open.merged_into(changes)
        self._open = None
        done = self._next_group = first + batch.num_rows
        if more:
            self._open, changes = OpenGroup.split_off(changes, seen.slice(batch.num_rows - 1))
            done -= 1
        yield self._writer.write(changes, first, done)

    def _states(self, stored: pa.StructArray, continued: bool) -> pa.StructArray:
        """Return the states that a call sees: stored, or for a continued group that of the piece before."""
        fields = list(struct_type(self._header.state_schema))
        columns = [c.cast(f.type) for c, f in zip(stored.flatten(), fields, strict=True)]
        named = pa.StructArray.from_arrays(columns, fields=fields, mask=stored.is_null())
        if continued and self._open is not None:
            return pa.concat_arrays([self._open.state, named.slice(1)])
        return named

    def _tables(
        self, batch: pa.RecordBatch, keys: list[pa.Array], states: pa.StructArray
    ) -> tuple[pa.Table, pa.Table]:
        """Return the tables `rows` and `states` of a call."""
        group = np.arange(batch.num_rows, dtype=np.int32)
        exists = states.is_valid()
        columns = [*keys, *map(readable, states.flatten()), exists, pa.array(group)]
        if self._function.stored_timeout:
            timeouts = batch.column(2).to_numpy()
            columns.append(pa.array(timeouts, mask=timeouts == NO_TIMESTAMP))
        table = pa.Table.from_arrays(columns, names=self._state_names)
        return self._rows(batch.column(5), group), table

    def _rows(self, lists: pa.ListArray, group: np.ndarray) -> pa.Table:
        offsets = bounds(lists)
        values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
        index = pa.array(np.repeat(group, np.diff(offsets)))
        return pa.Table.from_arrays([*map(readable, values.flatten()), index], names=self._row_names)

    def _too_large(self, call: Call) -> GroupTooLargeError:
        limit = self._header.max_group_bytes
        return GroupTooLargeError(
            f"{call.name}: the rows of {call.group(call.groups - 1)} exceed {limit} bytes, the limit up to "
            "which a group is handed over whole. Raise "
            "spark.sql.streaming.stateStore.incremental.vectorized.maxGroupBytes, or mark the function with "
            "split_groups=True to take such a group in several calls."
        )


def key_names(keys: list[str], state: list[str]) -> list[str]:
    """Return names of the key columns in `states`; `key.<name>` where a state column has the name too."""
    return [f"key.{name}" if name in state else name for name in keys]


def check_names(header: Header, stored_timeout: bool, function: str) -> None:
    """Refuse schemas with a column whose name this package uses itself."""
    reserved = {"rows": [GROUP], "state": [GROUP, EXISTS, *([TIMEOUT] if stored_timeout else [])]}
    for part, names in reserved.items():
        for name in names:
            if name in getattr(header, part).names:
                raise BadResultError(
                    f"{function}: the {part} schema has a column {name!r}, a reserved name: rename it."
                )


class TableCaller:
    """Caller of a vectorised function, with the tables of a call or frames made of them."""

    def __init__(self, function: ManyGroups, header: Header) -> None:
        self._function = function
        self._header = header

    def call(
        self, rows: pa.Table, states: pa.Table, call: Call, emit: Any
    ) -> Generator[pa.RecordBatch, None, Changes]:
        """Call the function once and check what it returns; yield nothing."""
        yield from ()
        function, header = self._function, self._header
        tables: list[Any] = [rows, states]
        if function.frame == "pandas":
            tables = [frames.pandas_frame(table, header) for table in tables]
        elif function.frame == "polars":
            tables = [frames.polars_frame(table) for table in tables]
        result = function.func(*tables, call.context)
        if result is None:
            result = Result()
        if not isinstance(result, Result):
            raise call.fail(f"returned a {type(result).__name__}: return a state_store.Result, or None.")
        if function.frame == "pandas":
            result = frames.pandas_result(result, call, header)
        elif function.frame == "polars":
            result = frames.polars_result(result, call)
        return check(result, call)


@dataclasses.dataclass
class OpenGroup:
    """The group whose next piece is awaited.

    `state` is what that piece will see, an array of length 1 with a null for no state; `updated`,
    `removed` and `timeout` (ms, -1 for none) are the change that the pieces so far add up to.
    """

    state: pa.StructArray
    updated: bool
    removed: bool
    timeout: int

    @staticmethod
    def split_off(changes: Changes, before: pa.StructArray) -> tuple[OpenGroup, Changes]:
        """Return the last group of `changes` as an open one, and the changes without it.

        `before` is the state that the group had before this call, used where the call left it alone.
        """
        updated, removed = bool(changes.updated[-1]), bool(changes.removed[-1])
        if updated:
            # A copy: the function may own the memory, and use it again in the next call.
            state = changes.state.take(pa.array([len(changes.state) - 1]))
        elif removed:
            state = pa.nulls(1, before.type)
        else:
            state = before
        rest = Changes(
            changes.updated[:-1],
            changes.removed[:-1],
            changes.timeout[:-1],
            changes.state.slice(0, len(changes.state) - updated),
            changes.output,
        )
        return OpenGroup(state, updated, removed, int(changes.timeout[-1])), rest

    def merged_into(self, changes: Changes) -> Changes:
        """Return `changes`, whose first group is this one, with what the pieces before have done to it."""
        timeout = changes.timeout.copy()
        if timeout[0] == NO_TIMESTAMP:
            timeout[0] = self.timeout
        updated, removed, state = changes.updated.copy(), changes.removed.copy(), changes.state
        if not updated[0] and not removed[0]:
            updated[0], removed[0] = self.updated, self.removed
            if self.updated:
                state = pa.concat_arrays([self.state, state])
        return Changes(updated, removed, timeout, state, changes.output)


class ChangeWriter:
    """Writer of the batches of one stream; `state_type` is the Arrow type of a state on the wire."""

    def __init__(self, output_schema: pa.Schema, state_type: pa.DataType) -> None:
        output_type = struct_type(output_schema)
        self._types = [pa.list_(t) for t in (output_type, pa.int64(), pa.int8(), pa.int64(), state_type)]
        names = ("output", "group", "change", "timeout", "state")
        self._schema = pa.schema([("done", pa.int64()), *zip(names, self._types, strict=True)])

    def write(self, changes: Changes, first: int, done: int) -> pa.RecordBatch:
        """Return one batch with `changes` of the groups from `first` on; those below `done` are finished."""
        timed = changes.timeout != NO_TIMESTAMP
        change = np.full(len(timed), -1, dtype=np.int8)
        change[timed] = KEEP
        change[changes.removed] = REMOVE
        change[changes.removed & timed] = CLEAR
        change[changes.updated] = PUT
        groups = np.flatnonzero(change >= 0)
        return self.write_lists(
            done,
            changes.output,
            pa.array(groups + first),
            pa.array(change[groups]),
            pa.array(changes.timeout[groups]),
            changes.state,
        )

    def write_output(self, output: pa.StructArray, done: int) -> pa.RecordBatch:
        """Return one batch of output alone; groups below `done` are finished."""
        nothing = [pa.array([], list_type.value_type) for list_type in self._types[1:]]
        return self.write_lists(done, output, *nothing)

    def write_lists(self, done: int, *lists: pa.Array) -> pa.RecordBatch:
        """Return one batch of `lists` (output, group, change, timeout, state), a column of one row each."""
        columns = [
            pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=dtype)
            for values, dtype in zip(lists, self._types, strict=True)
        ]
        return pa.RecordBatch.from_arrays([pa.array([done], pa.int64()), *columns], schema=self._schema)


def run_group(
    function: ManyGroups, key: tuple[Any, ...], pdfs_of_group: Iterable[pd.DataFrame], state: GroupState
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
    pdfs = [] if state.hasTimedOut else list(pdfs_of_group)
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
    return frames.pandas_struct([frame], StructType([field]), header).field(0)


def _rows(pdfs: list[pd.DataFrame], header: Header) -> pa.Table:
    if pdfs:
        columns = frames.pandas_struct(pdfs, header.rows, header).flatten()
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
    return frames.pandas_frame(pa.Table.from_struct_array(output), exact)


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
