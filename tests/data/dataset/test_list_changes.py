"""Changes in lists of `transformWithState`, and columns that have the names of columns of `changes`."""

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
from state_store.data.rows.packed import merged_values

VALUE = pa.schema([("value", pa.struct([("n", pa.int64()), ("text", pa.string())]))])
KEY = pa.schema([("name", pa.string())])


def columns_of(key: pa.Schema, value: pa.Schema, lists: frozenset[str] = frozenset()) -> Columns:
    schema = FamilySchema("x", key, value, KeyLayout())
    return Columns(View("x", Operator(0, "operator", {"default": 1}, lists=lists), "default", schema))


def rows(schema: pa.Schema, *found: dict[str, Any]) -> list[bytes]:
    return encode(pa.RecordBatch.from_pylist(list(found), schema).columns, len(found))


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
