"""Measure the first batch after a loss, with and without look-ahead, over storage that answers slowly.

    python -m benchmarks.comparisons.look_ahead [--keys 400000] [--changed 1000] [--request-ms 20]
        [--operators aggregation,deduplication,groups,join,outer] [--turns 2] [--json OUT] [--local]

A query makes a state of `keys` keys with 200 random bytes each, and stops after a full checkpoint. Then, in a
process of its own for each figure, a copy of its checkpoint goes on without local files, lazily, with a batch
that changes some keys. Requests wait as `scala/driver/DelayedFileSystem.scala` says. The figures are the
milliseconds of that batch, medians over turns, and the blocks that were fetched together. The rows are
compared with each other and with those of Spark's RocksDB store.

With `--local` nothing is lost, and all files are local: two queries over the same input, with look-ahead and
without, take batches in turns in one session. The figures are milliseconds of CPU time of the JVM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.environment import spark_sessions
from state_store.core.settings.option import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MODULE = "benchmarks.comparisons.look_ahead"
_BACKGROUND = "1m"
"""Bytes a second of the files as a whole: a small state is then fetched as slowly as a large one."""

_FILES = 4
_AHEAD = "incrementalBlocksAhead"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_SPARKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOOK_AHEAD = f"{PREFIX}lookAhead"
_WARM = 3
"""Batches of local files that do not count."""

_START_S = 1_700_000_000
OPERATORS = ("aggregation", "deduplication", "groups", "join", "outer")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--keys", type=int, default=400_000, help="keys of the state")
    parser.add_argument("--changed", type=int, default=1_000, help="keys in the batch after the loss")
    parser.add_argument("--request-ms", type=int, default=20, help="milliseconds before a request begins")
    parser.add_argument("--operators", default=",".join(OPERATORS), help="operators, separated by commas")
    parser.add_argument("--turns", type=int, default=2, help="batches of each kind")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the results")
    parser.add_argument("--local", action="store_true", help="measure CPU time with local files")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # in a process of its own: see `_run`
    options = parser.parse_args()
    if options.part:
        part = json.loads(options.part)
        print(json.dumps(_local_part(**part) if "turns" in part else _part(**part)))
        return
    operators = options.operators.split(",")
    if options.local:
        figures = measure_locally(operators, options.keys, options.changed, options.turns)
    else:
        figures = measure(operators, options.keys, options.changed, options.request_ms, options.turns)
    print(table(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def measure(
    operators: list[str], keys: int, changed: int, request_ms: int, turns: int, *, apart: bool = True
) -> dict[str, dict[str, float]]:
    """Return for each operator the milliseconds of the batch with and without look-ahead, and the blocks.

    Args:
        operators: The operators.
        keys: Keys of the state.
        changed: Keys of the batch.
        request_ms: The wait of a request.
        turns: Batches of each kind.
        apart: Begin a process for each figure; else the operators run one after the other in each process.

    Raises:
        AssertionError: The rows differ from each other or from Spark's store, or blocks are not fetched
            together with look-ahead alone.
    """
    figures: dict[str, dict[str, float]] = {}
    for group in [[operator] for operator in operators] if apart else [operators]:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for first in range(_FILES):
                _write(root / "in", range(first, keys, _FILES))
            shutil.copytree(root / "in", root / "sparks-in")
            rng = np.random.default_rng(1)
            _write(root / "later", rng.choice(keys, changed, replace=False).tolist(), after_s=300)
            _write(root / "later", [keys], after_s=7200)  # whatever waits comes to its end
            figures |= _measured(root, {"operators": group, "request_ms": request_ms}, turns)
    return figures


def _measured(root: Path, common: dict[str, Any], turns: int) -> dict[str, dict[str, float]]:
    def part(where: Path, source: str, **how: Any) -> dict[str, Any]:
        places = {"root": str(where), "local": str(where / "local"), "source": str(root / source)}
        return spark_sessions.run_part(_MODULE, {**common, **places, **how})

    part(root / "made", "in", full=True, ahead=True)
    expected = part(root / "sparks", "sparks-in", full=True, ahead=True, later=str(root / "later"))
    shutil.copytree(root / "later", root / "in", dirs_exist_ok=True)
    results: dict[str, list[dict[str, Any]]] = {"off": [], "on": []}
    for turn in range(turns):
        for case, ahead in (("off", False), ("on", True)):
            copy = root / f"{case}-{turn}"
            shutil.copytree(root / "made", copy, ignore=shutil.ignore_patterns("local"))
            results[case].append(part(copy, "in", full=False, ahead=ahead))
            shutil.rmtree(copy)
    figures = {}
    for operator in common["operators"]:
        runs = {case: [result[operator] for result in results[case]] for case in results}
        rows = [run["rows"] for run in (expected[operator], *runs["off"], *runs["on"])]
        if any(some != rows[0] for some in rows):
            raise AssertionError(f"the batches of {operator} differ from those of Spark's store: {rows}")
        blocks = {case: [run["ahead"] for run in runs[case]] for case in runs}
        # Commits ask for rows that nobody has read, which a filter may wrongly take for stored.
        if 10 * max(blocks["off"]) > min(blocks["on"]) or not min(blocks["on"]):
            raise AssertionError(f"blocks of {operator} that were fetched together: {blocks}")
        figures[operator] = {case: statistics.median(run["batch_ms"] for run in runs[case]) for case in runs}
        figures[operator]["blocks"] = statistics.median(blocks["on"])
    return figures


def measure_locally(operators: list[str], keys: int, changed: int, turns: int) -> dict[str, dict[str, float]]:
    """Return for each operator the CPU milliseconds of a batch of local files with and without look-ahead."""
    figures = {}
    for operator in operators:
        with tempfile.TemporaryDirectory() as name:
            part = {"operator": operator, "keys": keys, "changed": changed, "turns": turns, "root": name}
            result = spark_sessions.run_part(_MODULE, part)
            figures[operator] = {case: statistics.median(result[case]) for case in ("off", "on")}
    return figures


def table(figures: dict[str, dict[str, float]]) -> str:
    """Return the figures as Markdown."""
    lines = ["| | without, ms | with, ms | ratio | blocks fetched together |", "|---|---|---|---|---|"]
    for operator, ms in figures.items():
        ratio, blocks = ms["off"] / ms["on"], ms.get("blocks", 0)
        lines.append(f"| {operator} | {ms['off']:.0f} | {ms['on']:.0f} | {ratio:.2f} | {blocks:.0f} |")
    return "\n".join(lines)


def _write(directory: Path, keys: Any, after_s: int = 0) -> None:
    """Add a file with a row for each key, at that many seconds after the start of the events.

    The text of a key is always the same, so that the rows of a batch are duplicates.
    """
    numbers = np.fromiter(keys, np.int64)
    columns = {
        "k": numbers,
        "pad": [hashlib.shake_128(number.tobytes()).hexdigest(100) for number in numbers],
        "at": pa.array(np.full(len(numbers), (_START_S + after_s) * 1_000_000), pa.timestamp("us", "UTC")),
    }
    spark_sessions.add_file(directory, columns)


def _part(
    operators: list[str],
    root: str,
    source: str,
    local: str,
    request_ms: int,
    full: bool,
    ahead: bool,
    later: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Run the query of each operator over the input that it has not seen.

    Returns:
        By operator, milliseconds of the first batch, a digest of the rows of all batches, and blocks fetched
        together. With `later`, Spark's store takes the place of this one, and the figures are those of a
        second run, over input that is then copied from there.
    """
    options = {
        "hydrationRateLimit": _BACKGROUND,
        "restoreMode": "lazy",
        "lookAhead": str(ahead).lower(),
        "localDir": local,
    }
    spark = spark_sessions.slow(request_ms, options, 1 if full else None)
    if later is None:
        figures = {
            operator: _run(spark, operator, source, Path(root, operator), is_ours=True, full=full)
            for operator in operators
        }
    else:
        spark.conf.set(_PROVIDER, _SPARKS)
        for operator in operators:
            _run(spark, operator, source, Path(root, operator))
        shutil.copytree(later, source, dirs_exist_ok=True)
        figures = {operator: _run(spark, operator, source, Path(root, operator)) for operator in operators}
    spark.stop()
    return figures


def _run(
    spark: SparkSession, operator: str, source: str, root: Path, *, is_ours: bool = False, full: bool = False
) -> dict[str, Any]:
    rows = [0, 0]

    def keep(batch: DataFrame, _: int) -> None:
        digest = batch.selectExpr("count(*)", "coalesce(sum(xxhash64(*) % 1000003), 0)").first()
        assert digest is not None
        rows[:] = [rows[0] + digest[0], rows[1] + digest[1]]

    scheme = "delayed://" if is_ours else ""
    query = _started(spark, operator, source, f"{scheme}{root}/checkpoint", keep)
    query.processAllAvailable()
    progresses = query.recentProgress
    if full:
        spark_sessions.wait_for_snapshot(root)
    query.stop()
    return {
        "batch_ms": next(some for some in progresses if some["numInputRows"])["durationMs"]["addBatch"],
        "rows": rows,
        "ahead": sum(
            some["customMetrics"].get(_AHEAD, 0) for each in progresses for some in each["stateOperators"]
        ),
    }


def _local_part(operator: str, keys: int, changed: int, turns: int, root: str) -> dict[str, list[float]]:
    """Return the CPU milliseconds of the JVM in each batch, with look-ahead and without."""
    spark = spark_sessions.slow(0, {"localDir": f"{root}/local"}, None)
    source, rng = Path(root, "in"), np.random.default_rng(1)
    _write(source, range(keys))
    queries = {}
    for case, ahead in (("on", "true"), ("off", "false")):
        spark.conf.set(_LOOK_AHEAD, ahead)
        queries[case] = _started(spark, operator, str(source / case), f"{root}/{case}", _count)
    times: dict[str, list[float]] = {case: [] for case in queries}
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    (table_file,) = source.glob("*.parquet")
    for turn in range(_WARM + turns):
        for case in ("on", "off") if turn % 2 else ("off", "on"):
            Path(source, case).mkdir(exist_ok=True)
            shutil.copy(table_file, source / case / f".{turn}.parquet")
            began = _cpu_ms(pid)
            (source / case / f".{turn}.parquet").rename(source / case / f"{turn}.parquet")
            queries[case].processAllAvailable()
            times[case].append(_cpu_ms(pid) - began)
        table_file.unlink()
        _write(source, rng.choice(keys, changed, replace=False).tolist())
        (table_file,) = source.glob("*.parquet")
    for query in queries.values():
        query.stop()
    spark.stop()
    return {case: of_all[_WARM:] for case, of_all in times.items()}


def _cpu_ms(pid: int) -> float:
    """Return the milliseconds of CPU time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _count(batch: DataFrame, _: int) -> None:
    batch.count()


def _started(
    spark: SparkSession, operator: str, source: str, checkpoint: str, use: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    append = operator in ("deduplication", "join", "outer")
    Path(source).mkdir(exist_ok=True, parents=True)
    return (
        _output(spark, operator, source)
        .writeStream.outputMode("append" if append else "update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(use)
        .start()
    )


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
    if operator == "outer":
        left = frame.withWatermark("at", "1 minute").where("k % 2 = 0")
        right = frame.withWatermark("at", "1 minute").where("k % 3 = 0")
        right = right.selectExpr("k as other", "pad as another", "at as then")
        on = "k = other and then between at and at + interval 10 minutes"
        return left.join(right, F.expr(on), "left_outer").select("k", "pad", "another")
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
