"""Spark 4.3 can send groups to Python in one thread while another stores the states that came back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from queries.small.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

KEYS = 400
BATCHES = 3
PIPELINED = "spark.python.udf.pipelined.enabled"


def count(key: tuple, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((seen, "x" * (seen * 7 % 60)))
    yield pd.DataFrame({"key": [key[0]], "seen": [seen]})


def counted(records: DataFrame) -> DataFrame:
    return records.groupBy("key").applyInPandasWithState(
        count, "key string, seen long", "seen long, padding string", "update", "NoTimeout"
    )


@pytest.fixture
def pipelined(spark) -> Iterator[None]:
    """Let the tasks that start meanwhile write to Python from a separate thread."""
    java = spark.sparkContext._jvm.java.lang.System
    assert java.getProperty("incrementalStateStore.checkMemory") == "true"
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set(PIPELINED, "true")
    yield
    conf.remove(PIPELINED)


@pytest.mark.usefixtures("pipelined")
def test_every_state_is_right_when_two_threads_use_the_store(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", counted, **{"spark.sql.execution.arrow.maxRecordsPerBatch": 50})
    flow.run(*[[(f"key{number}", batch) for number in range(KEYS)] for batch in range(BATCHES)])
    assert [len(rows) for rows in flow.batches] == [KEYS] * BATCHES
    for number, rows in enumerate(flow.batches, start=1):
        assert [row for row in rows if row["seen"] != number] == []
