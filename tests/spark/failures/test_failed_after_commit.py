"""Checkpoint format 1: a task that fails after its store's commit leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from pyspark import TaskContext
from queries.session_settings import PREFIX
from queries.small.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

KEYS = [f"key{number}" for number in range(8)]
PATIENCE_S = 300.0


def add(key: tuple, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Add one for each row, and a thousand if Spark runs the task again, so that the result differs."""
    rows = sum(len(frame) for frame in frames)
    total = (state.get[0] if state.exists else 0) + rows + 1000 * TaskContext.get().attemptNumber()
    state.update((total,))
    yield pd.DataFrame({"key": [key[0]], "total": [total]})


def holding(directory: Path) -> Callable[[DataFrame], DataFrame]:
    """Make a query with a task to kill.

    Its first task that finds the file `hold` waits after its store's commit until it is killed.
    """

    def hold(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from frames
        try:
            (directory / "hold").rename(directory / "taken")
        except FileNotFoundError:
            return
        (directory / "held.tmp").write_text(str(TaskContext.get().taskAttemptId()))
        (directory / "held.tmp").rename(directory / "held")
        time.sleep(PATIENCE_S)

    def query(records: DataFrame) -> DataFrame:
        totals = records.groupBy("key").applyInPandasWithState(
            add, "key string, total long", "total long", "update", "NoTimeout"
        )
        return totals.mapInPandas(hold, "key string, total long")

    return query


def kill_the_task_that_holds(spark, directory: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not (directory / "held").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    task = int((directory / "held").read_text())
    assert spark.sparkContext._jsc.sc().killTaskAttempt(task, True, "the test says so")


def test_the_next_batches_build_on_the_version_that_spark_took(spark, provider, tmp_path):
    if provider != "incremental":
        pytest.skip("Spark's own stores do not tell attempts apart under checkpoint format 1")
    flow = Flow(spark, tmp_path / "flow", holding(tmp_path), **{PREFIX + "checkpointFormatVersion": "1"})
    batch = [(key, 1) for key in KEYS]
    flow.run(batch)
    (tmp_path / "hold").touch()
    flow.feed(batch)
    flow.feed(batch)
    query = flow.start()
    kill_the_task_that_holds(spark, tmp_path)
    query.awaitTermination()
    flow.run(batch)  # a new run, which restores
    first, second, third, fourth = ({row["key"]: row["total"] for row in rows} for rows in flow.batches)
    assert first == dict.fromkeys(KEYS, 1)
    again = {key for key in KEYS if second[key] == 1002}
    assert again
    assert again | {key for key in KEYS if second[key] == 2} == set(KEYS)
    assert third == {key: total + 1 for key, total in second.items()}
    assert fourth == {key: total + 2 for key, total in second.items()}
    assert {key: value["groupState"]["total"] for key, value in flow.state_of_keys().items()} == fourth
    assert len(list(flow.checkpoint.glob("state/0/*/delta/*.refused"))) == 1
