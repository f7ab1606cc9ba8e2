"""Two executors that get jar and package as users ship them: the same output and state as Spark's operator.

The executors know neither the checkout nor PYTHONPATH: the jar comes from `spark_conf()`, the package in an
archive, made as docs/vectorized.md says, from `spark.submit.pyFiles`, which is what `--py-files` sets. Or the
package is nowhere but in the jar, as in a cluster whose image has what Spark and the agent need and no more.
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

root, shipped = Path(sys.argv[1]), sys.argv[2]
del os.environ["PYTHONPATH"]
options = {
    **state_store.spark_conf(),
    **quick_java.CHECKPOINT_FILES,
    "spark.submit.pyFiles": str(root / shipped),
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
if shipped != "package.zip":
    options["spark.executorEnv.PYTHONPATH"] = str(root / "bare")
spark = SparkSession.builder.master("local-cluster[2,1,512]").config(map=options).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def noting(form, function):
    # An executor of a local cluster, and so its workers, live in a directory named after its number.
    @functools.wraps(function)
    def noted(*args):
        (root / "ran" / form).mkdir(parents=True, exist_ok=True)
        (root / "ran" / form / Path.cwd().name).write_text(sys.modules["state_store"].__file__)
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


def on_sparks_operator():
    spark.conf.set("spark.sql.streaming.stateStore.incremental.vectorized.accelerate", "false")
    return run("stock", noting("stock", total_per_group))


print("FOUND", json.dumps({
    "unmarked": run("unmarked", noting("unmarked", total_per_group)),
    "vectorized": run("vectorized", state_store.vectorized(noting("vectorized", total))),
    "accelerate": run("accelerate", state_store.accelerate(noting("accelerate", total_per_group))),
    **({"stock": on_sparks_operator()} if shipped == "package.zip" else {}),
}))
spark.stop()
"""


BARE = """
import sys

sys.meta_path[:] = [each for each in sys.meta_path if not each.__module__.startswith("__editable__")]
"""
"""A module `sitecustomize`, by which the environment's Python does not find the package."""

FORMS = ["vectorized", "accelerate", "unmarked"]
PACKED = {"package.zip": "package.zip", "functions.zip": "state_store_agent.zip"}
"""Archives that are shipped, with those in which the workers find the package."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> dict[str, dict]:
    found = {}
    for shipped in PACKED:
        directory = tmp_path_factory.mktemp("cluster")
        (directory / "bare").mkdir()
        (directory / "bare/sitecustomize.py").write_text(BARE)
        files = [Path(__file__).parents[1] / "sample_functions.py"]
        if shipped == "package.zip":
            files.append(checkout / "state_store")
        archive = [sys.executable, "-m", "zipfile", "-c", str(directory / shipped), *map(str, files)]
        subprocess.run(archive, check=True)
        found[shipped], _ = outside.run(CLUSTER, directory, shipped)
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shipped", PACKED)
def test_output_and_state_are_those_of_sparks_operator(clusters: dict, shipped: str, form: str) -> None:
    stock, found = clusters["package.zip"]["stock"], clusters[shipped][form]
    assert "VectorizedFlatMapGroupsInPandasWithState" in found["plan"]
    assert "VectorizedFlatMapGroupsInPandasWithState" not in stock["plan"]
    assert found["content"] == stock["content"]
    assert "'k59'" in found["content"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shipped", PACKED)
def test_both_executors_called_the_function_with_the_package_that_they_have(
    clusters: dict, shipped: str, form: str
) -> None:
    ran = clusters[shipped][form]["ran"]
    assert sorted(ran) == ["0", "1"]
    assert all(PACKED[shipped] in origin for origin in ran.values()), ran
