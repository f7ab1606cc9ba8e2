"""The workloads on PyFlink: a program of the environment `flink`.

`--form` is the execution mode and the state backend: process-rocksdb, thread-rocksdb or thread-hashmap. The
thread mode and the reuse of objects are what PyFlink's documentation advises for speed, and short times of
buffers and bundles what it advises for latency. Outputs that are not discarded leave the JVM on a socket.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Row, TypeInformation, Types
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from pyflink.table import StreamTableEnvironment
from workloads import (
    FIRST_MS,
    GAP_MS,
    LATENCY,
    ROUND_MS,
    SESSIONS,
    TURN,
    Outputs,
    Progress,
    options,
    outputs_of,
    step_of,
)

_NUMBERS = """CREATE TEMPORARY TABLE numbers (id BIGINT{more}) WITH ('connector'='datagen',
    'rows-per-second'='{rate}',
    'fields.id.kind'='sequence', 'fields.id.start'='0', 'fields.id.end'='{last}')"""
_MOMENT_MS = f"({FIRST_MS} + id / {{keys}} * {ROUND_MS} + id % {{keys}} * {ROUND_MS} / {{keys}})"
_WATERMARK = f", moment AS TO_TIMESTAMP_LTZ({_MOMENT_MS}, 3), WATERMARK FOR moment AS moment"
_COUNTED = "SELECT id % {keys} AS k, CAST(id % {keys} % 97 AS DOUBLE) + 0.5 AS v FROM numbers"
_EVENTS = f"""SELECT 2 * (id % {{keys}}) + (id / {{keys}} + id % {{keys}}) / {TURN} % 2 AS k,
    CAST(id % 97 AS DOUBLE) + 0.5 AS v, {_MOMENT_MS} AS ms FROM numbers"""


class Counter(KeyedProcessFunction):
    """A count and a sum in a value, and the steps in a map."""

    columns = "k BIGINT, c BIGINT, t DOUBLE"

    def __init__(self, root: str, rows: int) -> None:
        self._root = root
        self._rows = rows

    def open(self, runtime_context: RuntimeContext) -> None:
        """Declare the state."""
        totals = ValueStateDescriptor("totals", Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
        self._totals = runtime_context.get_state(totals)
        seen = MapStateDescriptor("seen", Types.INT(), Types.LONG())
        self._seen = runtime_context.get_map_state(seen)
        self._progress = Progress(Path(self._root), self._rows)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Row]:
        """Count a row."""
        self._progress.add()
        totals = self._totals.value()
        count, total = totals if totals is not None else (0, 0.0)
        count += 1
        total += value[1]
        step = step_of(count)
        self._seen.put(step, (self._seen.get(step) or 0) + 1)
        self._totals.update((count, total))
        yield Row(value[0], count, total)


class Sessions(KeyedProcessFunction):
    """The events of a session in a list, and a timer for each event, of which that of the last counts."""

    columns = f"{Counter.columns}, e BIGINT"

    def __init__(self, root: str, rows: int) -> None:
        self._root = root
        self._rows = rows

    def open(self, runtime_context: RuntimeContext) -> None:
        """Declare the state."""
        self._last_ms = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))
        self._events = runtime_context.get_list_state(ListStateDescriptor("events", Types.DOUBLE()))
        self._progress = Progress(Path(self._root), self._rows)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Row]:
        """Take an event."""
        self._progress.add()
        last_ms = self._last_ms.value()
        if last_ms is not None and value[2] > last_ms + GAP_MS:
            yield self._closed(value[0], last_ms)
        self._events.add(value[1])
        self._last_ms.update(value[2])
        ctx.timer_service().register_event_time_timer(value[2] + GAP_MS)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Row]:
        """Close the session, unless it has a later event."""
        last_ms = self._last_ms.value()
        if last_ms is not None and timestamp == last_ms + GAP_MS:
            yield self._closed(ctx.get_current_key(), last_ms)

    def _closed(self, key: int, last_ms: int) -> Row:
        events = list(self._events.get())
        self._events.clear()
        self._last_ms.clear()
        return Row(key, len(events), sum(events), last_ms)


def settings(asked: argparse.Namespace) -> dict[str, str]:
    """Return the configuration of a job; a job with checkpoints of an earlier life begins at the last."""
    mode, backend = asked.form.split("-")
    configuration = {
        "python.execution-mode": mode,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "state.backend.type": backend,
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{asked.checkpoint_s} s",
        "execution.checkpointing.dir": f"file://{asked.root}/checkpoints",
        "taskmanager.memory.process.size": "4g",
        "taskmanager.memory.managed.size": "1g",
        "pipeline.object-reuse": "true",
        "parallelism.default": "1",
    }
    complete = sorted(asked.root.glob("checkpoints/*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
    if complete:
        configuration["execution.state-recovery.path"] = f"file://{complete[-1].parent}"
    if asked.purpose == LATENCY:
        configuration["execution.buffer-timeout.interval"] = "1 ms"
        configuration["python.fn-execution.bundle.time"] = "5"
    return configuration


def rows_of(
    asked: argparse.Namespace, env: StreamExecutionEnvironment, tables: StreamTableEnvironment
) -> DataStream:
    """Return the rows of a job."""
    if asked.purpose == LATENCY:
        # PyFlink has no face for Flink's source of sockets.
        lines = env._j_stream_execution_environment.socketTextStream("127.0.0.1", asked.port)
        tables.create_temporary_view("lines", tables.from_data_stream(DataStream(lines)))
        numbers = tables.sql_query("SELECT CAST(f0 AS BIGINT) AS id FROM `lines`")
        tables.create_temporary_view("numbers", numbers)
    else:
        rate = asked.rows // asked.batch_s if asked.batch_s else 100_000_000
        more = _WATERMARK.format(keys=asked.keys) if asked.workload == SESSIONS else ""
        last = asked.rows * asked.batches - 1
        tables.execute_sql(_NUMBERS.format(more=more, rate=rate, last=last))
    query = _EVENTS if asked.workload == SESSIONS else _COUNTED
    return tables.to_data_stream(tables.sql_query(query.format(keys=asked.keys)))


def row_type(columns: str) -> TypeInformation:
    """Return the type of rows with these columns of SQL."""
    types = {"BIGINT": Types.LONG(), "DOUBLE": Types.DOUBLE()}
    pairs = [column.split() for column in columns.split(", ")]
    return Types.ROW_NAMED([name for name, _ in pairs], [types[kind] for _, kind in pairs])


def taken(results: DataStream, outputs: Outputs) -> threading.Thread:
    """Let a thread take the results of a job from a socket, and return it."""
    listening = socket.create_server(("127.0.0.1", 0))

    def take() -> None:
        connection, _ = listening.accept()
        with connection.makefile() as lines:
            for line in lines:
                key, count, total, *more = line.split(",")
                outputs.add((int(key), int(count), float(total), *map(int, more)))

    lines = results.map(lambda row: ",".join(map(str, row)) + "\n", Types.STRING())
    schema = SimpleStringSchema()._j_serialization_schema
    lines._j_data_stream.writeToSocket("127.0.0.1", listening.getsockname()[1], schema)
    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread


def discarded(results: DataStream, columns: str, tables: StreamTableEnvironment) -> None:
    """Run the job without taking its results."""
    tables.create_temporary_view("results", results)
    tables.execute_sql(f"CREATE TEMPORARY TABLE nothing ({columns}) WITH ('connector'='blackhole')")
    tables.execute_sql("INSERT INTO nothing SELECT * FROM results").wait()


def main() -> None:
    """Run the job that the command line asks for."""
    asked = options(__doc__)
    configuration = Configuration()
    for name, value in settings(asked).items():
        configuration.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.add_python_file(str(Path(__file__).with_name("workloads.py")))
    tables = StreamTableEnvironment.create(env)
    function = Sessions if asked.workload == SESSIONS else Counter
    rows = rows_of(asked, env, tables).key_by(lambda row: row[0], key_type=Types.LONG())
    results = rows.process(function(str(asked.root), asked.rows), output_type=row_type(function.columns))
    outputs = outputs_of(asked)
    if outputs:
        thread = taken(results, outputs)
        env.execute()
        thread.join()
        outputs.write()
    else:
        discarded(results, function.columns, tables)


if __name__ == "__main__":
    main()
