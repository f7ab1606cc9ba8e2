"""Measure processors of `transformWithState` in Spark's own worker and in batches, side by side in one run.

    python -m benchmarks.comparisons.processor_forms --json OUT [--quick] [--cases value,pandas]
        [--stores rocksdb-changelog,incremental] [--groups 20000] [--batches 4] [--warm 12] [--settle 80]

Each case is a processor that uses one kind of state; `none` uses none, and shows the rest of a batch. The
same processor runs the same batches in both forms, which take turns query by query. The figure of a batch is
the time of its whole trigger, and the CPU time of the session's processes. The first batch of a query does
not count as warm; it has a separate figure. Before all cases each form runs `--settle` small batches, and
before its turn a query of `--warm` small batches, that do not count: the JVM compiles the code of Spark's
driver during the first hundred batches, on the cores that the batches need. Outputs of every batch, and the
states after the last, are compared; a difference makes the run fail. Only the ratios of one run mean
anything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import state_store
from benchmarks.comparisons.vectorized import _FIRST_FILE_S, STORES, cpu_seconds, session

OUTPUT = "k string, n long"
BATCHED = "spark.sql.streaming.stateStore.incremental.vectorized.processors"
HOUR_MS = 3_600_000
WARM_GROUPS = 2000


class Rows(StatefulProcessor):
    """Processor that counts a group's rows; `count` keeps state as a subclass needs it."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield Row(k=key[0], n=self.count(list(rows), timerValues))

    def count(self, rows: list[Any], times: Any) -> int:
        """Return the number that the group shows."""
        return len(rows)

    def close(self) -> None:
        pass


class Value(Rows):
    """Processor with a value that is read and written."""

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long", self.ttl_ms)

    def count(self, rows: list[Any], times: Any) -> int:
        n = len(rows) + (self.total.get()[0] if self.total.exists() else 0)
        self.total.update((n,))
        return n


class Aging(Value):
    """Processor with a value that has a time to live."""

    ttl_ms = HOUR_MS


class Lists(Rows):
    """Processor with a list that grows and is read."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getListState("seen", "v double")

    def count(self, rows: list[Any], times: Any) -> int:
        self.seen.appendList([(row.v,) for row in rows])
        return sum(1 for _ in self.seen.get())


class Maps(Rows):
    """Processor with a map of which two entries are read and written."""

    def init(self, handle: Any) -> None:
        self.counts = handle.getMapState("counts", "i long", "n long")

    def count(self, rows: list[Any], times: Any) -> int:
        total = 0
        for row in rows:
            key = (int(row.v) % 5,)
            before = self.counts.getValue(key)
            n = 1 + (before[0] if before is not None else 0)
            self.counts.updateValue(key, (n,))
            total += n
        return total


class Timers(Rows):
    """Processor with a timer that is moved; none is due."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def count(self, rows: list[Any], times: Any) -> int:
        count = 0
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
            count += 1
        self.handle.registerTimer(times.getCurrentProcessingTimeInMs() + 24 * HOUR_MS)
        return count


class Frames(Value):
    """Processor with a value, in pandas."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = sum(len(frame) for frame in rows) + (self.total.get()[0] if self.total.exists() else 0)
        self.total.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})


@state_store.vectorized
class Tables(StatefulProcessor):
    """Processor with a value, of many groups at a time; stock runs `Frames` in its place."""

    def init(self, handle: Any) -> None:
        handle.getValueState("total", "n long")

    def handle(self, keys: Any, rows: Any, state: Any) -> Any:
        """Count the rows of each group."""
        sizes = np.bincount(rows["__group"].to_numpy(), minlength=keys.num_rows)
        n = pa.array(sizes + state.total.table()["n"].fill_null(0).to_numpy())
        state.total.update(pa.table({"n": n}))
        return pa.table({"k": keys["k"], "n": n})


CASES: dict[str, tuple[Any, str, list[str]]] = {
    "none": (Rows, "None", []),
    "value": (Value, "None", ["total"]),
    "ttl": (Aging, "processingTime", []),
    "list": (Lists, "None", ["seen"]),
    "map": (Maps, "None", ["counts"]),
    "timers": (Timers, "processingTime", []),
    "pandas": (Frames, "None", ["total"]),
    "vectorized": (Tables, "None", ["total"]),
}
STOCK = {"vectorized": Frames}
"""Processors that stock runs in another's place, to the same end."""


def write_batches(groups: int, batches: int, directory: Path) -> Path:
    """Write batches of two rows of each of `groups` keys, a file each."""
    directory.mkdir(parents=True)
    for number in range(batches):
        random = np.random.default_rng(1000 + number)
        keys = np.repeat(random.choice(groups + groups // 4, groups, replace=False), 2)
        random.shuffle(keys)
        values = random.integers(0, 1000, len(keys)).astype(float)
        path = directory / f"{number:05d}.parquet"
        pq.write_table(pa.table({"k": [f"N{key:07d}" for key in keys], "v": values}), path)
        os.utime(path, (_FIRST_FILE_S + number,) * 2)
    return directory


class CpuTimes(threading.Thread):
    """Thread that keeps the CPU time at the end of each batch of a query.

    It watches the files of the checkpoint. A listener of queries costs 50 ms of CPU a batch in the JVM.
    """

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(daemon=True)
        self.until: list[float] = []
        self._commits = checkpoint / "commits"
        self._has_ended = threading.Event()

    def run(self) -> None:
        while not self._has_ended.wait(0.005):
            self._look()
        self._look()

    def _look(self) -> None:
        if (self._commits / str(len(self.until))).exists():
            self.until.append(cpu_seconds())

    def ended(self) -> list[float]:
        """Return the CPU time at the end of each batch of a query that has ended, in seconds."""
        self._has_ended.set()
        self.join()
        return self.until


def run(spark: Any, case: str, source: Path, checkpoint: Path, batched: bool) -> dict[str, Any]:
    """Run one query; return its figures, its outputs and its states."""
    from pyspark.sql import functions as F

    processor, time_mode, variables = CASES[case]
    if not batched:
        processor = STOCK.get(case, processor)
    spark.conf.set(BATCHED, str(batched).lower())
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    frame = spark.readStream.schema("k string, v double").option("maxFilesPerTrigger", 1).parquet(str(source))
    groups = frame.groupBy("k")
    method = (
        groups.transformWithStateInPandas if case in ("pandas", "vectorized") else groups.transformWithState
    )
    total = F.sum(F.xxhash64("k", "n").cast("decimal(38,0)"))
    cpu = CpuTimes(checkpoint)
    cpu.start()
    query = (
        method(processor(), OUTPUT, "update", time_mode)
        .observe("content", F.count(F.lit(1)), total)
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    until = cpu.ended()
    reports = [report for report in query.recentProgress if report.numInputRows]
    triggers_ms = [report.durationMs["triggerExecution"] for report in reports]
    assert len(until) == len(reports), f"{len(until)} times of {len(reports)} batches"
    cpu_times = [round(after - before, 2) for before, after in itertools.pairwise(until)]
    content = [tuple(report.observedMetrics["content"]) for report in reports]
    for name in variables:
        read = spark.read.format("statestore").option("stateVarName", name)
        if case in ("list", "map"):
            read = read.option("flattenCollectionTypes", "true")
        table = read.load(str(checkpoint)).drop("partition_id")
        hashed = F.sum(F.xxhash64(F.to_json(F.struct(*table.columns))).cast("decimal(38,0)"))
        content.append(tuple(table.agg(F.count(F.lit(1)), hashed).first()))
    return {
        "first_ms": triggers_ms[0],
        "batch_ms": triggers_ms[1:],
        "median_ms": statistics.median(triggers_ms[1:]),
        "cpu_s": cpu_times,
        "median_cpu_s": statistics.median(cpu_times),
        "content": content,
    }


def compare(
    spark: Any, case: str, store: str, groups: int, batches: int, root: Path, warm: int = 0
) -> dict[str, Any]:
    """Run a case on a store in both forms; return the figures and their ratios.

    Each form runs a query of `warm` small batches first, which does not count.
    """
    options = "spark.sql.streaming.stateStore."
    spark.conf.set(options + "providerClass", STORES[store])
    spark.conf.set(options + "checkpointFormatVersion", "2")
    source = root / f"source-{groups}"
    if not source.exists():
        write_batches(groups, batches, source)
    warming = root / f"warming-{warm}"
    if warm and not warming.exists():
        write_batches(WARM_GROUPS, warm, warming)
    figures = {}
    for form in ("batched", "stock"):
        if warm:
            run(spark, case, warming, root / f"{case}-{store}-{form}-{groups}-warm", form == "batched")
        figures[form] = run(spark, case, source, root / f"{case}-{store}-{form}-{groups}", form == "batched")
    stock, ours = figures["stock"], figures["batched"]
    equal = stock.pop("content") == ours.pop("content")
    return {
        "case": case,
        "store": store,
        "groups": groups,
        **figures,
        "us_a_group": round(ours["median_ms"] * 1000 / groups, 1),
        "stock_us_a_group": round(stock["median_ms"] * 1000 / groups, 1),
        "times_stock": round(stock["median_ms"] / ours["median_ms"], 2),
        "times_stock_cpu": round(stock["median_cpu_s"] / max(ours["median_cpu_s"], 0.01), 2),
        "first_times_stock": round(stock["first_ms"] / ours["first_ms"], 2),
        "content_equal": equal,
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the cases that the command line asks for; return 1 if outputs or states differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparisons.processor_forms")
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="file for the result")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that everything works")
    parser.add_argument("--stores", default="rocksdb-changelog,incremental")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--groups", default="20000,100", help="groups of a batch; several sizes with commas")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--warm", type=int, default=12, help="small batches before the turn of each form")
    parser.add_argument("--settle", type=int, default=80, help="small batches of each form before all cases")
    options = parser.parse_args(arguments)
    sizes = [200] if options.quick else [int(size) for size in options.groups.split(",")]
    results = []
    with tempfile.TemporaryDirectory(prefix="processor-forms-") as temporary:
        spark = session(Path(temporary))
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        try:
            warm = Path(temporary) / "warm"
            settling = 2 if options.quick else options.settle
            compare(spark, "value", options.stores.split(",")[0], WARM_GROUPS, settling, warm)
            for groups, store, case in itertools.product(
                sizes, options.stores.split(","), options.cases.split(",")
            ):
                runs = Path(temporary) / "runs"
                warm_batches = 2 if options.quick else options.warm
                result = compare(spark, case, store, groups, options.batches, runs, warm_batches)
                results.append(result)
                print(
                    f"{groups:6} groups {store:18} {case:10} {result['stock_us_a_group']:8.1f} -> "
                    f"{result['us_a_group']:7.1f} us a group, {result['times_stock']:6.1f}x "
                    f"{result['times_stock_cpu']:6.1f}x CPU, first batch {result['first_times_stock']:5.1f}x",
                    "equal" if result["content_equal"] else "DIFFERENT",
                    flush=True,
                )
        finally:
            spark.stop()
    options.json.write_text(json.dumps({"load": os.getloadavg(), "results": results}, indent=2))
    return 0 if all(result["content_equal"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
