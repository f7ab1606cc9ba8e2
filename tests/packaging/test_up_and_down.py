"""A query goes on with a newer Spark, and with the older one again, as docs/upgrade.md says."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from environments import NEWEST, environment_of, run

pytestmark = [pytest.mark.spark, pytest.mark.packaging, pytest.mark.tier("long")]

PROGRAM = """
import json, sys, pandas, pyspark, state_store
from pyspark.sql import SparkSession

def counted(key, frames, state):
    count = sum(map(len, frames)) + (state.get[0] if state.exists else 0)
    state.update((count,))
    yield pandas.DataFrame({"user": [key[0]], "count": [count]})

spark = SparkSession.builder.master("local[2]").config(map=state_store.spark_conf()).getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", 2)
users = spark.readStream.schema("user string").parquet("source").groupBy("user")
if sys.argv[1] == "aggregation":
    counts = users.count()
else:
    counts = users.applyInPandasWithState(
        counted, "user string, count long", "count long", "update", "NoTimeout"
    )
query = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", "clicks")
query.trigger(availableNow=True).start().awaitTermination()
with state_store.open("clicks") as state:
    rows = {row["user"]: row["count"] for row in state.to_arrow().to_pylist()}
print(json.dumps([pyspark.__version__, rows]))
"""


@pytest.mark.parametrize("older", ["4.2", "4.1", "4.0"])
@pytest.mark.parametrize("operator", ["aggregation", "applyInPandasWithState"])
def test_a_query_goes_up_and_down(checkout: Path, tmp_path: Path, older: str, operator: str) -> None:
    assert environment_of(checkout, older).exists(), f"Spark {older} has no environment here: 'make setup'"
    (tmp_path / "source").mkdir()
    for turn, spark in enumerate((older, NEWEST, older, NEWEST), 1):
        pq.write_table(pa.table({"user": ["a", "a", f"once {turn}"]}), tmp_path / f"source/{turn}.parquet")
        python = environment_of(checkout, spark)
        variables = {"PYTHONPATH": str(checkout), "PYSPARK_PYTHON": str(python)}
        done = run(python, "-c", PROGRAM, operator, cwd=tmp_path, **variables)
        version, rows = json.loads(done.stdout.strip().splitlines()[-1])
        assert version.startswith(spark)
        assert rows == {"a": 2 * turn, **{f"once {past}": 1 for past in range(1, turn + 1)}}
