"""Errors, laziness and life of a processor in batches are those that it has in Spark's own worker."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import faulty_processors as processors
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from streams import Stream
from test_processors import BATCHED, OURS, PROCESSORS

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2",), long=("4.1",)), pytest.mark.tier("more")]

BATCHES = [
    pa.table({"k": [f"k{i % 6}" for i in range(13)], "v": list(range(13))}),
    pa.table({"k": [f"k{i % 5}" for i in range(9)], "v": [None, *range(8)]}),
]


def play(spark, processor, batched: str, initial=None):
    """Return output by batch and figures, or the text of the error; and the plan."""
    frames = processor in processors.RUN_WITH_FRAMES + processors.FAIL_WITH_FRAMES
    spark.conf.set(PROCESSORS, batched)
    for name, value in OURS.items():
        spark.conf.set(name, value)
    try:
        with tempfile.TemporaryDirectory() as directory:
            stream = Stream(spark, Path(directory), "k string, v long")
            for batch in BATCHES:
                stream.add(batch)

            def query(frame):
                groups = frame.groupBy("k")
                method = groups.transformWithStateInPandas if frames else groups.transformWithState
                return method(processor(), "k string, n long", "update", "none", initial)

            try:
                stream.run(query)
            except StreamingQueryException as error:
                return str(error), stream.plan
            return (stream.outcome().rows, stream.figures), stream.plan
    finally:
        for name in (PROCESSORS, *OURS):
            spark.conf.unset(name)


def last_lines(text: str) -> tuple[bool, str]:
    """Return True if the user's line is shown, and the error that it ends in."""
    errors = re.findall(r"^\s*((?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b.*)$", text, flags=re.MULTILINE)
    python = [line for line in errors if not line.startswith(("org.apache", "java."))]
    return "# the line of the user" in text, python[0] if python else text.partition(" with exception: ")[
        2
    ].partition("\n")[0]


DEAR = pytest.mark.dear("stands for processors in Spark's worker and in batches")


@pytest.mark.parametrize("processor", processors.FAIL + processors.FAIL_WITH_FRAMES)
def test_errors_are_sparks_at_the_line_of_the_user(spark, processor):
    stock, _ = play(spark, processor, "false")
    batched, _ = play(spark, processor, "true")
    assert isinstance(stock, str), "Spark's worker takes this"
    assert isinstance(batched, str)
    assert last_lines(batched) == last_lines(stock)


def test_timers_that_cannot_be_listed_without_time_are_refused_at_the_line_of_the_user(spark):
    """Spark's worker takes the refusal for the end of the list, and fails at its next call or waits."""
    text, _ = play(spark, processors.ListedTimersWithoutTime, "true")
    assert isinstance(text, str)
    assert last_lines(text)[0]
    assert "list_timers" in text or "listTimers" in text


@pytest.mark.parametrize(
    "processor",
    [
        pytest.param(processor, marks=DEAR if processor is processors.Frames else ())
        for processor in processors.RUN + processors.RUN_WITH_FRAMES
    ],
)
def test_unusual_processors_behave_as_in_sparks_worker(spark, processor):
    stock, _ = play(spark, processor, "false")
    batched, plan = play(spark, processor, "true")
    assert batched == stock
    assert BATCHED in plan


def test_the_batch_with_initial_state_runs_in_sparks_worker_and_the_next_in_batches(spark):
    initial = spark.createDataFrame([("k1", 100), ("k9", 7)], "k string, n long").groupBy("k")
    stock, _ = play(spark, processors.WithInitialState, "false", initial)
    batched, plan = play(spark, processors.WithInitialState, "true", initial)
    assert BATCHED in plan  # of the second batch
    assert batched == stock
