"""Random functions on Spark's operator and accelerated: rows, state, figures and errors are equal.

STATE_STORE_TEST_EXAMPLES sets the number of programs in tier more (default 4); in tier long it is 2,000,
which take some hours.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from frame_programs import (
    CHANGE,
    ERRORS,
    OUTPUT_KINDS,
    READ,
    ROWS,
    STATE,
    VALUE,
    VALUES,
    WAIT,
    FrameProgram,
    Recipe,
    value,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import _parse_datatype_string
from streams import Stream

from state_store.functions import accelerate

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1", "4.0"))]
EXAMPLES = int(os.environ.get("STATE_STORE_TEST_EXAMPLES", "4"))
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
PARTITIONS = "spark.sql.shuffle.partitions"
BY_NAME = "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"
SAFELY = "spark.sql.execution.pandas.convertToArrowArraySafely"
KEYS = ("string", "long", "int", "byte", "date", "timestamp", "decimal(12,3)", "boolean", "double", "binary")
NESTED_KEYS = ("struct<x:int,y:string>", "array<int>")
STATES = ("long", "int", "string", "double", "boolean", "decimal(12,3)", "date", "timestamp", "binary")
TIMEOUTS = ("NoTimeout", "NoTimeout", "EventTimeTimeout", "EventTimeTimeout", "ProcessingTimeTimeout")

recipes = st.builds(
    Recipe,
    *map(st.sampled_from, (READ, CHANGE, ROWS, VALUE, STATE, WAIT)),
    more=st.integers(0, 3),
)


@st.composite
def programs(draw) -> FrameProgram:
    timeout = draw(st.sampled_from(TIMEOUTS))
    return FrameProgram(
        keys=tuple(draw(st.lists(st.sampled_from(KEYS + NESTED_KEYS), min_size=1, max_size=2))),
        values=tuple(draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=4))),
        state=tuple(draw(st.lists(st.sampled_from(STATES), max_size=3))),
        output=draw(st.sampled_from(OUTPUT_KINDS)),
        recipes=tuple(draw(st.lists(recipes, min_size=1, max_size=4))),
        timeout=timeout,
        watermark=timeout == "EventTimeTimeout" or draw(st.booleans()),
        error=draw(st.sampled_from((None, None, None, *ERRORS))),
        fails_at=draw(st.integers(0, 2)),
    )


rows = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=30)
PROGRAMS = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
generated = given(
    program=programs(),
    batches=st.lists(rows, min_size=1, max_size=3),
    records=st.sampled_from((1, 3, 7, 10_000)),
    by_name=st.sampled_from(("true", "true", "false")),
    safely=st.sampled_from(("true", "false")),
)


@pytest.mark.tier("more")
@PROGRAMS
@generated
def test_a_random_function_is_as_on_sparks_operator(spark, program, batches, records, by_name, safely):
    check(spark, program, batches, {RECORDS: records, BY_NAME: by_name, SAFELY: safely})


@pytest.mark.tier("long")
@pytest.mark.timeout(6 * 3600)
@settings(PROGRAMS, max_examples=max(EXAMPLES, 2_000))
@generated
def test_thousands_of_random_functions_are_as_on_sparks_operator(
    spark, program, batches, records, by_name, safely
):
    check(spark, program, batches, {RECORDS: records, BY_NAME: by_name, SAFELY: safely})


def check(spark, program, batches, options):
    options = {PARTITIONS: 1, **options}
    for name, setting in options.items():
        spark.conf.set(name, str(setting))
    try:
        stock, ours = (
            played(spark, program, f, batches) for f in (program.function(), accelerate(program.function()))
        )
    finally:
        for name in options:
            spark.conf.unset(name)
    for name, expected in stock.items():
        assert ours[name] == expected, name


def played(spark, program, function, batches):
    """Return all that a query leaves, its error included."""
    with tempfile.TemporaryDirectory() as directory:
        made = Stream(spark, Path(directory), schema(program), "t 5 minutes" if program.watermark else None)
        for batch in batches:
            made.add(table(program, batch))
        error = None
        try:
            made.run(
                lambda frame: frame.groupBy(
                    *(f"k{i}" for i in range(len(program.keys)))
                ).applyInPandasWithState(
                    function, program.output_schema(), program.state_schema(), "update", program.timeout
                ),
                no_data_batches=program.timeout != "ProcessingTimeTimeout",
            )
        except StreamingQueryException as failure:
            error = reason(str(failure))
        outcome = made.outcome()
        if program.timeout == "ProcessingTimeTimeout":
            for changes in outcome.deltas.values():
                for key, change in changes.items():
                    if change is not None:
                        changes[key] = change[:16] + change[24:]
        return {
            "error": error,
            "rows": outcome.rows,
            "deltas": outcome.deltas,
            "figures": outcome.figures if error is None else None,
        }


def reason(text: str) -> str:
    """Return the last error in a failure's text, without its traceback and causes; else all of it."""
    lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception|Iteration)\b", line)]
    errors = [line.strip() for line in lines if "PythonException" not in line]
    return errors[-1] if errors else re.sub(r"[0-9a-f-]{36}|\d{6,}|/\S+", "", text)[:400]


def table(program: FrameProgram, batch) -> pa.Table:
    columns = {}
    for place, prefix, kinds in ((0, "k", program.keys), (1, "v", program.values)):
        for i, kind in enumerate(kinds):
            of_type = to_arrow_type(_parse_datatype_string(kind), timezone="UTC")
            columns[f"{prefix}{i}"] = pa.array([value(kind, row[place]) for row in batch], of_type)
    columns["n"] = pa.array([None if row[1] % 11 == 7 else row[1] for row in batch], pa.int64())
    columns["t"] = pa.array([row[2] * 60_000_000 for row in batch], pa.timestamp("us", "UTC"))
    return pa.table(columns)


def schema(program: FrameProgram) -> str:
    named = [
        *((f"k{i}", k) for i, k in enumerate(program.keys)),
        *((f"v{i}", k) for i, k in enumerate(program.values)),
    ]
    return ", ".join([*(f"{name} {kind}" for name, kind in named), "n long", "t timestamp"])
