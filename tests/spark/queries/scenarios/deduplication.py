"""`dropDuplicates` with and without a watermark, and `dropDuplicatesWithinWatermark`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queries.scenarios.event_time import on_time, watermarks
from queries.scenarios.records import DELAY_S, Record
from queries.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELAY = f"{DELAY_S} seconds"


def _for_ever(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return events.dropDuplicates(["key", "value"]).select("key", "value")


def _until_the_watermark(events: DataFrame, _answers: DataFrame) -> DataFrame:
    distinct = events.withWatermark("ts", DELAY).dropDuplicates(["key", "ts"])
    return distinct.selectExpr("key", "cast(ts as long) as ts")


def _within_watermark(events: DataFrame, _answers: DataFrame) -> DataFrame:
    distinct = events.withWatermark("ts", DELAY).dropDuplicatesWithinWatermark(["key", "value"])
    return distinct.selectExpr("key", "value", "id")


def _replay_within_watermark(history: list[list[Record]]) -> list[list[dict]]:
    expires_at: dict[tuple[str, int], int] = {}
    output = []
    for records, marks in zip(history, watermarks(history), strict=True):
        rows = []
        for record in on_time(records, marks):
            key = (record.key, record.value)
            if key not in expires_at:
                expires_at[key] = record.ts + DELAY_S
                rows.append({"key": record.key, "value": record.value, "id": record.id})
        for key in [key for key, at in expires_at.items() if marks.eviction >= at]:
            del expires_at[key]
        output.append(rows)
    return output


SCENARIOS = [
    Scenario("drop-duplicates", _for_ever, late_counts=True, flush_counts=True),
    Scenario("drop-duplicates-watermark", _until_the_watermark, flush_counts=True),
    Scenario(
        "drop-duplicates-within-watermark",
        _within_watermark,
        replay=_replay_within_watermark,
    ),
]
