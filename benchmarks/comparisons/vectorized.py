"""Measure `applyInPandasWithState` as Spark runs it and in this project's forms, side by side in one run.

    python -m benchmarks.comparisons.vectorized --json OUT [--quick]
        [--stores hdfs,rocksdb-changelog,incremental]

Every form runs the same batches of the same data through its own query. The forms take turns: in a turn a
query is started and runs a few batches. The figures of a batch are the time of its whole trigger and the CPU
time of its query. The first batch of each turn does not count, because it compiles the plan, opens the store
and starts the workers, which a running query does once. The first turn does not count either: in it the JVM
compiles the code of forms with short batches. Slow forms run fewer batches, between two turns of the fast
ones.

The content is checked: outputs by a checksum of every batch, and all states, row by row, after the last batch
that all forms have run. A difference makes the run fail. Only the ratios of one run mean anything, because
the machine's load is the same in all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming import StreamingQueryListener

from benchmarks.environment import spark_sessions
from state_store.functions import GROUP, Result, accelerate, per_group, vectorized

STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb-changelog": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "incremental": "org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider",
}
# The default manager starts a process for every file that it writes to a local disk, three or four a batch.
_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_FIRST_FILE_S = 1_700_000_000  # Spark reads files in the order of their times
OUTPUT = "k string, n long, s double"
STATE = "n long, s double"


def frames(key: Any, pdfs: Any, state: Any) -> Any:
    """Count and sum a group's rows, a call for each group."""
    n, s = state.get if state.exists else (0, 0.0)
    for pdf in pdfs:
        n += len(pdf)
        s += float(pdf["v"].sum())
    state.update((n, s))
    yield pd.DataFrame({"k": [key[0]], "n": [n], "s": [s]})


def plain_rows(key: Any, rows: Any, state: Any) -> Any:
    """Count and sum a group's plain rows, a call for each group."""
    n, s = state.get if state.exists else (0, 0.0)
    for row in rows:
        n += 1
        s += row.v
    state.update((n, s))
    yield key.k, n, s


def many_groups(rows: pa.Table, states: pa.Table, context: Any) -> Result:
    """Count and sum the rows of all groups of a call, in numpy."""
    group, groups = rows[GROUP].to_numpy(), states.num_rows
    n = np.bincount(group, minlength=groups) + states["n"].fill_null(0).to_numpy()
    s = (
        np.bincount(group, weights=rows["v"].to_numpy(), minlength=groups)
        + states["s"].fill_null(0).to_numpy()
    )
    new = pa.table({"n": n, "s": s})
    return Result(output=pa.table({"k": states["k"], "n": n, "s": s}), state=new)


def python_loop(rows: pa.Table, states: pa.Table, context: Any) -> Result:
    """Count and sum the rows of all groups of a call in a loop of Python.

    The loop shows the cost of a vectorised function without vectors.
    """
    n = [v or 0 for v in states["n"].to_pylist()]
    s = [v or 0.0 for v in states["s"].to_pylist()]
    for group, value in zip(rows[GROUP].to_pylist(), rows["v"].to_pylist(), strict=True):
        n[group] += 1
        s[group] += value
    return Result(output=pa.table({"k": states["k"], "n": n, "s": s}), state=pa.table({"n": n, "s": s}))


FORMS: dict[str, Callable[[], Any]] = {
    "stock": lambda: frames,
    "vectorized": lambda: vectorized(many_groups),
    "loop": lambda: vectorized(python_loop),
    "per_group": lambda: per_group(plain_rows),
    "accelerate": lambda: accelerate(frames),
}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Batches with `rows` rows of each of `groups` groups, drawn from `keys` keys.

    `turns` has the number of batches in each turn of a form; the first turn does not count.
    """

    name: str
    groups: int
    rows: int
    keys: int
    turns: dict[str, tuple[int, ...]]
    partitions: int = 2


STANDARD = (
    Scenario("small", 100, 2, 1_000, dict.fromkeys(("vectorized", "stock", "accelerate"), (4, 4))),
    Scenario(
        "flights",
        44_000,
        2,
        60_000,
        {"vectorized": (5, 5, 5), "per_group": (0, 4), "accelerate": (0, 2), "stock": (0, 2), "loop": (0, 3)},
    ),
    Scenario("million", 1_000_000, 1, 1_200_000, {"vectorized": (0, 2)}),
)
QUICK = (
    Scenario(
        "flights",
        1_000,
        2,
        1_500,
        dict.fromkeys(("vectorized", "per_group", "accelerate", "stock", "loop"), (0, 2)),
    ),
)


def batch(scenario: Scenario, number: int) -> pa.Table:
    """Return a batch of input: `k` (text) and `v` (a whole number as double, so that sums are exact)."""
    random = np.random.default_rng(1000 + number)
    chosen_keys = random.choice(scenario.keys, scenario.groups, replace=False)
    keys = np.repeat(chosen_keys, scenario.rows)
    random.shuffle(keys)
    names = pa.array([f"N{key:07d}" for key in keys])
    return pa.table({"k": names, "v": random.integers(0, 1000, len(keys)).astype(float)})


def cpu_seconds() -> float:
    """Return the CPU time of this process and all its descendants: driver, JVM and Python workers."""
    parents, times = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # the process has ended meanwhile
            continue
        pid = int(stat.parent.name)
        parents[pid], times[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    family, grown = {os.getpid()}, True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in family} - family
        family |= children
        grown = bool(children)
    return sum(times.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


class CpuTimes(StreamingQueryListener):
    """Listener that keeps the CPU time at the end of each batch, by run of a query and batch."""

    def __init__(self) -> None:
        self.until: dict[tuple[str, int], float] = {}

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        self.until[str(event.progress.runId), event.progress.batchId] = cpu_seconds()

    def onQueryTerminated(self, event: Any) -> None:
        pass


class Query:
    """A form of the query on a store, with its own checkpoint."""

    def __init__(self, spark: Any, cpu: CpuTimes, directory: Path, store: str, form: str) -> None:
        self._spark = spark
        self._cpu = cpu
        self._source = directory / "source"
        self._checkpoint = directory / "checkpoint"
        self._source.mkdir(parents=True)
        self.store = store
        self.form = form
        self.checksums: list[Any] = []
        self._measured: list[tuple[Any, float]] = []

    def run(self, batches: list[Path], counts: bool) -> None:
        """Run `batches`, which follow those of earlier turns."""
        for path in batches:
            (self._source / path.name).hardlink_to(path)
        query = self._started()
        query.awaitTermination()
        reports = [report for report in query.recentProgress if report.numInputRows]
        assert len(reports) == len(batches), f"{len(reports)} reports of {len(batches)} batches"
        if self.form == "stock":
            for metrics in (report.stateOperators[0].customMetrics for report in reports):
                assert not metrics.get("replacedOperatorTasks"), "Spark's operator was replaced"
        self.checksums += [tuple(report.observedMetrics["content"]) for report in reports]
        if counts:
            until = [self._cpu_until(report) for report in reports]
            cpu_times = [after - before for before, after in itertools.pairwise(until)]
            self._measured += zip(reports[1:], cpu_times, strict=True)

    def _use_store(self) -> None:
        options = "spark.sql.streaming.stateStore."
        self._spark.conf.set(options + "providerClass", STORES[self.store])
        # Spark's HDFS-backed store has only format 1; the other two are measured with format 2.
        self._spark.conf.set(options + "checkpointFormatVersion", "1" if self.store == "hdfs" else "2")

    def _started(self) -> Any:
        from pyspark.sql import functions as F

        self._use_store()
        reader = self._spark.readStream.schema("k string, v double").option("maxFilesPerTrigger", 1)
        frame = reader.parquet(str(self._source)).groupBy("k")
        total = F.sum(F.xxhash64("k", "n", "s").cast("decimal(38,0)"))
        return (
            frame.applyInPandasWithState(FORMS[self.form](), OUTPUT, STATE, "update", "NoTimeout")
            .observe("content", F.count(F.lit(1)), total)
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def _cpu_until(self, report: Any) -> float:
        deadline = time.monotonic() + 300
        while (end := self._cpu.until.get((str(report.runId), report.batchId))) is None:
            assert time.monotonic() < deadline, f"no progress was reported of batch {report.batchId}"
            time.sleep(0.01)
        return end

    def state(self, batch_id: int) -> Any:
        """Return the state after a batch as (key, n, s), sorted by key."""
        self._use_store()
        reader = self._spark.read.format("statestore").option("batchId", batch_id)
        rows = reader.load(str(self._checkpoint)).selectExpr("key.k as k", "value.groupState.*")
        return rows.toPandas().sort_values("k", ignore_index=True)

    def figures(self) -> dict[str, Any]:
        """Return milliseconds and CPU seconds of the batches that count."""
        reports = [report for report, _ in self._measured]
        cpu_s = [round(seconds, 2) for _, seconds in self._measured]
        triggers_ms = [report.durationMs["triggerExecution"] for report in reports]
        states = [report.stateOperators[0] for report in reports]
        return {
            "store": self.store,
            "form": self.form,
            "batch_ms": triggers_ms,
            "median_ms": statistics.median(triggers_ms),
            "cpu_s": cpu_s,
            "median_cpu_s": statistics.median(cpu_s),
            "add_batch_ms": [report.durationMs["addBatch"] for report in reports],
            "updates_ms": [state.allUpdatesTimeMs for state in states],
            "commit_ms": [state.commitTimeMs for state in states],
        }


def run_scenario(
    spark: Any, cpu: CpuTimes, scenario: Scenario, stores: list[str], directory: Path
) -> dict[str, Any]:
    """Run all forms on all stores in turns, and compare their outputs and states."""
    spark.conf.set("spark.sql.shuffle.partitions", str(scenario.partitions))
    batches = write_batches(scenario, directory / "batches")
    queries = [
        Query(spark, cpu, directory / f"{store}-{form}", store, form)
        for store in stores
        for form in scenario.turns
    ]
    for turn in range(max(map(len, scenario.turns.values()))):
        for query in queries if turn % 2 else reversed(queries):
            turns = scenario.turns[query.form]
            if turn < len(turns) and turns[turn]:
                started, done = time.monotonic(), sum(turns[:turn])
                query.run(batches[done : done + turns[turn]], counts=turn > 0)
                print(
                    f"{scenario.name} turn {turn} {query.store} {query.form}: "
                    f"{time.monotonic() - started:.1f} s for {turns[turn]} batches",
                    file=sys.stderr,
                    flush=True,
                )
    figures = [query.figures() for query in queries]
    return {
        **dataclasses.asdict(scenario),
        "measurements": figures,
        "ratios": ratios(figures),
        "content_equal": content_equal(queries),
    }


def write_batches(scenario: Scenario, directory: Path) -> list[Path]:
    """Write the batches of the form with the most, a file each, in the order in which Spark reads them."""
    directory.mkdir(parents=True)
    files = []
    for number in range(max(map(sum, scenario.turns.values()))):
        files.append(directory / f"{number:05d}.parquet")
        pq.write_table(batch(scenario, number), files[-1])
        os.utime(files[-1], (_FIRST_FILE_S + number,) * 2)
    return files


def content_equal(queries: list[Query]) -> bool:
    """Return True if all queries have the same outputs, in the batches that all ran, and the same states."""
    longest = max((query.checksums for query in queries), key=len)
    common = min(len(query.checksums) for query in queries)
    first, *others = queries
    state = first.state(common - 1)
    return all(q.checksums == longest[: len(q.checksums)] for q in queries) and all(
        q.state(common - 1).equals(state) for q in others
    )


def ratios(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each form's speed and CPU time on a store as multiples of those of Spark's form."""
    stock = {f["store"]: f for f in figures if f["form"] == "stock"}
    return [
        {
            "store": f["store"],
            "form": f["form"],
            "times_stock": round(stock[f["store"]]["median_ms"] / f["median_ms"], 2),
            "times_stock_cpu": round(stock[f["store"]]["median_cpu_s"] / max(f["median_cpu_s"], 0.01), 2),
        }
        for f in figures
        if f["form"] != "stock" and f["store"] in stock
    ]


def session(directory: Path) -> Any:
    """Return a local session on two cores with the extension and, if its jar is there, this store."""
    from state_store.session.configuration import spark_conf

    options = {
        **spark_conf(),
        "spark.driver.memory": "2g",
        "spark.local.dir": str(directory),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
        # An unmarked function stays on Spark's own operator, which the others are compared with.
        "spark.sql.streaming.stateStore.incremental.vectorized.accelerate": "false",
    }
    return spark_sessions.local(options)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparisons.vectorized", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="file for the result")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that everything works")
    parser.add_argument("--stores", default=",".join(STORES), help="stores to run (default: %(default)s)")
    parser.add_argument("--scenarios", help="scenarios to run (default: all)")
    options = parser.parse_args(arguments)
    names = options.scenarios.split(",") if options.scenarios else None
    scenarios = [s for s in (QUICK if options.quick else STANDARD) if names is None or s.name in names]
    with tempfile.TemporaryDirectory(prefix="vectorized-benchmark-") as temporary:
        spark = session(Path(temporary))
        try:
            cpu = CpuTimes()
            spark.streams.addListener(cpu)
            results = [
                run_scenario(spark, cpu, s, options.stores.split(","), Path(temporary) / s.name)
                for s in scenarios
            ]
            versions = {
                "spark": spark.version,
                "python": platform.python_version(),
                "pyarrow": pa.__version__,
            }
        finally:
            spark.stop()
    machine = {"cpus": os.cpu_count(), "platform": platform.platform(), "load": os.getloadavg()}
    options.json.write_text(
        json.dumps({"machine": machine, "versions": versions, "scenarios": results}, indent=2)
    )
    for result in results:
        print_result(result)
    return 0 if all(result["content_equal"] for result in results) else 1


def print_result(result: dict[str, Any]) -> None:
    print(f"\n{result['name']}: {result['groups']} groups of {result['rows']} rows")
    times = {(r["store"], r["form"]): r for r in result["ratios"]}
    for m in result["measurements"]:
        ratio = times.get((m["store"], m["form"]))
        faster = f" {ratio['times_stock']:8.1f}x {ratio['times_stock_cpu']:8.1f}x CPU" if ratio else ""
        print(f"  {m['store']:18} {m['form']:12} {m['median_ms']:9.0f} ms {m['median_cpu_s']:7.2f} s{faster}")
    print("  content " + ("equal" if result["content_equal"] else "DIFFERENT"))


if __name__ == "__main__":
    sys.exit(main())
