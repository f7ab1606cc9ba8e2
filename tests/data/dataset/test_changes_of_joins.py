"""The difference of a side of a join is told by its rows, not by the numbers that Spark gives them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from state_store.data.dataset.changes import _diff_batches
from state_store.data.dataset.layout.columns import Columns
from state_store.data.dataset.layout.schemas import FamilySchema
from state_store.data.dataset.layout.views import View
from state_store.data.query import Operator
from state_store.data.rows.encoder import encode
from state_store.data.rows.key_layouts import KeyLayout

KEY = pa.schema([("field0", pa.string()), ("index", pa.int64())])
VALUE = pa.schema([("v", pa.int64()), ("matched", pa.bool_())])


def key(user: str, index: int) -> bytes:
    return b"\0\0" + encode([pa.array([user]), pa.array([index])], 1)[0]


def value(v: int | None, matched: bool = False) -> bytes | None:
    return None if v is None else encode([pa.array([v]), pa.array([matched])], 1)[0]


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
    schema = FamilySchema("left", KEY, VALUE, KeyLayout(()))
    columns = Columns(View("left", Operator(0, "symmetricHashJoin", {}), "left", schema, ("index",)))
    written = [
        (key(user, index), value(before.get(index)), value(after.get(index)))
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
    schema = FamilySchema("left", KEY, VALUE, KeyLayout(()))
    columns = Columns(View("left", Operator(0, "symmetricHashJoin", {}), "left", schema, ("index",)))
    (batch,) = _diff_batches(columns, iter([(key("a", 0), value(1), value(1, matched=True))]), 0)
    assert [(row["change"], row["before"], row["after"]) for row in batch.to_pylist()] == [
        ("removed", {"v": 1, "matched": False}, None),
        ("added", None, {"v": 1, "matched": True}),
    ]
