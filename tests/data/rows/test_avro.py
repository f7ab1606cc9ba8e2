"""Rows that Spark encoded with Avro, against an independent encoder from the specification."""

from __future__ import annotations

import contextlib
import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_store.data.rows.avro import decode_avro, decode_avro_keys, encode_avro, encode_avro_keys
from state_store.data.rows.decoder import KeyLayout
from state_store.errors import DamagedError, FormatError

ORIGIN = datetime(1970, 1, 1, tzinfo=timezone.utc)
INNER = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
FIELDS = [
    pa.field("flag", pa.bool_()),
    pa.field("tiny", pa.int8()),
    pa.field("large", pa.int64()),
    pa.field("single", pa.float32()),
    pa.field("double", pa.float64()),
    pa.field("text", pa.string()),
    pa.field("bytes", pa.binary()),
    pa.field("day", pa.date32()),
    pa.field("moment", pa.timestamp("us", "UTC")),
    pa.field("price", pa.decimal128(20, 3)),
    pa.field("void", pa.null()),
    pa.field("inner", INNER),
    pa.field("inners", pa.list_(INNER)),
    pa.field("counts", pa.map_(pa.string(), pa.int64())),
]
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.booleans(),
        "tiny": st.integers(-128, 127),
        "large": st.integers(-(1 << 63), (1 << 63) - 1),
        "single": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "text": st.text(max_size=90),
        "bytes": st.binary(max_size=9),
        "day": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
        "moment": st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(
            lambda at: at.replace(tzinfo=timezone.utc)
        ),
        "price": st.decimals(-(10**16), 10**16, places=3),
        "inner": st.fixed_dictionaries(
            {}, optional={"a": st.integers(-9, 9), "b": st.lists(st.text(max_size=3), max_size=3)}
        ),
        "inners": st.lists(st.fixed_dictionaries({"a": st.integers(-9, 9)}), max_size=2),
        "counts": st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=2).map(
            lambda found: list(found.items())
        ),
    },
)


def number(value: int) -> bytes:
    value = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(data: bytes) -> bytes:
    return number(len(data)) + data


def block(parts: list[bytes]) -> bytes:
    return (number(len(parts)) + b"".join(parts) if parts else b"") + number(0)


def written(kind: pa.DataType, value: Any, *, element: bool = False) -> bytes:
    """Encode a value by Spark's schemas: as a union with null, except for plain elements."""
    if pa.types.is_null(kind):
        return b""
    if value is None:
        return number(0)
    branch = b"" if element and not pa.types.is_nested(kind) else number(1)
    if pa.types.is_struct(kind):
        return branch + record(list(kind), value)
    if pa.types.is_map(kind):
        pairs = [sized(key.encode()) + written(kind.item_type, item, element=True) for key, item in value]
        return branch + block(pairs)
    if pa.types.is_list(kind):
        return branch + block([written(kind.value_type, item, element=True) for item in value])
    return branch + plain(kind, value)


def plain(kind: pa.DataType, value: Any) -> bytes:
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, str):
        return sized(value.encode())
    if isinstance(value, bytes):
        return sized(value)
    if isinstance(value, float):
        return struct.pack("<f" if pa.types.is_float32(kind) else "<d", value)
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale)).to_bytes(9, "big", signed=True)  # a decimal of 20 digits
    if isinstance(value, datetime):
        since = value - ORIGIN
        return number((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds)
    return number((value - ORIGIN.date()).days if isinstance(value, date) else value)


def record(fields: list[pa.Field], row: dict[str, Any]) -> bytes:
    return b"".join(written(field.type, row.get(field.name)) for field in fields)


def row_of(fields: list[pa.Field], row: dict[str, Any], schema: int = 0) -> bytes:
    return b"\0" + schema.to_bytes(2, "little") + record(fields, row)


@given(st.lists(VALUES, max_size=5))
@pytest.mark.tier("more")
def test_rows_of_every_type_and_nulls_are_decoded(rows):
    columns = decode_avro([row_of(FIELDS, row) for row in rows], FIELDS, {0: FIELDS})
    expected = [pa.array([row.get(field.name) for row in rows], field.type) for field in FIELDS]
    assert [column.to_pylist() for column in columns] == [column.to_pylist() for column in expected]
    assert [column.type for column in columns] == [field.type for field in FIELDS]


@pytest.mark.tier("more")
@given(st.lists(VALUES, max_size=5), st.integers(0, 9))
def test_rows_are_written_as_the_specification_demands(rows, number):
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in FIELDS]
    wanted = [row_of(FIELDS, row, number) for row in rows]
    assert encode_avro(columns, number, len(rows)) == wanted
    assert encode_avro([column.slice(1) for column in columns], number, max(0, len(rows) - 1)) == wanted[1:]


def test_values_without_an_avro_type_are_refused():
    with pytest.raises(FormatError, match="null among its values"):
        encode_avro([pa.array([[1, None]])], 0, 1)
    with pytest.raises(FormatError, match="cannot be written with Avro"):
        encode_avro([pa.array([1], pa.duration("us"))], 0, 1)


def test_rows_of_older_schemas_are_decoded():
    before = [pa.field("n", pa.int32()), pa.field("gone", pa.string())]
    now = [pa.field("n", pa.int64()), pa.field("new", pa.string())]
    rows = [row_of(before, {"n": 1, "gone": "x"}, 0), row_of(now, {"n": 2, "new": "y"}, 7)]
    columns = decode_avro(rows, now, {0: before, 7: now})
    assert [column.to_pylist() for column in columns] == [[1, 2], [None, "y"]]
    with pytest.raises(FormatError, match="schema 7"):
        decode_avro(rows, now, {0: before})


def test_keys_with_a_prefix_and_ordered_keys_survive_a_round_trip():
    fields = [pa.field("key", pa.struct([("k", pa.string())])), pa.field("user", pa.int64())]
    first = b"\0" + record(fields[:1], {"key": {"k": "a"}})
    key = len(first).to_bytes(4, "little") + first + row_of(fields[1:], {"user": 5})
    columns = decode_avro_keys([key], fields, KeyLayout((0,)), {0: fields})
    assert [column.to_pylist() for column in columns] == [[{"k": "a"}], [5]]
    assert encode_avro_keys(columns, KeyLayout((0,)), 0, 1) == [key]
    moments = [(b"\x01", 1_700_000_000_000), (b"\0", -3)]
    halves = [pa.field("sign", pa.binary()), pa.field("number", pa.binary())]
    keys = []
    for sign, at in moments:
        ordered = {"sign": sign, "number": at.to_bytes(8, "big", signed=True)}
        first = b"\0" + record(halves, ordered)
        keys.append(len(first).to_bytes(4, "little") + first + row_of(fields[:1], {"key": {"k": "b"}}))
    named = [pa.field("at", pa.int64()), fields[0]]
    columns = decode_avro_keys(keys, named, KeyLayout((0,), is_ordered=True), {0: named})
    assert [column.to_pylist() for column in columns] == [[at for _, at in moments], [{"k": "b"}, {"k": "b"}]]
    assert encode_avro_keys(columns, KeyLayout((0,), is_ordered=True), 0, 2) == keys


@pytest.mark.tier("more")
@given(VALUES, st.data())
def test_bytes_that_are_no_row_are_refused(row, data):
    valid = bytearray(row_of(FIELDS, row))
    at = data.draw(st.integers(0, len(valid) - 1))
    valid[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(DamagedError, FormatError):
        decode_avro([bytes(valid)], FIELDS, {0: FIELDS})
    with pytest.raises((DamagedError, FormatError)):
        decode_avro([bytes(row_of(FIELDS, row)[:-1])], FIELDS, {0: FIELDS})
