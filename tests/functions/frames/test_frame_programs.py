"""Random functions on Spark's operator and accelerated: rows, state, figures and errors are equal.

STATE_STORE_TEST_EXAMPLES sets the number of programs in tier more (default 4). In tier long the time is set:
STATE_STORE_TEST_SECONDS (default 3,600) is divided among the blocks, each of which compares as many programs
as its share allows, from a seed of its own on, and prints how many (`pytest -s`). STATE_STORE_TEST_FIRST
names the seed of the first block; a later run with another one compares other programs.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import tempfile
import time
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
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import _parse_datatype_string
from streams import Stream

from state_store.functions import accelerate
from state_store.functions.group_context import to_arrow_schema

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1", "4.0"))]
EXAMPLES = int(os.environ.get("STATE_STORE_TEST_EXAMPLES", "4"))
FIRST = int(os.environ.get("STATE_STORE_TEST_FIRST", EXAMPLES))
BLOCKS, SEEDS_OF_A_BLOCK = 12, 1_000
BLOCK_S = float(os.environ.get("STATE_STORE_TEST_SECONDS", "3600")) / BLOCKS
LAST_PROGRAM_S = 600
"""Time for the program that is compared when the share of a block ends."""
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
PARTITIONS = "spark.sql.shuffle.partitions"
BY_NAME = "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"
SAFELY = "spark.sql.execution.pandas.convertToArrowArraySafely"
KEYS = ("string", "long", "int", "byte", "date", "timestamp", "decimal(12,3)", "boolean", "double", "binary")
NESTED_KEYS = ("struct<x:int,y:string>", "array<int>")
STATES = ("long", "int", "string", "double", "boolean", "decimal(12,3)", "date", "timestamp", "binary")
TIMEOUTS = ("NoTimeout", "NoTimeout", "EventTimeTimeout", "EventTimeTimeout", "ProcessingTimeTimeout")


def case(seed: int):
    """Return a program, its batches (rows of a key's, a value's and a time's number) and Spark's options."""
    draw = random.Random(seed)
    timeout = draw.choice(TIMEOUTS)
    program = FrameProgram(
        keys=tuple(draw.choices(KEYS + NESTED_KEYS, k=draw.randint(1, 2))),
        values=tuple(draw.choices(sorted(VALUES), k=draw.randint(0, 4))),
        state=tuple(draw.choices(STATES, k=draw.randint(0, 3))),
        output=draw.choice(OUTPUT_KINDS),
        recipes=tuple(
            Recipe(*map(draw.choice, (READ, CHANGE, ROWS, VALUE, STATE, WAIT)), more=draw.randint(0, 3))
            for _ in range(draw.randint(1, 4))
        ),
        timeout=timeout,
        watermark=timeout == "EventTimeTimeout" or draw.random() < 0.5,
        error=draw.choice(ERRORS) if draw.random() < 0.4 else None,
        fails_at=draw.randint(0, 2),
    )
    batches = [
        [(draw.randint(0, 8), draw.randint(0, 30), draw.randint(0, 40)) for _ in range(draw.randint(1, 40))]
        for _ in range(draw.randint(1, 3))
    ]
    options = {
        RECORDS: draw.choice((1, 3, 7, 10_000)),
        BY_NAME: draw.choice(("true", "true", "false")),
        SAFELY: draw.choice(("true", "false")),
    }
    return program, batches, options


@pytest.mark.tier("more")
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_a_random_function_is_as_on_sparks_operator(spark, seed):
    check(spark, *case(seed))


@pytest.mark.tier("more")
@pytest.mark.older(more=("4.1",), long=("4.2", "4.0"))
@pytest.mark.parametrize("seed", [69, 40_027, 60_006, 60_060, 60_063, 95_039, 1_208_000])
def test_a_random_function_that_once_differed_is_as_on_sparks_operator(spark, seed):
    """A timeout beyond a long, columns that only Spark 4.1 casts, types in errors, two errors at once."""
    check(spark, *case(seed))


ROW_OF_A_GROUP = Recipe("all", "values", "named", "right", "update", "soon", 0)
MIXED = FrameProgram(
    keys=("long",),
    values=("array<int>", "struct<x:int,y:boolean>"),
    state=("timestamp", "double"),
    output="string",
    recipes=(
        ROW_OF_A_GROUP,
        dataclasses.replace(ROW_OF_A_GROUP, rows="misnamed", state="leave"),
        dataclasses.replace(ROW_OF_A_GROUP, rows="none", state="read after removal"),
        dataclasses.replace(ROW_OF_A_GROUP, rows="refilled", read="first"),
    ),
    timeout="EventTimeTimeout",
    watermark=True,
    error=None,
    fails_at=0,
)
INPUT = [(i % 7, i % 30, i % 40) for i in range(80)]


@pytest.mark.tier("more")
@pytest.mark.parametrize("error", [None, "stop", "too many columns"])
def test_groups_whose_forms_are_mixed_are_as_on_sparks_operator(spark, error):
    """Frames end within groups, arrays have nulls inside, groups without output stand beside others."""
    check(spark, dataclasses.replace(MIXED, error=error), [INPUT[:50], INPUT[50:]], {RECORDS: 6})


@pytest.mark.tier("more")
@pytest.mark.older(more=("4.1",), long=("4.2", "4.0"))
def test_a_limit_that_means_none_cuts_frames_as_sparks_operator(spark):
    """On Spark 4.0 and 4.1 each row is a frame then, and each frame of output a run."""
    check(spark, dataclasses.replace(MIXED, error=None), [INPUT[:50], INPUT[50:]], {RECORDS: 0})


@pytest.mark.tier("long")
@pytest.mark.older(long=("4.2", "4.1", "4.0"))
@pytest.mark.timeout(BLOCK_S + LAST_PROGRAM_S)
@pytest.mark.parametrize("first", [FIRST + SEEDS_OF_A_BLOCK * block for block in range(BLOCKS)])
def test_random_functions_of_an_hour_are_as_on_sparks_operator(spark, first):
    end_s, compared, differing = time.monotonic() + BLOCK_S, 0, []
    for seed in range(first, first + SEEDS_OF_A_BLOCK):
        if time.monotonic() > end_s:
            break
        try:
            check(spark, *case(seed))
        except AssertionError as difference:
            differing.append((seed, str(difference)[:2_000]))
        compared += 1
        print(
            f"\r{compared} programs compared from seed {first} on: {len(differing)} differ",
            end="",
            flush=True,
        )
    assert compared and not differing, differing


def check(spark, program, batches, options):
    options = {PARTITIONS: 1, **options}
    before = {name: spark.conf.get(name, None) for name in options}
    for name, setting in options.items():
        spark.conf.set(name, str(setting))
    try:
        stock, ours = (
            played(spark, program, f, batches) for f in (program.function(), accelerate(program.function()))
        )
    finally:
        for name, setting in before.items():
            spark.conf.unset(name) if setting is None else spark.conf.set(name, setting)
    for name, expected in stock.items():
        is_known = name == "error" and _is_later(expected, ours[name])
        assert is_known or ours[name] == expected, (name, program)


def _is_later(stock, ours):
    """Return True if Spark's worker told the error of a frame, and this one that of a state beside it."""
    of_frame, of_state = "Failed to convert the value of the column", "[STRUCT_ARRAY_LENGTH_MISMATCH]"
    return of_frame in (stock or "") and of_state in (ours or "")


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
        for changes in outcome.deltas.values():
            for key, change in changes.items():
                # A string state of another type: Spark stores the text of the pickler's Java object.
                if change is not None and b"net.razorvine.pickle.objects." in change:
                    changes[key] = b"the text of an object"
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
            of_type = to_arrow_schema(_parse_datatype_string(f"x {kind}"), "UTC", False).field(0).type
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
