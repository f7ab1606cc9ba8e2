"""Measure the tools on state beside Spark's own repartition of its RocksDB store, in one run.

    python -m benchmarks.comparisons.state_tools [--rows 1000000] [--turns 3] [--json OUT]

A query makes the same state of eight partitions in this store and in Spark's RocksDB store. The tools then
take turns: ours in this process alone, Spark's `StreamingCheckpointManager.repartition` (Spark 4.3) in the
JVM of the session, from eight partitions to sixteen. Numbers of rows are compared. The result is the CPU time
of each, the least of the turns, and its ratio to Spark's. At the default size Spark's has become warm.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 8
_STATES = "org.apache.spark.sql.execution.streaming.state."
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_SPARKS = "Spark's repartition of RocksDB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the state")
    parser.add_argument("--turns", type=int, default=3, help="turns of each tool")
    parser.add_argument("--json", type=Path, help="file for the results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        spark = _session()
        result = measured(spark, Path(root), asked.rows, asked.turns)
        spark.stop()
    print(json.dumps(result, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


def measured(spark: SparkSession, root: Path, rows: int, turns: int) -> dict[str, Any]:
    """Return the CPU seconds of each tool, the least of the turns, and their ratios to Spark's."""
    own, sparks = root / "own", root / "rocksdb"
    _make(spark, own, rows, spark.conf.get(_PROVIDER))
    _make(spark, sparks, rows, f"{_STATES}RocksDBStateStoreProvider")
    tools: dict[str, Callable[[Path], int]] = {
        "repartition": lambda target: state_store.repartition(own, target, 2 * PARTITIONS).rows,
        "export": lambda target: state_store.export(own, target),
        "verify": lambda _: sum(verdict.keys for verdict in state_store.verify(own, stores=1).verdicts),
    }
    seconds: dict[str, list[float]] = {name: [] for name in (*tools, _SPARKS)}
    for turn in range(turns):
        for name, tool in tools.items():
            target = root / f"{name}-{turn}"
            began_s = _own_cpu_s()
            found = tool(target)
            seconds[name].append(_own_cpu_s() - began_s)
            if found != rows:
                raise SystemExit(f"{name} found {found} rows of {rows}")
            shutil.rmtree(target, ignore_errors=True)
        target = Path(shutil.copytree(sparks, root / f"sparks-{turn}"))
        began_s = _jvm_cpu_s(spark)
        spark._jsparkSession.sessionState().streamingCheckpointManager().repartition(  # type: ignore[operator]
            str(target), 2 * PARTITIONS, False
        )
        seconds[_SPARKS].append(_jvm_cpu_s(spark) - began_s)
        shutil.rmtree(target)
    least = {name: min(some) for name, some in seconds.items()}
    return {
        "rows": rows,
        "cpu_s": {name: round(some, 2) for name, some in least.items()},
        "ratio": {name: round(least[_SPARKS] / some, 2) for name, some in least.items()},
    }


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _jvm_cpu_s(spark: SparkSession) -> float:
    """Return the CPU time of the session's JVM."""
    process = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config(map=state_store.spark_conf())
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", PARTITIONS)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _make(spark: SparkSession, checkpoint: Path, rows: int, provider: str | None) -> None:
    """Run a batch with this many keys, whose state a provider keeps."""
    assert provider is not None
    spark.conf.set(_PROVIDER, provider)
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=2)
    query = (
        _aggregated(source.load())
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .trigger(processingTime="1 hour")
        .start()
    )
    while query.isActive and not (checkpoint / "commits" / "0").exists():
        query.awaitTermination(1)
    query.stop()


def _aggregated(source: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    keyed = source.selectExpr("format_string('customer-%010d', value) as id", "value * 3 as amount")
    return keyed.groupBy("id").agg(F.count("*"), F.sum("amount"), F.max(F.md5("id")))


if __name__ == "__main__":
    main()
