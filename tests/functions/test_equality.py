"""Generated queries, on Spark's operator and on ours: outputs, state bytes and progress figures are equal.

Every query runs in five forms on Spark's default store, whose files are compared byte by byte, and on this
project's store in forms that change with each restart. STATE_STORE_TEST_EXAMPLES sets the number of generated
queries (default 2, in `make test-long` 20 more).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from algebra import TYPED, Program, Rule, typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import _parse_datatype_string
from streams import Outcome, Stream

from state_store.core.settings.session import FORMAT_KEY, PROVIDER_CLASS, PROVIDER_KEY
from state_store.functions import accelerate, per_group, vectorized
from state_store.functions.group_context import to_arrow_schema

EXAMPLES = int(os.environ.get("STATE_STORE_TEST_EXAMPLES", "2"))

pytestmark = [
    pytest.mark.spark,
    pytest.mark.older(long=("4.2", "4.1", "4.0")),
]
KEY_KINDS = (
    "string",
    "long",
    "int",
    "date",
    "timestamp",
    "decimal(12,3)",
    "boolean",
    "struct<x:int,y:string>",
)
VALUE_KINDS = (*TYPED, "array<int>", "map<string,int>", "array<struct<x:int,y:string>>")
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ENABLED = "spark.sql.streaming.stateStore.incremental.vectorized.enabled"
OUR_STORE = {PROVIDER_KEY: PROVIDER_CLASS, FORMAT_KEY: "2"}

kinds = st.sampled_from(sorted(TYPED))
rules = st.builds(
    Rule,
    by=st.integers(1, 3),
    rest=st.integers(0, 2),
    update=st.booleans(),
    remove=st.sampled_from((False, False, True)),
    wait_ms=st.sampled_from((None, 1, 120_000, 10**9)),
)


@st.composite
def programs(draw) -> Program:
    return Program(
        keys=tuple(draw(st.lists(st.sampled_from(KEY_KINDS), min_size=1, max_size=2))),
        values=tuple(draw(st.lists(st.sampled_from(VALUE_KINDS), max_size=3))),
        state=tuple(draw(st.lists(kinds, max_size=4))),
        rules=tuple(draw(st.lists(rules, min_size=1, max_size=4))),
        timeout=draw(
            st.sampled_from(("NoTimeout", "EventTimeTimeout", "EventTimeTimeout", "ProcessingTimeTimeout"))
        ),
    )


rows = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=25)


def value(kind: str, seed: int):
    if kind == "array<int>":
        return None if seed % 5 == 4 else list(range(seed % 4))
    if kind == "map<string,int>":
        return None if seed % 5 == 4 else [(str(i), i) for i in range(seed % 3)]
    if kind == "array<struct<x:int,y:string>>":
        return [typed("struct<x:int,y:string>", i) for i in range(seed % 6)]
    return typed(kind, seed)


def table(spark, program: Program, batch) -> pa.Table:
    names = [f"k{i}" for i in range(len(program.keys))] + [f"v{i}" for i in range(len(program.values))]
    columns = []
    for i, kind in enumerate((*program.keys, *program.values)):
        dtype = to_arrow_schema(_parse_datatype_string(f"x {kind}"), "UTC", False).field(0).type
        of_key = i < len(program.keys)
        columns.append(pa.array([value(kind, row[0] if of_key else row[1]) for row in batch], type=dtype))
    minutes = pa.array([row[2] * 60_000_000 for row in batch], pa.timestamp("us", "UTC"))
    return pa.Table.from_arrays([*columns, minutes], names=[*names, "t"])


def schema(program: Program) -> str:
    keys = [f"k{i} {kind}" for i, kind in enumerate(program.keys)]
    return ", ".join([*keys, *(f"v{i} {kind}" for i, kind in enumerate(program.values)), "t timestamp"])


@dataclasses.dataclass
class Found:
    """The results of a query; timeouts by the clock are without their moments."""

    outcome: Outcome
    state: list


def play(spark, directory: Path, program: Program, runs, functions, mode: str) -> Found:
    """Run the query; restart it after each list of batches with the next of `functions`."""
    watermark = "t 5 minutes" if program.timeout == "EventTimeTimeout" else None
    stream = Stream(spark, directory, schema(program), watermark)
    keys = [f"k{i}" for i in range(len(program.keys))]
    for batches, function in zip(runs, itertools.cycle(functions)):
        for batch in batches:
            stream.add(table(spark, program, batch))
        stream.run(
            lambda frame, f=function: frame.groupBy(*keys).applyInPandasWithState(
                f, program.output_schema(), program.state_schema(), mode, program.timeout
            ),
            mode,
            no_data_batches=program.timeout != "ProcessingTimeTimeout",
        )
    found = Found(stream.outcome(), stream.stored())
    if program.timeout == "ProcessingTimeTimeout":
        for changes in found.outcome.deltas.values():
            for key, change in changes.items():
                if change is not None:
                    changes[key] = change[:16] + change[24:]
        found.state = [(key, value[0]) for key, value in found.state]
    return found


@contextlib.contextmanager
def options(spark, values):
    for name, setting in values.items():
        spark.conf.set(name, str(setting).lower() if isinstance(setting, bool) else str(setting))
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(name)


QUERIES = settings(
    max_examples=max(EXAMPLES, 1), deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
generated = given(
    program=programs(),
    runs=st.lists(st.lists(rows, min_size=1, max_size=2), min_size=1, max_size=2),
    mode=st.sampled_from(("update", "append")),
    records=st.sampled_from((1, 7, 10_000)),
    first=st.integers(0, 2),
)


@pytest.mark.dear("the equality of a generated query in all forms")
@QUERIES
@generated
def test_a_generated_query_gives_the_same_rows_in_all_forms(spark, program, runs, mode, records, first):
    check_forms(spark, program, runs, mode, records, first)


@pytest.mark.tier("long")
@pytest.mark.timeout(3600)
@settings(QUERIES, max_examples=20)
@generated
def test_many_generated_queries_give_the_same_rows_in_all_forms(spark, program, runs, mode, records, first):
    check_forms(spark, program, runs, mode, records, first)


def check_forms(spark, program, runs, mode, records, first):
    """All forms of the query leave the same."""
    stock, marked, lean = program.per_group, vectorized(program.many_groups), accelerate(program.per_group)
    plain = per_group(program.plain_rows)
    turns = [marked, lean, plain, stock, marked, lean][first : first + 3]
    forms = {
        "stock": ([stock], {}),
        "vectorized": ([marked], {}),
        "accelerate": ([lean], {}),
        "per_group": ([plain], {}),
        "fallback": ([marked, plain] if first else [plain, marked], {ENABLED: False}),
        "incremental": (turns, OUR_STORE),
    }
    found = {}
    for name, (functions, conf) in forms.items():
        with options(spark, {RECORDS: records, **conf}), tempfile.TemporaryDirectory() as directory:
            found[name] = play(spark, Path(directory), program, runs, functions, mode)
    expected = found.pop("stock")
    for name, other in found.items():
        assert other.outcome.rows == expected.outcome.rows, name
        assert other.outcome.figures == expected.outcome.figures, name
        assert other.state == expected.state, name
        # Only the default store has these files.
        assert other.outcome.deltas == ({} if name == "incremental" else expected.outcome.deltas), name
