"""The examples of the guides, from their text: all forms give the same rows and states on a real query."""

from __future__ import annotations

import datetime
import re
import sys
import types
from pathlib import Path

import late_workers
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from waiting import awaited

import state_store
from state_store import Result

pytestmark = [pytest.mark.spark]

GUIDES = [Path(__file__).parents[2] / "docs" / name for name in ("vectorized.md", "functions.md")]
EXAMPLE = re.compile(r"<!-- example: (\w+) -->\n```python\n(.*?)```", re.DOTALL)
START = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)


def functions(name: str) -> dict:
    """Return the definitions in the code blocks of an example, in a module that is pickled by value."""
    from pyspark import cloudpickle

    module = types.ModuleType(f"guide_{name}")
    vars(module).update(datetime=datetime, np=np, pa=pa, pd=pd, Result=Result, state_store=state_store)
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    for guide in GUIDES:
        for found, code in EXAMPLE.findall(guide.read_text(encoding="utf-8")):
            if found == name:
                exec(compile(code, f"{guide.name}:{name}", "exec"), vars(module))
    return vars(module)


@pytest.mark.tier("more")
def test_the_first_examples_run(spark):
    """Run the blocks that are not a form of an example, which need a stream `df`."""
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        (first,) = set(blocks) - {code for _, code in EXAMPLE.findall(text)}
        rates = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        found = {"df": rates.selectExpr("concat('u', value % 3) as user", "value")}
        exec(first, found)
        rows = []
        writer = found["counted"].writeStream.outputMode("update").trigger(processingTime="1 second")
        writer = writer.foreachBatch(lambda frame, _, rows=rows: rows.extend(frame.collect()))

        def has_rows(query, rows=rows):
            awaited(lambda: rows or not query.isActive, "the query made no rows")
            if not query.isActive:
                query.awaitTermination()  # raises its error

        try:
            late_workers.run(writer.start, has_rows)
        finally:
            for query in spark.streams.active:
                query.stop()
        assert {row.user for row in rows} <= {"u0", "u1", "u2"}
        assert rows and all(row.n >= 1 for row in rows)


def events(seed: int, **columns) -> pa.Table:
    random = np.random.default_rng(seed)
    rows, minute = 60, datetime.timedelta(minutes=1)
    minutes = np.sort(random.integers(0, 45, rows)) + seed * 45
    return pa.table({
        "user": [f"u{i}" for i in random.integers(0, 9, rows)],
        "t": pa.array([START + minute * int(m) for m in minutes], pa.timestamp("us", "UTC")),
        "value": random.integers(0, 3, rows).astype(float),
        "amount": random.integers(0, 100, rows).astype(float),
    })  # fmt: skip


CASES = {
    "totals": ("user string, n long, amount double", "n long, amount double", "update", "NoTimeout"),
    "sessions": (
        "user string, begin timestamp, until timestamp, n long",
        "begin timestamp, until timestamp, n long",
        "append",
        "EventTimeTimeout",
    ),
    "changes": (
        "user string, t timestamp, value double, amount double",
        "value double",
        "update",
        "ProcessingTimeTimeout",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("totals", marks=pytest.mark.dear("stands for the examples of the page")),
        *(pytest.param(name, marks=pytest.mark.tier("more")) for name in ("sessions", "changes")),
    ],
)
def test_the_example_runs(stream, conf, name):
    conf("spark.sql.session.timeZone", "UTC")  # the workers' zone, which the per-group forms rely on
    output, state, mode, timeout = CASES[name]
    defined = functions(name)
    found = []
    for function in (defined[f"{name}_per_group"], defined[name], defined[f"{name}_of_rows"]):
        made = stream(
            "user string, t timestamp, value double, amount double", [events(0), events(1)], "t 0 minutes"
        )
        made.run(
            lambda df, f=function: df.groupBy("user").applyInPandasWithState(f, output, state, mode, timeout),
            mode,
            no_data_batches=timeout != "ProcessingTimeTimeout",
        )
        rows = sorted((row for rows in made.rows.values() for row in rows), key=repr)
        states = [(key[0], tuple(value[0])) for key, value in made.stored()]
        found.append((rows, states))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) > 10 and len(found[0][1]) > 5
