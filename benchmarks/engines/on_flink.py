"""The counter on PyFlink: a program of the environment `flink`.

`--form` is the execution mode and the state backend: process-rocksdb, thread-rocksdb or thread-hashmap. The
thread mode and the reuse of objects are what PyFlink's documentation advises for speed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from counted_rows import Progress, keep_checksum, options, step_of
from pyflink.common import Configuration, Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor
from pyflink.table import StreamTableEnvironment

CHECKPOINT_S = 5


class Counter(KeyedProcessFunction):
    """A count and a sum in a value, and the steps in a map."""

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


def main() -> None:
    """Run the job that the command line asks for."""
    asked = options(__doc__)
    mode, backend = asked.form.split("-")
    settings = {
        "python.execution-mode": mode,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "state.backend.type": backend,
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{CHECKPOINT_S} s",
        "execution.checkpointing.dir": f"file://{asked.root}/checkpoints",
        "taskmanager.memory.process.size": "4g",
        "taskmanager.memory.managed.size": "1g",
        "pipeline.object-reuse": "true",
        "parallelism.default": "1",
    }
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.add_python_file(str(Path(__file__).with_name("counted_rows.py")))
    tables = StreamTableEnvironment.create(env)
    last = asked.rows * asked.batches - 1
    tables.execute_sql(
        "CREATE TEMPORARY TABLE numbers (id BIGINT) WITH ('connector'='datagen',"
        "'rows-per-second'='100000000','fields.id.kind'='sequence','fields.id.start'='0',"
        f"'fields.id.end'='{last}')"
    )
    keyed = tables.sql_query(
        f"SELECT id % {asked.keys} AS k, CAST(id % {asked.keys} % 97 AS DOUBLE) + 0.5 AS v FROM numbers"
    )
    output = Types.ROW_NAMED(["k", "c", "t"], [Types.LONG(), Types.LONG(), Types.DOUBLE()])
    counter = Counter(str(asked.root), asked.rows)
    rows = tables.to_data_stream(keyed).key_by(lambda row: row[0], key_type=Types.LONG())
    results = rows.process(counter, output_type=output)
    if asked.collect:
        with results.execute_and_collect() as collected:
            keep_checksum(asked.root, (tuple(row) for row in collected))
        return
    tables.create_temporary_view("results", results)
    tables.execute_sql(
        "CREATE TEMPORARY TABLE nothing (k BIGINT, c BIGINT, t DOUBLE) WITH ('connector'='blackhole')"
    )
    tables.execute_sql("INSERT INTO nothing SELECT * FROM results").wait()


if __name__ == "__main__":
    main()
