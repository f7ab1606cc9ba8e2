"""A query goes on with a newer Spark, and with the older one again, as docs/upgrade.md says."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from environments import NEWEST, SPARKS, environment_of, run

pytestmark = [pytest.mark.spark, pytest.mark.packaging, pytest.mark.tier("long")]

PROGRAM = """
import json, pyspark, state_store
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config(map=state_store.spark_conf()).getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", 2)
counts = spark.readStream.schema("user string").parquet("source").groupBy("user").count()
query = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", "clicks")
query.trigger(availableNow=True).start().awaitTermination()
with state_store.open("clicks") as state:
    rows = {row["user"]: row["count"] for row in state.to_arrow().to_pylist()}
print(json.dumps([pyspark.__version__, rows]))
"""


def test_an_aggregation_goes_up_and_down(checkout: Path, tmp_path: Path) -> None:
    older, newest = "4.2", NEWEST
    assert older in SPARKS, f"Spark {older} has no environment here: run 'make setup'"
    (tmp_path / "source").mkdir()
    for turn, spark in enumerate((older, newest, older), 1):
        pq.write_table(pa.table({"user": ["a", "a", f"once {turn}"]}), tmp_path / f"source/{turn}.parquet")
        done = run(environment_of(checkout, spark), "-c", PROGRAM, cwd=tmp_path, PYTHONPATH=str(checkout))
        version, rows = json.loads(done.stdout.strip().splitlines()[-1])
        assert version.startswith(spark)
        assert rows == {"a": 2 * turn, **{f"once {past}": 1 for past in range(1, turn + 1)}}
