"""The worker's side of a processor: rows in, output out, in the order of PySpark's own worker.

A processor sees no difference to PySpark's own worker: its calls come in the same order, rows are read when
it asks for them, output is taken as it comes, timers follow all rows, and `close` is the last call.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from pyspark.sql.types import StructType

from state_store.functions.collector import exempt_imports
from state_store.functions.group_context import to_arrow_schema
from state_store.functions.processors.arrow_output import FrameOutput, RowOutput
from state_store.functions.processors.batches import FrameStream, RowBatch
from state_store.functions.processors.channel import Channel
from state_store.functions.processors.groups import Groups
from state_store.functions.processors.handle import BatchedHandle
from state_store.functions.processors.task_state import Session
from state_store.functions.processors.value_codec import RowCodec
from state_store.functions.processors.variables import Timers

_RUN = 1000
_FIRST_RUN = 32
"""The first run is short: the variables learn in it what to fetch."""


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
    made: ProcessorLoop = loop(processor, output, header)
    return made


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
        self._processor.close()
        self._state("CLOSED")
        self._channel.close()

    def _declare(self) -> None:
        """Call the processor's `init`."""
        self._processor.init(BatchedHandle(self._session, self._timers))

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
        handle, times = self._processor.handleInputRows, self._times
        for keys in groups.runs(self._run_limit):
            session.begin(keys)
            for number, (key, rows) in enumerate(groups.groups()):
                session.enter(number)
                yield from add(handle(key, rows, times))
            yield from self._flushed()
        session.end()

    def _with_timers(self) -> Iterator[pa.RecordBatch]:
        header, session = self._header, self._session
        moment = {"processingtime": header.batch_time_ms, "eventtime": header.watermark_ms}.get(
            header.time_mode
        )
        more = moment is not None
        while more:
            timers, more = session.call(
                "Error getting expired timers", "expired", moment, header.max_state_records
            )
            for start in range(0, len(timers), _RUN):
                part = [(self._keys.row(key), at) for key, at in timers[start : start + _RUN]]
                session.begin([tuple(key) for key, _ in part])
                yield from self._output.add(self._expired(part))
                yield from self._flushed()
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
