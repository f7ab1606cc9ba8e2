"""Functions of `applyInPandasWithState` in every form, on every store: equal output and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from queries.small.flow import Flow, session_options
from queries.store_choices import HDFS, OURS_IDS, ROCKSDB
from sample_functions import OUTPUT, STATE, total, total_of_rows, total_per_group

import state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1", "4.0")), pytest.mark.tier("more")]

ACCELERATE = "spark.sql.streaming.stateStore.incremental.vectorized.accelerate"
OPERATOR = "VectorizedFlatMapGroupsInPandasWithState"
FORMS = {
    "frames": total_per_group,
    "vectorized": state_store.vectorized(total),
    "per_group": state_store.per_group(total_of_rows),
    "accelerate": state_store.accelerate(total_per_group),
}
BATCHES = [
    [("a", 1), ("b", 2), ("a", 4)],
    [("a", 5), ("c", 1), ("a", 1), ("a", 2), ("b", 9)],
    [("b", 1), ("a", 7), ("d", 3), ("a", 3)],
]


def totals(function: Callable[..., Any]) -> Callable[[DataFrame], DataFrame]:
    def query(records: DataFrame) -> DataFrame:
        grouped = records.select(F.col("key").alias("k"), F.col("value").cast("double").alias("v")).groupBy(
            "k"
        )
        return grouped.applyInPandasWithState(function, OUTPUT, STATE, "update", "NoTimeout")

    return query


STORES = [
    pytest.param(OURS_IDS, id=str(OURS_IDS), marks=pytest.mark.older(more=("4.2", "4.1", "4.0"))),
    *(pytest.param(store, id=str(store), marks=pytest.mark.tier("long")) for store in (ROCKSDB, HDFS)),
]


@pytest.mark.parametrize("store", STORES)
def test_every_form_does_the_same(spark, tmp_path, store):
    """The marked forms run on the extension's operator, and continue from a state that another form left.

    The frames are those of Spark's own operator.
    """
    found = {}
    for first, then in (("frames", "frames"), ("vectorized", "per_group"), ("per_group", "accelerate")):
        own = {ACCELERATE: "false"} if first == "frames" else {}
        flow = Flow(spark, tmp_path / first, totals(FORMS[first]), **store.conf(), **own)
        flow.run(BATCHES[0])
        flow.query = totals(FORMS[then])
        query = flow.run(*BATCHES[1:])
        assert (OPERATOR in query._jsq.explainInternal(False)) == (then != "frames")
        batches = [sorted(map(repr, rows)) for rows in flow.batches]
        with session_options(spark, store.conf()):
            found[first] = batches, flow.timeless_state()
    assert found["vectorized"] == found["frames"]
    assert found["per_group"] == found["frames"]
    assert len(found["frames"][0]) == len(BATCHES) and found["frames"][1]
