"""The counter on Spark, in its own worker and in this project's forms: a program of the ordinary environment.

`--form` is one of: spark-worker (an unchanged processor in Spark's worker on Spark's RocksDB store with
changelog), processor (the same unchanged, on this store), per_group, spark-frames (a function on pandas
frames in Spark's operator, on Spark's RocksDB store), accelerate (the same with the mark), vectorized.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from counted_rows import MARKS, keep_checksum, options, step_of
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import state_store

OUTPUT = "k long, c long, t double"
FLAT = "c long, t double, s0 long, s1 long, s2 long"
"""State of functions whose API has no maps: Spark's frames, and tables."""

_FIRST_FILE_S = 1_700_000_000
_STATE = "spark.sql.streaming.stateStore."
_SPARKS = {
    _STATE + "providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    _STATE + "rocksdb.changelogCheckpointing.enabled": "true",
    _STATE + "incremental.vectorized.enabled": "false",
}


class Counter(StatefulProcessor):
    """A count and a sum in a value, and the steps in a map."""

    def init(self, handle: Any) -> None:
        self.totals = handle.getValueState("totals", "c long, t double")
        self.seen = handle.getMapState("seen", "d int", "c long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count, total = tuple(self.totals.get()) if self.totals.exists() else (0, 0.0)
        for row in rows:
            count += 1
            total += row.v
            step = (step_of(count),)
            before = self.seen.getValue(step)[0] if self.seen.containsKey(step) else 0
            self.seen.updateValue(step, (before + 1,))
            yield Row(k=key[0], c=count, t=total)
        self.totals.update((count, total))

    def close(self) -> None:
        pass


def plain_rows(key: Any, rows: Any, state: Any) -> Iterator[Any]:
    """Count the rows of a group in plain Python."""
    count, total, seen = state.get if state.exists else (0, 0.0, {})
    seen = dict(seen)
    for row in rows:
        count += 1
        total += row.v
        step = step_of(count)
        seen[step] = seen.get(step, 0) + 1
        yield key.k, count, total
    state.update((count, total, seen))


def frames(key: Any, pdfs: Any, state: Any) -> Iterator[pd.DataFrame]:
    """Count the rows of a group in pandas."""
    count, total, *seen = state.get if state.exists else (0, 0.0, 0, 0, 0)
    for pdf in pdfs:
        counts = count + np.arange(1, len(pdf) + 1)
        totals = total + pdf["v"].cumsum()
        steps = np.bincount(counts // 2 % 3, minlength=3)
        seen = [int(before + now) for before, now in zip(seen, steps, strict=True)]
        count, total = int(counts[-1]), float(totals.iloc[-1])
        yield pd.DataFrame({"k": key[0], "c": counts, "t": totals})
    state.update((count, total, *seen))


def tables(rows: pa.Table, states: pa.Table, context: Any) -> Any:
    """Count the rows of all groups of a call in numpy."""
    group, groups = rows["__group"].to_numpy(), states.num_rows
    sizes = np.bincount(group, minlength=groups)
    order = np.argsort(group, kind="stable")
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    before = {name: states[name].fill_null(0).to_numpy() for name in ("c", "t", "s0", "s1", "s2")}
    sorted_group = group[order]
    counts = before["c"][sorted_group] + np.arange(len(group)) - first + 1
    sums = np.concatenate(([0.0], np.cumsum(rows["v"].to_numpy()[order])))
    totals = before["t"][sorted_group] + sums[1:] - sums[first]
    seen = np.bincount(sorted_group * 3 + counts // 2 % 3, minlength=3 * groups).reshape(groups, 3)
    state = pa.table(
        {
            "c": before["c"] + sizes,
            "t": before["t"] + np.bincount(group, rows["v"].to_numpy(), minlength=groups),
            **{f"s{step}": before[f"s{step}"] + seen[:, step] for step in range(3)},
        }
    )
    keys = states["k"].to_numpy()[sorted_group]
    return state_store.Result(output=pa.table({"k": keys, "c": counts, "t": totals}), state=state)


FUNCTIONS = {
    "per_group": (lambda: state_store.per_group(plain_rows), "c long, t double, seen map<int,long>"),
    "spark-frames": (lambda: frames, FLAT),
    "accelerate": (lambda: state_store.accelerate(frames), FLAT),
    "vectorized": (lambda: state_store.vectorized(tables), FLAT),
}


def write_batches(asked: Any) -> str:
    """Write the input, a file for each batch; return its directory."""
    source = asked.root / "source"
    source.mkdir()
    for batch in range(asked.batches):
        keys = np.arange(batch * asked.rows, (batch + 1) * asked.rows) % asked.keys
        path = source / f"{batch:05d}.parquet"
        pq.write_table(pa.table({"k": keys, "v": keys % 97 + 0.5}), path)
        os.utime(path, (_FIRST_FILE_S + batch,) * 2)
    return str(source)


def main() -> None:
    """Run the job that the command line asks for."""
    asked = options(__doc__)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    stock = _SPARKS if asked.form.startswith("spark-") else {}
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "3g")
        .config(map={**state_store.spark_conf(), **stock})
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("counted_rows.py")))
    stream = spark.readStream.schema("k long, v double").option("maxFilesPerTrigger", 1)
    groups = stream.parquet(write_batches(asked)).groupBy("k")
    if asked.form in FUNCTIONS:
        function, state = FUNCTIONS[asked.form]
        results = groups.applyInPandasWithState(function(), OUTPUT, state, "update", "NoTimeout")
    else:
        results = groups.transformWithState(Counter(), OUTPUT, "update", "none")
    checkpoint = asked.root / "checkpoint"
    (asked.root / MARKS).rmdir()
    (asked.root / MARKS).symlink_to(checkpoint / "commits")
    query = (
        results.writeStream.outputMode("update")
        .format("memory" if asked.collect else "noop")
        .queryName("results")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    if asked.collect:
        keep_checksum(asked.root, (tuple(row) for row in spark.table("results").collect()))
    spark.stop()


if __name__ == "__main__":
    main()
