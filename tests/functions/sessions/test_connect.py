"""A marked function through Spark Connect: the mark comes along in the function's name."""

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
from pyspark.sql import SparkSession
from conftest import session_options
from sample_functions import OUTPUT, STATE, total, total_of_rows, total_per_group
from state_store.functions import accelerate, per_group, vectorized

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
print("FOUND", json.dumps(found))
spark.stop()
"""


def test_marked_functions_run_through_connect(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for i, rows in enumerate(([("a", 1.0), ("b", 2.0), ("a", 3.0)], [("a", 5.0)])):
        table = pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]})
        pq.write_table(table, source / f"{i}.parquet")
        os.utime(source / f"{i}.parquet", (1_700_000_000 + i,) * 2)  # Spark reads files in this order
    found, _ = outside.run(CLIENT, tmp_path)
    expected = [["a", 2, 4.0], ["a", 3, 9.0], ["b", 1, 2.0]]
    assert found == {form: [expected, True] for form in ("vectorized", "accelerate", "per_group")}
