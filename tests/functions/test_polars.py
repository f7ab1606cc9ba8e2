"""Vectorised functions with frames of polars: the same values as in Arrow, there and back."""

from __future__ import annotations

import datetime
import importlib.util
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
import wire

from state_store.functions import GROUP, BadResultError, Result, frames, vectorized
from state_store.functions.group_context import Header

KEY = wire.schema({"k": "string"})
ROWS = wire.schema({"v": "long"})
TEXTS = {"type": "array", "elementType": "string", "containsNull": True}
COUNTS = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
LISTED = {"type": "array", "elementType": COUNTS, "containsNull": True}
NESTED = {"type": "struct", "fields": [{"name": "ms", "type": LISTED, "nullable": True, "metadata": {}}]}
STATE = wire.schema(
    {
        "n": "long",
        "t": "timestamp",
        "d": "decimal(12,3)",
        "l": TEXTS,
        "m": COUNTS,
        "b": "binary",
        "e": "date",
        "s": NESTED,
    }
)
OUTPUT = wire.schema({"k": "string", "n": "integer"})
MOMENT = datetime.datetime(2024, 11, 3, 9, 30, tzinfo=datetime.timezone.utc)
DAY = datetime.date(2024, 2, 29)
STATES = [
    (1, MOMENT, Decimal("1.5"), ["a", None], [("x", 1), ("y", None)], b"z", DAY, {"ms": [[("q", 1)]]}),
    (None, None, None, None, None, None, None, None),
    (2, MOMENT, Decimal("-0.001"), [], [], b"", datetime.date(1, 1, 1), {"ms": None}),
]


GROUPS = [
    {"key": ("a",), "rows": [(1,)], "state": STATES[0]},
    {"key": ("b",), "rows": [(1,)] * 2, "state": STATES[1]},
    {"key": ("c",), "rows": [(1,)] * 3, "state": STATES[2]},
    {"key": ("d",), "rows": [], "state": None},
]


def call(function, **header):
    text = wire.header(KEY, ROWS, STATE, OUTPUT, **header)
    (reply,) = vectorized(frame="polars")(function)(iter([wire.batch(text, Header.parse(text), GROUPS)]))
    return wire.answer(reply)


def test_states_go_in_and_out_as_they_are():
    def function(rows, states, context):
        assert isinstance(rows, pl.DataFrame) and states["t"].dtype.time_zone == "America/Los_Angeles"
        return Result(state=states.filter(pl.col("__exists")))

    in_arrow = []
    text = wire.header(KEY, ROWS, STATE, OUTPUT)
    function_of_tables = vectorized(
        lambda rows, states, context: Result(state=states.filter(states["__exists"]))
    )
    for reply in function_of_tables(iter([wire.batch(text, Header.parse(text), GROUPS)])):
        in_arrow.append(wire.answer(reply))
    assert call(function) == in_arrow[0]
    assert len(in_arrow[0]["state"]) == 3


def test_output_removals_and_timeouts_are_taken_from_polars():
    def function(rows, states, context):
        counts = rows.group_by(GROUP, maintain_order=True).agg(pl.len().alias("n"))
        output = states.join(counts, on=GROUP, how="left").select("k", pl.col("n_right").alias("n"))
        return Result(
            output=output,
            remove=states["n"].is_null(),
            timeout=pl.Series([None, None, 2_000_000, None], dtype=pl.Int64),
        )

    reply = call(function, timeout_conf="EventTimeTimeout", watermark_ms=5)
    assert [(r["k"], r["n"]) for r in reply["output"]] == [("a", 1), ("b", 2), ("c", 3), ("d", None)]
    assert reply["changes"] == {1: ("remove", -1), 2: ("keep", 2_000_000), 3: ("remove", -1)}


def test_durations_and_moments_of_polars_are_taken_as_timeouts():
    later = pl.Series([datetime.timedelta(seconds=1)] + [None] * 3)
    reply = call(lambda r, s, c: Result(timeout=later), timeout_conf="ProcessingTimeTimeout")
    assert reply["changes"] == {0: ("keep", 1_001_000)}
    reply = call(
        lambda r, s, c: Result(timeout=s["t"].dt.offset_by("1h")),
        timeout_conf="EventTimeTimeout",
        watermark_ms=5,
    )
    in_an_hour_ms = int(MOMENT.timestamp() * 1000) + 3_600_000
    assert reply["changes"] == {0: ("keep", in_an_hour_ms), 2: ("keep", in_an_hour_ms)}


def test_a_zone_that_polars_does_not_know_becomes_utc():
    table = pa.table({"t": pa.array([MOMENT], pa.timestamp("us", "+02:00"))})
    frame = frames.polars_frame(table)
    assert frame["t"].dtype.time_zone == "UTC" and frame["t"][0] == MOMENT


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            lambda states: Result(state=states.lazy()),
            "Result.state is a LazyFrame: return a polars.DataFrame",
        ),
        (lambda states: Result(output=states.select("k")), "Result.output lacks column 'n'"),
        (
            lambda states: Result(state=states.with_columns(m=pl.lit(1))),
            "column 'm' is int32, but the schema says map",
        ),
    ],
)
def test_other_results_are_refused(given, message):
    with pytest.raises(BadResultError, match=message):
        call(lambda rows, states, context: given(states))


def test_without_polars_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install polars"):
        vectorized(frame="polars")(print)


def test_an_unknown_kind_of_frame_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"frame is 'spark': state_store.vectorized knows arrow, pandas, polars"
    ):
        vectorized(frame="spark")(print)
