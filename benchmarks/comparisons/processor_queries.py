"""Measure whole queries with `transformWithState` on this store and on Spark's RocksDB with changelog.

    python -m benchmarks.comparisons.processor_queries [--json OUT] [--groups N] [--batches N]
        [--pandas-groups N]

Each key of a batch has a value, a list, a map and a timer that it moves. The stores take turns, query by
query, and must have the same output. A figure is the median, in milliseconds, over the batches of a query
except the first two: the whole trigger, and in it the operator's time for rows and for the commit, summed
over two partitions.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import state_store
from benchmarks.comparisons import processors
from benchmarks.environment import jvm, providers, spark_sessions

ROOT = Path(__file__).resolve().parents[2]
STORES = [providers.CHANGELOG, providers.INCREMENTAL]
SCHEMA = "key string, field long, n long"
OUTPUT = "key string, total long, entries long, fields long"
WARM_BATCHES = 2
DAY_MS = 24 * 3_600_000


class Customers(StatefulProcessor):
    """Processor like `scala/processors/Customers.scala`, in frames."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n long")
        self.entries = handle.getListState("entries", "n long")
        self.fields = handle.getMapState("fields", "field long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        frame = pd.concat(list(rows))
        total = (self.total.get()[0] if self.total.exists() else 0) + int(frame["n"].sum())
        self.total.update((total,))
        for field, n in zip(frame["field"].tolist(), frame["n"].tolist(), strict=True):
            self.entries.appendValue((n,))
            before = self.fields.getValue((field,))[0] if self.fields.containsKey((field,)) else 0
            self.fields.updateValue((field,), (before + n,))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + DAY_MS)
        entries = sum(1 for _ in self.entries.get())
        fields = sum(value[0] for _, value in self.fields.iterator())
        yield pd.DataFrame({"key": [key[0]], "total": [total], "entries": [entries], "fields": [fields]})


def in_scala(purchases: DataFrame) -> DataFrame:
    scala = purchases.sparkSession._jvm.statestore.benchmark.processors.Customers
    return DataFrame(scala.followed(purchases._jdf), purchases.sparkSession)


def in_pandas(purchases: DataFrame) -> DataFrame:
    grouped = purchases.groupBy("key")
    return grouped.transformWithStateInPandas(Customers(), OUTPUT, "update", "processingTime")


def measure(groups: int, pandas_groups: int, batches: int) -> list[dict[str, Any]]:
    """Return a figure for each query and store; raise RuntimeError if the outputs differ."""
    sources = processors.COMPARISON.sources
    jar = jvm.compiled_sources("processors", sources)
    figures = []
    with tempfile.TemporaryDirectory(prefix="state-store-queries-") as name:
        work = Path(name)
        spark = _session(work, jar)
        try:
            for query, size in ((in_scala, groups), (in_pandas, pandas_groups)):
                _write(work / query.__name__, size, batches)
                runs = [_run(spark, work, query, store) for store in STORES]
                if len({run.pop("content") for run in runs}) != 1:
                    raise RuntimeError(f"the outputs of {query.__name__} differ")
                figures += [{"query": query.__name__, "groups": size, **run} for run in runs]
        finally:
            spark.stop()
    return figures


def _session(work: Path, jar: Path) -> SparkSession:
    ours = state_store.spark_conf()
    options = {
        **ours,
        "spark.jars": f"{ours['spark.jars']},{jar}",
        "spark.driver.memory": "3g",
        "spark.local.dir": str(work / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    return spark_sessions.local(options)


def _write(directory: Path, groups: int, batches: int) -> None:
    """Write a file for each batch: a row for each of `groups` keys out of five times as many."""
    rng = random.Random(7)
    directory.mkdir()
    for number in range(batches):
        keys = rng.sample(range(5 * groups), groups)
        table = {
            "key": [f"customer-{key:08}" for key in keys],
            "field": [key % 7 + number % 2 for key in keys],
            "n": [number + key % 100 for key in keys],
        }
        path = directory / f"{number:03}.parquet"
        pq.write_table(pa.table(table), path)
        os.utime(path, (1_700_000_000 + number,) * 2)


def _run(spark: SparkSession, work: Path, query: Any, store: providers.Variant) -> dict[str, Any]:
    settings = {"spark.sql.streaming.stateStore.providerClass": store.provider, **store.conf}
    settings.setdefault("spark.sql.streaming.stateStore.checkpointFormatVersion", "1")
    directory = work / f"{query.__name__}-{store.name}"
    for name, value in settings.items():
        spark.conf.set(name, value.replace("{dir}", str(directory / "local")))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    writer = (
        query(stream.parquet(str(work / query.__name__))).writeStream.format("memory").outputMode("update")
    )
    writer = writer.queryName("output").option("checkpointLocation", str(directory / "checkpoint"))
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    progress = [json.loads(report.json) for report in running.recentProgress if report.numInputRows][
        WARM_BATCHES:
    ]
    table = spark.table("output")
    content = table.agg(F.count("*"), F.sum(F.xxhash64(*table.columns).cast("decimal(38,0)"))).first()
    spark.sql("drop view output")
    operator = [report["stateOperators"][0] for report in progress]
    return {
        "store": store.name,
        "batch": statistics.median(report["durationMs"]["triggerExecution"] for report in progress),
        "rows": statistics.median(report["allUpdatesTimeMs"] for report in operator),
        "commit": statistics.median(report["commitTimeMs"] for report in operator),
        "content": str(content),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparisons.processor_queries")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the figures")
    parser.add_argument("--groups", type=int, default=20_000, help="keys of a batch of the Scala query")
    parser.add_argument(
        "--pandas-groups", type=int, default=2_000, help="keys of a batch of the pandas query"
    )
    parser.add_argument("--batches", type=int, default=10)
    options = parser.parse_args()
    if providers.jar_for(pyspark.__version__) is None:
        sys.exit(f"there is no jar of the state store for Spark {pyspark.__version__}: run `make setup`")
    figures = measure(options.groups, options.pandas_groups, options.batches)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    for figure in figures:
        print(json.dumps(figure))


if __name__ == "__main__":
    main()
