"""Columns survive encoding as Spark's rows and decoding, and partitions are Spark's."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rows.arrays import VALUES, batches
from state_store.data.rows.decoder import KeyLayout, decode, decode_fields, decode_keys
from state_store.data.rows.encoder import encode, encode_keys, partitions_of
from state_store.errors import FormatError

ORDERED = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]


@settings(max_examples=50)
@given(batches())
@pytest.mark.tier("more")
def test_columns_of_every_type_are_the_same_after_a_round_trip(batch: pa.RecordBatch) -> None:
    rows = encode(batch.columns, batch.num_rows).to_pylist()
    assert all(len(row) % 8 == 1 for row in rows)
    found = decode(rows, batch.schema)
    found.validate(full=True)
    assert found.to_pylist() == batch.to_pylist()


@settings(max_examples=12)
@given(batches(), st.data())
def test_slices_of_columns_are_encoded_as_they_are(batch: pa.RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.num_rows))
    part = batch.slice(start, data.draw(st.integers(0, batch.num_rows - start)))
    every = encode(batch.columns, batch.num_rows)
    assert encode(part.columns, part.num_rows) == every.slice(start, part.num_rows)


@settings(max_examples=12)
@given(batches(), st.data())
def test_keys_with_a_prefix_survive_a_round_trip(batch: pa.RecordBatch, data: st.DataObject) -> None:
    layout = KeyLayout(tuple(range(data.draw(st.integers(0, batch.num_columns)))))
    keys = encode_keys(batch.columns, batch.num_rows, layout, before=b"\0\7").to_pylist()
    found = decode_keys(keys, list(batch.schema), layout, skip=2)
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in batch.columns]


@settings(max_examples=50)
@given(batches(), st.lists(st.integers(0, 9), min_size=1), st.data())
@pytest.mark.tier("more")
def test_rows_are_read_at_any_offset(batch: pa.RecordBatch, gaps: list[int], data: st.DataObject) -> None:
    rows = encode(batch.columns, batch.num_rows).to_pylist()
    gaps = [gaps[number % len(gaps)] for number in range(len(rows))]
    buffer = b"".join(b"\xff" * gap + row for gap, row in zip(gaps, rows, strict=True))
    lengths = numpy.array([len(row) for row in rows], numpy.int64)
    starts = numpy.cumsum(lengths + gaps) - lengths if rows else lengths
    only = data.draw(st.lists(st.sampled_from(range(batch.num_columns)), unique=True).map(sorted))
    found = decode_fields((numpy.frombuffer(buffer, numpy.uint8), starts, lengths), list(batch.schema), only)
    assert [column.to_pylist() for column in found] == [batch.column(number).to_pylist() for number in only]


def test_keys_that_order_their_rows_follow_sparks_documentation() -> None:
    """The sign comes first, then the number, big-endian, as Spark's documentation says."""
    numbers = [-5, 7, None]
    encoded = [
        b"\0" + (7 - 12).to_bytes(8, "big", signed=True),
        b"\1" + (7).to_bytes(8, "big"),
        b"\2" + bytes(8),
    ]
    first = encode([pa.array(encoded)], 3).to_pylist()
    rest = encode([pa.array(["a", None, "c"])], 3).to_pylist()
    keys = [
        b"\0\1" + len(part).to_bytes(4, "little") + part + other
        for part, other in zip(first, rest, strict=True)
    ]
    fields = [pa.field("name", pa.string()), pa.field("at", pa.int64())]
    names, found = decode_keys(keys, fields, KeyLayout((1,), is_ordered=True), skip=2)
    assert (names.to_pylist(), found.to_pylist()) == (["a", None, "c"], numbers)
    again = encode_keys([names, found], 3, KeyLayout((1,), is_ordered=True), before=b"\0\1")
    assert again.to_pylist() == keys


@pytest.mark.parametrize("kind", ORDERED, ids=str)
@settings(max_examples=12)
@given(st.data())
def test_keys_sort_as_the_numbers_that_order_them(kind: pa.DataType, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(VALUES[kind], min_size=1, max_size=9))
    ordered, name = pa.array([*numbers, None], kind)[:-1], pa.array(["x"] * len(numbers))
    layout = KeyLayout((0,), is_ordered=True)
    keys = encode_keys([ordered, name], len(numbers), layout).to_pylist()
    found, _ = decode_keys(keys, [pa.field("at", kind), pa.field("name", pa.string())], layout)
    assert found.to_pylist() == numbers
    by_bytes = [number for _, number in sorted(zip(keys, numbers, strict=True))]
    assert by_bytes == sorted(numbers)


def test_other_types_do_not_order_keys() -> None:
    for column in (pa.array(["a"]), pa.array([True]), pa.array([Decimal("1.5")])):
        with pytest.raises(FormatError, match="cannot order keys"):
            encode_keys([column, column], 1, KeyLayout((0,), is_ordered=True))


def test_the_hash_is_that_of_sparks_documentation() -> None:
    columns = [pa.array(["Spark"]), pa.array([[123]], pa.list_(pa.int32())), pa.array([2], pa.int32())]
    fields = [pa.field(str(number), column.type) for number, column in enumerate(columns)]
    assert partitions_of(columns, fields, 1 << 20).tolist() == [-1321691492 % (1 << 20)]
    assert partitions_of(columns[:1], fields[:1], 1000).tolist() == [228093765 % 1000]


def test_large_decimals_are_hashed_by_all_of_their_digits() -> None:
    """Spark hashes the fewest bytes that have the number without its point, big-endian."""
    numbers = [10**37 + 1, -(10**38) + 1, 12345678901234567890123456789012345678, 0, 128, -128]
    kind = pa.decimal128(38, 4)
    context = Context(prec=50)
    decimals = pa.array([Decimal(number).scaleb(-4, context) for number in numbers], kind)
    sizes = [16, 16, 16, 1, 2, 1]
    texts = [number.to_bytes(size, "big", signed=True) for number, size in zip(numbers, sizes, strict=True)]
    found = partitions_of([decimals], [pa.field("x", kind)], 1 << 20).tolist()
    assert found == partitions_of([pa.array(texts)], [pa.field("x", pa.binary())], 1 << 20).tolist()


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_numbers_that_are_equal_are_in_one_partition(kind: pa.DataType) -> None:
    column = pa.array([0.0, -0.0, float("nan"), -float("nan")], kind)
    zero, other, first, second = partitions_of([column], [pa.field("x", kind)], 1 << 20).tolist()
    assert (zero, first) == (other, second)


def test_a_key_without_a_partition_of_spark_is_refused() -> None:
    with pytest.raises(FormatError, match="partition by"):
        partitions_of(
            [pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))], [pa.field("m", pa.null())], 4
        )
    folded = pa.field("name", pa.string(), metadata={b"spark_type": b"string collate UTF8_LCASE"})
    with pytest.raises(FormatError, match="collation"):
        partitions_of([pa.array(["a"])], [folded], 4)


def test_decimals_are_stored_in_the_fewest_bytes() -> None:
    kind = pa.decimal128(38, 0)
    numbers = [0, -1, 127, 128, -128, -129, 255, 1 << 100, -(1 << 100)]
    rows = encode([pa.array([Decimal(number) for number in numbers], kind)], len(numbers)).to_pylist()
    sizes = [int.from_bytes(row[9:13], "little") for row in rows]
    assert sizes == [(number if number >= 0 else -number - 1).bit_length() // 8 + 1 for number in numbers]
