"""Streaming aggregation in every output mode, session windows, limit and chained stateful operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queries.scenarios.records import DELAY_S, Record
from queries.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELAY = f"{DELAY_S} seconds"
LIMIT = 120


def _bounds(window: str) -> list[Column]:
    return [
        F.col(f"{window}.start").cast("long").alias("start"),
        F.col(f"{window}.end").cast("long").alias("end"),
    ]


def _totals() -> list[Column]:
    return [F.count("*").alias("n"), F.sum("value").alias("total"), F.max("id").alias("last")]


def _windowed(events: DataFrame, _answers: DataFrame) -> DataFrame:
    grouped = events.withWatermark("ts", DELAY).groupBy(F.window("ts", "8 seconds"), "key")
    return grouped.agg(*_totals()).select(*_bounds("window"), "key", "n", "total", "last")


def _sliding(events: DataFrame, _answers: DataFrame) -> DataFrame:
    grouped = events.withWatermark("ts", DELAY).groupBy(F.window("ts", "12 seconds", "4 seconds"))
    return grouped.agg(*_totals()).select(*_bounds("window"), "n", "total", "last")


def _running(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(*_totals(), F.avg("value").alias("mean"))


def _by_value(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return events.groupBy("value").agg(*_totals())


def _sessions(events: DataFrame, _answers: DataFrame) -> DataFrame:
    grouped = events.withWatermark("ts", DELAY).groupBy(F.session_window("ts", "5 seconds"), "key")
    return grouped.agg(*_totals()).select(*_bounds("session_window"), "key", "n", "total", "last")


def _open_sessions(events: DataFrame, _answers: DataFrame) -> DataFrame:
    grouped = events.groupBy(F.session_window("ts", "3 seconds"), "key")
    return grouped.agg(*_totals()).select(*_bounds("session_window"), "key", "n", "total", "last")


def _limited(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return events.select("id", "key").limit(LIMIT)


def _replay_limit(history: list[list[Record]]) -> list[list[dict]]:
    rows, output = 0, []
    for records in history:
        taken = records[: LIMIT - rows]
        rows += len(taken)
        output.append([{"id": record.id, "key": record.key} for record in taken])
    return output


def _windows_of_windows(events: DataFrame, _answers: DataFrame) -> DataFrame:
    small = events.withWatermark("ts", DELAY).groupBy(F.window("ts", "4 seconds"), "key")
    counts = small.agg(F.count("*").alias("n"), F.sum("value").alias("value"))
    large = counts.groupBy(F.window(F.window_time("window"), "16 seconds"))
    return large.agg(F.count("*").alias("keys"), F.sum("n").alias("n"), F.max("value").alias("most")).select(
        *_bounds("window"), "keys", "n", "most"
    )


def _windows_of_distinct(events: DataFrame, _answers: DataFrame) -> DataFrame:
    distinct = events.withWatermark("ts", DELAY).dropDuplicates(["key", "ts"])
    return (
        distinct.groupBy(F.window("ts", "8 seconds"))
        .agg(F.count("*").alias("n"))
        .select(*_bounds("window"), "n")
    )


def _windows_of_pairs(events: DataFrame, answers: DataFrame) -> DataFrame:
    left = events.withWatermark("ts", DELAY).alias("e")
    right = answers.withWatermark("ts", DELAY).alias("a")
    on = "e.key = a.key and e.ts = a.ts"
    pairs = left.join(right, F.expr(on)).select("e.ts", (F.col("e.value") + F.col("a.value")).alias("value"))
    return (
        pairs.groupBy(F.window("ts", "8 seconds"))
        .agg(F.sum("value").alias("total"))
        .select(*_bounds("window"), "total")
    )


SCENARIOS = [
    Scenario("aggregation-append", _windowed, file_sink=True),
    Scenario("aggregation-update-window", _sliding, "update", upsert=("start", "end"), flush_counts=True),
    Scenario("aggregation-update", _running, "update", upsert=("key",), late_counts=True, flush_counts=True),
    Scenario("aggregation-complete", _by_value, "complete", late_counts=True, flush_counts=True),
    Scenario("session-window-append", _sessions),
    Scenario("session-window-complete", _open_sessions, "complete", late_counts=True, flush_counts=True),
    Scenario("limit", _limited, replay=_replay_limit),
    Scenario("chained-aggregations", _windows_of_windows),
    Scenario("chained-deduplication", _windows_of_distinct),
    Scenario("chained-join", _windows_of_pairs),
]
