"""Measure the batches of a query of many stores with the tab "Checkpoints" and without it.

    python -m benchmarks.comparisons.observed_batches [--stores N] [--batches N] [--rounds N] [--json OUT]

Each query counts rows by key in as many shuffle partitions as there are stores, from a file of rows a batch.
It runs in a process of its own, with Spark's UI and an event log, on two threads; those without the tab lack
the listener that `spark_conf()` sets, and so nobody listens to reports. The kinds take turns, and change the
order in each round. Figures are medians of the batches: milliseconds of the batch, and CPU milliseconds of
the JVM, driver and executor in one; and the bytes that a batch adds to the event log.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.environment import spark_sessions

WITH, WITHOUT = "with the tab", "without the tab"
WARM = 2
"""First batches of a query that do not count."""

_LISTENERS = "spark.sql.streaming.streamingQueryListeners"
_EVENT = "StoresReported"

Runs = Mapping[str, list[dict[str, Any]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stores", type=int, default=1_000, help="stores of the query; default: 1000")
    parser.add_argument("--batches", type=int, default=5, help="batches that count, a query; default: 5")
    parser.add_argument("--rounds", type=int, default=2, help="queries of each kind; default: 2")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--query", choices=(WITH, WITHOUT), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.query:
        print(json.dumps(run(options.query, options.stores, options.batches)))
        return
    runs_by_kind = measure(options.stores, options.batches, options.rounds)
    if options.json:
        options.json.write_text(json.dumps(runs_by_kind, indent=1), encoding="utf-8")
    print(table(runs_by_kind))


def measure(stores: int, batches: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Return what the queries of each kind measured, by kind."""
    runs_by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for turn in range(rounds):
        for kind in (WITH, WITHOUT) if turn % 2 == 0 else (WITHOUT, WITH):
            command = [sys.executable, "-m", __spec__.name, "--query", kind]
            command += ["--stores", str(stores), "--batches", str(batches)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            runs_by_kind[kind].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{kind}: {runs_by_kind[kind][-1]}", file=sys.stderr, flush=True)
    return runs_by_kind


def table(runs_by_kind: Runs) -> str:
    """Return the figures as Markdown, a line for each kind of query."""
    lines = ["| | ms a batch | each query | CPU ms a batch | each query | bytes of events a batch |"]
    lines.append("|---" * 6 + "|")
    for kind, runs in runs_by_kind.items():
        cells = [kind]
        for figure in ("ms", "cpu_ms"):
            medians = [statistics.median(run[figure]) for run in runs]
            cells += [f"{statistics.median(medians):,.0f}", ", ".join(f"{value:,.0f}" for value in medians)]
        cells.append(f"{statistics.median(size for run in runs for size in run['event_bytes'] or [0]):,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def run(kind: str, stores: int, batches: int) -> dict[str, Any]:
    """Run a query, and return the milliseconds of its batches, and the bytes of the store's events."""
    import state_store

    with tempfile.TemporaryDirectory(prefix="observed-batches-") as name:
        room = Path(name)
        (room / "events").mkdir()
        conf = state_store.spark_conf()
        if kind == WITHOUT:
            del conf[_LISTENERS]
        conf |= {
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.driver.memory": "2g",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{room}/events",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.local.dir": str(room / "local"),
            "spark.sql.shuffle.partitions": str(stores),
        }
        spark = spark_sessions.local(conf)
        figures = _run(spark, room, stores, batches)
        spark.stop()
        events = [line for log in (room / "events").iterdir() for line in log.read_bytes().splitlines()]
        figures["event_bytes"] = [len(event) for event in events if _EVENT.encode() in event[:200]][WARM:]
        return figures


def _run(spark: Any, room: Path, stores: int, batches: int) -> dict[str, Any]:
    (room / "rows").mkdir()
    rows = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1).json(str(room / "rows"))
    writer = rows.groupBy("k").count().writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(room / "checkpoint")).start()
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    times: dict[str, Any] = {"ms": [], "cpu_ms": []}
    for batch in range(WARM + batches):
        before_ms = _cpu_ms(jvm)
        lines = (json.dumps({"k": batch * stores + row}) for row in range(stores))
        (room / "unfinished").write_text("\n".join(lines), encoding="utf-8")
        (room / "unfinished").rename(room / "rows" / f"{batch:05}.json")
        query.processAllAvailable()
        if batch >= WARM:
            times["ms"].append(query.lastProgress["durationMs"]["triggerExecution"])
            times["cpu_ms"].append(_cpu_ms(jvm) - before_ms)
    query.stop()
    return times


def _cpu_ms(pid: int) -> float:
    """Return the CPU time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
