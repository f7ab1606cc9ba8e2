"""Measure a batch whose `foreachBatch` has two actions beside one with one action, on each state store.

    python -m benchmarks.comparisons.second_actions [--rows 20000] [--batches 10] [--turns 3] [--json OUT]

Each action runs the aggregation of the batch anew, on the same version of the state. A query counts rows by
key; the stores and numbers of actions take turns in one session. The figures are the milliseconds of a batch,
medians over batches and turns without the first batches of each query, and the restores of a batch where the
store reports them. A store that keeps the version before the newest readable has a ratio of two at most.

In checkpoint format 2 Spark commits the attempt of the first action. This store keeps both in memory until
the next batch asks for one of them, so it restores nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import state_store
from benchmarks.environment import spark_sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_SPARKS = "org.apache.spark.sql.execution.streaming.state."
STORES = {
    "this store": state_store.spark_conf()[PROVIDER],
    "RocksDB with changelog": f"{_SPARKS}RocksDBStateStoreProvider",
    "HDFS-backed": f"{_SPARKS}HDFSBackedStateStoreProvider",
}
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_DROPPED = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a batch, each with another key")
    parser.add_argument("--batches", type=int, default=10, help=f"batches of a query, {_DROPPED + 1} or more")
    parser.add_argument("--turns", type=int, default=3, help="queries of each kind")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        spark = _session()
        _write_input(spark, f"{root}/in", options.rows, options.batches)
        result = measured(spark, Path(root), options.turns)
        spark.stop()
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


def measured(spark: SparkSession, root: Path, turns: int) -> dict[str, dict[str, float]]:
    """Return for each store the median milliseconds of a batch by number of actions, and their ratio."""
    batches: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for turn in range(turns):
        for store in STORES:
            for actions in (1, 2):
                place = root / f"{turn}-{len(batches)}-{actions}-{STORES[store].rpartition('.')[2]}"
                batches.setdefault((store, actions), []).extend(_batches(spark, root, place, store, actions))
    return {store: _figures(batches[store, 1], batches[store, 2]) for store in STORES}


def _figures(single: list[dict[str, Any]], double: list[dict[str, Any]]) -> dict[str, float]:
    one_action, two_actions = (
        statistics.median(batch["durationMs"]["addBatch"] for batch in batches)
        for batches in (single, double)
    )
    restores = [_restores(batch) for batch in double]
    return {
        "one_action_ms": one_action,
        "two_actions_ms": two_actions,
        "ratio": round(two_actions / one_action, 2),
        "restores_with_two": statistics.median(restores),
    }


def _restores(batch: dict[str, Any]) -> int:
    return batch["stateOperators"][0]["customMetrics"].get("incrementalRestoreCount", 0)


def _batches(spark: SparkSession, root: Path, place: Path, store: str, actions: int) -> list[dict[str, Any]]:
    """Run a query and return the progress of its batches, without the first ones."""
    spark.conf.set(PROVIDER, STORES[store])
    spark.conf.set(_FORMAT, "1" if store == "HDFS-backed" else "2")  # which knows no other format

    def use(batch: DataFrame, _: int) -> None:
        for _action in range(actions):
            batch.write.format("noop").mode("overwrite").save()

    source = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1).parquet(f"{root}/in")
    query = (
        source.groupBy("k")
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(use)
        .option("checkpointLocation", str(place))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [batch for batch in query.recentProgress if batch["stateOperators"]][_DROPPED:]


def _write_input(spark: SparkSession, place: str, rows: int, batches: int) -> None:
    for _ in range(batches):
        spark.range(rows).selectExpr("id as k").coalesce(1).write.mode("append").parquet(place)


def _session() -> SparkSession:
    options = {_CHANGELOG: "true", "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
    return spark_sessions.local({**state_store.spark_conf(), **options})


if __name__ == "__main__":
    main()
