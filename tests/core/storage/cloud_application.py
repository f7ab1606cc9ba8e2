"""An application with two queries whose checkpoints lie at a URI, in a process of its own.

    python cloud_application.py PLAN

PLAN is JSON: `conf`, Spark's options; `input`, a directory with a file for each batch, of which `before` were
read in earlier lives; `checkpoints`, the URI for Spark, and `own` for the command line; `output`, a directory
for the rows of each batch and of the state; `ask`, true if the queries are asked for full checkpoints after
they have read all. A life ends when each store has a snapshot of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from waiting import awaited

from state_store.cli.main import main as state_store_main
from state_store.observe.look import Looker

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.state import GroupState


def totals(records: DataFrame) -> DataFrame:
    """Count and sum by key."""
    return records.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def groups(records: DataFrame) -> DataFrame:
    """Count and sum by key, and forget a key at a value of 0."""
    return records.groupBy("key").applyInPandasWithState(
        _follow, "key string, n long, total long", "n long, total long, note string", "update", "NoTimeout"
    )


def _follow(key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n, total, note = state.get if state.exists else (0, 0, "")
    values = [int(value) for frame in frames for value in frame["value"]]
    n, total = n + len(values), total + sum(values)
    if 0 not in values:
        state.update((n, total, (note + "+" * len(values))[-40:]))
    elif state.exists:
        state.remove()
    yield pd.DataFrame([(key[0], n, total)], columns=["key", "n", "total"])


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {"totals": totals, "groups": groups}


def main(plan: dict[str, Any]) -> None:
    """Run the queries until they have read all, and write their rows, figures and states."""
    spark = SparkSession.builder.master("local[2]").config(map=plan["conf"]).getOrCreate()
    running = {name: _started(spark, name, plan) for name in QUERIES}
    for name, query in running.items():
        query.processAllAvailable()
        awaited(lambda of=name: _is_merged(f"{plan['own']}/{of}", plan["before"]), f"merges of {name}")
        if plan["ask"]:
            code = state_store_main(["full", "--url", str(spark.sparkContext.uiWebUrl), "--query", name])
            assert code == 0, f"a request for full checkpoints ended with {code}"
        query.stop()
        metrics = [dict(batch.stateOperators[0].customMetrics) for batch in query.recentProgress]
        (Path(plan["output"]) / name / "metrics.json").write_text(json.dumps(metrics))
        state = spark.read.format("statestore").load(f"{plan['checkpoints']}/{name}")
        _write(state, Path(plan["output"]) / name / "state.json")
    spark.stop()


def _started(spark: SparkSession, name: str, plan: dict[str, Any]) -> StreamingQuery:
    directory = Path(plan["output"]) / name
    directory.mkdir(parents=True, exist_ok=True)
    stream = spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", "1")
    writer = QUERIES[name](stream.json(plan["input"])).writeStream.queryName(name).outputMode("update")
    writer = writer.option("checkpointLocation", f"{plan['checkpoints']}/{name}")
    return writer.foreachBatch(
        lambda frame, batch: _write(frame, directory / f"batch-{batch:03}.json")
    ).start()


def _is_merged(uri: str, before: int) -> bool:
    """Return True if each store has a snapshot of a version after those of earlier lives."""
    stores = Looker(uri).look().stores
    return bool(stores) and all((store.snapshot_version or 0) > before for store in stores)


def _write(frame: DataFrame, path: Path) -> None:
    rows = frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    path.write_text(json.dumps(sorted(row[0] for row in rows)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
