"""Scenarios in a session: started together, stopped, restarted, awaited."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import late_workers
from pyspark.sql import functions as F

from queries.runs import row_sink
from queries.scenarios.records import FLUSH, SCHEMA
from queries.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@dataclass(frozen=True)
class Room:
    """The directories of one history: the streams that go in, and per scenario checkpoint and output."""

    path: Path

    def input(self, stream: str) -> Path:
        return self.path / "input" / stream

    def checkpoint(self, name: str) -> Path:
        return self.path / "checkpoint" / name

    def output(self, name: str) -> Path:
        return self.path / "output" / name

    def expected(self, name: str) -> Path:
        return self.path / "expected" / f"{name}.json"

    def error(self, name: str) -> Path:
        """The error of a query."""
        return self.path / "errors" / name

    def in_mid_batch(self, name: str) -> int | None:
        """Return the number of the batch that has begun and is not committed, if any."""
        started, done = (_newest(self.checkpoint(name) / log) for log in ("offsets", "commits"))
        return started if started > done else None


def _newest(log: Path) -> int:
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)


def start(spark: SparkSession, room: Room, scenario: Scenario) -> StreamingQuery:
    """Start or restart the scenario's query under its options."""
    if scenario.file_sink and spark.conf.get(CHECKPOINT_FORMAT) == "2":
        _mend_sink(room, scenario.name)
    for option, value in scenario.conf.items():
        spark.conf.set(option, value)
    try:
        frame = scenario.query(*(_stream(spark, room, stream) for stream in ("events", "answers")))
        return _writer(frame, room, scenario).start()
    finally:
        for option in scenario.conf:
            spark.conf.unset(option)


def _mend_sink(room: Room, name: str) -> None:
    """Do as docs/operations.md advises if the file sink has a batch that the query lacks."""
    batch = room.in_mid_batch(name)
    for entry in (f"{batch}", f".{batch}.crc"):
        (room.output(name) / "_spark_metadata" / entry).unlink(missing_ok=True)


def _stream(spark: SparkSession, room: Room, stream: str) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    return reader.json(str(room.input(stream)))


def _writer(frame: DataFrame, room: Room, scenario: Scenario):
    writer = frame.writeStream.queryName(scenario.name).outputMode(scenario.mode)
    writer = writer.option("checkpointLocation", str(room.checkpoint(scenario.name)))
    if scenario.until_state_is_empty:
        writer = writer.trigger(processingTime="200 milliseconds")
    else:
        writer = writer.trigger(availableNow=True)
    if scenario.file_sink:
        return writer.format("json").option("path", str(room.output(scenario.name)))
    return writer.foreachBatch(
        row_sink.batch_writer(room.output(scenario.name), room.checkpoint(scenario.name) / "offsets")
    )


class Run:
    """The queries of scenarios, side by side in one session; one that fails does not disturb the others."""

    def __init__(self, spark: SparkSession, room: Room, scenarios: list[Scenario]):
        self._spark, self._room = spark, room
        self._running: dict[Scenario, StreamingQuery] = {}
        self._late: Counter[Scenario] = Counter()
        self._waiting = [scenario for scenario in scenarios if not room.error(scenario.name).exists()]

    def start(self) -> None:
        """Start the queries that have not come to their end."""
        for scenario in self._waiting:
            self._running[scenario] = start(self._spark, self._room, scenario)
        self._waiting = []

    def stop(self) -> None:
        """Stop the running queries, to be restarted."""
        self._waiting = list(self._running)
        for query in self._running.values():
            query.stop()
        self._running = {}

    def is_over(self) -> bool:
        """Return True if all queries have come to their end, or failed: then the room has the error."""
        for scenario, query in list(self._running.items()):
            error = query.exception()
            if error and late_workers.was_late(error) and self._late[scenario] < late_workers.MOST:
                self._late[scenario] += 1
                self._running[scenario] = start(self._spark, self._room, scenario)
                continue
            if error:
                self._room.error(scenario.name).parent.mkdir(exist_ok=True)
                self._room.error(scenario.name).write_text(str(error))
            if error or _finished(scenario, query, self._room):
                query.stop()
                del self._running[scenario]
        return not self._running and not self._waiting


def _finished(scenario: Scenario, query: StreamingQuery, room: Room) -> bool:
    if not query.isActive:
        return True
    return scenario.until_state_is_empty and _state_is_empty(query, room)


def _state_is_empty(query: StreamingQuery, room: Room) -> bool:
    progress = query.lastProgress
    if not progress or not progress.sources[0].endOffset:
        return False
    files = len(list(room.input("events").glob("*.json")))
    all_read = json.loads(progress.sources[0].endOffset)["logOffset"] == files - 1
    return all_read and progress.numInputRows == 0 and progress.stateOperators[0].numRowsTotal == 0


def write_expected(spark: SparkSession, room: Room, scenario: Scenario) -> None:
    """Write the batch-mode result of the scenario's query over the files of its streams."""
    frame = scenario.query(*(_table(spark, room, scenario, stream) for stream in ("events", "answers")))
    path = room.expected(scenario.name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(row + "\n" for row in row_sink.rows_of(frame)))


def _table(spark: SparkSession, room: Room, scenario: Scenario, stream: str) -> DataFrame:
    records = spark.read.schema(SCHEMA).json(str(room.input(stream)))
    if not scenario.late_counts:
        records = records.where("not late")
    return records if scenario.flush_counts else records.where(~F.col("key").startswith(FLUSH))
