"""The plan of a query says which operators announce the keys of their input to the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from queries.small.flow import Flow
from queries.store_choices import HDFS, OURS
from sample_functions import OUTPUT, STATE, total, total_per_group

import state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [
    pytest.mark.spark,
    pytest.mark.older(more=("4.1", "4.0"), long=("4.2",)),
    pytest.mark.tier("more"),
]

LOOK_AHEAD = "spark.sql.streaming.stateStore.incremental.lookAhead"
BATCHES = [[("a", 1), ("b", 2), ("a", 4)], [("a", 5), ("c", 1), ("b", 9)]]


def counted(records: DataFrame) -> DataFrame:
    return records.groupBy("key").count()


def distinct(records: DataFrame) -> DataFrame:
    return records.dropDuplicates(["key"])


def with_function(function: Callable) -> Callable[[DataFrame], DataFrame]:
    def query(records: DataFrame) -> DataFrame:
        columns = records.select(F.col("key").alias("k"), F.col("value").cast("double").alias("v"))
        return columns.groupBy("k").applyInPandasWithState(function, OUTPUT, STATE, "update", "NoTimeout")

    return query


def joined(records: DataFrame) -> DataFrame:
    left = records.select("key", F.col("value").alias("first"))
    right = records.select(F.col("key").alias("other"), F.col("value").alias("second"))
    return left.join(right, F.col("key") == F.col("other")).select("key", "first", "second")


QUERIES = {
    "join": joined,
    "aggregation": counted,
    "deduplication": distinct,
    "function": with_function(total_per_group),
    "vectorized": with_function(state_store.vectorized(total)),
}


@pytest.mark.parametrize("name", QUERIES)
def test_an_operator_looks_ahead_in_this_store_unless_told_otherwise(spark, tmp_path, name):
    mode = "append" if name in ("deduplication", "join") else "update"
    inputs = 2 if name == "join" else 1
    found = {}
    for case, store, option in (("on", OURS, "true"), ("off", OURS, "false"), ("spark", HDFS, "true")):
        flow = Flow(spark, tmp_path / case, QUERIES[name], mode, **{**store.conf(), LOOK_AHEAD: option})
        query = flow.run(*BATCHES)
        assert query._jsq.explainInternal(False).count("LookAhead ") == inputs * (case == "on"), case
        found[case] = [sorted(map(str, batch)) for batch in flow.batches]
    assert found["on"] == found["off"] == found["spark"]
