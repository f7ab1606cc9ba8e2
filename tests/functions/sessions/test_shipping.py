"""Two executors that get jar and package as users ship them: the same output and state as Spark's operator.

The executors know neither the checkout nor PYTHONPATH: the jar comes from `spark_conf()`, the package in an
archive, made as docs/vectorized.md says, from `spark.submit.pyFiles`, which is what `--py-files` sets.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import outside
import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.older(long=("4.2", "4.1")),
    pytest.mark.tier("more"),
]

CLUSTER = """
import functools, json, os, sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import quick_java
import state_store
from sample_functions import OUTPUT, STATE, total, total_per_group
from streams import Stream

root = Path(sys.argv[1])
del os.environ["PYTHONPATH"]
options = {
    **state_store.spark_conf(),
    **quick_java.CHECKPOINT_FILES,
    "spark.submit.pyFiles": str(root / "package.zip"),
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": quick_java.spark_options(),
    "spark.executor.extraJavaOptions": quick_java.spark_options(),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master("local-cluster[2,1,512]").config(map=options).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def noting(form, function):
    # An executor of a local cluster, and so its workers, live in a directory named after its number.
    @functools.wraps(function)
    def noted(*args):
        (root / "ran" / form).mkdir(parents=True, exist_ok=True)
        (root / "ran" / form / Path.cwd().name).write_text(state_store.__file__)
        return function(*args)

    return noted


def run(form, function):
    stream = Stream(spark, root / form, "k string, v double")
    for number in range(3):
        keys = [f"k{(number * 7 + i) % 60}" for i in range(90)] + [None]
        stream.add(pa.table({"k": keys, "v": [float(i) for i in range(91)]}))
    stream.run(
        lambda df: df.groupBy("k").applyInPandasWithState(function, OUTPUT, STATE, "update", "NoTimeout")
    )
    ran = {path.name: path.read_text() for path in (root / "ran" / form).iterdir()}
    rows = {batch: sorted(rows, key=repr) for batch, rows in stream.rows.items()}
    return {"plan": stream.plan, "ran": ran, "content": repr((rows, stream.stored(), stream.figures))}


print("FOUND", json.dumps({
    "stock": run("stock", noting("stock", total_per_group)),
    "vectorized": run("vectorized", state_store.vectorized(noting("vectorized", total))),
    "accelerate": run("accelerate", state_store.accelerate(noting("accelerate", total_per_group))),
}))
spark.stop()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory, checkout) -> dict:
    directory = tmp_path_factory.mktemp("cluster")
    shipped = [checkout / "state_store", Path(__file__).parents[1] / "sample_functions.py"]
    archive = [sys.executable, "-m", "zipfile", "-c", str(directory / "package.zip"), *map(str, shipped)]
    subprocess.run(archive, check=True)
    forms, _ = outside.run(CLUSTER, directory)
    return forms


@pytest.mark.parametrize("form", ["vectorized", "accelerate"])
def test_output_and_state_are_those_of_sparks_operator(found, form):
    assert "VectorizedFlatMapGroupsInPandasWithState" in found[form]["plan"]
    assert "VectorizedFlatMapGroupsInPandasWithState" not in found["stock"]["plan"]
    assert found[form]["content"] == found["stock"]["content"]
    assert "'k59'" in found[form]["content"]


@pytest.mark.parametrize("form", ["vectorized", "accelerate"])
def test_both_executors_called_the_function_with_the_package_that_was_shipped(found, form):
    ran = found[form]["ran"]
    assert sorted(ran) == ["0", "1"]
    assert all("package.zip" in origin for origin in ran.values()), ran
