"""Changes in lists and in sides of joins, and columns that have the names of columns of `changes`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from state_store.data.dataset.columns import Columns
from state_store.data.dataset.history import _diff_batches, _feed_batches
from state_store.data.dataset.views import FamilySchema, View
from state_store.data.query import Operator
from state_store.data.rows.decoder import KeyLayout
from state_store.data.rows.encoder import encode
from state_store.data.rows.types import merged_values

VALUE = pa.schema([("value", pa.struct([("n", pa.int64()), ("text", pa.string())]))])
KEY = pa.schema([("name", pa.string())])


def columns_of(key: pa.Schema, value: pa.Schema, lists: frozenset[str] = frozenset()) -> Columns:
    schema = FamilySchema("x", key, value, KeyLayout())
    return Columns(View("x", Operator(0, "operator", {"default": 1}, lists=lists), "default", schema))


def rows(schema: pa.Schema, *found: dict[str, Any]) -> list[bytes]:
    return encode(pa.RecordBatch.from_pylist(list(found), schema).columns, len(found)).to_pylist()


def key(**values: Any) -> bytes:
    return b"\0\0" + rows(pa.schema([(name, KEY.field("name").type) for name in values]), values)[0]


def elements(*numbers: int) -> bytes:
    values = [{"value": {"n": number, "text": f"t{number}" * number}} for number in numbers]
    return merged_values(rows(VALUE, *values))


def values(*numbers: int) -> list[dict[str, Any]]:
    return [{"value": {"n": number, "text": f"t{number}" * number}} for number in numbers]


@pytest.fixture
def lists() -> Columns:
    return columns_of(KEY, VALUE, frozenset({"x"}))


def test_a_difference_has_complete_lists(lists):
    changes = [
        (key(name="a"), None, elements(1, 2, 3)),
        (key(name="b"), elements(4), elements(4, 5)),
        (key(name="c"), elements(6, 7), None),
        (key(name="d"), elements(8), elements(8)),
    ]
    (batch,) = _diff_batches(lists, changes, 0)
    batch.validate(full=True)
    found = {row["name"]: (row["change"], row["before"], row["after"]) for row in batch.to_pylist()}
    assert found == {
        "a": ("added", None, values(1, 2, 3)),
        "b": ("changed", values(4), values(4, 5)),
        "c": ("removed", values(6, 7), None),
    }


def test_the_feed_has_a_row_for_each_element(lists):
    records = [(key(name="a"), elements(1, 2)), (key(name="b"), None), (key(name="c"), elements(3))]
    (batch,) = _feed_batches(lists, 7, records, 0)
    batch.validate(full=True)
    found = [(row["name"], row["change"], row["value"]) for row in batch.to_pylist()]
    first, second, third = (row["value"] for row in values(1, 2, 3))
    assert found == [("a", "put", first), ("a", "put", second), ("b", "removed", None), ("c", "put", third)]


def test_no_column_hides_another():
    """A query may use the names of a reading's columns: no name occurs twice, and no value is lost."""
    text = pa.string()
    columns = columns_of(
        pa.schema([("version", text), ("change", text), ("partition_id", text), ("before", text)]),
        pa.schema([("version", text), ("batch", text), ("partition_id", text)]),
    )
    own = ["version", "change", "partition_id", "before"]
    value_names = ["value_version", "batch", "value_partition_id"]
    assert columns.schema.names == [*own, *value_names, "state_partition_id"]
    encoded = key(version="kv", change="kc", partition_id="kp", before="kb")
    (value,) = rows(columns.view.schema.value, {"version": "vv", "batch": "vb", "partition_id": "vp"})
    assert columns.decode([encoded], [value], 3).to_pylist() == [
        dict(zip(columns.schema.names, ["kv", "kc", "kp", "kb", "vv", "vb", "vp", 3], strict=True))
    ]
    (feed,) = _feed_batches(columns, 7, [(encoded, value)], 3)
    assert list(feed.to_pylist()[0].items()) == [
        ("version", 7),
        ("batch", 6),
        ("change", "put"),
        ("key_version", "kv"),
        ("key_change", "kc"),
        ("partition_id", "kp"),
        ("before", "kb"),
        ("value_version", "vv"),
        ("value_batch", "vb"),
        ("value_partition_id", "vp"),
        ("state_partition_id", 3),
    ]
    (diff,) = _diff_batches(columns, [(encoded, None, value)], 3)
    assert diff.schema.names == [
        "change",
        "version",
        "key_change",
        "partition_id",
        "key_before",
        "before",
        "after",
        "state_partition_id",
    ]


SIDE_KEY = pa.schema([("field0", pa.string()), ("index", pa.int64())])
SIDE_VALUE = pa.schema([("v", pa.int64()), ("matched", pa.bool_())])


def side_key(user: str, index: int) -> bytes:
    return b"\0\0" + encode([pa.array([user]), pa.array([index])], 1)[0].as_py()


def side_value(v: int | None, matched: bool = False) -> bytes | None:
    return None if v is None else encode([pa.array([v]), pa.array([matched])], 1)[0].as_py()


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({0: 1, 1: 2, 2: 3}, {0: 3, 1: 2}, [("removed", 1)]),
        ({0: 1, 1: 2}, {0: 2, 1: 1}, []),
        ({0: 1, 1: 1}, {0: 1}, [("removed", 1)]),
        ({0: 1}, {0: 1, 1: 1}, [("added", 1)]),
        ({}, {0: 1, 1: 2}, [("added", 1), ("added", 2)]),
        ({0: 1}, {0: 2}, [("removed", 1), ("added", 2)]),
    ],
)
def test_a_row_is_known_by_its_content(before: dict, after: dict, changes: list) -> None:
    schema = FamilySchema("left", SIDE_KEY, SIDE_VALUE, KeyLayout(()))
    columns = Columns(View("left", Operator(0, "symmetricHashJoin", {}), "left", schema, ("index",)))
    written = [
        (side_key(user, index), side_value(before.get(index)), side_value(after.get(index)))
        for user in ("a", "bb")
        for index in range(3)
    ]
    batches = list(_diff_batches(columns, iter(sorted(written)), 4))
    rows = [row for batch in batches for row in batch.to_pylist()]
    for user in ("a", "bb"):
        assert [
            (row["change"], (row["before"] or row["after"])["v"]) for row in rows if row["field0"] == user
        ] == changes


def test_a_row_that_has_found_its_match_goes_and_comes() -> None:
    schema = FamilySchema("left", SIDE_KEY, SIDE_VALUE, KeyLayout(()))
    columns = Columns(View("left", Operator(0, "symmetricHashJoin", {}), "left", schema, ("index",)))
    (batch,) = _diff_batches(
        columns, iter([(side_key("a", 0), side_value(1), side_value(1, matched=True))]), 0
    )
    assert [(row["change"], row["before"], row["after"]) for row in batch.to_pylist()] == [
        ("removed", {"v": 1, "matched": False}, None),
        ("added", None, {"v": 1, "matched": True}),
    ]
