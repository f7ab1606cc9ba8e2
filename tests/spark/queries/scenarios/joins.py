"""Stream-stream joins of every type, with four stores a partition and with one store of column families."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import functions as F

from queries.scenarios.records import DELAY_S
from queries.scenarios.scenario import Query, Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELAY = f"{DELAY_S} seconds"
FORMAT = "spark.sql.streaming.join.stateFormatVersion"


def _join(how: str) -> Query:
    def query(events: DataFrame, answers: DataFrame) -> DataFrame:
        left = events.withWatermark("ts", DELAY).alias("e")
        right = answers.withWatermark("ts", DELAY).alias("a")
        on = F.expr("e.key = a.key and e.value != 1 and a.ts >= e.ts and a.ts <= e.ts + interval 3 seconds")
        joined = left.join(right, on, how)
        if how == "left_semi":
            return joined.selectExpr("e.key as left", "e.id as left_id")
        return joined.selectExpr("e.key as left", "e.id as left_id", "a.key as right", "a.id as right_id")

    return query


def _unbounded(events: DataFrame, answers: DataFrame) -> DataFrame:
    joined = events.alias("e").join(answers.alias("a"), F.expr("e.key = a.key and e.value = a.value"))
    return joined.selectExpr("e.key as left", "e.id as left_id", "a.id as right_id")


SCENARIOS = [
    Scenario("join-inner", _join("inner")),
    Scenario("join-inner-unbounded", _unbounded, late_counts=True),
    Scenario("join-left", _join("left_outer")),
    Scenario("join-right", _join("right_outer")),
    Scenario("join-full", _join("full_outer")),
    Scenario("join-semi", _join("left_semi")),
    # Spark 4.0 lacks the format; 4.3 uses format 2 in any case, unless the store is its own RocksDB.
    *(
        []
        if pyspark.__version__.startswith(("4.0.", "4.3."))
        else [
            Scenario("join-inner-column-families", _join("inner"), conf={FORMAT: "3"}),
            Scenario("join-full-column-families", _join("full_outer"), conf={FORMAT: "3"}),
        ]
    ),
]
