"""Measure how fast the state of a query is read as a table, beside Spark's `statestore` source, in one run.

    python -m benchmarks.comparisons.state_reading [--rows 1000000] [--json OUT]

A query with one partition makes a state of a long key and four numbers a row. Then its readers take turns,
five times, each on one core: Spark's source into Spark's `noop` sink (nothing leaves the JVM), Spark's source
as an Arrow table in Python, and `state_store.open` as batches, with files fetched and verified each time.
Sums of the columns are compared. Only the ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import state_store
from benchmarks.environment import spark_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURNS = 5
_COLUMNS = ("sum", "max", "min", "count")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the state")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        spark = _session()
        checkpoint = str(Path(root) / "checkpoint")
        _make(spark, checkpoint, options.rows)
        result = measured(spark, checkpoint, options.rows)
        spark.stop()
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


def measured(spark: SparkSession, checkpoint: str, rows: int) -> dict[str, Any]:
    """Return the rows a second of each reader, as medians of the turns, and the ratios to the first."""
    readers: dict[str, Callable[[], dict[str, float] | None]] = {
        "statestore source, noop sink": lambda: _noop(spark, checkpoint),
        "statestore source, to Arrow": lambda: _spark_arrow(spark, checkpoint),
        "state_store.open": lambda: _own(checkpoint),
    }
    times: dict[str, list[float]] = {name: [] for name in readers}
    sums = []
    for _ in range(TURNS):
        for name, read in readers.items():
            started = time.perf_counter()
            answer = read()
            times[name].append(time.perf_counter() - started)
            if answer is not None:
                sums.append(answer)
    if any(values != sums[0] for values in sums) or sums[0]["count"] != rows:
        raise SystemExit(f"the readers do not agree: {sums}")
    speed = {name: rows / statistics.median(some) for name, some in times.items()}
    first = next(iter(speed.values()))
    return {
        "rows": rows,
        "rows_per_s": {name: round(rate) for name, rate in speed.items()},
        "ratio": {name: round(rate / first, 2) for name, rate in speed.items()},
    }


def _noop(spark: SparkSession, checkpoint: str) -> None:
    spark.read.format("statestore").load(checkpoint).write.format("noop").mode("overwrite").save()


def _spark_arrow(spark: SparkSession, checkpoint: str) -> dict[str, float]:
    table = spark.read.format("statestore").load(checkpoint).selectExpr("value.*").toArrow()
    return {name: float(sum(chunk.to_numpy().sum() for chunk in table[name].chunks)) for name in _COLUMNS}


def _own(checkpoint: str) -> dict[str, float]:
    sums = dict.fromkeys(_COLUMNS, 0.0)
    with state_store.open(checkpoint) as state:
        for batch in state.scan():
            for name in _COLUMNS:
                sums[name] += float(batch[name].to_numpy().sum())
    return sums


def _session() -> SparkSession:
    options = {
        **state_store.spark_conf({"memoryBudget": "1g"}),
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }
    return spark_sessions.local(options, cores=1)


def _make(spark: SparkSession, checkpoint: str, rows: int) -> None:
    """Return a batch with this many keys."""
    from pyspark.sql import functions as F

    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=1)
    keyed = source.load().selectExpr("value as id", "value * 7 as amount").groupBy("id")
    aggregated = keyed.agg(F.sum("amount"), F.max("amount"), F.min("amount"), F.count("*"))
    query = (
        aggregated.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
        .trigger(processingTime="1 hour")
        .start()
    )
    while query.isActive and not (Path(checkpoint) / "commits" / "0").exists():
        query.awaitTermination(1)
    query.stop()


if __name__ == "__main__":
    main()
