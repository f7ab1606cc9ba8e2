"""Under options that reach workers a processor in batches has the results of Spark's own worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from option_processors import OUTPUT, VARIABLES, Fails, Keeps, KeepsFrames, Sizes, Waits
from pyspark.errors import StreamingQueryException
from test_processors import BATCHED, OURS, PROCESSORS
from test_spark_options import REACH_WORKERS, SCHEMA, UDF, batches

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

FORMS = {"rows": Keeps, "frames": KeepsFrames}
SIZES, KINDS = re.compile(r"[mM]ax|buffer"), re.compile(r"pandas|Types|binary|timeZone|arrow|conversion")
"""Names of options that cut streams into parts, and of options that choose types."""


def bundles() -> dict[str, dict[str, str]]:
    """Return the options that reach workers in bundles that are set together, each with its first value."""
    found: dict[str, dict[str, str]] = {"sizes": {}, "kinds": {}, "others": {}}
    for name, values in REACH_WORKERS.items():
        is_size = SIZES.search(name) and not name.endswith("maxBytesPerOutputBatch")  # Spark takes one limit
        bundle = "sizes" if is_size else "kinds" if KINDS.search(name) else "others"
        found[bundle][name] = values[0]
    return found


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


def compare(spark: Any, stream: Any, conf: Any, form: str, options: dict[str, str]) -> None:
    """Compare a processor in batches with Spark's worker under these options."""
    conf("spark.sql.execution.pyspark.udf.faulthandler.enabled", "false")
    conf(PROCESSORS, "true")
    for name, setting in {**OURS, **options}.items():
        conf(name, setting)
    stock, batched = (results(spark, stream, form, is_batched) for is_batched in (False, True))
    assert batched == stock


@pytest.mark.parametrize("form", FORMS)
def test_processors_have_the_results_of_sparks_worker_with_compression(spark, stream, conf, form):
    compare(spark, stream, conf, form, {"spark.sql.execution.arrow.compression.codec": "lz4"})


@pytest.mark.tier("more")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bundle", bundles())
def test_processors_have_the_results_of_sparks_worker_with_many_options(spark, stream, conf, form, bundle):
    compare(spark, stream, conf, form, bundles()[bundle])


@pytest.mark.tier("long")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, values in REACH_WORKERS.items() for value in values]
)
def test_processors_have_the_results_of_sparks_worker_with_each_option(
    spark, stream, conf, form, option, value
):
    compare(spark, stream, conf, form, {option: value})


@pytest.mark.older(more=("4.1",), long=("4.2",))
@pytest.mark.parametrize("records", ["0", "-1", "2"])
def test_frames_end_where_those_of_sparks_worker_do(spark, stream, conf, records):
    """0 means that there is no limit; on Spark 4.1 each row is a frame then."""
    for name, setting in {**OURS, "spark.sql.execution.arrow.maxRecordsPerBatch": records}.items():
        conf(name, setting)
    found = []
    for is_batched in (False, True):
        conf(PROCESSORS, str(is_batched).lower())
        made = stream(SCHEMA, batches()[:1])
        made.run(
            lambda df: df.groupBy("s").transformWithStateInPandas(
                Sizes(), "s string, c long", "update", "None"
            )
        )
        assert (BATCHED in made.plan) == is_batched
        found.append(made.outcome().rows)
    assert found[0] == found[1]


@pytest.mark.older(more=("4.1",), long=("4.2",))
def test_the_python_of_a_processor_is_that_of_its_session(spark, stream, conf):
    """Spark's worker of processors does not heed the option, which names another Python for functions."""
    compare(spark, stream, conf, "rows", {"spark.sql.execution.pyspark.python": "/nowhere/python"})


IDLE = "spark.python.worker.idleTimeoutSeconds"
KILLS = "spark.python.worker.killOnIdleTimeout"
NEVER_S = 100
"""Seconds after which a worker that is not killed goes on."""


@pytest.mark.older(more=("4.1",), long=("4.2",))
@pytest.mark.parametrize("is_batched", [False, True])
def test_an_idle_worker_is_killed_as_the_application_says(spark, stream, conf, application, is_batched):
    """Spark's runner of processors heeds the options of the application, and not those of the session."""
    conf(f"{UDF}.idleTimeoutSeconds", "0")
    conf(f"{UDF}.killOnIdleTimeout", "false")
    application(IDLE, "1")
    application(KILLS, "true")
    with pytest.raises(StreamingQueryException, match="idle"):
        waited(spark, stream, conf, NEVER_S, is_batched)


@pytest.mark.older(more=("4.1",), long=("4.2",))
@pytest.mark.parametrize("is_batched", [False, True])
def test_a_session_cannot_let_idle_workers_be_killed(spark, stream, conf, application, is_batched):
    conf(f"{UDF}.idleTimeoutSeconds", "1")
    conf(f"{UDF}.killOnIdleTimeout", "true")
    application(IDLE, "1")
    assert waited(spark, stream, conf, 3, is_batched)


MARKS = ("worker.py", "count = ", "Fatal Python error")
"""Texts that show a whole traceback, its locals, and the report of a death."""


@pytest.mark.older(more=("4.1",), long=("4.2",))
@pytest.mark.parametrize("by_signal", [False, True])
def test_an_error_is_shown_as_the_application_says(spark, stream, conf, by_signal):
    """Spark's runner of processors heeds no option of the session that shortens or adds to an error."""
    for name in ("hideTraceback", "simplifiedTraceback", "tracebackWithLocals", "faulthandler"):
        conf(f"{UDF}.{name}.enabled", "true")
    for name, value in OURS.items():
        conf(name, value)
    found = []
    for is_batched in (False, True):
        conf(PROCESSORS, str(is_batched).lower())
        made, processor = stream(SCHEMA, batches()[:1]), Fails(by_signal)
        with pytest.raises(StreamingQueryException) as error:
            made.run(lambda df, p=processor: df.groupBy("k").transformWithState(p, OUTPUT, "update", "None"))
        found.append([mark in str(error.value) for mark in MARKS])
    assert found[1] == found[0]
    assert any(found[0]) != by_signal


@pytest.fixture
def application(spark: Any) -> Iterator[Any]:
    """Yield a function that sets an option of the application, as runners of Python workers read it."""
    settings = spark._jsc.sc().conf()  # not a copy
    names = []

    def set_option(name: str, value: str) -> None:
        names.append(name)
        settings.set(name, value)

    yield set_option
    for name in names:
        settings.remove(name)


def waited(spark: Any, stream: Any, conf: Any, seconds: float, is_batched: bool) -> Any:
    """Return the output of a processor that works for so long."""
    for name, value in {**OURS, PROCESSORS: str(is_batched).lower()}.items():
        conf(name, value)
    made = stream(SCHEMA, batches()[:1])
    processor, output = Waits(seconds), "k string, c long"
    made.run(lambda df: df.groupBy("k").transformWithState(processor, output, "update", "None"))
    assert (BATCHED in made.plan) == is_batched
    return made.outcome().rows
