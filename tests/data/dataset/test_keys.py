"""The partitions of state variables of `transformWithState`, whose keys Spark keeps in several views."""

from __future__ import annotations

import datetime
import json
import math
import zoneinfo
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_store.cli import process
from state_store.cli.formats import cell, plain
from state_store.data.dataset.columns import key_columns, key_filter, key_partitions, partitioning_columns
from state_store.data.dataset.views import FamilySchema, View
from state_store.data.query import Operator
from state_store.data.rows.decoder import KeyLayout
from state_store.data.rows.encoder import partitions_of
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


def test_keys_are_read_from_texts():
    """A key can be given as the text that `show` prints, windows and other structs as JSON."""
    key = {"window": pa.array([{"start": 0, "end": 60_000_000}], WINDOW), "tags": pa.array([["a", None]])}
    view = view_of(key, KeyLayout())
    for start in ("1970-01-01T00:00:00+00:00", "1970-01-01 00:00:00", "1970-01-01T01:00:00+01:00"):
        window = json.dumps({"start": start, "end": "1970-01-01T00:01:00Z"})
        assert key_columns(view, (window, '["a", null]')) == list(key.values())
    for wrong in ("1970", '{"start": "soon"}', '{"begin": "1970-01-01"}', "[]"):
        with pytest.raises(OptionError, match="is not a value of column 'window'"):
            key_columns(view, (wrong, "[]"))


def test_keys_of_an_unknown_layout_are_not_moved():
    view = view_of({"at": MOMENTS, "what": KEYS}, KeyLayout((0,), is_ordered=True))
    with pytest.raises(FormatError, match="cannot be told"):
        partitioning_columns(view)


WINDOW = pa.struct([(name, pa.timestamp("us", "UTC")) for name in ("start", "end")])
START = datetime.datetime(2024, 2, 29, 10, 40, tzinfo=datetime.timezone.utc)
SPAN = {"start": START, "end": START + datetime.timedelta(minutes=20)}
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def key_of(kind: pa.DataType, value: object, **others: object) -> object:
    """Return what a key of one column of a type stands for."""
    ((found,),) = key_columns(view_of({"k": pa.nulls(1, kind)}, KeyLayout()), value, **others)
    return found.as_py()


@pytest.mark.parametrize(
    "text",
    [
        '{"start": "2024-02-29 11:40", "end": "2024-02-29T12:00:00"}',
        '{"end": "2024-02-29 11:00Z", "start": "2024-02-29 10:40:00.000+00:00"}',
        "2024-02-29 11:40:00+01:00 to 12:00:00+01:00",
        "2024-02-29 05:40:00-05:00 to 06:00:00-05:00",
        "2024-02-29 11:40 to 2024-02-29 12:00",
    ],
)
def test_a_window_is_given_as_it_is_shown(text: str) -> None:
    assert key_of(WINDOW, text, zone=BERLIN) == SPAN


@given(
    st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)),
    st.timedeltas(datetime.timedelta(microseconds=1), datetime.timedelta(days=40)),
    st.sampled_from(["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "UTC"]),
)
def test_each_printed_window_is_read_again(
    start: datetime.datetime, span: datetime.timedelta, name: str
) -> None:
    first = start.replace(tzinfo=datetime.timezone.utc)
    window = {"start": first, "end": first + span}
    token = process._zone.set(zoneinfo.ZoneInfo(name))
    try:
        assert key_of(WINDOW, cell(window).plain) == window
    finally:
        process._zone.reset(token)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.binary(), [b"", b"abc", b"\xff\0", b"null"]),
        (pa.time64("ns"), [datetime.time(1, 2, 3, 4), datetime.time(23, 59)]),
        (
            pa.duration("us"),
            [
                datetime.timedelta(days=1, seconds=2, microseconds=5),
                datetime.timedelta(microseconds=-1),
                datetime.timedelta(0),
                datetime.timedelta(microseconds=2**63 - 1),
                datetime.timedelta(days=-106751991),
            ],
        ),
    ],
    ids=str,
)
def test_bytes_times_and_intervals_are_given_as_they_are_shown(kind: pa.DataType, values: list) -> None:
    for value in values:
        nested = {"k": value, "all": [value, None]}
        struct = pa.struct([("k", kind), ("all", pa.list_(kind))])
        for shown in (plain, lambda value: cell(value).plain):
            assert key_of(kind, shown(value)) == value
            text = shown(nested)
            assert key_of(struct, text if isinstance(text, str) else json.dumps(text)) == nested
    with pytest.raises(OptionError, match="is not a value of column 'k'"):
        key_of(kind, "x y")


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.struct([("n", pa.float64())])], ids=str)
def test_rows_are_found_by_numbers_that_are_equal_to_none_or_to_two(kind: pa.DataType) -> None:
    """NaN is a key like any other, and 0.0 and -0.0 are two."""
    numbers = [math.nan, 0.0, -0.0, 1.5, math.inf, None]
    column = pa.array([{"n": number} for number in numbers] if pa.types.is_struct(kind) else numbers, kind)
    view = view_of({"k": column}, KeyLayout())
    for value in column.to_pylist():
        found = pa.table({"k": column}).filter(key_filter(view, key_columns(view, (value,))))
        assert repr(found["k"].to_pylist()) == repr([value])


def test_moments_in_numbers_are_given_as_they_are_shown() -> None:
    milliseconds = int(START.timestamp() * 1000)
    for text in ("2024-02-29 11:40:00+01:00", "2024-02-29 11:40", str(milliseconds)):
        assert key_of(pa.int64(), text, zone=BERLIN, units={"k": "ms"}) == milliseconds
    assert key_of(pa.int64(), "-1", units={"k": "ms"}) == -1
    with pytest.raises(OptionError, match="is not a value of column 'k'"):
        key_of(pa.int64(), "2024-02-29 11:40")


@pytest.mark.parametrize("form", [json.dumps, dict])
def test_a_struct_has_all_of_its_fields_and_no_others(form) -> None:
    for wrong, message in (
        ({"name": "a"}, "'part' is missing"),
        ({"name": "a", "prat": 1}, "no field 'prat'"),
    ):
        with pytest.raises(OptionError, match=message):
            key_of(KEY, (form(wrong),))
    assert key_of(KEY, (form({"name": "a", "part": None}),)) == {"name": "a", "part": None}


def test_null_is_null_but_for_texts() -> None:
    assert key_of(pa.int64(), "null") is key_of(WINDOW, "null") is None
    assert key_of(pa.string(), "null") == "null"


def test_a_struct_of_one_field_is_given_by_its_value() -> None:
    for value in (5, "5", '{"digit": 5}', ({"digit": 5},)):
        assert key_of(USER_KEY, value) == {"digit": 5}
    assert key_of(pa.struct([("moment", pa.timestamp("us", "UTC"))]), START) == {"moment": START}
    with pytest.raises(OptionError, match="'x' is not a value of column 'k'"):
        key_of(USER_KEY, "x")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((pa.int64(), value) for value in (1.5, Decimal("1.5"), float("inf"), float("nan"), "1.5")),
        *((KEY, ({"name": "a", "part": value},)) for value in (0.5, Decimal("1e-9"))),
        (KEY, '{"name": "a", "part": 1.5}'),
        (pa.list_(pa.int32()), ([1, 1.5],)),
        (pa.date32(), datetime.datetime(2024, 2, 29, 5)),
    ],
)
def test_a_key_is_not_cut_off_to_another(kind, value) -> None:
    with pytest.raises(OptionError, match="is not a value of column 'k'"):
        key_of(kind, value)


def test_whole_numbers_and_midnights_are_keys_in_any_form() -> None:
    assert {key_of(pa.int32(), value) for value in (2, 2.0, Decimal("2.00"), "2")} == {2}
    day = datetime.date(2024, 2, 29)
    assert key_of(pa.date32(), day) == key_of(pa.date32(), datetime.datetime(2024, 2, 29)) == day
