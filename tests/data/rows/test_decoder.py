from __future__ import annotations

import contextlib
import struct
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rows.arrays import batches
from state_store.data.embedded import to_table
from state_store.data.rows import decoder
from state_store.data.rows.decoder import decode
from state_store.data.rows.encoder import encode
from state_store.errors import DamagedError, FormatError

FIELDS = {
    "flag": (pa.bool_(), "<?7x"),
    "tiny": (pa.int8(), "<b7x"),
    "small": (pa.int16(), "<h6x"),
    "number": (pa.int32(), "<i4x"),
    "large": (pa.int64(), "<q"),
    "single": (pa.float32(), "<f4x"),
    "double": (pa.float64(), "<d"),
    "text": (pa.string(), None),
    "bytes": (pa.binary(), None),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in FIELDS.items()])
VALUES = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "tiny": st.integers(-128, 127),
        "small": st.integers(-(1 << 15), (1 << 15) - 1),
        "number": st.integers(-(1 << 31), (1 << 31) - 1),
        "large": st.integers(-(1 << 63), (1 << 63) - 1),
        "single": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "text": st.text(max_size=20),
        "bytes": st.binary(max_size=20),
    }
)
ROWS = st.lists(
    st.builds(
        lambda row, nulls: {name: None if name in nulls else row[name] for name in FIELDS},
        VALUES,
        st.sets(st.sampled_from(list(FIELDS))),
    ),
    max_size=20,
)


def unsafe_row(row: dict[str, object]) -> bytes:
    """Return a row as Spark writes it: version, bitmap, words, bytes padded to words."""
    bitmap, words, tail = 0, b"", b""
    for index, (name, value) in enumerate(row.items()):
        form = FIELDS[name][1]
        if value is None:
            bitmap |= 1 << index
            words += bytes(8)
        elif form is not None:
            words += struct.pack(form, value)
        else:
            data = value.encode() if isinstance(value, str) else value
            words += struct.pack("<q", (8 + 8 * len(row) + len(tail)) << 32 | len(data))
            tail += data + bytes(-len(data) % 8)
    return b"\0" + struct.pack("<Q", bitmap) + words + tail


@settings(deadline=None)
@given(ROWS)
def test_rows_of_every_type_and_nulls_are_decoded(rows: list[dict[str, object]]) -> None:
    assert decode([unsafe_row(row) for row in rows], SCHEMA).to_pylist() == rows


def word(value: int) -> bytes:
    return b"\0" + bytes(8) + struct.pack("<q", value)


@pytest.mark.parametrize("few", [0, 4096])
def test_few_texts_and_many_are_the_same(monkeypatch, few) -> None:
    """Arrow copies those of many rows, numpy those of few."""
    monkeypatch.setattr(decoder, "_FEW", few)
    texts = ["", "a", None, "äöü" * 7, None, None, "b", ""]
    rows = [{**dict.fromkeys(FIELDS), "text": text, "bytes": text and text.encode()} for text in texts]
    found = decode([unsafe_row(row) for row in rows], SCHEMA)
    found.validate(full=True)
    assert found["text"].to_pylist() == texts
    assert found["bytes"].to_pylist() == [None if text is None else text.encode() for text in texts]
    broken = [unsafe_row({**row, "text": row["bytes"] and row["bytes"][:-1]}) for row in rows]
    with pytest.raises(DamagedError, match="column 'text' has a string that is not UTF-8"):
        decode(broken, SCHEMA)


def test_dates_timestamps_and_decimals_are_decoded() -> None:
    cases = [
        (pa.date32(), 20_000, date(2024, 10, 4)),
        (pa.timestamp("us", "UTC"), 1_000_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)),
        (pa.decimal128(18, 2), -12345, Decimal("-123.45")),
    ]
    for kind, stored, expected in cases:
        (row,) = decode([word(stored)], pa.schema([("x", kind)])).to_pylist()
        assert row["x"] == expected


def test_a_type_that_is_not_known_is_named() -> None:
    with pytest.raises(FormatError, match=r"'items'.*large_list"):
        decode([word(0)], pa.schema([("items", pa.large_list(pa.int32()))]))


@pytest.mark.parametrize(
    ("kind", "stored", "why"),
    [
        (pa.list_(pa.int32()), 1 << 40, "an array is longer"),
        (pa.list_(pa.int32()), -1, "an array is longer"),
        (pa.map_(pa.int32(), pa.int32()), 1 << 40, "a map is longer"),
        (pa.map_(pa.int32(), pa.int32()), -8, "a map is longer"),
        (pa.struct([("a", pa.int64())]), 0, "at least 17"),
        (pa.month_day_nano_interval(), 0, "16 bytes"),
    ],
)
def test_nested_values_that_do_not_fit_are_damaged(kind: pa.DataType, stored: int, why: str) -> None:
    """Return a row whose only column refers to the word after it."""
    row = word(16 << 32 | 8) + struct.pack("<q", stored)
    with pytest.raises(DamagedError, match=why):
        decode([row], pa.schema([("x", kind)]))


def test_a_decimal_of_too_many_bytes_is_damaged() -> None:
    with pytest.raises(DamagedError, match="1 to 16 bytes"):
        decode([word(16 << 32 | 24) + bytes(24)], pa.schema([("x", pa.decimal128(30, 0))]))


@pytest.mark.tier("more")
@settings(max_examples=25)
@given(batches(), st.data())
def test_damaged_rows_are_an_error_or_other_values(batch: pa.RecordBatch, data: st.DataObject) -> None:
    rows = encode(batch.columns, batch.num_rows).to_pylist()
    if not rows:
        return
    broken = bytearray(rows[0])
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(1, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(DamagedError):
        decode([bytes(broken), *rows[1:]], batch.schema).validate()


def test_rows_with_more_columns_are_read_and_those_with_fewer_are_damaged() -> None:
    """Bytes beyond the columns are ignored, as by Spark; a missing column is an error."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    columns = [pa.array([5]), pa.array(["text"]), pa.array([[1, 2]]), pa.array([7])]
    assert decode(encode(columns, 1).to_pylist(), schema).to_pylist() == [{"a": 5, "b": "text"}]
    with pytest.raises(
        DamagedError, match="17 bytes, but needs at least 25: it was written with other columns"
    ):
        decode(encode(columns[:1], 1).to_pylist(), schema)


def test_bytes_that_are_no_row_are_damaged() -> None:
    schema = pa.schema([("x", pa.string())])
    with pytest.raises(DamagedError, match="at least 17"):
        decode([b"\0" + bytes(8)], schema)
    with pytest.raises(FormatError, match="version 0"):
        decode([b"\1" + bytes(16)], schema)
    with pytest.raises(DamagedError, match="refers to bytes"):
        decode([word(16 << 32 | 5)], schema)


def test_raw_bytes_become_a_table() -> None:
    table = to_table([(b"a", b"1"), (b"b", b"")])
    assert table.to_pylist() == [{"key": b"a", "value": b"1"}, {"key": b"b", "value": b""}]
