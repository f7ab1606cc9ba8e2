"""Stateful operators through Spark Connect; the mark of a function comes along in its name."""

from __future__ import annotations

import os

import outside
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.tier("more"),
]

CLIENT = """
import contextlib, io, json, sys
import late_workers
import pandas as pd
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import count, expr
from pyspark.sql.streaming import StatefulProcessor
from conftest import session_options
from sample_functions import OUTPUT, STATE, total, total_of_rows, total_per_group
from state_store import open as open_state
from state_store.core.settings.session import PROVIDER_CLASS, PROVIDER_KEY
from state_store.functions import accelerate, per_group, vectorized
from vector_processors import WithInitialState, WithPandas

class Counts(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.n.get() or (0,))[0] + sum(1 for _ in rows)
        self.n.update((n,))
        yield Row(k=key[0], n=n)

    def close(self):
        pass

class CountsOfFrames(Counts):
    def handleInputRows(self, key, rows, timerValues):
        for row in super().handleInputRows(key, (row for frame in rows for row in frame.index), timerValues):
            yield pd.DataFrame([row.asDict()])

def written(name, df):
    # Run a query with its output in files; return its rows and its plan.
    writer = df.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{root}/{name}/checkpoint")
    query = late_workers.run(lambda: writer.start(f"{root}/{name}/out"))
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        query.explain()
    return sorted(map(list, spark.read.parquet(f"{root}/{name}/out").collect())), plan.getvalue()

def kept(name, store=None):
    # Return the rows of a state, each with its first two columns.
    with open_state(f"{root}/{name}/checkpoint", store=store) as state:
        return sorted(list(row.values())[:2] for row in state.to_arrow().to_pylist())

root = sys.argv[1]
spark = SparkSession.builder.remote("local[1]").config(map=session_options()).getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "1")
found = {}
forms = {
    "vectorized": vectorized(total),
    "accelerate": accelerate(total_per_group),
    "per_group": per_group(total_of_rows),
}
for name, function in forms.items():
    reader = spark.readStream.schema("k string, v double").option("maxFilesPerTrigger", 1)
    df = reader.parquet(root + "/source")
    groups = df.groupBy("k")
    rows, plan = written(
        name, groups.applyInPandasWithState(function, OUTPUT, STATE, "append", "NoTimeout")
    )
    found[name] = [rows, "VectorizedFlatMapGroupsInPandasWithState" in plan]
spark.conf.set(PROVIDER_KEY, PROVIDER_CLASS)
reader = spark.readStream.schema("k string, v double").option("maxFilesPerTrigger", 1)
groups = reader.parquet(root + "/source").groupBy("k")
operators = {
    "aggregation": groups.agg(count("*").alias("n")),
    "as Spark calls it": groups.applyInPandasWithState(total_per_group, OUTPUT, STATE, "update", "NoTimeout"),
    "transformWithState": groups.transformWithState(Counts(), "k string, n long", "update", "none"),
}
for name, df in operators.items():
    place = f"{root}/state of {name}"
    query = df.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    late_workers.run(query.option("checkpointLocation", place).start)
    with open_state(place) as state:
        found[name] = sorted(list(row.values())[:2] for row in state.to_arrow().to_pylist())
processors = {
    "rows": (groups.transformWithState, Counts()),
    "frames": (groups.transformWithStateInPandas, CountsOfFrames()),
    "vectorized in rows": (groups.transformWithState, WithInitialState()),
    "vectorized in frames": (groups.transformWithStateInPandas, WithPandas()),
}
for name, (method, processor) in processors.items():
    rows, plan = written(name, method(processor, "k string, n long", "append", "none"))
    found[name] = [rows, kept(name), "BatchedTransformWithStateInPySpark" in plan]
left, right = (reader.parquet(root + "/source") for side in range(2))
pairs = left.join(right.selectExpr("k as other", "v as w"), expr("k = other and v <= w"))
joined = pairs.select("k", "v", "w")
found["join"] = [written("join", joined)[0], [len(kept("join", side)) for side in ("left", "right")]]
timed = left.selectExpr("k", "timestamp_seconds(v) as t").withWatermark("t", "1 hour")
distinct = {
    "dedup": left.select("k").dropDuplicates(["k"]),
    "dedup within a watermark": timed.dropDuplicatesWithinWatermark(["k"]).select("k"),
}
for name, df in distinct.items():
    found[name] = [written(name, df)[0], [row[0] for row in kept(name)]]
print("FOUND", json.dumps(found))
spark.stop()
"""
OPERATORS = ("aggregation", "as Spark calls it", "transformWithState")
PROCESSORS = ("rows", "frames", "vectorized in rows", "vectorized in frames")


def test_every_form_runs_through_connect(tmp_path):
    """A client sends rows of two batches through marked functions and through Spark's own operators."""
    source = tmp_path / "source"
    source.mkdir()
    for i, rows in enumerate(([("a", 1.0), ("b", 2.0), ("a", 3.0)], [("a", 5.0)])):
        table = pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]})
        pq.write_table(table, source / f"{i}.parquet")
        os.utime(source / f"{i}.parquet", (1_700_000_000 + i,) * 2)  # Spark reads files in this order
    found, _ = outside.run(CLIENT, tmp_path)
    expected = [["a", 2, 4.0], ["a", 3, 9.0], ["b", 1, 2.0]]
    counts = [["a", 3], ["b", 1]]
    pairs = [["a", v, w] for v in (1.0, 3.0, 5.0) for w in (1.0, 3.0, 5.0) if v <= w] + [["b", 2.0, 2.0]]
    keys = [["a"], ["b"]], ["a", "b"]
    assert found == {
        **{form: [expected, True] for form in ("vectorized", "accelerate", "per_group")},
        **dict.fromkeys(OPERATORS, counts),
        **{name: [sorted([["a", 2], *counts]), counts, True] for name in PROCESSORS},
        "join": [pairs, [4, 4]],
        **{name: list(keys) for name in ("dedup", "dedup within a watermark")},
    }
