"""Processors of `transformWithState`, unchanged, give the same output and leave the same state in batches.

STATE_STORE_TEST_EXAMPLES sets the number of generated programs (default 2).
"""

from __future__ import annotations

import datetime
import os
import random
import re
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processor_programs import (
    INPUT,
    OUTPUT,
    VARIABLES,
    AgingCalls,
    ChainedCalls,
    RepeatedUpdates,
    StartedCalls,
    TimedCalls,
    TimedFrames,
    UntimedCalls,
    UntimedFrames,
)
from pyspark.sql import functions as F
from streams import Stream

from state_store.core.settings.session import FORMAT_KEY, PROVIDER_CLASS, PROVIDER_KEY

EXAMPLES = int(os.environ.get("STATE_STORE_TEST_EXAMPLES", "2"))
PROCESSORS = "spark.sql.streaming.stateStore.incremental.vectorized.processors"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
STATE_RECORDS = "spark.sql.execution.arrow.transformWithStateInPySpark.maxStateRecordsPerBatch"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MESSAGE = "spark.sql.streaming.stateStore.incremental.vectorized.maxBatchBytes"
BATCHED = "BatchedTransformWithStateInPySpark"

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2",), long=("4.1",)), pytest.mark.tier("more")]

FORMS = {
    "timed rows": (TimedCalls, "eventTime"),
    "aging rows": (AgingCalls, "processingTime"),
    "untimed rows": (UntimedCalls, "None"),
    "timed frames": (TimedFrames, "eventTime"),
    "untimed frames": (UntimedFrames, "None"),
    "started rows": (StartedCalls, "None"),
}
INITIAL = [("k1", 2, 5, "a"), ("k2", 29, 7, "b"), ("k99", 17, 1, None), ("a", 32, 3, "c")]
"""An initial state: key, call, n, s."""


def table(rows) -> pa.Table:
    """Return a batch of (key, minute, call, n, s), with steps in their order."""
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    columns = list(zip(*rows, strict=True))
    return pa.table(
        {
            "k": pa.array(columns[0], pa.string()),
            "t": pa.array(
                [start + datetime.timedelta(minutes=m) for m in columns[1]], pa.timestamp("us", "UTC")
            ),
            "step": pa.array(range(len(rows)), pa.int64()),
            "call": pa.array(columns[2], pa.int32()),
            "n": pa.array(columns[3], pa.int64()),
            "s": pa.array(columns[4], pa.string()),
        }
    )


def play(spark, directory: Path, form: str, batches, options: dict[str, str]):
    """Run a query over the batches; return its output by batch, its states, and whether it was batched."""
    processor, time_mode = FORMS[form]
    before = {name: spark.conf.get(name, None) for name in options}
    for name, value in options.items():
        spark.conf.set(name, value)
    try:
        stream = Stream(spark, directory, INPUT, "t 1 minute" if time_mode == "eventTime" else None)
        for batch in batches:
            stream.add(table(batch))

        def query(frame):
            groups = frame.groupBy("k")
            method = groups.transformWithStateInPandas if "frames" in form else groups.transformWithState
            initial = None
            if form == "started rows":
                initial = spark.createDataFrame(INITIAL, "k string, call int, n long, s string").groupBy("k")
            return method(processor(), OUTPUT, "update", time_mode, initial)

        stream.run(query, no_data_batches=time_mode != "processingTime")
        return stream.outcome().rows, states(spark, directory, time_mode), BATCHED in stream.plan
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def states(spark, directory: Path, time_mode: str):
    """Return the rows of all state variables and the timers, through Spark's reader."""

    def rows(**options):
        read = spark.read.format("statestore").options(**options).load(str(directory / "checkpoint"))
        columns = [c for c in read.columns if c not in ("partition_id", "expiration_timestamp_ms")]
        return sorted(map(repr, read.select(*columns).collect()))

    found = {}
    for name, kind in VARIABLES.items():
        found[name] = rows(
            stateVarName=name, **({"flattenCollectionTypes": "true"} if kind != "value" else {})
        )
    if time_mode != "None":
        found["timers"] = rows(readRegisteredTimers="true")
    return [[re.sub(r"xpirationMs=\d+", "", text) for text in part] for part in found.values()]


def check(spark, form: str, batches, options: dict[str, str]) -> None:
    """Compare a query in batches with one in Spark's own worker."""
    results = []
    for batched in ("false", "true"):
        with tempfile.TemporaryDirectory() as directory:
            results.append(play(spark, Path(directory), form, batches, {**options, PROCESSORS: batched}))
    (stock, stock_states, was_batched), (ours, our_states, is_batched) = results
    assert not was_batched and is_batched
    assert ours == stock
    assert our_states == stock_states


def program(seed: int, rows: int, keys: int, batches: int = 3):
    """Return batches of random calls."""
    rng = random.Random(seed)
    return [
        [
            (
                f"k{rng.randrange(keys)}",
                4 * batch + rng.randrange(6),
                rng.randrange(48),
                rng.randrange(12),
                rng.choice("abc"),
            )
            for _ in range(rows)
        ]
        for batch in range(batches)
    ]


OURS = {PROVIDER_KEY: PROVIDER_CLASS, FORMAT_KEY: "2"}


def test_operators_behind_a_processor_get_the_rows_of_sparks_worker(spark, conf):
    """The rows of a processor go to an aggregation by windows, under a watermark and with timers."""
    for name, value in OURS.items():
        conf(name, value)
    found = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        with tempfile.TemporaryDirectory() as directory:
            stream = Stream(spark, Path(directory), INPUT, "t 1 minute")
            for batch in program(3, 200, 30):
                stream.add(table(batch))

            def query(frame):
                said = frame.groupBy("k").transformWithState(
                    ChainedCalls(), f"t timestamp, {OUTPUT}", "append", "eventTime", None, "t"
                )
                content = F.sort_array(F.collect_list(F.struct("k", "step", "said")))
                return said.groupBy(F.window("t", "2 minutes")).agg(content.cast("string").alias("content"))

            stream.run(query, "append")
            assert (BATCHED in stream.plan) == (batched == "true")
            found.append((stream.outcome().rows, stream.figures))
    assert sum(map(len, found[0][0].values())) > 3
    assert found[1] == found[0]


def test_repeated_updates_are_counted_as_in_sparks_worker(spark, conf):
    for name, value in OURS.items():
        conf(name, value)
    found = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        with tempfile.TemporaryDirectory() as directory:
            stream = Stream(spark, Path(directory), INPUT, None)
            for batch in program(5, 200, 10):
                stream.add(table(batch))
            stream.run(
                lambda frame: frame.groupBy("k").transformWithState(
                    RepeatedUpdates(), OUTPUT, "update", "processingTime"
                ),
                no_data_batches=False,
            )
            assert (BATCHED in stream.plan) == (batched == "true")
            found.append((stream.outcome().rows, stream.figures))
    assert found[1] == found[0]


@pytest.mark.parametrize("form", FORMS)
def test_long_programs_end_as_in_sparks_worker(spark, form):
    check(spark, form, program(1, 600, 60), OURS)


calls = st.tuples(
    st.sampled_from(["a", "b", "c", None]),
    st.integers(0, 12),
    st.one_of(st.integers(0, 47), st.sampled_from([-1, 4, 17, 29, 43])),
    st.integers(0, 13),
    st.sampled_from(["a", "b", "é", "", None, "x" * 5000]),
)
generated = given(
    batches=st.lists(st.lists(calls, min_size=1, max_size=60), min_size=1, max_size=3),
    form=st.sampled_from(sorted(FORMS)),
    records=st.sampled_from((1, 3, 10_000)),
    state_records=st.sampled_from((1, 2, 300, 10_000)),
    message=st.sampled_from(("1", "2k", "64m")),
    store=st.sampled_from((PROVIDER_CLASS, ROCKSDB)),
)
PROGRAMS = settings(
    max_examples=max(EXAMPLES, 1), deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@PROGRAMS
@generated
def test_a_generated_program_ends_as_in_sparks_worker(
    spark, batches, form, records, state_records, message, store
):
    check_generated(spark, batches, form, records, state_records, message, store)


@pytest.mark.tier("long")
@pytest.mark.timeout(3600)
@settings(PROGRAMS, max_examples=40)
@generated
def test_many_generated_programs_end_as_in_sparks_worker(
    spark, batches, form, records, state_records, message, store
):
    check_generated(spark, batches, form, records, state_records, message, store)


def check_generated(spark, batches, form, records, state_records, message, store):
    """Compare a program under these limits on this store."""
    options = {PROVIDER_KEY: store, FORMAT_KEY: "2", RECORDS: str(records), MESSAGE: message}
    check(spark, form, batches, {**options, STATE_RECORDS: str(state_records)})
