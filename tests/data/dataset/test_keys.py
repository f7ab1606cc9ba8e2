"""The partitions of state variables of `transformWithState`, whose keys Spark keeps in several views."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from state_store.data.dataset.layout.keys import key_columns, key_partitions, partitioning_columns
from state_store.data.dataset.layout.schemas import FamilySchema
from state_store.data.dataset.layout.views import View
from state_store.data.query import Operator
from state_store.data.rows.hashing import partitions_of
from state_store.data.rows.key_layouts import KeyLayout
from state_store.errors import FormatError, OptionError

PARTITIONS = 50
KEY = pa.struct([("name", pa.string()), ("part", pa.int32())])
USER_KEY = pa.struct([("digit", pa.int64())])
KEYS = pa.array([{"name": name, "part": part} for name in "abc" for part in (1, None, 3)], KEY)
USER_KEYS = pa.array([{"digit": digit} for digit in range(9)], USER_KEY)
MOMENTS = pa.array(range(1000, 1009))
BOTH = pa.StructArray.from_arrays([KEYS, USER_KEYS], ["key", "userKey"])


def view_of(columns: dict[str, pa.Array], layout: KeyLayout, *, is_index_of_map: bool = False) -> View:
    key = pa.schema([(name, column.type) for name, column in columns.items()])
    schema = FamilySchema("x", key, pa.schema([("value", pa.int64())]), layout)
    operator = Operator(0, "transformWithStateExec", {"default": PARTITIONS})
    return View("x", operator, "default", schema, is_index_of_map=is_index_of_map)


@pytest.mark.parametrize(
    ("columns", "layout", "is_index_of_map"),
    [
        pytest.param({"name": KEYS.field(0), "part": KEYS.field(1)}, KeyLayout(), False, id="variable"),
        pytest.param({"key": KEYS, "userKey": USER_KEYS}, KeyLayout((0,)), False, id="map"),
        pytest.param({"key": KEYS, "expiryTimestampMs": MOMENTS}, KeyLayout((0,)), False, id="timers"),
        pytest.param(
            {"expiryTimestampMs": MOMENTS, "key": KEYS},
            KeyLayout((0,), is_ordered=True),
            False,
            id="timers by time",
        ),
        pytest.param(
            {"expirationMs": MOMENTS, "elementKey": KEYS},
            KeyLayout((0,), is_ordered=True),
            False,
            id="index of a value",
        ),
        pytest.param(
            {"expirationMs": MOMENTS, "elementKey": BOTH},
            KeyLayout((0,), is_ordered=True),
            True,
            id="index of a map",
        ),
        pytest.param(
            {"expirationMs": MOMENTS, "groupingKey": KEYS, "userKey": USER_KEYS},
            KeyLayout((0,), is_ordered=True),
            False,
            id="index of a map of Spark 4.0",
        ),
    ],
)
def test_all_rows_of_a_key_are_in_its_partition(columns, layout, is_index_of_map):
    view = view_of(columns, layout, is_index_of_map=is_index_of_map)
    arrays = list(columns.values())
    chosen = [arrays[number] for number in partitioning_columns(view)]
    expected = partitions_of(KEYS.flatten(), list(KEY), PARTITIONS).tolist()
    assert len(set(expected)) > 5
    assert key_partitions(view, chosen, len(KEYS), PARTITIONS).tolist() == expected


WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])


def test_keys_as_texts():
    """A key can be given as the text that `show` prints, windows and other structs as JSON."""
    key = {"window": pa.array([{"start": 0, "end": 60_000_000}], WINDOW), "tags": pa.array([["a", None]])}
    view = view_of(key, KeyLayout())
    for start in ("1970-01-01T00:00:00+00:00", "1970-01-01 00:00:00", "1970-01-01T01:00:00+01:00"):
        window = json.dumps({"start": start, "end": "1970-01-01T00:01:00Z"})
        assert key_columns(view, (window, '["a", null]')) == list(key.values())
    for wrong in ("1970", '{"start": "soon"}', '{"begin": "1970-01-01"}', "[]"):
        with pytest.raises(OptionError, match="no value of column 'window'"):
            key_columns(view, (wrong, "[]"))


def test_keys_of_an_unknown_layout_are_not_moved():
    view = view_of({"at": MOMENTS, "what": KEYS}, KeyLayout((0,), is_ordered=True))
    with pytest.raises(FormatError, match="cannot be told"):
        partitioning_columns(view)
