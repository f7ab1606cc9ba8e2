"""Measures the fixed cost of a batch: 200 rows in an aggregation, by Spark's stores and managers of files.

    python -m benchmarks.comparisons.small_batches [--batches N] [--rounds N] [--storage PLACE] [--json OUT]

Queries read a file of rows in each batch, with Spark's HDFS-backed store, with its RocksDB store, and with
this store, each with Spark's manager of checkpoint files and with this one's. They run one after the other,
in turns, on two threads of one JVM, with checkpoints below `TMPDIR`, on HDFS (Hadoop's mini cluster, without
added latency), or on S3 (S3Proxy, whose clients wait 20 ms before each request). A figure is the median of a
batch, in milliseconds, by the parts of Spark's progress; only ratios within a run count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.environment import s3_service
from benchmarks.scenarios import services

ROWS, KEYS = 200, 1_000
WARM = 5
"""First batches of a query that do not count."""

STORAGES = ("local", "hdfs", "s3")
PARTS = ("triggerExecution", "addBatch", "walCommit", "commitOffsets", "latestOffset", "queryPlanning")
_STATE = "org.apache.spark.sql.execution.streaming.state."
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_SESSION = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=40, help="batches of a query; default: 40")
    parser.add_argument("--rounds", type=int, default=3, help="queries of each kind; default: 3")
    parser.add_argument("--storage", choices=STORAGES, default="local", help="place of the checkpoints")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    asked = parser.parse_args()
    with _storage(asked.storage) as (root, conf):
        found = measure(asked.batches, asked.rounds, root, conf)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(table(found))


@contextlib.contextmanager
def _storage(place: str) -> Iterator[tuple[str | None, dict[str, str]]]:
    """Yield the root of checkpoints (None: a local directory), and the configuration of a session."""
    with tempfile.TemporaryDirectory(prefix="small-batches-storage-") as out, contextlib.ExitStack() as stack:
        if place == "hdfs":
            yield stack.enter_context(services.hdfs(Path(out))) + "/small-batches", {}
        elif place == "s3":
            properties = stack.enter_context(services.s3(Path(out)))
            conf = {f"spark.hadoop.{name}": value for name, value in properties.items()}
            conf["spark.driver.extraClassPath"] = os.pathsep.join(map(str, s3_service.client_jars()))
            yield f"s3a://{s3_service.BUCKET}/small-batches", conf
        else:
            yield None, {}


def measure(
    batches: int, rounds: int, root: str | None = None, storage_conf: Mapping[str, str] | None = None
) -> dict[str, dict[str, float]]:
    """Return the median milliseconds of a batch by the kind of query and the part of the batch."""
    from pyspark.sql import SparkSession

    import state_store

    own = state_store.spark_conf()
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map={**own, **_SESSION, **(storage_conf or {})})
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    stores = {
        "HDFS-backed store": (_STATE + "HDFSBackedStateStoreProvider", "1"),
        "RocksDB store": (_STATE + "RocksDBStateStoreProvider", "2"),
        "this store": (own[_PROVIDER], own[_FORMAT]),
    }
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="small-batches-") as room:
        rows = _write_rows(Path(room) / "rows", batches)
        for turn in range(rounds):
            for store, (provider, format_) in stores.items():
                for manager, name in (("", "Spark's files"), (own[_MANAGER], "these files")):
                    conf = {_PROVIDER: provider, _FORMAT: format_, _MANAGER: manager}
                    checkpoint = f"{root or room}/{turn} {store} {name}".replace(" ", "-").replace("'", "")
                    for progress in _run(spark, conf, rows, checkpoint)[WARM:]:
                        for part in PARTS:
                            times[f"{store}, {name}"][part].append(progress["durationMs"][part])
        spark.stop()
    return {
        kind: {part: statistics.median(values) for part, values in parts.items()}
        for kind, parts in times.items()
    }


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the figures as Markdown, a line for each kind of query."""
    lines = ["| | " + " | ".join(PARTS) + " |", "|---" * (len(PARTS) + 1) + "|"]
    for kind, parts in found.items():
        lines.append(f"| {kind} | " + " | ".join(f"{parts[part]:.0f}" for part in PARTS) + " |")
    return "\n".join(lines)


def _write_rows(directory: Path, batches: int) -> Path:
    directory.mkdir()
    for batch in range(batches):
        lines = (json.dumps({"k": (batch * 37 + row * 7) % KEYS, "v": row}) for row in range(ROWS))
        (directory / f"{batch:05}.json").write_text("\n".join(lines), encoding="utf-8")
    return directory


def _run(spark: Any, conf: Mapping[str, str], rows: Path, checkpoint: str) -> list[Any]:
    """Run a query to the end of the rows, and return the progress of its batches."""
    for key, value in conf.items():
        if value:
            spark.conf.set(key, value)
        else:
            spark.conf.unset(key)
    events = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).json(str(rows))
    writer = events.groupBy("k").count().writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


if __name__ == "__main__":
    main()
