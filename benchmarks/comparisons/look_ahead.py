"""Measure the first batch after a loss, with and without look-ahead, over storage that answers slowly.

    python -m benchmarks.comparisons.look_ahead [--keys 400000] [--changed 1000] [--request-ms 20]
        [--operators aggregation,deduplication,groups,join] [--turns 2] [--json OUT]

A query makes a state of `keys` keys with 200 random bytes each, and stops after a full checkpoint. Then, in a
process of its own for each figure, a copy of its checkpoint goes on without local files, lazily, with a batch
that changes some keys. Requests wait as `scala/driver/DelayedFileSystem.scala` says. The figures are the
milliseconds of that batch, medians over turns, and its rows are compared with each other.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.environment import slow_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MODULE = "benchmarks.comparisons.look_ahead"
_BACKGROUND = "1m"
"""Bytes a second of the files as a whole: a small state is then fetched as slowly as a large one."""

_FILES = 4
_THREADS = "state-store-remote-blocks"
"""Name of the threads that fetch blocks together."""

OPERATORS = ("aggregation", "deduplication", "groups", "join")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--keys", type=int, default=400_000, help="keys of the state")
    parser.add_argument("--changed", type=int, default=1_000, help="keys in the batch after the loss")
    parser.add_argument("--request-ms", type=int, default=20, help="milliseconds before a request begins")
    parser.add_argument("--operators", default=",".join(OPERATORS), help="operators, separated by commas")
    parser.add_argument("--turns", type=int, default=2, help="batches of each kind")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the results")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # in a process of its own: see `_run`
    given = parser.parse_args()
    if given.part:
        print(json.dumps(_part(**json.loads(given.part))))
        return
    found = measure(given.operators.split(","), given.keys, given.changed, given.request_ms, given.turns)
    print(table(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def measure(
    operators: list[str], keys: int, changed: int, request_ms: int, turns: int
) -> dict[str, dict[str, float]]:
    """Return for each operator the milliseconds of the batch with and without look-ahead."""
    found: dict[str, dict[str, float]] = {}
    for operator in operators:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for first in range(_FILES):
                _write(root / "in", range(first, keys, _FILES))
            part = {
                "operator": operator,
                "source": str(root / "in"),
                "request_ms": request_ms,
                "full": True,
                "ahead": True,
            }
            slow_storage.run_part(_MODULE, {**part, "root": str(root), "local": str(root / "local")})
            rng = np.random.default_rng(1)
            _write(root / "in", rng.choice(keys, changed, replace=False).tolist())
            times: dict[str, list[float]] = {"on": [], "off": []}
            rows = []
            for turn in range(turns):
                for name, ahead in (("off", False), ("on", True)):
                    copy = root / f"{name}-{turn}"
                    shutil.copytree(root / "checkpoint", copy / "checkpoint")
                    again = {**part, "full": False, "ahead": ahead}
                    result = slow_storage.run_part(
                        _MODULE, {**again, "root": str(copy), "local": str(copy / "local")}
                    )
                    times[name].append(result["batch_ms"])
                    rows.append(result["rows"])
                    if result["together"] != ahead:
                        raise AssertionError(f"the blocks of {operator} came {result}, lookAhead={ahead}")
                    shutil.rmtree(copy)
            if len({json.dumps(some) for some in rows}) != 1:
                raise AssertionError(f"the batches of {operator} differ with look-ahead and without")
            found[operator] = {name: statistics.median(batches) for name, batches in times.items()}
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Return the figures as Markdown."""
    lines = ["| | without, ms | with, ms | ratio |", "|---|---|---|---|"]
    for operator, ms in found.items():
        lines.append(f"| {operator} | {ms['off']:.0f} | {ms['on']:.0f} | {ms['off'] / ms['on']:.1f} |")
    return "\n".join(lines)


def _write(directory: Path, keys: Any) -> None:
    """Add a file with a row for each key."""
    numbers = np.fromiter(keys, np.int64)
    pad = np.random.default_rng(2).bytes(200 * len(numbers)).hex()
    columns = {
        "k": numbers,
        "pad": [pad[i * 400 : i * 400 + 200] for i in range(len(numbers))],
        "at": pa.array(np.full(len(numbers), 1_700_000_000_000_000), pa.timestamp("us", "UTC")),
    }
    slow_storage.add_file(directory, columns)


def _part(
    operator: str, root: str, source: str, local: str, request_ms: int, full: bool, ahead: bool
) -> dict[str, Any]:
    """Run the query over the input that it has not seen; return its last batch's milliseconds and rows."""
    options = {
        "hydrationRateLimit": _BACKGROUND,
        "restoreMode": "lazy",
        "lazyRestoreThreshold": "1m",
        "lookAhead": str(ahead).lower(),
        "localDir": local,
    }
    spark = slow_storage.session(request_ms, options, 1 if full else None)
    rows: list[Any] = []

    def keep(batch: DataFrame, _: int) -> None:
        rows[:] = [batch.count()]

    query = (
        _output(spark, operator, source)
        .writeStream.outputMode("append" if operator in ("deduplication", "join") else "update")
        .option("checkpointLocation", f"delayed://{root}/checkpoint")
        .foreachBatch(keep)
        .start()
    )
    query.processAllAvailable()
    batch = [progress for progress in query.recentProgress if progress["numInputRows"]][-1]
    if full:
        slow_storage.wait_for_snapshot(Path(root))
    threads = spark._jvm.Thread.getAllStackTraces().keySet().toString()  # type: ignore[union-attr]
    query.stop()
    spark.stop()
    return {"batch_ms": batch["durationMs"]["addBatch"], "rows": rows, "together": _THREADS in threads}


def _output(spark: SparkSession, operator: str, source: str) -> DataFrame:
    from pyspark.sql import functions as F

    frame = (
        spark.readStream.schema("k long, pad string, at timestamp")
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
    )
    if operator == "aggregation":
        return frame.groupBy("k").agg(F.count("*").alias("n"), F.max("pad").alias("pad"))
    if operator == "deduplication":
        return frame.withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["k", "pad"])
    if operator == "groups":
        grouped = frame.groupBy("k")
        return grouped.applyInPandasWithState(
            _last, "k long, n long", "n long, pad string", "update", "NoTimeout"
        )
    if operator == "join":
        other = frame.select(F.col("k").alias("other"), F.col("pad").alias("another"))
        return frame.join(other, F.col("k") == F.col("other")).select("k", "pad", "another")
    raise SystemExit(f"there is no operator {operator!r}; there are {', '.join(OPERATORS)}")


def _last(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas as pd

    n = state.get[0] if state.exists else 0
    for frame in frames:
        n += len(frame)
        state.update((n, frame["pad"].iloc[-1]))
    yield pd.DataFrame({"k": [key[0]], "n": [n]})


if __name__ == "__main__":
    main()
