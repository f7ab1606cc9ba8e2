"""Under options of a session's start, functions and processors have the results of Spark's own."""

from __future__ import annotations

import json

import outside
import pytest

pytestmark = pytest.mark.spark

TOGETHER = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.executor.pyspark.memory": "2g",
    "spark.python.factory.idleWorkerMaxPoolSize": "1",
    "spark.executor.python.worker.log.details": "true",
}
"""Options that a session can have at once."""

SESSION = """
import json, sys
from pathlib import Path
from conftest import session_options
from pyspark.sql import SparkSession
from streams import Stream
import test_processor_options
import test_spark_options
from test_processors import OURS

root, options = Path(sys.argv[1]), json.loads(sys.argv[2])
options = {**session_options(), "spark.sql.shuffle.partitions": "1", **options}
spark = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
from forms import FORMS
found = {}
name = ""

def stream(schema, tables):
    made = Stream(spark, root / name.replace(" ", "-"), schema)
    for table in tables[:2]:
        made.add(table)
    return made

for form in FORMS:
    name = f"function {form}"
    found[name] = repr(test_spark_options.results(stream, form))
for option, value in OURS.items():
    spark.conf.set(option, value)
for form in test_processor_options.FORMS:
    for batched in (False, True):
        name = f"processor {form} {batched}"
        found[name] = repr(test_processor_options.results(spark, stream, form, batched))
print("FOUND", json.dumps(found))
"""


def check(directory, options: dict[str, str]) -> None:
    """Compare all forms of a function and of a processor with Spark's own in a session with these options."""
    found, _ = outside.run(SESSION, directory, json.dumps(options))
    functions = {name: result for name, result in found.items() if name.startswith("function ")}
    assert "None" in found["function stock"]
    assert len(functions) == 5
    for name, result in functions.items():
        assert result == found["function stock"], name
    for form in ("rows", "frames"):
        assert "Decimal" in found[f"processor {form} False"]
        assert found[f"processor {form} True"] == found[f"processor {form} False"], form


@pytest.mark.tier("more")
def test_options_of_the_process_act_together_as_in_sparks_worker(tmp_path):
    check(tmp_path, TOGETHER)


EACH = {**TOGETHER, "spark.python.worker.reuse": "false", "spark.python.use.daemon": "false"}


@pytest.mark.tier("long")
@pytest.mark.parametrize("option", EACH)
def test_each_option_of_the_process_acts_as_in_sparks_worker(tmp_path, option):
    check(tmp_path, {option: EACH[option]})
