"""The worker's side of a processor: rows in, output out, in the order of PySpark's own worker.

A processor sees no difference to PySpark's own worker: its calls come in the same order, rows are read when
it asks for them, output is taken as it comes, timers follow all rows, and `close` is the last call.

Arrow batches of rows sorted by key are cut into groups (`Groups`): neighbouring rows with equal keys are a
group, across the borders of batches. A group's rows are read as the processor asks for them.

PySpark's worker converts output before the processor goes on. Here output waits for that of other groups
(`RowOutput`, `FrameOutput`), so what the processor can still change is copied (`frozen`).
"""

from __future__ import annotations

import collections
import copy
import datetime
import decimal
import functools
import importlib
import json
import numbers
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from pyspark.sql.types import Row, StructType
from pyspark.util import fail_on_stopiteration

from state_store.functions.frames import FrameRuns, frame_of, pandas_series, pandas_struct
from state_store.functions.group_context import exempt_imports, to_arrow_schema
from state_store.functions.processors.task_state import Channel, RowCodec, Session
from state_store.functions.processors.variables import BatchedHandle, Timers

_RUN = 1000
_FIRST_RUN = 32
"""The first run is short: the variables learn in it what to fetch."""

_MAX_ROWS = 10_000
_MAX_BYTES = 16 << 20


def processor_command(command: bytes, header: str) -> tuple[Callable[..., Any], Any]:
    """Return the pickled (function, return type) with a function of record batches in its place.

    The JVM writes a call of this function into the plan (`ProcessorCall`), with the facts of a task.
    """
    from pyspark.serializers import CPickleSerializer

    exempt_imports()
    serializer = CPickleSerializer()
    loaded = serializer.loads(command)
    if hasattr(loaded, "value") and not isinstance(loaded, tuple):  # a large command travels as a broadcast
        loaded = serializer.loads(loaded.value)
    function, output = loaded
    return functools.partial(run, function.__self__, output, header), output


def run(utils: Any, output: StructType, header: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Call a processor for all groups and timers of a partition; yield its output as record batches.

    Args:
        utils: PySpark's `TransformWithStateInPandasUdfUtils`, which has the processor.
        output: the schema of the processor's output.
        header: the facts of the task (`TaskHeader`), as JSON.
        batches: the rows, as record batches.
    """
    loop = _loop(utils._stateful_processor, output, TaskHeader(header, utils._time_mode))
    yield from loop.answers(batches)


LOOP = "_state_store_loop"
"""The attribute of a processor's class that names the module with its `Loop`, if it is another than here."""


def _loop(processor: Any, output: StructType, header: TaskHeader) -> ProcessorLoop:
    module = getattr(type(processor), LOOP, None)
    loop = ProcessorLoop if module is None else importlib.import_module(module).Loop
    new_loop: ProcessorLoop = loop(processor, output, header)
    return new_loop


class TaskHeader:
    """The facts of a task: times in ms (-1 for none), limits, the time zone, settings of Python."""

    def __init__(self, text: str, time_mode: str) -> None:
        fields = json.loads(text)
        self.address: str = fields["address"]
        self.secret: str = fields["secret"]
        self.key = StructType.fromJson(fields["key"])
        self.key_offsets = [int(offset) for offset in fields["key_offsets"].split(",") if offset]
        self.first_value: int = fields["first_value"]
        self.of_rows: bool = fields["of_rows"]
        self.time_mode = time_mode.lower()
        self.batch_time_ms: int = fields["batch_time_ms"]
        self.watermark_ms: int = fields["watermark_ms"]
        self.time_zone: str = fields["time_zone"]
        self.max_records: int = fields["max_records"]
        self.max_bytes: int = fields["max_bytes"]
        self.max_state_records: int = fields["max_state_records"]
        self.max_group_bytes: int = fields["max_group_bytes"]
        self.large_types = False
        self.runner: dict[str, str] = fields["runner"]

    def arrow(self, schema: Any) -> pa.Schema:
        """Return a schema of Spark as pyarrow has it, with moments in the session's time zone."""
        return to_arrow_schema(schema, self.time_zone, self.large_types)

    def flag(self, name: str) -> bool:
        """Return a boolean setting of the worker, false where Spark does not have it."""
        return self.runner.get(name, "false") == "true"


class ProcessorLoop:
    """A pass over the groups and timers of a partition. Used by the one thread of a worker."""

    def __init__(self, processor: Any, output: StructType, header: TaskHeader) -> None:
        self._processor = processor
        self._header = header
        self._output: Any = RowOutput(output) if header.of_rows else FrameOutput(output, header)
        self._keys = RowCodec(header.key, are_keys=True)
        self._channel = Channel(header.address, header.secret)
        self._session = Session(self._channel, self._keys, header.max_state_records)
        self._timers = Timers(self._session, header.time_mode)
        if header.time_mode == "none":
            self._times = TimerValues(-1, -1)
        else:
            self._times = TimerValues(header.batch_time_ms, header.watermark_ms)
        self._runs = 0

    def answers(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the output of all groups, then that of all timers that have expired."""
        session = self._session
        self._declare()
        self._state("INITIALIZED")
        yield from self._with_rows(batches)
        self._state("DATA_PROCESSED")
        yield from self._with_timers()
        yield from self._flushed()
        self._state("TIMER_PROCESSED")
        session.call("Error removing implicit key", "no_key")
        fail_on_stopiteration(self._processor.close)()
        self._state("CLOSED")
        self._channel.close()

    def _declare(self) -> None:
        """Call the processor's `init`."""
        fail_on_stopiteration(self._processor.init)(BatchedHandle(self._session, self._timers))

    def _state(self, name: str) -> None:
        self._session.call("Error setting handle state", "state", name)

    def _run_limit(self) -> int:
        self._runs += 1
        return _RUN if self._runs > 1 else _FIRST_RUN

    def _with_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        header, session, add = self._header, self._session, self._output.add
        cut: Iterator[Any]
        if header.of_rows:
            cut = RowBatch.batches(batches, header.key_offsets)
        else:
            cut = FrameStream(header).batches(batches)
        groups = Groups(cut)
        handle, times = fail_on_stopiteration(self._processor.handleInputRows), self._times
        for keys in groups.runs(self._run_limit):
            session.begin(keys, groups.keys_ahead(_RUN) if self._runs > 1 else ())
            for number, (key, rows) in enumerate(groups.groups()):
                session.enter(number)
                yield from add(handle(key, rows, times))
            yield from self._flushed()
        session.end()

    def _with_timers(self) -> Iterator[pa.RecordBatch]:
        """Yield the output of all timers that have expired; to PySpark's worker they are one group."""
        header = self._header
        moment = {"processingtime": header.batch_time_ms, "eventtime": header.watermark_ms}.get(
            header.time_mode
        )
        if moment is not None:
            yield from self._output.add(self._expired_by(moment))

    def _expired_by(self, moment: int) -> Iterator[Any]:
        """Yield the processor's output for all timers that have expired by a moment, run by run."""
        session, more = self._session, True
        while more:
            timers, more = session.call(
                "Error getting expired timers", "expired", moment, self._header.max_state_records
            )
            for start in range(0, len(timers), _RUN):
                part = [(self._keys.row(key), at) for key, at in timers[start : start + _RUN]]
                session.begin([tuple(key) for key, _ in part])
                yield from self._expired(part)
            session.end()

    def _expired(self, part: list[tuple[Any, int]]) -> Iterator[Any]:
        """Yield the processor's output for timers that have expired, and delete each after its call."""
        for number, (key, at) in enumerate(part):
            self._session.enter(number)
            yield from self._processor.handleExpiredTimer(
                key=key, timerValues=self._times, expiredTimerInfo=ExpiredTimerInfo(at)
            )
            self._timers.delete(at)

    def _flushed(self) -> Iterator[pa.RecordBatch]:
        if self._output.waits:
            yield from self._output.flush_all()


class Groups:
    """An iteration over the groups of a partition, run by run.

    For each item of `runs`, go through `groups` to its end, and each group's rows before the next group.
    """

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._batch: Batch | None = None
        self._batch_ahead: Batch | None = None
        self._first = self._stop = 0
        self._advance()

    def _advance(self) -> None:
        self._batch = self._batch_ahead or next(self._batches, None)
        self._batch_ahead, self._first = None, 0

    def runs(self, limit: Any) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the keys of each run, of at most `limit()` groups; see `groups`."""
        while self._batch is not None:
            keys, count = self._batch.keys, len(self._batch.keys)
            if self._first == count:
                self._advance()
                continue
            self._stop = min(self._first + limit(), count)
            yield keys[self._first : self._stop]

    def keys_ahead(self, limit: int) -> list[tuple[Any, ...]]:
        """Return the keys of the run after that which `runs` yielded last, `limit` at most; none if unknown.

        The batch after is read if the run ends this one, and no further batch.
        """
        assert self._batch is not None
        keys, start = self._batch.keys, self._stop
        if start == len(keys):
            last = keys[-1]
            self._batch_ahead = self._batch_ahead or next(self._batches, None)
            keys = self._batch_ahead.keys if self._batch_ahead is not None else []
            start = int(bool(keys) and keys[0] == last)
        return keys[start : start + limit]

    def groups(self) -> Iterator[tuple[tuple[Any, ...], Iterator[Any]]]:
        """Yield key and rows of each group of the run whose keys `runs` yielded last."""
        batch, start, stop = self._batch, self._first, self._stop
        assert batch is not None
        for number in range(start, stop):
            self._first = number + 1
            last = number + 1 == len(batch.keys)
            rows = batch.chunks(self._pieces(batch, number)) if last else batch.group(number)
            yield batch.keys[number], rows
            for _ in rows:  # what the processor did not read
                pass

    def _pieces(self, batch: Batch, number: int) -> Iterator[tuple[Batch, int]]:
        """Yield the last group of `batch`, and the groups of the next batches that continue it."""
        key = batch.keys[number]
        yield batch, number
        while True:
            self._advance()
            batch_after = self._batch
            if batch_after is None or batch_after.keys[0] != key:
                return
            self._first = 1
            yield batch_after, 0
            if len(batch_after.keys) > 1:
                return


class Batch:
    """The groups of a batch: `keys`, and the offsets `starts` of their rows, with the end of the last.

    Args:
        columns: lists of the values of the columns of the key.
        starts: where rows begin whose key is another than that of the row before, 0 included, if the caller
            knows; otherwise keys are compared here.
    """

    def __init__(self, columns: Sequence[Any], starts: list[int] | None = None) -> None:
        if starts is None:
            keys = list(zip(*columns, strict=True))
            starts = [0, *(place for place in range(1, len(keys)) if keys[place] != keys[place - 1])]
        self.keys = list(zip(*([column[start] for start in starts] for column in columns), strict=True))
        self.starts = [*starts, len(columns[0])]

    def group(self, number: int) -> Iterator[Any]:
        """Yield the rows or frames of a group that lies within this batch."""
        raise NotImplementedError

    @staticmethod
    def chunks(pieces: Iterator[tuple[Any, int]]) -> Iterator[Any]:
        """Yield the rows or frames of a group of these pieces: batches, each with the group's number."""
        raise NotImplementedError


class RowBatch(Batch):
    """Rows as `pyspark.sql.Row`, made group by group: the garbage collector walks through all that wait."""

    def __init__(self, batch: pa.RecordBatch, key_offsets: list[int]) -> None:
        self._columns = [_values(column) for column in batch.columns]
        self._attributes = row_attributes(tuple(batch.schema.names))
        keys = [batch.column(offset) for offset in key_offsets]
        columns = [
            key.to_pylist() if pa.types.is_nested(key.type) else self._columns[offset]
            for key, offset in zip(
                keys, key_offsets, strict=True
            )  # a processor may change the lists of a row
        ]
        super().__init__(columns, _starts(keys))

    @staticmethod
    def batches(batches: Iterator[pa.RecordBatch], key_offsets: list[int]) -> Iterator[RowBatch]:
        """Yield the batches of a stream; a large batch comes in several parts."""
        for batch in batches:
            for start in range(0, batch.num_rows, _MAX_ROWS):
                yield RowBatch(batch.slice(start, _MAX_ROWS), key_offsets)

    def group(self, number: int) -> Iterator[Any]:
        start, stop = self.starts[number], self.starts[number + 1]
        columns = [column[start:stop] for column in self._columns]
        rows = list(map(tuple.__new__, repeat(Row), zip(*columns, strict=True)))
        attributes = map(_Attributes, map(self._attributes, *columns))
        # `Row.__setattr__` takes three times as long as a row.
        collections.deque(map(object.__setattr__, rows, repeat("__dict__"), attributes), maxlen=0)
        return iter(rows)

    @staticmethod
    def chunks(pieces: Iterator[tuple[RowBatch, int]]) -> Iterator[Any]:
        for batch, number in pieces:
            yield from batch.group(number)


class _Attributes(dict[str, Any]):
    """The attributes of a row of input: its names, and its values by name as long as the names stay.

    `Row` lets its names be set, and does that by a key of this dict.
    """

    __slots__ = ()

    def __setitem__(self, name: str, value: Any) -> None:
        self.clear()
        super().__setitem__(name, value)


_MAX_ATTRIBUTES = 16
"""Rows with more columns get none of them as attributes: each costs time and memory, if it is read or not."""


@functools.lru_cache(maxsize=256)
def row_attributes(names: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    """Return a function of a row's values that makes the attributes of its `Row`: `__fields__` and values.

    PySpark finds a value by its name in methods of Python, in 1 us. Python finds an attribute of the instance
    at once, and looks there first; so a name that `Row` has itself (`count`) is left to PySpark, as is the
    second of two that are equal.
    """
    fields = Row(*names)
    if len(names) > _MAX_ATTRIBUTES:
        return lambda *values: {"__fields__": fields}
    own = [name for name in names if not hasattr(Row, name) and not name.startswith("__")]
    arguments = ", ".join(f"v{i}" for i in range(len(names)))
    items = "".join(f", {name!r}: v{names.index(name)}" for name in own)
    make: Callable[..., dict[str, Any]] = eval(
        f"lambda {arguments}: {{'__fields__': fields{items}}}", {"fields": fields}
    )
    return make


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; numbers by way of numpy, in a fifth of the time."""
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and not column.null_count:
        return column.to_numpy(zero_copy_only=False).tolist()
    return column.to_pylist()


def _starts(keys: list[pa.Array]) -> list[int] | None:
    """Return where keys begin that are not equal to the one before, `None` if Python has to compare them.

    Arrow compares as Python does, if there are no nulls and no floating numbers.
    """
    changes: Any = None
    for key in keys:
        kind = key.type
        if key.null_count or not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
            return None
        differs = pc.not_equal(key.slice(1), key.slice(0, len(key) - 1))
        changes = differs if changes is None else pc.or_(changes, differs)
    return [0, *(place + 1 for place in pc.indices_nonzero(changes).to_pylist())]


class FrameBatch(Batch):
    """Rows as pandas frames. PySpark makes them of tuples, so pandas infers the types, and so it is here."""

    def __init__(self, batch: pa.RecordBatch, stream: FrameStream) -> None:
        import pandas as pd

        series = stream.to_series(batch)
        self._stream = stream
        self._frame = pd.concat(series, axis=1)
        self._average_bytes = stream.average_bytes
        columns = [list(self._frame.iloc[:, offset]) for offset in stream.key_offsets]
        super().__init__(columns)
        names = list(self._frame.columns)
        self._fields = collections.namedtuple("Pandas", names, rename=True)._fields  # type: ignore[attr-defined]
        self._sliceable = _sliceable(self._frame, batch.schema, self._fields, stream.first_value)

    def group(self, number: int) -> Iterator[Any]:
        start, stop = self.starts[number], self.starts[number + 1]
        if self._sliceable is None or not self._fits(stop - start):
            yield from self.chunks(iter([(self, number)]))
        else:
            yield _sliced(self._sliceable, start, stop)

    def _fits(self, rows: int) -> bool:
        """Return True if so many rows come as one frame."""
        return rows <= self._stream.max_records and rows * self._average_bytes < self._stream.max_bytes

    def tuples(self, number: int) -> Iterator[Any]:
        """Yield the rows of a group as named tuples."""
        return self._frame.iloc[self.starts[number] : self.starts[number + 1]].itertuples(index=False)

    @staticmethod
    def chunks(pieces: Iterator[tuple[FrameBatch, int]]) -> Iterator[Any]:
        import pandas as pd

        rows: list[Any] = []
        stream = None
        for batch, number in pieces:
            stream = batch._stream
            for row in batch.tuples(number):
                rows.append(row)
                if len(rows) >= stream.max_records or len(rows) * batch._average_bytes >= stream.max_bytes:
                    yield pd.DataFrame(rows).iloc[:, stream.values(row)]
                    rows = []
        if rows and stream is not None:
            yield pd.DataFrame(rows).iloc[:, stream.values(rows[0])]


class FrameStream:
    """The facts that all batches of a stream share when frames are made of them."""

    def __init__(self, header: Any) -> None:
        self._header = header
        self.key_offsets = header.key_offsets
        self.first_value = header.first_value
        self.max_records = header.max_records
        self.max_bytes = header.max_bytes
        self.average_bytes = 0.0
        self._bytes = self._rows = 0

    def values(self, row: Any) -> list[int]:
        """Return the places of the columns that the processor gets."""
        return list(range(self.first_value, len(row)))

    def to_series(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the columns in pandas, as PySpark converts them."""
        return pandas_series(batch, self._header)

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[FrameBatch]:
        """Yield the batches of a stream."""
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if self.max_bytes != 2**31 - 1:
                self._bytes += sum(
                    buffer.size
                    for column in batch.columns
                    for buffer in column.buffers()
                    if buffer is not None
                )
                self._rows += batch.num_rows
                self.average_bytes = self._bytes / self._rows
            yield FrameBatch(batch, self)


_WIDER = {"int8": "int64", "int16": "int64", "int32": "int64", "float32": "float64"}
_ALIKE = frozenset(("int64", "float64", "bool", "datetime64[ns]"))


def _sliceable(frame: Any, schema: pa.Schema, fields: tuple[str, ...], first: int) -> Any:
    """Return a frame whose slices equal the frames that pandas makes of the same tuples, or `None`.

    It has the columns that the processor gets. Pandas infers the type of a column from its values; the
    type of a slice is known if each value of the column decides it.
    """
    import pandas as pd

    if int(pd.__version__.partition(".")[0]) > 2:
        return None
    parts = []
    for place in range(first, len(fields)):
        series, kind = frame.iloc[:, place], schema.field(place).type
        name = str(series.dtype)
        if name in _WIDER:
            series = series.astype(_WIDER[name])
        elif name == "timedelta64[ns]":
            if series.isna().any():
                return None
        elif name == "object":
            if not _stays_object(kind):
                return None
        elif name not in _ALIKE:
            return None
        parts.append(series)
    if not parts:
        return None
    joined = pd.DataFrame(dict(enumerate(parts)), copy=False)
    joined.columns = pd.Index(list(fields[first:]))
    return joined


def _stays_object(kind: pa.DataType) -> bool:
    """Return True if pandas makes a column of objects of any values of this type."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(check(kind) for check in (*checks, pa.types.is_date, pa.types.is_decimal, pa.types.is_nested))


def _sliced(frame: Any, start: int, stop: int) -> Any:
    import pandas as pd

    manager = frame._mgr.get_slice(slice(start, stop), axis=1)
    manager.axes = [frame.columns._view(), pd.RangeIndex._simple_new(range(stop - start))]
    return frame_of(manager)


def rough_size(value: Any) -> int:
    """Return about how many bytes a value of a row takes."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return len(value)
    if kind is list or isinstance(value, tuple):
        total = 16
        for item in value:
            kind = type(item)
            total += 16 if kind is int or kind is float or item is None else rough_size(item)
        return total
    if kind is dict:
        return 16 + sum(map(rough_size, value)) + sum(map(rough_size, value.values()))
    return getattr(value, "nbytes", 16)


class RowOutput:
    """Rows of `pyspark.sql.Row` that wait to be sent, as they were when the processor gave them.

    The values of rows of scalars with the names of the schema wait in one list, so that no object waits for
    a row: the garbage collector walks through all that do. As soon as another row comes, rows wait. A row of
    scalars is kept as it is. Of any other PySpark's worker makes a dict at once, with copies of lists and
    dicts. Objects that this does not copy, such as a `bytearray`, it converts at the end of the group; here
    they are copied or converted at that end, and rows wait until then however many they are.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = to_arrow_schema(schema, "UTC", False)
        self._names = list(schema.names)
        types = self._schema.types
        self._is_flat = len(set(self._names)) == len(types) > 0 and not any(map(pa.types.is_nested, types))
        self._has_sizes = not all(map(_has_fixed_size, types))
        self._max_values = len(types) * min(_MAX_ROWS, _MAX_BYTES // (16 + 16 * len(types)))
        self._values: list[Any] = []
        self._rows: list[Any] = []
        self._bytes = 0

    def add(self, results: Any) -> Iterator[pa.RecordBatch]:
        """Add the rows that the processor returned for a group; yield a batch when there are many."""
        names, is_scalar, has_sizes, max_values = self._names, _ARE_SCALARS, self._has_sizes, self._max_values
        values, width = self._values, len(self._names)
        is_flat = self._is_flat and not self._rows
        uncopied: list[int] = []
        for row in results:
            if (
                is_flat
                and type(row) is Row
                and len(row) == width
                and getattr(row, "__fields__", None) == names
                and is_scalar(map(type, row))
            ):
                values += row
                if has_sizes:
                    self._bytes += rough_size(row)
                is_full = len(values) >= max_values
            else:
                self._add_object(row, uncopied)
                is_flat, is_full = False, len(self._rows) >= _MAX_ROWS
            if (is_full or self._bytes >= _MAX_BYTES) and not uncopied:
                yield from self.flush_all()
                values, is_flat = self._values, self._is_flat
        if uncopied and (len(self._rows) >= _MAX_ROWS or self._bytes >= _MAX_BYTES):
            yield from self.flush_all()
            return
        for place in uncopied:
            self._rows[place] = frozen(self._rows[place])

    def _add_object(self, row: Any, uncopied: list[int]) -> None:
        """Add a row that waits as an object; its place goes into `uncopied` if it can still change."""
        rows, width = self._rows, len(self._names)
        if self._values:
            for start in range(0, len(self._values), width):
                rows.append(dict(zip(self._names, self._values[start : start + width], strict=True)))
            self._values = []
        if type(row) is not Row or not _ARE_SCALARS(map(type, row)):
            row = row.asDict(True)
            if type(row) is not dict or not all(map(_is_own, row.values())):
                uncopied.append(len(rows))
        self._bytes += rough_size(row)
        rows.append(row)

    @property
    def waits(self) -> bool:
        """True if rows wait."""
        return bool(self._values or self._rows)

    def flush_all(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows as a batch and forget them."""
        values, rows, width = self._values, self._rows, len(self._names)
        self._values, self._rows, self._bytes = [], [], 0
        if rows:
            mappings = [row.asDict() if type(row) is Row else row for row in rows]
            yield pa.RecordBatch.from_pylist(mappings, schema=self._schema)
        else:
            arrays = [
                pa.array(values[place::width], type=kind) for place, kind in enumerate(self._schema.types)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _has_fixed_size(kind: pa.DataType) -> bool:
    """Return True if all values of a type take the same number of bytes."""
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def _is_own(value: Any) -> bool:
    """Return True if the processor cannot change a value of `Row.asDict(True)`, which has its own lists."""
    kind = type(value)
    if kind is list or kind is dict:
        return all(map(_is_own, value if kind is list else value.values()))
    return is_frozen(value)


class FrameOutput:
    """Pandas frames that wait to be sent, as they were when the processor gave them."""

    def __init__(self, schema: Any, header: Any) -> None:
        self._schema = schema
        self._header = header
        self._new_runs = functools.partial(FrameRuns, _copied)
        self._runs = self._new_runs()
        self._bytes = 0

    def add(self, results: Any) -> Iterator[pa.RecordBatch]:
        """Add the frames that the processor returned for a group; yield batches when there are many rows.

        Raises:
            PySparkValueError: one of them is not a frame.
        """
        import pandas as pd

        for frame in results:
            if not isinstance(frame, pd.DataFrame):
                raise _no_frame()
            if len(frame) == 0:
                yield from self._converted([frame])  # for its errors
                continue
            size = _frame_size(frame)
            if len(frame) >= _MAX_ROWS or size >= _MAX_BYTES:  # no copy of a large one
                yield from self.flush_all()
                yield from self._converted([frame])
                continue
            self._runs.add(frame)
            self._bytes += size
            if self._runs.rows >= _MAX_ROWS or self._bytes >= _MAX_BYTES:
                yield from self.flush_all()

    @property
    def waits(self) -> bool:
        """True if rows wait."""
        return self._runs.rows > 0

    def flush_all(self) -> Iterator[pa.RecordBatch]:
        """Yield all frames as batches and forget them."""
        runs, self._runs, self._bytes = self._runs, self._new_runs(), 0
        yield from self._converted([_in_single_chunks(frame) for frame in runs.runs()])

    def _converted(self, frames: list[Any]) -> Iterator[pa.RecordBatch]:
        for frame in frames:
            struct = pandas_struct([frame], self._schema, self._header)
            if len(struct):
                yield pa.RecordBatch.from_arrays(struct.flatten(), schema=pa.schema(list(struct.type)))


def _copied(values: Any) -> Any:
    """Return a copy of the values of a block of a frame."""
    copy = values.copy()
    if values.dtype == object and not SCALARS.issuperset(map(type, values.flat)):
        flat = copy.reshape(-1)  # a view: the copy is contiguous
        for place, cell in enumerate(flat):
            if not is_frozen(cell):
                flat[place] = frozen(cell)
    return copy


def _in_single_chunks(frame: Any) -> Any:
    """Return `frame` with each column of Arrow's as a single chunk: PySpark takes no others.

    Frames of the processor have a chunk each, as a rule, and frames that are joined have all of theirs.
    """
    import pandas as pd

    for place, kind in enumerate(frame.dtypes):
        if isinstance(kind, pd.ArrowDtype) or str(getattr(kind, "storage", "")).startswith("pyarrow"):
            values = frame.iloc[:, place].array
            chunks = values.__arrow_array__()
            if isinstance(chunks, pa.ChunkedArray) and chunks.num_chunks > 1:
                single = type(values)._from_sequence(chunks.combine_chunks(), dtype=kind)
                frame.isetitem(place, single)
    return frame


def _frame_size(frame: Any) -> int:
    """Return about how many bytes the values of `frame` take."""
    total = 0
    for block in frame._mgr.blocks:
        values = block.values
        total += sum(map(rough_size, values.ravel())) if values.dtype == object else values.nbytes
    return total


def _no_frame() -> Exception:
    from pyspark.errors import PySparkValueError

    return PySparkValueError(
        "Invalid return type. Please make sure that the UDF returns a "
        "pandas.DataFrame when the specified return type is StructType."
    )


SCALARS = frozenset(
    (
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
        decimal.Decimal,
        datetime.date,
        datetime.datetime,
        datetime.timedelta,
    )
)
"""Types whose instances never change."""

_ARE_SCALARS = SCALARS.issuperset

_KINDS = (*SCALARS, numbers.Number)  # with subclasses, and with the numbers of numpy


def is_frozen(value: Any) -> bool:
    """Return True if `value` can never change; False if it may."""
    if type(value) in SCALARS:
        return True
    if isinstance(value, tuple):
        return all(map(is_frozen, value))
    return isinstance(value, _KINDS)


def frozen(value: Any) -> Any:
    """Return a copy of `value` that nobody else can change.

    A value that cannot be copied comes back itself: no column takes it, and the error of Arrow says so.
    """
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
