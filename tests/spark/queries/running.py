"""Runs scenarios in a session: starts them all at once, waits for their end or for a word to stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queries import sink
from queries.records import FLUSH, SCHEMA
from queries.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PERIOD_S = 0.1


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

    def in_mid_batch(self, name: str) -> int | None:
        """The number of the batch that has begun and is not committed, if any."""
        begun, done = (_newest(self.checkpoint(name) / log) for log in ("offsets", "commits"))
        return begun if begun > done else None


def _newest(log: Path) -> int:
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)


def start(spark: SparkSession, room: Room, scenario: Scenario) -> StreamingQuery:
    """Starts or restarts the scenario's query under the options that it asks for."""
    for option, value in scenario.conf.items():
        spark.conf.set(option, value)
    try:
        frame = scenario.query(*(_stream(spark, room, stream) for stream in ("events", "answers")))
        return _writer(frame, room, scenario).start()
    finally:
        for option in scenario.conf:
            spark.conf.unset(option)


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
        sink.batch_writer(room.output(scenario.name), room.checkpoint(scenario.name) / "offsets")
    )


def run(spark: SparkSession, room: Room, scenarios: list[Scenario], stop_asked: Callable[[], bool]) -> bool:
    """Runs all queries to their end; False when they were stopped before, because ``stop_asked`` said so.

    Raises the StreamingQueryException of a query that failed.
    """
    queries = [(scenario, start(spark, room, scenario)) for scenario in scenarios]
    try:
        while not all(_finished(scenario, query, room) for scenario, query in queries):
            if stop_asked():
                return False
            time.sleep(_PERIOD_S)
        return True
    finally:
        for _, query in queries:
            query.stop()


def _finished(scenario: Scenario, query: StreamingQuery, room: Room) -> bool:
    if not query.isActive:
        if error := query.exception():
            raise error
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
    """Writes what the scenario's query says in batch mode about the files of its streams."""
    frame = scenario.query(*(_table(spark, room, scenario, stream) for stream in ("events", "answers")))
    path = room.expected(scenario.name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(row + "\n" for row in sink.rows_of(frame)))


def _table(spark: SparkSession, room: Room, scenario: Scenario, stream: str) -> DataFrame:
    records = spark.read.schema(SCHEMA).json(str(room.input(stream)))
    if not scenario.late_counts:
        records = records.where("not late")
    return records if scenario.flush_counts else records.where(~F.col("key").startswith(FLUSH))
