"""Classes marked with `@state_store.vectorized`: processors whose `handle` gets many groups at a time.

The decorator (`mark`) gives the class the methods of Spark's `StatefulProcessor`, so that Spark's own worker
can run it, group by group. With the session extension, the worker of this package calls `handle` itself, with
tables of many groups (`Loop`).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state_store.functions.checking import Call, output_of, struct_type
from state_store.functions.frames import pandas_frame, pandas_struct, pandas_table, polars_table
from state_store.functions.group_context import GROUP, BadResultError, GroupTooLargeError, Header
from state_store.functions.processors.processor_loop import LOOP, ProcessorLoop
from state_store.functions.processors.variables import BatchedHandle
from state_store.functions.vectors.call_state import (
    TIMER,
    ListColumns,
    MapColumns,
    RowColumns,
    States,
    TimerColumns,
    ValueColumns,
)

FRAME = "_state_store_frame"
"""The attribute of a marked class that says what its tables are: `arrow`, `pandas` or `polars`."""

_BOUND, _CALLS = "_state_store_bound", "_state_store_calls"

_MARK_LAST = (
    "only the class that is passed to the query can be marked with state_store.vectorized; leave the mark "
    "off the classes that it is derived from"
)

_TIMEOUTS = {"processingtime": "ProcessingTimeTimeout", "eventtime": "EventTimeTimeout"}
"""Spark's older words for the time modes, in which checks and messages speak."""


@dataclasses.dataclass(frozen=True)
class BoundProcessor:
    """The facts of a query that Spark does not tell its processor: schemas as JSON, the session's zone."""

    rows: str
    key: str
    output: str
    initial: str | None
    time_zone: str
    of_rows: bool
    time_mode: str


def is_marked(processor: Any) -> bool:
    """Return True if a processor's class was marked with `@state_store.vectorized`."""
    return hasattr(type(processor), FRAME)


def bind(processor: Any, bound: BoundProcessor) -> Any:
    """Return a copy of a marked processor that knows its query.

    Raises:
        TypeError: its class is derived from the marked class, whose methods it may have replaced.
    """
    cls = type(processor)
    if FRAME not in vars(cls):
        marked = next(base for base in cls.__mro__ if FRAME in vars(base))
        raise TypeError(f"{cls.__name__} is derived from {marked.__name__}: {_MARK_LAST}")
    copied = copy.copy(processor)
    setattr(copied, _BOUND, bound)
    return copied


def mark(cls: type, frame: str) -> type:
    """Make a class with a method `handle` a processor for Spark, and return it.

    Raises:
        TypeError: it has no `handle`, is not a `StatefulProcessor`, has a method that this one gives it, or
            is derived from a marked class.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    if not issubclass(cls, StatefulProcessor):
        raise TypeError(
            f"state_store.vectorized marks {cls.__name__}, which is not a processor: make it a subclass of "
            "pyspark.sql.streaming.StatefulProcessor"
        )
    marked = next((base for base in cls.__mro__ if FRAME in vars(base)), None)
    if marked is not None:
        raise TypeError(f"{cls.__name__} is derived from {marked.__name__}, which is marked: {_MARK_LAST}")
    if not callable(getattr(cls, "handle", None)):
        raise TypeError(f"{cls.__name__} has no method handle(self, keys, rows, state)")
    for name, instead in (("handleInputRows", "handle"), ("handleExpiredTimer", "handle_timers")):
        if name in vars(cls):
            raise TypeError(f"{cls.__name__}.{name} would not be called: write {instead} in its place")
    if frame == "polars" and importlib.util.find_spec("polars") is None:
        raise ImportError(
            'frame="polars" needs the package polars, here and on the executors: pip install polars'
        )
    setattr(cls, FRAME, frame)
    setattr(cls, LOOP, __name__)
    declare = cls.init  # type: ignore[attr-defined]

    @functools.wraps(declare)
    def init(self: Any, handle: Any) -> None:
        calls = Calls(self, header_of(self))
        setattr(self, _CALLS, calls)
        declare(self, VectorHandle(handle, calls.states, None))

    cls.init = init  # type: ignore[attr-defined]
    cls.handleInputRows = _input_rows  # type: ignore[attr-defined]
    cls.handleExpiredTimer = _expired_timer  # type: ignore[attr-defined]
    cls.handleInitialState = _initial_state  # type: ignore[attr-defined]
    abstract = set(getattr(cls, "__abstractmethods__", ()))
    cls.__abstractmethods__ = frozenset(abstract - {"handleInputRows"})  # type: ignore[attr-defined]
    return cls


def header_of(processor: Any) -> Header:
    """Return what the checks need to know of a query, from what was bound to its processor."""
    from pyspark.sql.types import StructType

    bound: BoundProcessor | None = getattr(processor, _BOUND, None)
    if bound is None:
        raise BadResultError(
            f"{type(processor).__name__} was not passed to transformWithState or "
            "transformWithStateInPandas on a data frame, so its schemas are not known"
        )
    key, rows, output = (StructType.fromJson(json.loads(t)) for t in (bound.key, bound.rows, bound.output))
    return Header(
        key=key,
        rows=rows,
        state=StructType([]),
        output=output,
        timeout_conf=_TIMEOUTS.get(bound.time_mode.lower(), "NoTimeout"),
        timed_out=False,
        batch_time_ms=-1,
        watermark_ms=-1,
        watermark_present=False,
        time_zone=_session_zone() or bound.time_zone,
        large_types=False,
        max_group_bytes=0,
        max_records=0,
        runner={},
    )


def _session_zone() -> str | None:
    from pyspark import TaskContext

    task = TaskContext.get()
    return None if task is None else task.getLocalProperty("spark.sql.session.timeZone")


class Calls:
    """Caller of the methods of a marked processor with tables, which checks their results."""

    def __init__(self, processor: Any, header: Header) -> None:
        self._processor = processor
        self._frame = getattr(type(processor), FRAME)
        self._header = header
        self.states = States(self._frame, type(processor).__name__, header)

    def at(self, times: Any) -> None:
        """Note the times of the batch, Spark's `TimerValues`."""
        batch_ms, watermark_ms = times.getCurrentProcessingTimeInMs(), times.getCurrentWatermarkInMs()
        self.states.batch_time_ms = None if batch_ms < 0 else batch_ms
        self.states.watermark_ms = None if watermark_ms < 0 else watermark_ms

    def rows(self, keys: list[pa.Array], rows: pa.Table, call: Call) -> Iterator[pa.StructArray]:
        """Call `handle` for groups with these keys and rows, and give its output."""
        states = self.states
        names = self._header.key.names
        yield from self._outputs(
            self._processor.handle(
                states._table(keys, names), states._table(rows.columns, rows.column_names), states
            ),
            call,
        )

    def timers(self, keys: list[pa.Array], timers: pa.Table, call: Call) -> Iterator[pa.StructArray]:
        """Call `handle_timers` for timers that have expired, and give its output."""
        method = getattr(self._processor, "handle_timers", None)
        if method is not None:
            states = self.states
            tables = (
                states._table(keys, self._header.key.names),
                states._table(timers.columns, timers.column_names),
            )
            yield from self._outputs(method(*tables, states), call)

    def initial(self, keys: list[pa.Array], rows: pa.Table) -> None:
        """Call `handle_initial_state` for the rows of a query's initial state."""
        method = getattr(self._processor, "handle_initial_state", None)
        if method is None:
            raise BadResultError(
                f"{type(self._processor).__name__} has no method handle_initial_state(self, keys, rows, "
                "state), which a query with initial state needs"
            )
        states = self.states
        method(
            states._table(keys, self._header.key.names),
            states._table(rows.columns, rows.column_names),
            states,
        )

    def _outputs(self, outputs: Any, call: Call) -> Iterator[pa.StructArray]:
        for output in outputs if isinstance(outputs, Iterator) else (outputs,):
            if output is None:
                continue
            header, part = self._header, "the output"
            if self._frame == "pandas":
                output = pandas_table(output, header.output, part, call, header)
            elif self._frame == "polars":
                output = polars_table(output, header.output_schema, part, call)
            yield output_of(output, call, part)


class VectorHandle:
    """The handle that `init` gets: declares variables whose tables have a row for each group or entry."""

    def __init__(self, handle: Any, states: States, timers: Any) -> None:
        self._handle = handle
        self._states = states
        states.timers = TimerColumns(states, handle, timers)

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueColumns:
        """Declare a value state; see `ValueColumns`."""
        parsed = self._parsed(schema)
        variable = self._handle.getValueState(stateName, parsed, ttlDurationMs)
        return self._declared(stateName, ValueColumns(self._states, stateName, variable, parsed))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListColumns:
        """Declare a list state; see `ListColumns`."""
        parsed = self._parsed(schema)
        variable = self._handle.getListState(stateName, parsed, ttlDurationMs)
        return self._declared(stateName, ListColumns(self._states, stateName, variable, parsed))

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> MapColumns:
        """Declare a map state; see `MapColumns`."""
        keys, values = self._parsed(userKeySchema), self._parsed(valueSchema)
        variable = self._handle.getMapState(stateName, keys, values, ttlDurationMs)
        return self._declared(stateName, MapColumns(self._states, stateName, variable, keys, values))

    def deleteIfExists(self, stateName: str) -> None:
        """Delete a variable that an earlier run of the query declared."""
        self._handle.deleteIfExists(stateName)

    def _declared(self, name: str, columns: Any) -> Any:
        self._states._variables[name] = columns
        return columns

    def _parsed(self, schema: Any) -> Any:
        if not isinstance(schema, str):
            return schema
        parse = getattr(self._handle, "_parsed", None)  # of the handle of this package
        if parse is None:
            parse = self._handle._statefulProcessorApiClient._parse_string_schema
        return parse(schema)


def _input_rows(self: Any, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
    """Handle the rows of one group, in Spark's own worker."""
    single = _SingleGroup(self, key, timerValues)
    call = single.begin(timed_out=False)
    yield from single.given(single.calls.rows(single.keys, single.table(rows), call))


def _expired_timer(self: Any, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
    """Handle one timer that has expired, in Spark's own worker."""
    single = _SingleGroup(self, key, timerValues)
    call = single.begin(timed_out=True)
    moment = pa.array([expiredTimerInfo.getExpiryTimeInMs()], pa.int64())
    timers = pa.Table.from_arrays([moment, pa.array([0], pa.int32())], names=[TIMER, GROUP])
    yield from single.given(single.calls.timers(single.keys, timers, call))


def _initial_state(self: Any, key: Any, initialState: Any, timerValues: Any) -> None:
    """Handle a frame or a row of the initial state of one group, in Spark's own worker."""
    from pyspark.sql.types import StructType

    single = _SingleGroup(self, key, timerValues)
    single.begin(timed_out=False)
    assert single.bound.initial is not None
    schema = StructType.fromJson(json.loads(single.bound.initial))
    single.calls.initial(single.keys, single.table(iter([initialState]), schema))


class _SingleGroup:
    """The call of a marked processor for one group in Spark's own worker, with its frames or rows."""

    def __init__(self, processor: Any, key: Any, times: Any) -> None:
        self.bound: BoundProcessor = getattr(processor, _BOUND)
        self.calls: Calls = getattr(processor, _CALLS)
        self.calls.at(times)
        self._header = self.calls._header
        self.keys = self._key_columns(tuple(key) if isinstance(key, (tuple, list)) else (key,))

    def begin(self, *, timed_out: bool) -> Call:
        """Begin a call for the group, whose key Spark has set."""
        return self.calls.states._begin(self.keys, lambda slot: None, None, timed_out=timed_out)

    def table(self, rows: Iterator[Any], schema: Any = None) -> pa.Table:
        """Return the rows of the group, given as Spark gives them, as a table with the column `__group`."""
        schema = schema or self._header.rows
        row_list = list(rows)
        if self.bound.of_rows or not row_list:
            columns = RowColumns(self._header.arrow(schema)).columns(row_list)
        else:
            columns = pandas_struct(row_list, schema, self._header).flatten()
        group = pa.array([0] * len(columns[0]), pa.int32())
        return pa.Table.from_arrays([*columns, group], names=[*schema.names, GROUP])

    def given(self, outputs: Iterator[pa.StructArray]) -> Iterator[Any]:
        """Give output as Spark takes it: rows, or frames."""
        from pyspark.sql.types import Row

        for output in outputs:
            if self.bound.of_rows:
                make = Row(*self._header.output.names)
                for row in RowColumns(self._header.output_schema).rows(output.flatten()):
                    yield make(*row)
            elif len(output):
                exact = dataclasses.replace(
                    self._header,
                    runner={"spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype": "true"},
                )
                yield pandas_frame(pa.Table.from_struct_array(output), exact)

    def _key_columns(self, key: tuple[Any, ...]) -> list[pa.Array]:
        if self.bound.of_rows or all(value is None or type(value) in (int, str, bool) for value in key):
            return RowColumns(self._header.key_schema).columns([key])
        import pandas as pd
        from pyspark.sql.types import StructType

        columns = []
        for value, field in zip(key, self._header.key.fields, strict=True):
            frame = pd.DataFrame({field.name: pd.Series([value])})
            columns.append(pandas_struct([frame], StructType([field]), self._header).field(0))
        return columns


class Loop(ProcessorLoop):
    """A pass over the groups and timers of a partition. Used by the one thread of a worker."""

    def __init__(self, processor: Any, output: Any, header: Any) -> None:
        super().__init__(processor, output, header)
        query = header_of(processor)
        self._query: Header = dataclasses.replace(
            query,
            time_zone=header.time_zone,
            large_types=False,
            runner=header.runner,
            batch_time_ms=header.batch_time_ms,
            watermark_ms=header.watermark_ms,
        )
        self._calls = Calls(processor, self._query)
        self._calls.at(self._times)
        self._output = _Passed()
        self._key_columns = RowColumns(self._query.key_schema)
        self._batch_schema = pa.schema(list(struct_type(self._query.output_schema)))

    def _declare(self) -> None:
        """Call the user's `init`, whose variables know the session of this task."""
        handle = BatchedHandle(self._session, self._timers)
        declare = type(self._processor).init.__wrapped__
        declare(self._processor, VectorHandle(handle, self._calls.states, self._timers))

    def _with_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        header, session = self._header, self._session
        for table in whole_groups(batches, header.key_offsets, header.max_group_bytes):
            columns = [column.combine_chunks() for column in table.columns]
            starts = borders([columns[offset] for offset in header.key_offsets])
            first = pa.array(starts)
            keys = [columns[offset].take(first) for offset in header.key_offsets]
            index = np.repeat(np.arange(len(starts), dtype=np.int32), np.diff([*starts, table.num_rows]))
            names = table.column_names[header.first_value :]
            rows = pa.Table.from_arrays(
                [*columns[header.first_value :], pa.array(index)], names=[*names, GROUP]
            )
            call = self._begin(keys, timed_out=False)
            yield from self._given(self._calls.rows(self._as_query(keys), self._rows_as_query(rows), call))
        session.end()

    def _begin(self, keys: list[pa.Array], *, timed_out: bool) -> Any:
        session = self._session
        session.begin(self._key_columns.rows(keys))
        return self._calls.states._begin(
            self._as_query(keys), session.enter, session.fetch, timed_out=timed_out
        )

    def _as_query(self, keys: list[pa.Array]) -> list[pa.Array]:
        return [key.cast(field.type) for key, field in zip(keys, self._query.key_schema, strict=True)]

    def _rows_as_query(self, rows: pa.Table) -> pa.Table:
        *values, index = rows.columns
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(values, self._query.row_schema, strict=True)
        ]
        return pa.Table.from_arrays([*columns, index], names=rows.column_names)

    def _expired(self, part: list[tuple[Any, int]]) -> Iterator[pa.RecordBatch]:
        """Give what the processor gives for timers that have expired, and delete each after the call."""
        places: dict[Any, int] = {}
        groups = [places.setdefault(self._keys.key(tuple(key)), len(places)) for key, _ in part]
        first = {group: key for group, (key, _) in reversed(list(zip(groups, part, strict=True)))}
        keys = self._key_columns.columns([first[group] for group in range(len(places))])
        call = self._begin(keys, timed_out=True)
        timers = pa.Table.from_arrays(
            [pa.array([at for _, at in part], pa.int64()), pa.array(groups, pa.int32())], names=[TIMER, GROUP]
        )
        yield from self._given(self._calls.timers(keys, timers, call))
        for group, (_, at) in zip(groups, part, strict=True):
            self._session.enter(group)
            self._timers.delete(at)

    def _given(self, outputs: Iterator[pa.StructArray]) -> Iterator[pa.RecordBatch]:
        for output in outputs:
            if len(output):
                yield pa.RecordBatch.from_arrays(output.flatten(), schema=self._batch_schema)


class _Passed:
    """Output that goes on as it comes: it is in batches already."""

    waits = False

    def add(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches as they are."""
        return batches


def whole_groups(
    batches: Iterator[pa.RecordBatch], key_offsets: list[int], max_group_bytes: int
) -> Iterator[pa.Table]:
    """Yield the rows of a partition, sorted by key, in tables that end with a group.

    Raises:
        GroupTooLargeError: the rows of one group exceed `max_group_bytes`.
    """
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        starts = borders([batch.column(offset) for offset in key_offsets])
        continues = bool(waiting) and _continues(waiting[-1], batch, key_offsets)
        if waiting and not continues:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_bytes = [], 0
        last = int(starts[-1])
        if last:
            yield pa.Table.from_batches([*waiting, batch.slice(0, last)])
            waiting, waiting_bytes = [], 0
        waiting.append(batch.slice(last))
        waiting_bytes += waiting[-1].nbytes
        if waiting_bytes > max_group_bytes:
            key = ", ".join(repr(waiting[0].column(offset)[0].as_py()) for offset in key_offsets)
            raise GroupTooLargeError(
                f"the rows of group ({key}) exceed {max_group_bytes} bytes, the limit up to which a "
                "vectorised processor gets a group: raise "
                "spark.sql.streaming.stateStore.incremental.vectorized.maxGroupBytes, or use a processor "
                "that is called once a group"
            )
    if waiting:
        yield pa.Table.from_batches(waiting)


def _continues(before: pa.RecordBatch, batch: pa.RecordBatch, key_offsets: list[int]) -> bool:
    """Return True if the first row of a batch has the key of the last row before it."""
    pairs = [
        pa.concat_arrays([before.column(offset).slice(before.num_rows - 1), batch.column(offset).slice(0, 1)])
        for offset in key_offsets
    ]
    return len(borders(pairs)) == 1


def borders(keys: list[pa.Array]) -> np.ndarray:
    """Return the indexes of the rows, in key columns of at least one row, whose key is not that before."""
    count = len(keys[0])
    begins = np.zeros(count, bool)
    begins[0] = True
    for key in keys:
        begins[1:] |= _differ(key.slice(1), key.slice(0, count - 1))
    return np.flatnonzero(begins)


def _differ(these: pa.Array, those: pa.Array) -> np.ndarray:
    """Return True where the values of two arrays differ; nulls are equal, and NaN is equal to NaN."""
    kind = these.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return np.array([a != b for a, b in zip(these.to_pylist(), those.to_pylist(), strict=True)], bool)
    different = pc.not_equal(these, those)
    if pa.types.is_floating(kind):
        different = pc.and_(different, pc.invert(pc.and_(pc.is_nan(these), pc.is_nan(those))))
    if these.null_count or those.null_count:
        different = different.fill_null(False)
        different = pc.or_(different, pc.xor(these.is_null(), those.is_null()))
    return different.to_numpy(zero_copy_only=False)
