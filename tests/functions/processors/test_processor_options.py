"""Under options that reach workers a processor in batches has the results of Spark's own worker."""

from __future__ import annotations

from typing import Any

import outside
import pytest
from option_processors import OUTPUT, VARIABLES, Keeps, KeepsFrames
from test_processors import BATCHED, OURS, PROCESSORS
from test_spark_options import SCHEMA, batches

pytestmark = pytest.mark.spark

FORMS = {"rows": Keeps, "frames": KeepsFrames}
OF_THE_PROCESS = {
    "spark.python.worker.reuse": "false",
    "spark.python.use.daemon": "false",
}
"""Options that a session takes when it starts."""


def results(spark: Any, stream: Any, form: str, batched: bool) -> tuple[Any, Any]:
    """Return output by batch and states of a query; see that its processor ran in batches, or did not."""
    spark.conf.set(PROCESSORS, str(batched).lower())
    query = stream(SCHEMA, batches())

    def processed(frame: Any) -> Any:
        groups = frame.groupBy("k")
        method = groups.transformWithStateInPandas if form == "frames" else groups.transformWithState
        return method(FORMS[form](), OUTPUT, "update", "None")

    query.run(processed)
    assert (BATCHED in query.plan) == batched
    states = []
    for variable in VARIABLES:
        read = spark.read.format("statestore").option("stateVarName", variable)
        if variable != "last":
            read = read.option("flattenCollectionTypes", "true")
        table = read.load(str(query.directory / "checkpoint")).drop("partition_id")
        states.append(sorted(map(repr, table.collect())))
    return query.outcome().rows, states


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("option", "value"), [("spark.sql.execution.arrow.compression.codec", "lz4")])
def test_processors_have_the_results_of_sparks_worker(spark, stream, conf, form, option, value):
    conf("spark.sql.execution.pyspark.udf.faulthandler.enabled", "false")
    conf(PROCESSORS, "true")
    for name, setting in OURS.items():
        conf(name, setting)
    conf(option, value)
    stock, batched = (results(spark, stream, form, is_batched) for is_batched in (False, True))
    assert batched == stock


SESSION = """
import json, sys
from pathlib import Path
from conftest import session_options
from pyspark.sql import SparkSession
from streams import Stream
from test_processor_options import FORMS, OURS, results

root, option, value = Path(sys.argv[1]), *sys.argv[2:4]
options = {**session_options(), **OURS, option: value}
spark = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
found = {}
for form in FORMS:
    for batched in (False, True):
        def stream(schema, tables):
            made = Stream(spark, root / form / str(batched), schema)
            for table in tables:
                made.add(table)
            return made
        found[f"{form} {batched}"] = repr(results(spark, stream, form, batched))
print("FOUND", json.dumps(found))
"""


@pytest.mark.tier("more")
@pytest.mark.parametrize(("option", "value"), OF_THE_PROCESS.items())
def test_options_of_the_process(tmp_path, option, value):
    found, _ = outside.run(SESSION, tmp_path, option, value)
    for form in FORMS:
        assert "Decimal" in found[f"{form} False"]
        assert found[f"{form} True"] == found[f"{form} False"], form
