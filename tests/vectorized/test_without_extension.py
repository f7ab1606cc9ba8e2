"""A session without the extension: the same results, and one warning that says what to set."""

from __future__ import annotations

import outside
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
]

SESSION = """
import json, sys, warnings
from pyspark.sql import SparkSession
from functions import OUTPUT, STATE, total
from state_store.vectorization import VectorizationWarning, vectorized

root = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    df = spark.readStream.schema("k string, v double").parquet(root + "/source")
    out = df.groupBy("k").applyInPandasWithState(vectorized(total), OUTPUT, STATE, "append", "NoTimeout")
query = (
    out.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    .option("checkpointLocation", root + "/checkpoint").start(root + "/out")
)
query.awaitTermination()
texts = [str(w.message) for w in caught if w.category is VectorizationWarning]
print("FOUND", json.dumps([texts, list(map(list, spark.read.parquet(root + "/out").collect()))]))
"""


def test_same_results_and_one_warning(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    table = pa.table({"k": ["a", "b", "a", None], "v": [1.0, 2.0, 3.0, 4.0]})
    pq.write_table(table, source / "0.parquet")
    (warned, rows), log = outside.run(SESSION, tmp_path)
    assert len(warned) == 1
    assert "VectorizedExtension" in warned[0] and "spark.sql.extensions" in warned[0]
    assert sorted(rows, key=repr) == sorted([["a", 2, 4.0], ["b", 1, 2.0], [None, 1, 4.0]], key=repr)
    assert "runs group by group in worker" not in log  # the driver has said it
