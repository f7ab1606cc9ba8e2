"""`transformWithState` on this store and on Spark's RocksDB: equal output, state and timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from dataset.golden_states import in_order
from pyspark.errors import StreamingQueryException
from queries import settings
from queries.census import VARIABLES, WITH_TTL, in_pandas, in_rows
from queries.flow import Flow

import state_store

pytestmark = [pytest.mark.spark, pytest.mark.spark42_long]

# Before 4.2 Spark does not look at the store: then the store itself says what it lacks.
REFUSAL = (
    "COLUMN_FAMILIES" if pyspark.__version__.startswith("4.1.") else "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"
)
# (key, seconds) of each batch; the watermark follows the newest by 10 seconds.
BATCHES = [
    [("a", 10), ("b", 20), ("a", 35), ("c", 7)],
    [("a", 60), ("d", 61), ("d", 62), ("b", 300), ("a", 53)],
    [("e", 290), ("b", 305), ("c", 310), ("b", 299)],
]
RESTART_AFTER = 2


def lived(spark: Any, directory: Path, query: Any, provider: str, encoding: str) -> Flow:
    """A query that ran all batches, and was stopped and started again in between."""
    options = {
        settings.PREFIX + "providerClass": settings.PROVIDERS[provider],
        settings.PREFIX + "encodingFormat": encoding,
        "spark.sql.shuffle.partitions": 1,
        # In processing time another batch is always due: the query would not end.
        "spark.sql.streaming.noDataMicroBatches.enabled": str(query is in_pandas).lower(),
    }
    flow = Flow(spark, directory, query, **options)
    flow.run(*BATCHES[:RESTART_AFTER])
    flow.run(*BATCHES[RESTART_AFTER:])
    return flow


def read_back(flow: Flow, variables: Iterable[str]) -> dict[str, Counter]:
    """What Spark's state reader says of each variable and of the timers."""
    asked: dict[str, dict] = {name: {"stateVarName": name} for name in variables}
    asked["timers"] = {"readRegisteredTimers": True}
    return {name: flow.timeless_state(**options) for name, options in asked.items()}


@pytest.mark.parametrize(
    ("query", "variables", "encoding"),
    [
        pytest.param(in_pandas, VARIABLES, "unsaferow", marks=pytest.mark.long),
        (in_rows, (*VARIABLES, *WITH_TTL), "avro"),
    ],
)
def test_output_state_and_timers_equal_those_of_rocksdb(spark, tmp_path, query, variables, encoding):
    ours = lived(spark, tmp_path / "ours", query, "incremental", encoding)
    theirs = lived(spark, tmp_path / "theirs", query, "rocksdb", encoding)
    check_equal(ours, theirs, variables)
    for name in variables:
        flattened = ours.state(stateVarName=name, flattenCollectionTypes=True)
        with state_store.open(str(ours.checkpoint), store=name) as opened:
            assert in_order(map(_leaves, opened.to_arrow().to_pylist())) == in_order(map(_leaves, flattened))


def check_equal(one: Flow, other: Flow, variables: Iterable[str]) -> None:
    assert [sorted(map(repr, rows)) for rows in one.batches] == [
        sorted(map(repr, rows)) for rows in other.batches
    ]
    assert any(row["timer"] > 0 for rows in one.batches for row in rows), "no timer has expired"
    state = read_back(one, variables)
    assert state == read_back(other, variables)
    assert all(state.values()), f"nothing to read: {[name for name, rows in state.items() if not rows]}"


def _leaves(value: Any) -> list[Any]:
    """The single values of a row, whatever it nests them in; moments in milliseconds."""
    return [leaf for one in value.values() for leaf in _leaves(one)] if isinstance(value, dict) else [value]


def test_another_store_is_refused_as_spark_refuses_it(spark, tmp_path):
    hdfs = {
        settings.PREFIX + "providerClass": settings.PROVIDERS["hdfs"],
        settings.PREFIX + "checkpointFormatVersion": 1,
    }
    flow = Flow(spark, tmp_path / "flow", in_pandas, **hdfs)
    with pytest.raises(StreamingQueryException, match=REFUSAL):
        flow.run(BATCHES[0])
