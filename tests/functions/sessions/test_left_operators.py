"""Operators that stay Spark's, since this project's worker would not do for them what Spark's does."""

from __future__ import annotations

import json
from typing import Any

import outside
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from sample_functions import OUTPUT, STATE, total_per_group

from state_store.core.settings.session import FORMAT_KEY, PROVIDER_CLASS, PROVIDER_KEY

pytestmark = [pytest.mark.spark, pytest.mark.tier("more"), pytest.mark.older(long=("4.2", "4.1"))]

REPLACED = "VectorizedFlatMapGroupsInPandasWithState"
ROWS = pa.table({"k": ["a", "b", "a"], "v": [1.0, 2.0, 4.0]})


def plan_of(made: Any) -> tuple[str, str]:
    """Run a query with a function that nobody marked; return its plan, and its error's text."""
    query = made.start(
        lambda df: df.groupBy("k").applyInPandasWithState(
            total_per_group, OUTPUT, STATE, "update", "NoTimeout"
        )
    )
    error = ""
    try:
        assert query.awaitTermination(300)
    except StreamingQueryException as failure:
        error = str(failure)
    return query._jsq.explainInternal(False), error


@pytest.fixture
def made(stream, conf):
    conf(PROVIDER_KEY, PROVIDER_CLASS)
    conf(FORMAT_KEY, "2")
    return stream("k string, v double", [ROWS])


@pytest.mark.older(long=("4.0",))
def test_a_python_without_this_package_runs_its_functions_on_sparks_operator(spark, made, monkeypatch):
    """Spark 4.0 takes Python 3.9. The worker here has another one, which Spark says, and no other error."""
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")
    plan, error = plan_of(made)
    assert "FlatMapGroupsInPandasWithState" in plan and REPLACED not in plan
    assert "PYTHON_VERSION_MISMATCH" in error


@pytest.mark.older(long=("4.0",))
@pytest.mark.parametrize(("profiler", "is_replaced"), [("memory", False), ("perf", True)])
def test_a_function_whose_lines_are_profiled_is_called_by_sparks_operator(made, conf, profiler, is_replaced):
    conf("spark.sql.pyspark.udf.profiler", profiler)
    plan, error = plan_of(made)
    assert (REPLACED in plan, error) == (is_replaced, "")
    assert len(made.rows[0]) == 2


@pytest.mark.parametrize(("version", "is_replaced"), [("3.9", False), (None, True)])
def test_a_python_without_this_package_runs_its_processors_in_sparks_worker(
    spark, conf, monkeypatch, capsys, version, is_replaced
):
    """The plan is shown only: a query that runs starts a worker of that Python before it has one."""
    conf(PROVIDER_KEY, PROVIDER_CLASS)
    monkeypatch.setattr(spark.sparkContext, "pythonVer", version or spark.sparkContext.pythonVer)
    rows = spark.readStream.format("rate").load().selectExpr("'a' as k", "1.0d as v")
    summed = rows.groupBy("k").transformWithState(Sums(), "k string, v double", "update", "None")
    summed.explain()
    plan = capsys.readouterr().out
    assert "TransformWithState" in plan and ("BatchedTransformWithState" in plan) == is_replaced, plan


class Sums(StatefulProcessor):
    """Adds the numbers of a group."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        yield Row(k=key[0], v=sum(row.v for row in rows))

    def close(self) -> None:
        pass


PROFILED = """
import json, sys
from pathlib import Path
from conftest import session_options
from option_processors import OUTPUT, Keeps, KeepsFrames
from pyspark.sql import SparkSession
from streams import Stream
import test_processors, test_spark_options

options = {**session_options(), **test_processors.OURS, "spark.sql.shuffle.partitions": "1"}
options[sys.argv[2]] = "true"
spark = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
found = {}
for processor in (Keeps, KeepsFrames):
    made = Stream(spark, Path(sys.argv[1]) / processor.__name__, test_spark_options.SCHEMA)
    made.add(test_spark_options.batches()[0])
    def query(df):
        groups = df.groupBy("k")
        method = groups.transformWithState if processor is Keeps else groups.transformWithStateInPandas
        return method(processor(), OUTPUT, "update", "None")
    made.run(query)
    found[processor.__name__] = (len(made.rows[0]), test_processors.BATCHED in made.plan)
print("FOUND", json.dumps(found))
"""


def test_processors_around_which_pyspark_puts_a_profiler_run_in_sparks_worker(tmp_path):
    found, log = outside.run(PROFILED, tmp_path, "spark.python.profile")
    assert json.loads(json.dumps(found)) == {"Keeps": [6, False], "KeepsFrames": [6, False]}
    assert "PySpark puts a profiling function around it" in log
