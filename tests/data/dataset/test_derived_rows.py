"""Rows that Spark derives from those of a variable of `transformWithState`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from state_store.data.dataset.columns import Columns
from state_store.data.dataset.rewriting.replacing import DerivedRows, Replaced, Replacement
from state_store.data.dataset.views import FamilySchema, View
from state_store.data.query import Operator
from state_store.data.rows.batches import records_of
from state_store.data.rows.decoder import KeyLayout
from state_store.errors import FormatError, MissingError, OptionError

KEY = pa.schema([("name", pa.string()), ("part", pa.int32())])
WHOLE = pa.struct(list(KEY))
USER = pa.struct([("digit", pa.int64())])
VALUE = pa.schema([("value", pa.struct([("n", pa.int64())])), ("ttlExpirationMs", pa.int64())])
PLAIN, PREFIX, ORDERED = KeyLayout(), KeyLayout((0,)), KeyLayout((0,), is_ordered=True)
NOTHING = pa.schema([("__empty__", pa.null())])
AT, FIRES = ("expirationMs", pa.int64()), ("expiryTimestampMs", pa.int64())
IN_MAP = pa.struct([("key", WHOLE), ("userKey", USER)])
FAMILIES = {
    "kept": (KEY, VALUE, PLAIN),
    "$ttl_kept": (pa.schema([AT, ("elementKey", WHOLE)]), NOTHING, ORDERED),
    "times": (KEY, VALUE, PLAIN),
    "$rowCounter_times": (KEY, pa.schema([("count", pa.int64())]), PLAIN),
    "$count_times": (KEY, pa.schema([("count", pa.int64())]), PLAIN),
    "$min_times": (KEY, pa.schema([AT]), PLAIN),
    "$ttl_times": (pa.schema([AT, ("elementKey", WHOLE)]), NOTHING, ORDERED),
    "digits": (pa.schema([("key", WHOLE), ("userKey", USER)]), VALUE, PREFIX),
    "$ttl_digits": (pa.schema([AT, ("elementKey", IN_MAP)]), NOTHING, ORDERED),
    "older": (pa.schema([("key", WHOLE), ("userKey", USER)]), VALUE, PREFIX),
    "$ttl_older": (pa.schema([AT, ("groupingKey", WHOLE), ("userKey", USER)]), NOTHING, ORDERED),
    "$eventTimers_keyToTimestamp": (pa.schema([("key", WHOLE), FIRES]), NOTHING, PREFIX),
    "$eventTimers_timestampToKey": (pa.schema([FIRES, ("key", WHOLE)]), NOTHING, ORDERED),
}
OPERATOR = Operator(0, "transformWithStateExec", {"default": 1}, lists=frozenset({"times"}))
VIEWS = {
    name: View(name, OPERATOR, "default", FamilySchema(name, *schema)) for name, schema in FAMILIES.items()
}
EXPIRED_MS = 55
A, B = {"name": "a", "part": 1}, {"name": "b", "part": None}


def made(name: str, rows: list[dict[str, Any]], directory: Path, **others: View) -> dict[str, list[dict]]:
    """Return the decoded rows of all families that rows of a view make, by the names of the families."""
    view, known = VIEWS[name], {**VIEWS, **others}
    batch = pa.RecordBatch.from_pylist(rows, pa.schema(list(view.schema.key) + list(view.schema.value)))
    replacement = Replacement(view, [batch], known, EXPIRED_MS)
    replaced = Replaced.of_all(replacement, 1, directory)
    found = {}
    for _, family in replacement.families:
        records = sorted(records_of(replaced.records("default", family, 0)))
        keys = [b"\0\0" + key for key, _ in records]
        decoded = Columns(known[family]).decode(keys, [value for _, value in records], 0)
        found[family] = decoded.drop_columns("partition_id").to_pylist()
    replaced.close()
    return found


def kept(n: int, at: int | None) -> dict[str, Any]:
    return {"value": {"n": n}, "ttlExpirationMs": at}


def test_a_value_with_a_time_to_live_gets_its_expiry_index(tmp_path):
    found = made("kept", [{**A, **kept(1, 300)}, {**B, **kept(2, 200)}], tmp_path)
    assert {(row["name"], row["value"]["n"]) for row in found["kept"]} == {("a", 1), ("b", 2)}
    assert found["$ttl_kept"] == [
        {"expirationMs": 200, "elementKey": B, "__empty__": None},
        {"expirationMs": 300, "elementKey": A, "__empty__": None},
    ]
    assert found.keys() == {"kept", "$ttl_kept"}


def test_a_list_with_a_time_to_live_is_indexed_by_its_first_expiry(tmp_path):
    rows = [{**A, **kept(1, 300)}, {**B, **kept(5, 250)}, {**A, **kept(2, 100)}, {**A, **kept(3, 200)}]
    found = made("times", rows, tmp_path)
    assert [row["value"]["n"] for row in found["times"] if row["name"] == "a"] == [1, 2, 3]
    assert {(row["name"], row["count"]) for row in found["$count_times"]} == {("a", 3), ("b", 1)}
    assert {(row["name"], row["expirationMs"]) for row in found["$min_times"]} == {("a", 100), ("b", 250)}
    assert [(row["expirationMs"], row["elementKey"]) for row in found["$ttl_times"]] == [(100, A), (250, B)]
    assert found.keys() == {"times", "$count_times", "$min_times", "$ttl_times"}, (
        "families that Spark does not write"
    )


def test_a_map_with_a_time_to_live_has_a_row_of_its_index_for_each_entry(tmp_path):
    rows = [{"key": A, "userKey": {"digit": digit}, **kept(digit, 109 - digit)} for digit in (1, 2)]
    found = made("digits", rows, tmp_path)
    assert [(row["expirationMs"], row["elementKey"]) for row in found["$ttl_digits"]] == [
        (107, {"key": A, "userKey": {"digit": 2}}),
        (108, {"key": A, "userKey": {"digit": 1}}),
    ]
    older = made("older", rows, tmp_path)["$ttl_older"]
    assert [(row["groupingKey"], row["userKey"]) for row in older] == [(A, {"digit": 2}), (A, {"digit": 1})]


def test_expired_rows_are_left_out_except_timers(tmp_path):
    rows = [{**A, **kept(n, at)} for n, at in ((1, EXPIRED_MS), (2, EXPIRED_MS + 1), (3, 1))]
    found = made("times", [*rows, {**B, **kept(4, 1)}], tmp_path)
    assert [row["value"]["n"] for row in found["times"]] == [2]
    assert [(row["name"], row["count"]) for row in found["$count_times"]] == [("a", 1)]
    timers = made("$eventTimers_keyToTimestamp", [{"key": A, "expiryTimestampMs": 1}], tmp_path)
    assert len(timers["$eventTimers_timestampToKey"]) == 1


def test_timers_are_written_by_key_and_by_time(tmp_path):
    rows = [{"key": key, "expiryTimestampMs": at} for key, at in ((A, 70), (B, 50), (A, 60))]
    found = made("$eventTimers_keyToTimestamp", rows, tmp_path)
    by_time = [(row["expiryTimestampMs"], row["key"]) for row in found["$eventTimers_timestampToKey"]]
    assert by_time == [(50, B), (60, A), (70, A)]
    assert len(found["$eventTimers_keyToTimestamp"]) == 3
    with pytest.raises(OptionError, match="a key twice"):
        made("$eventTimers_keyToTimestamp", [rows[0], rows[0]], tmp_path)


def test_timers_by_their_own_name_have_no_values():
    timers = VIEWS["$eventTimers_keyToTimestamp"]
    columns = Columns(replace(timers, name="timers", has_no_values=True))
    assert columns.schema.names == ["key", "expiryTimestampMs", "partition_id"]
    batch = pa.RecordBatch.from_pylist([{"key": A, "expiryTimestampMs": 5}], timers.schema.key)
    keys, values = (column.to_pylist() for column in columns.encode(batch)[:2])
    again = Columns(timers).encode(batch.append_column("__empty__", pa.nulls(1)))[:2]
    assert [keys, values] == [column.to_pylist() for column in again]
    assert columns.values([values[0], None]).to_pylist() == [{}, None]
    decoded = columns.decode([b"\0\0" + key for key in keys], values, 3).to_pylist()
    assert decoded == [{"key": A, "expiryTimestampMs": 5, "partition_id": 3}]


@pytest.mark.parametrize("at", [None, -1])
def test_rows_without_an_expiry_are_refused(at, tmp_path):
    with pytest.raises(OptionError, match="'ttlExpirationMs' of the rows of 'kept' is null or below 0"):
        made("kept", [{**A, **kept(1, at)}], tmp_path)


def test_rows_without_the_column_of_their_expiry_are_refused(tmp_path):
    view = VIEWS["kept"]
    batch = pa.RecordBatch.from_pylist([{**A, "value": {"n": 1}}], pa.schema([*KEY, VALUE.field("value")]))
    with pytest.raises(MissingError, match="no column 'ttlExpirationMs'"):
        Replaced.of_all(Replacement(view, [batch], VIEWS), 1, tmp_path)


@pytest.mark.parametrize("name", ["$ttl_kept", "$count_times", "$min_times", "$eventTimers_timestampToKey"])
def test_derived_rows_cannot_be_imported(name):
    with pytest.raises(OptionError, match="book-keeping"):
        Replacement(VIEWS[name], [], VIEWS)


def test_a_list_without_its_derived_view_is_refused():
    known = {name: view for name, view in VIEWS.items() if name != "$min_times"}
    with pytest.raises(FormatError, match=r"no '\$min_times'"):
        DerivedRows.among(VIEWS["times"], known)
