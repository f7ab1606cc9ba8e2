"""An ordinary `applyInPandasWithState` function in a leaner loop.

Spark's worker makes, for every single group, frames from Arrow slices, a state from JSON, and frames again
from result and state. Here frames and keys of a whole batch of groups are made at once and cut, and the
results of many groups go back as one. The function sees the same arguments, and its results mean the same:
`GroupState` is PySpark's own class, and conversions are PySpark's.

**Cutting** (`GroupFrames`). A batch is converted once. Pandas has no nulls in columns of integers and
booleans: there PySpark's conversion of a group depends on whether *that group* has a null, so such columns
are converted twice, with and without nulls, and every group is cut from the whole frame whose columns are
right for it. Arrays, maps and structs with nulls inside are converted group by group. Frames are cut and put
together by internals of pandas (`_mgr`), the same since pandas 2.0, because `iloc` takes three times as long.

**Joining** (`Results`). Spark's worker converts output in runs of more than `max_records` rows, and the types
of a run's columns depend on all frames in it, and on rows of nulls that it adds if more groups than rows are
in it. Runs here are the same, wherever the batches of the input end.

**States** (`StateReader`, `StateWriter`) come from pickles that the JVM writes, and go to pickles that it
reads. Conversions are PySpark's. The JVM pickles the states of a run of groups as one value (`PickledStates`
there), so the schema of the state is written and parsed once a run. The value of a state is converted when
its group is called, as by PySpark, so that one that Python has no value for is an error of that group. Only
if there are structs in a state, a run is converted at once.
"""

from __future__ import annotations

import functools
import io
import itertools
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from state_store.functions.checking import bounds, parts_of, struct_type
from state_store.functions.frames import FrameRuns, frame_of, pandas_series, pandas_struct
from state_store.functions.group_context import (
    NO_TIMESTAMP,
    Header,
    as_long,
    exempt_imports,
    fields_without_state,
    is_older_spark,
    keep_cause,
)
from state_store.functions.stream import CLEAR, KEEP, PUT, REMOVE, ChangeWriter

MORE = 2

_PLAIN = frozenset((int, float, str, bool, bytes, Decimal, type(None)))
"""Types whose values cloudpickle writes as pickle does."""


def accelerated_command(command: bytes) -> tuple[Callable[..., Any], Any]:
    """Return the pickled (function, return type) with a function of record batches in its place.

    The JVM writes a call of this function into the plan when the session
    accelerates functions without a mark.
    """
    from pyspark.serializers import CPickleSerializer

    exempt_imports()
    serializer = CPickleSerializer()
    loaded = serializer.loads(command)
    if hasattr(loaded, "value") and not isinstance(loaded, tuple):  # a large command travels as a broadcast
        loaded = serializer.loads(loaded.value)
    function, return_type = loaded
    return functools.partial(run, function), return_type


def run(function: Callable[..., Any], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call `function` for every group of the stream, in order."""
    first = next(batches, None)
    if first is not None:
        header = Header.parse(first.column(0)[0].as_py())
        try:
            yield from GroupLoop(function, header, itertools.chain([first], batches)).answers()
        except Exception as error:
            keep_cause(error)
            raise


class GroupLoop:
    """A pass over the groups of a partition. Used by the one thread of a worker."""

    def __init__(
        self, function: Callable[..., Any], header: Header, batches: Iterator[pa.RecordBatch]
    ) -> None:
        from pyspark.util import fail_on_stopiteration

        self._function = fail_on_stopiteration(function)
        self._header = header
        self._batches = batches
        self._put_back: pa.RecordBatch | None = None
        self._results = Results(header)
        self._states = StateReader(header)
        self._number = -1

    def answers(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches for the JVM: when enough output has come together, and after each input batch."""
        while (batch := self._next()) is not None:
            yield from self._answer(batch)
        if self._results.rows:
            yield self._results.flush(self._number + 1)

    def _next(self) -> pa.RecordBatch | None:
        batch, self._put_back = self._put_back, None
        return batch if batch is not None else next(self._batches, None)

    def _answer(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        groups = cut(batch, self._header)
        more = bool(batch.column(1)[-1].as_py() & MORE)
        last = batch.num_rows - 1
        for i, (key, state) in enumerate(zip(groups.keys(), self._states.read(batch.column(4)), strict=True)):
            self._number += 1
            goes_on = more and i == last
            frames = self._pieces(groups.frame(i)) if goes_on else (groups.frame(j) for j in (i,))
            yield from self._group(key, frames, state)
            if goes_on:
                for _ in frames:  # the rest of a group that the function did not read to its end
                    pass
        self._results.release(groups)
        yield self._results.changes(self._number + 1)

    def _group(self, key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[pa.RecordBatch]:
        values: Any = [next(frames)] if state.hasTimedOut else frames
        result = self._function(key, values, state)
        for frame in _frames_of(result, self._header):
            if len(frame) > 0:
                self._results.add(frame)
                if self._results.rows > self._header.max_records:
                    yield self._results.flush(self._number)
        self._results.change(self._number, state)

    def _pieces(self, first: Any) -> Iterator[Any]:
        """Yield the frames of a group that goes on in the next batches, as the function asks for them."""
        yield first
        more = True
        while more:
            batch = self._next()
            assert batch is not None, "the stream ended within a group"
            more = bool(batch.column(1)[0].as_py() & MORE)
            frame = cut(batch.slice(0, 1), self._header).frame(0)
            if batch.num_rows > 1:
                self._put_back = batch.slice(1)
            yield frame


def _frames_of(result: Any, header: Header) -> Iterator[Any]:
    """Yield the frames that a function returned, each checked as Spark's worker does, with its errors."""
    if isinstance(result, pd.DataFrame):
        raise _wrong_type("iterable of pandas.DataFrame", "DataFrame")
    try:
        iterator = iter(result)
    except TypeError:
        raise _wrong_type("iterable", type(result).__name__) from None
    columns = len(header.output)
    for frame in iterator:
        if not isinstance(frame, pd.DataFrame):
            raise _wrong_type("iterator of pandas.DataFrame", f"iterator of {type(frame).__name__}")
        if len(frame.columns) != columns and not (len(frame.columns) == 0 and frame.empty):
            raise _wrong_number_of_columns(columns, len(frame.columns))
        yield frame


def _wrong_type(expected: str, actual: str) -> Exception:
    from pyspark.errors import PySparkTypeError

    return PySparkTypeError(
        errorClass="UDF_RETURN_TYPE", messageParameters={"expected": expected, "actual": actual}
    )


def _wrong_number_of_columns(expected: int, actual: int) -> Exception:
    from pyspark.errors import PySparkRuntimeError

    older = is_older_spark()
    return PySparkRuntimeError(
        errorClass="RESULT_LENGTH_MISMATCH_FOR_PANDAS_UDF" if older else "RESULT_COLUMN_SCHEMA_MISMATCH",
        messageParameters={"expected": str(expected), "actual": str(actual)},
    )


class Results:
    """Output frames and state changes that wait to be sent.

    Frames are kept as they are until then, as in Spark's own worker: there, too, a frame that the function
    changes after it has yielded it is sent with that change.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self._state_writer = StateWriter(header)
        self._writer = ChangeWriter(header.output_schema, pa.binary())
        self._no_output = pa.array([], type=struct_type(header.output_schema))
        self._clear_output()
        self._clear_changes()

    def _clear_output(self) -> None:
        self._frames: list[pd.DataFrame] = []
        self._released = 0
        self.rows = 0
        """Rows of output that wait."""
        self._finished = 0
        """Groups that have ended since output was sent."""

    def _clear_changes(self) -> None:
        self._groups: list[int] = []
        self._changes: list[int] = []
        self._timeouts: list[int] = []
        self._states: list[bytes] = []

    def add(self, frame: pd.DataFrame) -> None:
        """Add a frame that the function returned."""
        self._frames.append(frame)
        self.rows += len(frame)

    def change(self, number: int, state: Any) -> None:
        """Add the change that the function made to `state`, the `GroupState` of group `number`."""
        self._finished += 1
        timeout = state._timeout_timestamp
        if state._removed:
            change = REMOVE if timeout == NO_TIMESTAMP else CLEAR
        elif state._updated or (timeout != NO_TIMESTAMP and state._defined):
            change = PUT
            self._states.append(self._state_writer.pickled(state._value))
        elif timeout != NO_TIMESTAMP:
            change = KEEP
        else:
            return
        if type(timeout) is not int:
            state.json()  # Spark's worker fails here for types that JSON does not have
        self._groups.append(number)
        self._changes.append(change)
        self._timeouts.append(as_long(timeout))

    def release(self, groups: GroupFrames) -> None:
        """Copy the frames that wait and share memory with `groups`, so that a few rows do not hold it all."""
        for i in range(self._released, len(self._frames)):
            if groups.shares(self._frames[i]):
                self._frames[i] = self._frames[i].copy()
        self._released = len(self._frames)

    def changes(self, done: int) -> pa.RecordBatch:
        """Return one batch with the changes that wait; groups below `done` are finished."""
        return self._batch(done, self._no_output)

    def flush(self, done: int) -> pa.RecordBatch:
        """Return one batch with all that waits; groups below `done` are finished."""
        runs = FrameRuns()
        for frame in self._frames:
            runs.add(frame)
        # As in Spark's worker: a frame of nulls with a row if groups outnumber rows, else without.
        nulls = pd.DataFrame(
            dict.fromkeys(self._header.output.names), index=range(self._finished > self.rows)
        )
        output = pandas_struct([*runs.runs(), nulls], self._header.output, self._header)
        output = output.slice(0, self.rows)
        output = output.cast(self._no_output.type) if output.type != self._no_output.type else output
        batch = self._batch(done, output)
        self._clear_output()
        return batch

    def _batch(self, done: int, output: pa.StructArray) -> pa.RecordBatch:
        batch = self._writer.write_lists(
            done,
            output,
            pa.array(np.array(self._groups, dtype=np.int64)),
            pa.array(np.array(self._changes, dtype=np.int8)),
            pa.array(np.array(self._timeouts, dtype=np.int64)),
            pa.array(self._states, type=pa.binary()),
        )
        self._clear_changes()
        return batch


def cut(batch: pa.RecordBatch, header: Header) -> GroupFrames:
    """Return the frames and keys of the groups in `batch`, in the layout of the JVM's `GroupsCall`."""
    lists = batch.column(5)
    offsets = bounds(lists)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    columns = [Column(a, f, header) for a, f in zip(values.flatten(), header.row_schema, strict=True)]
    keys = [Column(a, f, header) for a, f in zip(batch.column(3).flatten(), header.key_schema, strict=True)]
    return GroupFrames(columns, keys, offsets - offsets[0], header.rows.names)


class Column:
    """A column of all groups in pandas; `some` where it has no nulls, `nullable` where it has."""

    def __init__(self, array: pa.Array, field: pa.Field, header: Header) -> None:
        self._array, self._field, self._header = array, field, header
        self.nulls: np.ndarray | None = None
        self.by_group = pa.types.is_nested(array.type) and _has_nulls_inside(array)
        """True if a group's values depend on the nulls inside its own arrays, maps and structs."""
        if self.by_group:
            self.some = self.nullable = pd.Series([None] * len(array), dtype=object)
        elif array.null_count and (pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)):
            zero = pa.scalar(False if pa.types.is_boolean(array.type) else 0, type=array.type)
            self.nullable = self._converted(array)
            self.some = self._converted(pc.fill_null(array, zero))
            self.nulls = np.concatenate([[0], np.cumsum(array.is_null().to_numpy(zero_copy_only=False))])
        else:
            self.some = self.nullable = self._converted(array)

    def _converted(self, values: pa.Array) -> Any:
        return pandas_series(pa.table([values], names=[self._field.name]), self._header)[0]

    def is_nullable(self, start: int, stop: int) -> bool:
        """Return True if there is a null in rows `start` to `stop` that pandas has no place for."""
        return self.nulls is not None and bool(self.nulls[stop] > self.nulls[start])

    def alone(self, start: int, stop: int) -> Any:
        """Return the series of rows `start` to `stop`, converted without the others."""
        return self._converted(self._array.slice(start, stop - start))

    def scalars(self) -> list[Any]:
        """Return the values as `Series.iat` gives them, each converted without the others."""
        if self.by_group:
            return [self.alone(i, i + 1).iat[0] for i in range(len(self._array))]
        values = _scalars(self.some)
        if self.nulls is not None:
            for i in np.flatnonzero(np.diff(self.nulls)).tolist():
                values[i] = self.nullable.iat[i]
        return values


def _scalars(series: Any) -> list[Any]:
    is_boxed = not isinstance(series.dtype, np.dtype) or series.dtype.kind in "mM"
    return list(series.array if is_boxed else series.to_numpy())


def _has_nulls_inside(array: pa.Array) -> bool:
    return any(
        part.null_count or (pa.types.is_nested(part.type) and _has_nulls_inside(part))
        for part in parts_of(array)
    )


class GroupFrames:
    """The frames of one batch's groups, made one by one as they are asked for."""

    def __init__(
        self, columns: list[Column], keys: list[Column], offsets: np.ndarray, names: list[str]
    ) -> None:
        self._columns = columns
        self._keys = keys
        self._offsets = offsets.tolist()
        self._names = pd.Index(names)
        self._no_nulls = (False,) * len(columns)
        self._has_nulls = any(column.nulls is not None for column in columns)
        self._by_group = [i for i, column in enumerate(columns) if column.by_group]
        self._frames: dict[tuple[bool, ...], Any] = {}

    def keys(self) -> list[tuple[Any, ...]]:
        """Return the grouping values of each group, as scalars of the converted columns."""
        if not self._keys:
            return [()] * (len(self._offsets) - 1)
        return list(zip(*(column.scalars() for column in self._keys), strict=True))

    def frame(self, i: int) -> Any:
        """Return the rows of group `i` with a new range index; a frame of objects without rows, as Spark."""
        start, stop = self._offsets[i], self._offsets[i + 1]
        if start == stop:
            return pd.DataFrame(columns=self._names)
        manager = self._all_rows(start, stop)._mgr.get_slice(slice(start, stop), axis=1)
        # Axes of its own: they can be given names.
        manager.axes = [self._names._view(), pd.RangeIndex._simple_new(range(stop - start))]
        frame = frame_of(manager)
        for c in self._by_group:
            frame.isetitem(c, self._columns[c].alone(start, stop))
        return frame

    def shares(self, frame: Any) -> bool:
        """Return True if `frame` shares memory with the frames of these groups."""
        mine = [block.values for frame_of_all in self._frames.values() for block in frame_of_all._mgr.blocks]
        return any(
            np.may_share_memory(getattr(a, "_ndarray", a), getattr(b.values, "_ndarray", b.values))
            for a in mine
            for b in frame._mgr.blocks
        )

    def _all_rows(self, start: int, stop: int) -> Any:
        """Return the rows of all groups, in columns of the types that rows `start` to `stop` have alone."""
        nullable = self._no_nulls
        if self._has_nulls:
            nullable = tuple(column.is_nullable(start, stop) for column in self._columns)
        frame = self._frames.get(nullable)
        if frame is None:
            parts = [c.nullable if n else c.some for c, n in zip(self._columns, nullable, strict=True)]
            frame = self._frames[nullable] = pd.DataFrame(dict(enumerate(parts)), copy=True)
        return frame


class StateReader:
    """A maker of PySpark's `GroupState`s for the groups of a stream."""

    def __init__(self, header: Header) -> None:
        from pyspark.sql.streaming.state import GroupState

        self._class = GroupState
        self._without_state = fields_without_state(header)
        self._run = _run_at_once if any(map(_has_struct, header.state_schema.types)) else _run_by_group

    def read(self, column: pa.Array) -> Iterator[Any]:
        """Yield the state of each group of a batch: a value holds the states of its group and the next."""
        run: Iterator[Callable[[], Any] | None] = iter(())
        for cell in column.to_pylist():
            if cell is not None:
                run = self._run(cell)
            value = next(run, None)
            state = self._class.__new__(self._class)
            fields = state.__dict__
            fields.update(self._without_state)
            if value is not None:
                fields["_value"] = value
                fields["_defined"] = True
            yield state


def _has_struct(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_struct(kind.key_type) or _has_struct(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_struct(kind.value_type)
    return pa.types.is_struct(kind)


def _run_at_once(value: bytes) -> Iterator[Any]:
    return iter(_Unpickler(io.BytesIO(value), encoding="bytes").load()[0])


def _run_by_group(value: bytes) -> Iterator[Any]:
    _, (states,) = _UnpicklerOfParts(io.BytesIO(value), encoding="bytes").load()
    for state in states:
        if state is None:
            yield None
        else:
            kind, parts = state
            yield kind.fromInternal(parts)


class _Unpickler(pickle.Unpickler):
    """PySpark's way to read a pickle, which parses a schema that it has seen no second time."""

    def find_class(self, module: str, name: str) -> Any:
        value = super().find_class(module, name)
        return _parsed if name == "_parse_datatype_json_string" else value


class _UnpicklerOfParts(_Unpickler):
    """An unpickler that leaves rows as their types and the values that PySpark would convert."""

    def find_class(self, module: str, name: str) -> Any:
        value = super().find_class(module, name)
        return _parts_of if name == "_create_row_inbound_converter" else value


@functools.lru_cache(maxsize=8)
def _parsed(schema: str) -> Any:
    from pyspark.sql.types import _parse_datatype_json_string

    return _parse_datatype_json_string(schema)


def _parts_of(kind: Any) -> Callable[..., tuple[Any, tuple[Any, ...]]]:
    return lambda *parts: (kind, parts)


class StateWriter:
    """A writer of the values of updated states as PySpark pickles them."""

    def __init__(self, header: Header) -> None:
        from pyspark.serializers import CPickleSerializer, pickle_protocol

        self._to_internal = header.state.toInternal
        self._dumps = CPickleSerializer().dumps
        self._protocol = pickle_protocol

    def pickled(self, value: Any) -> bytes:
        """Return the pickle of the value of an updated state."""
        internal = self._to_internal(value)
        if type(internal) is tuple and _PLAIN.issuperset(map(type, internal)):
            return pickle.dumps(internal, self._protocol)
        return self._dumps(internal)
