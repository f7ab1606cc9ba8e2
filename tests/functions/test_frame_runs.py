"""Result frames that were joined run by run are those that `pd.concat` of all of them gives."""

from __future__ import annotations

import datetime
import decimal
import warnings

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_store.functions.frames import FrameRuns, frame_of

DAY = datetime.datetime(2024, 5, 1)
VALUES = {
    "int64": st.integers(0, 9),
    "int8": st.integers(0, 9),
    "Int64": st.none() | st.integers(0, 9),
    "float64": st.sampled_from((0.5, float("nan"))),
    "bool": st.booleans(),
    "object": st.sampled_from(("a", None, decimal.Decimal("1.5"), (1, 2))),
    "string": st.none() | st.text(max_size=2),
    "datetime64[ns]": st.sampled_from((DAY, pd.NaT)),
    "datetime64[ns, UTC]": st.sampled_from((pd.Timestamp(DAY, tz="UTC"), pd.NaT)),
    "timedelta64[ns]": st.sampled_from((datetime.timedelta(1), pd.NaT)),
    "category": st.sampled_from(("x", "y")),
}
LABELS = (("a", "b", "c", "d"), ("d", "a", "b", "c"), (0, 1, 2, 3), (pd.NA, "b", "c", "d"))


@st.composite
def frames(draw) -> list[pd.DataFrame]:
    """Frames of a few layouts, as a function with branches returns them."""
    kinds = st.lists(st.sampled_from(sorted(VALUES)), min_size=4, max_size=4)
    layouts = draw(st.lists(st.tuples(kinds, st.sampled_from(LABELS)), min_size=1, max_size=3))
    return [
        draw(frame(*draw(st.sampled_from(layouts))))
        for _ in range(draw(st.integers(min_value=1, max_value=6)))
    ]


@st.composite
def frame(draw, kinds, labels) -> pd.DataFrame:
    rows = draw(st.integers(1, 3))
    columns = [pd.Series(draw(st.lists(VALUES[k], min_size=rows, max_size=rows)), dtype=k) for k in kinds]
    made = pd.concat(columns, axis=1) if draw(st.booleans()) else pd.DataFrame(dict(enumerate(columns)))
    made.columns = list(labels)
    return made


def concatenated(parts: list[pd.DataFrame]) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # frames that hold nothing but nulls
        return pd.concat(parts, ignore_index=True)


@pytest.mark.tier("more")
@pytest.mark.filterwarnings("ignore:Mismatched null-like values")  # all of them are null in Arrow
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(frames())
def test_runs_of_frames_are_joined_as_by_concat(parts):
    runs = FrameRuns()
    for part in parts:
        runs.add(part)
    assert runs.rows == sum(map(len, parts))
    pd.testing.assert_frame_equal(concatenated(runs.runs()), concatenated(parts))


def test_frames_of_one_layout_are_one_run():
    runs = FrameRuns()
    for i in range(100):
        runs.add(pd.DataFrame({"k": [str(i)], "n": [i], "s": [0.5], "m": [i], "o": [2 * i]}, index=[i]))
    [run] = runs.runs()
    assert run["m"].tolist() == list(range(100)) and run.index.equals(pd.RangeIndex(100))


def test_frames_without_columns_keep_their_number_of_rows():
    runs = FrameRuns()
    for _ in range(3):
        runs.add(pd.DataFrame(index=[0, 1]))
    assert concatenated(runs.runs()).shape == (6, 0)


def test_pandas_before_2_1_makes_the_same_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older(pd.DataFrame):
        _from_mgr = None

    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    monkeypatch.setattr(pd, "DataFrame", Older)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer ones
        older = frame_of(frame._mgr)
    assert type(older) is Older
    assert older.to_dict("list") == frame.to_dict("list")
