"""Fields of a value that say nothing are no columns, and are written as Spark writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from state_store.data.dataset.layout.columns import Columns
from state_store.data.dataset.layout.schemas import FamilySchema
from state_store.data.dataset.layout.views import View
from state_store.data.query import Operator
from state_store.data.rows.encoder import encode
from state_store.data.rows.key_layouts import KeyLayout

TIME = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])
KINDS = {
    "deduplication": (
        "dedupe",
        [("user", pa.string())],
        [("__dummy__", pa.null())],
        ["user", "partition_id"],
        [{"__dummy__": None}, {"__dummy__": None}],
    ),
    "a session, which counts under the name of its key": (
        "sessionWindowStateStoreSaveExec",
        [("count", pa.string()), ("sessionStartTime", TIME)],
        [("count", pa.string()), ("session_window", WINDOW), ("count", pa.int64())],
        ["count", "sessionStartTime", "session_window", "value_count", "partition_id"],
        [("a", {"start": 1, "end": 2}, 3), ("b", {"start": 5, "end": 9}, None)],
    ),
    "another operator, whose value has a name of the key": (
        "stateStoreSave",
        [("count", pa.string())],
        [("count", pa.string())],
        ["count", "value_count", "partition_id"],
        [("x",), (None,)],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_those_with_content_and_rows_stay_as_they_are(kind: str) -> None:
    operator, key, value, names, values = KINDS[kind]
    keys = [("a", 0), ("b", 5)] if len(key) == 2 else [("a",), ("b",)]
    view = View(
        "default",
        Operator(0, operator, {"default": 1}),
        "default",
        FamilySchema("default", pa.schema(key), pa.schema(value), KeyLayout(())),
    )
    stored_keys = encode(_arrays(key, keys), 2)
    stored_values = encode(
        _arrays(value, [tuple(v.values()) if isinstance(v, dict) else v for v in values]), 2
    )
    columns = Columns(view)
    assert columns.schema.names == names
    batch = columns.decode([b"\0\0" + key for key in stored_keys], stored_values, 0)
    batch.validate(full=True)
    assert columns.encode(batch)[:2] == (stored_keys, stored_values)


def _arrays(fields: list, rows: list) -> list[pa.Array]:
    return [pa.array([row[at] for row in rows], kind) for at, (_, kind) in enumerate(fields)]
