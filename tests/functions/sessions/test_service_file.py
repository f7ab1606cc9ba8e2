"""Spark finds the extension by the jar's service file: no `spark.sql.extensions` is needed."""

from __future__ import annotations

from pathlib import Path

import outside
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.tier("more"), pytest.mark.older(long=("4.2", "4.1", "4.0"))]

SESSION = """
import json, sys, warnings
import quick_java
import state_store
from pyspark.sql import SparkSession
from sample_functions import OUTPUT, STATE, total

root, extensions = sys.argv[1], EXTENSIONS
builder = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", quick_java.spark_options())
    .config(map=quick_java.CHECKPOINT_FILES).config("spark.sql.shuffle.partitions", "1")
)
builder = state_store.configure(state_store.configure(builder))
if extensions is not None:
    builder = builder.config("spark.sql.extensions", extensions)
spark = builder.getOrCreate()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    df = spark.readStream.schema("k string, v double").parquet(root + "/source")
    marked = state_store.vectorized(total)
    out = df.groupBy("k").applyInPandasWithState(marked, OUTPUT, STATE, "append", "NoTimeout")
query = (
    out.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
    .option("checkpointLocation", root + "/checkpoint").start()
)
query.awaitTermination()
plan = query._jsq.explainInternal(False)
print("FOUND", json.dumps([[str(w.message) for w in caught], plan]))
"""


@pytest.mark.parametrize("extensions", [None, ""], ids=["added", "replaced"])
def test_the_extension_is_there_once(tmp_path: Path, extensions: str | None) -> None:
    outside.write_source(tmp_path / "source")
    (warned, plan), _ = outside.run(SESSION.replace("EXTENSIONS", repr(extensions)), tmp_path)
    assert not [text for text in warned if "group by group" in text]
    assert plan.count("VectorizedFlatMapGroupsInPandasWithState") == 1, plan
