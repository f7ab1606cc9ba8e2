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
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import count
from pyspark.sql.streaming import StatefulProcessor
from conftest import session_options
from sample_functions import OUTPUT, STATE, total, total_of_rows, total_per_group
from state_store import open as open_state
from state_store.core.settings.session import PROVIDER_CLASS, PROVIDER_KEY
from state_store.functions import accelerate, per_group, vectorized

class Counts(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.n.get() or (0,))[0] + sum(1 for _ in rows)
        self.n.update((n,))
        yield Row(k=key[0], n=n)

    def close(self):
        pass

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
    query = (
        df.groupBy("k").applyInPandasWithState(function, OUTPUT, STATE, "append", "NoTimeout")
        .writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
        .option("checkpointLocation", f"{root}/{name}/checkpoint").start(f"{root}/{name}/out")
    )
    query.awaitTermination()
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        query.explain()
    rows = sorted(map(list, spark.read.parquet(f"{root}/{name}/out").collect()))
    found[name] = [rows, "VectorizedFlatMapGroupsInPandasWithState" in plan.getvalue()]
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
    query.option("checkpointLocation", place).start().awaitTermination()
    with open_state(place) as state:
        found[name] = sorted(list(row.values())[:2] for row in state.to_arrow().to_pylist())
print("FOUND", json.dumps(found))
spark.stop()
"""
OPERATORS = ("aggregation", "as Spark calls it", "transformWithState")


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
    marked = {form: [expected, True] for form in ("vectorized", "accelerate", "per_group")}
    assert found == {**marked, **{name: [["a", 3], ["b", 1]] for name in OPERATORS}}
