"""Measures small batches of an aggregation by stores and managers of files, and the store's part of them.

    python -m benchmarks.comparisons.small_batches [--rows N] [--stores N] [--batches N] [--rounds N]
        [--storage PLACE] [--json OUT]

Queries read a file of rows in each batch, with Spark's HDFS-backed store, with its RocksDB store, and with
this store, each with Spark's manager of checkpoint files and with this one's. They run one after the other,
in turns, on two threads of one JVM, with checkpoints below `TMPDIR`, on HDFS (Hadoop's mini cluster, without
added latency), or on S3 (S3Proxy, whose clients wait 20 ms before each request). A figure is the median of a
batch, in milliseconds, by the parts of Spark's progress; only ratios within a run count. The trigger is 0: a
row that comes when a batch begins has its result after `triggerExecution`, and a row that just missed it
after two of them.

`commit` is the median over the batches of the median over the stores, and `longest` the longest of all, as
the tasks measure them ("time to commit changes"). `store` is the share of both cores that Spark's operator
spends with the store during a batch: its updates, removals and commits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import s3_service, spark_sessions
from benchmarks.scenarios import services

ROWS, STORES, KEYS = 200, 2, 1_000
CORES = 2
WARM = 5
"""First batches of a query that do not count."""

STORAGES = ("local", "hdfs", "s3")
PARTS = ("triggerExecution", "addBatch", "walCommit", "commitOffsets", "latestOffset", "queryPlanning")
_OPERATOR = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
_COMMIT_METRIC = "time to commit changes"
_MS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0}
_STATE = "org.apache.spark.sql.execution.streaming.state."
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_SESSION = {
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.ui.retainedExecutions": "100000",  # which have the times of commits
}
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of a batch; default: {ROWS}")
    parser.add_argument("--stores", type=int, default=STORES, help=f"stores of a query; default: {STORES}")
    parser.add_argument("--batches", type=int, default=40, help="batches of a query; default: 40")
    parser.add_argument("--rounds", type=int, default=3, help="queries of each kind; default: 3")
    parser.add_argument("--storage", choices=STORAGES, default="local", help="place of the checkpoints")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    with _storage(options.storage) as (root, conf):
        figures = measure(
            options.batches, options.rounds, root, conf, rows=options.rows, stores=options.stores
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    print(table(figures))


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
    batches: int,
    rounds: int,
    root: str | None = None,
    storage_conf: Mapping[str, str] | None = None,
    *,
    rows: int = ROWS,
    stores: int = STORES,
) -> dict[str, dict[str, float]]:
    """Return the figures of the table by the kind of query and the name of the column."""
    import state_store

    own = state_store.spark_conf()
    options = {**own, **_SESSION, **(storage_conf or {}), "spark.sql.shuffle.partitions": str(stores)}
    spark = spark_sessions.local(options, CORES)
    providers = {
        "HDFS-backed store": (_STATE + "HDFSBackedStateStoreProvider", "1"),
        "RocksDB store": (_STATE + "RocksDBStateStoreProvider", "2"),
        "this store": (own[_PROVIDER], own[_FORMAT]),
    }
    kinds: dict[str, list[_Batch]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="small-batches-") as room:
        files = _write_rows(Path(room) / "rows", batches, rows)
        for turn in range(rounds):
            turns = [
                (store, provider, format_, manager, name)
                for store, (provider, format_) in providers.items()
                for manager, name in (("", "Spark's files"), (own[_MANAGER], "these files"))
            ]
            for store, provider, format_, manager, name in turns if turn % 2 == 0 else reversed(turns):
                conf = {_PROVIDER: provider, _FORMAT: format_, _MANAGER: manager}
                checkpoint = f"{root or room}/{turn} {store} {name}".replace(" ", "-").replace("'", "")
                kinds[f"{store}, {name}"] += _run(spark, conf, files, checkpoint)[WARM:]
        spark.stop()
    return {kind: _figures(batches_of_kind) for kind, batches_of_kind in kinds.items()}


@dataclass(frozen=True)
class _Batch:
    """A batch: Spark's progress, and of the commits of its stores the median and the longest, in ms."""

    progress: Any
    commit_ms: float
    longest_ms: float

    @property
    def store_share(self) -> float:
        """The share of both cores that the operator spends with its stores."""
        spent_ms = sum(operator[name] for operator in self.progress["stateOperators"] for name in _OPERATOR)
        return float(spent_ms / CORES / self.progress["durationMs"]["triggerExecution"])


def _figures(batches: Sequence[_Batch]) -> dict[str, float]:
    durations = [batch.progress["durationMs"] for batch in batches]
    return {
        **{part: statistics.median(duration[part] for duration in durations) for part in PARTS},
        "commit": statistics.median(batch.commit_ms for batch in batches),
        "longest": max(batch.longest_ms for batch in batches),
        "store": statistics.median(batch.store_share for batch in batches),
    }


def table(figures_by_kind: Mapping[str, Mapping[str, float]]) -> str:
    """Return the figures as Markdown, a line for each kind of query; the last of them have a ratio of 1."""
    columns = (*PARTS, "commit", "longest")
    lines = ["| | " + " | ".join((*columns, "store", "ratio")) + " |", "|---" * (len(columns) + 3) + "|"]
    own = list(figures_by_kind.values())[-1]["triggerExecution"]
    for kind, figures in figures_by_kind.items():
        cells = [f"{figures[column]:.0f}" for column in columns]
        cells += [f"{figures['store']:.0%}", f"{figures['triggerExecution'] / own:.2f}"]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _write_rows(directory: Path, batches: int, rows: int) -> Path:
    directory.mkdir()
    keys = max(KEYS, 50 * rows)
    for batch in range(batches):
        lines = (json.dumps({"k": (batch * 37 + row * 7) % keys, "v": row}) for row in range(rows))
        (directory / f"{batch:05}.json").write_text("\n".join(lines), encoding="utf-8")
    return directory


def _run(spark: Any, conf: Mapping[str, str], rows: Path, checkpoint: str) -> list[_Batch]:
    """Run a query to the end of the rows, and return its batches."""
    for key, value in conf.items():
        if value:
            spark.conf.set(key, value)
        else:
            spark.conf.unset(key)
    events = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).json(str(rows))
    writer = events.groupBy("k").count().writeStream.outputMode("update").format("noop")
    before = spark._jsparkSession.sharedState().statusStore().executionsCount()
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    commits = _commits(spark, before)
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return [
        _Batch(progress, *times) for progress, times in zip(batches, commits[-len(batches) :], strict=True)
    ]


def _commits(spark: Any, before: int) -> list[tuple[float, float]]:
    """Return median and longest commit of the stores of each batch, from the metrics of the executions."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    figures = []
    for number in range(before, executions.size()):
        execution = executions.apply(number)
        metrics = execution.metrics()
        ids = [
            metrics.apply(index).accumulatorId()
            for index in range(metrics.size())
            if metrics.apply(index).name() == _COMMIT_METRIC
        ]
        values = store.executionMetrics(execution.executionId())
        for text in (values.get(accumulator) for accumulator in ids):
            if text.isDefined():
                figures.append(_median_and_longest(str(text.get())))
    return figures


def _median_and_longest(metric: str) -> tuple[float, float]:
    """Return both from the text of a metric: a heading, and `23 ms (1 ms, 3 ms, 7 ms ...)`."""
    values = metric.rpartition("\n")[2].partition("(")[2] or metric
    times = [float(number) * _MS[unit] for number, unit in re.findall(r"([\d.]+) (ms|s|m)\b", values)]
    return times[min(1, len(times) - 1)], times[-1]


if __name__ == "__main__":
    main()
