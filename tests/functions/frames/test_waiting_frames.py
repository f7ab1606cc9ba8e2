"""Frames and states that travel in runs: what a function can still change counts, as in PySpark's worker."""

from __future__ import annotations

import pickle
import weakref

import pandas as pd
import pyarrow as pa
import pytest
import wire
from pyspark.sql import types
from pyspark.sql.types import ArrayType, StructType

from state_store.functions import accelerated
from state_store.functions.accelerated import StateReader, StateWriter
from state_store.functions.group_context import Header

ROWS = {"k": "string", "v": "long"}
KEPT: list = []


def output_of(function, groups: int = 3, rows: dict[str, str] = ROWS):
    """Return the output rows of `function` for groups of two rows, a row's values as a tuple."""
    schema = wire.schema(rows)
    text = wire.header(wire.schema({"k": "string"}), schema, wire.schema({"n": "long"}), schema)
    given = [{"key": (k,), "rows": [(k, 1), (k, 2)], "state": None} for k in "abcdefgh"[:groups]]
    KEPT.clear()
    replies = [
        wire.answer(reply)
        for reply in accelerated.run(function, iter([wire.batch(text, Header.parse(text), given)]))
    ]
    return [tuple(row.values()) for reply in replies for row in reply["output"]]


def of_key(key):
    return pd.DataFrame({"k": [key[0], key[0]], "v": [1, 2]})


def in_place(last):
    last.loc[0, "v"] = 90


def with_column(last):
    last["v"] = [90, 2]


def test_frames_come_in_order_whether_they_are_kept_or_not():
    def function(key, frames, state):
        frame = of_key(key)
        if key[0] in "bd":
            KEPT.append(frame)
        yield frame.iloc[:1].copy() if key[0] == "c" else frame

    assert output_of(function, 5) == [(k, v) for k in "abcde" for v in ((1,) if k == "c" else (1, 2))]


@pytest.mark.parametrize("change", [in_place, with_column])
@pytest.mark.parametrize(
    "kept",
    [
        lambda frame: frame,
        lambda frame: [frame],
        pd.DataFrame,  # another frame with the same manager
    ],
)
def test_a_change_of_a_frame_that_the_function_keeps_counts(kept, change):
    def function(key, frames, state):
        if key[0] == "b":
            last = KEPT[0][0] if isinstance(KEPT[0], list) else KEPT[0]
            change(last)
        frame = of_key(key)
        KEPT.append(kept(frame))
        yield frame

    # As in a list of frames, which is what PySpark's worker keeps.
    frames = [of_key("a"), of_key("b")]
    other = kept(frames[0])
    change(other[0] if isinstance(other, list) else other)
    assert output_of(function, 2) == [tuple(row) for f in frames for row in f.itertuples(index=False)]


def test_a_change_through_a_weak_reference_counts():
    def function(key, frames, state):
        if key[0] == "b":
            in_place(KEPT[0]())
        frame = of_key(key)
        KEPT.append(weakref.ref(frame))
        yield frame

    assert output_of(function, 2)[0] == ("a", 90)


def test_a_change_of_an_array_of_a_frame_counts():
    def function(key, frames, state):
        if key[0] == "b":
            KEPT[0][0] = 90
        frame = of_key(key)
        KEPT.append(frame["v"].to_numpy())
        yield frame

    assert output_of(function, 2)[0] == ("a", 90)


@pytest.mark.parametrize("copies_on_write", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_a_change_of_a_column_counts_as_pandas_has_it(copies_on_write):
    def function(key, frames, state):
        if key[0] == "b":
            KEPT[0].iloc[0] = 90
        frame = of_key(key)
        KEPT.append(frame["v"])
        yield frame

    with pd.option_context("mode.copy_on_write", copies_on_write):
        frame = of_key("a")
        frame["v"].iloc[0] = 90
        assert output_of(function, 2)[0] == ("a", int(frame["v"].iloc[0]))
        assert bool(frame["v"].iloc[0] == 1) is copies_on_write


@pytest.mark.parametrize(
    ("kinds", "values"),
    [
        ({"a": "long", "b": "string"}, [(1, "x"), None, (2, None)]),
        ({"a": "date", "b": "decimal(5,2)"}, [(19000, None), (None, None), None]),
        (
            {"a": {"type": "struct", "fields": wire.schema({"x": "long"}).jsonValue()["fields"]}},
            [((1,),), None],
        ),
    ],
)
def test_a_run_of_states_is_what_pyspark_makes_of_each(kinds, values):
    """The JVM's pickles are calls of PySpark's converters, with one schema for all rows of a run."""
    schema = wire.schema(kinds)
    header = Header.parse(wire.header(schema, schema, schema, schema))
    column = pa.array([None, run_of(header.state, values), *[None] * len(values)], pa.binary())
    states = list(StateReader(header).read(column))
    expected = [None, *(v if v is None else header.state.fromInternal(v) for v in values), None]
    assert [state.getOption for state in states] == [None if v is None else tuple(v) for v in expected]
    assert [state.exists for state in states] == [v is not None for v in expected]
    for state, value in zip(states, expected, strict=True):
        if value is not None and not isinstance(value[0], tuple):
            assert state._value.__fields__ == value.__fields__
            assert pickle.loads(StateWriter(header).pickled(state._value)) == header.state.toInternal(value)


class Made:
    """A value that is pickled as a call, as the JVM pickles rows and schemas."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call

    def __call__(self):
        """Let pickle take this for a function, which it becomes when it is loaded."""


def run_of(kind: StructType, values: list) -> bytes:
    outer = StructType().add("states", ArrayType(kind))
    inner = Made(types._create_row_inbound_converter, Made(types._parse_datatype_json_string, kind.json()))
    rows = [None if v is None else Made(inner, *v) for v in values]
    outer_row = Made(
        types._create_row_inbound_converter, Made(types._parse_datatype_json_string, outer.json())
    )
    return pickle.dumps(Made(outer_row, rows), 2)
