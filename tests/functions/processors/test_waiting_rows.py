"""Rows that wait in the worker beside the JVM: those of input, which are cut into groups, and of output."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    LongType,
    StringType,
    StructType,
)

from state_store.functions.processors import processor_loop
from state_store.functions.processors.processor_loop import Groups, RowBatch, RowOutput

FLAT = StructType().add("k", LongType()).add("t", DoubleType()).add("s", StringType()).add("b", BinaryType())
NESTED = StructType().add("k", LongType()).add("items", ArrayType(LongType()))

VALUES = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.text(max_size=5),
    st.none() | st.binary(max_size=5) | st.binary(max_size=5).map(bytearray),
)
"""Rows of the flat schema; a `bytearray` can change after it was given."""


def flat_row(values: tuple, *, misses: bool) -> Row:
    """Return a row with the names of the schema, or one that lacks its last column."""
    names = FLAT.names[: -1 if misses else None]
    return Row(**dict(zip(names, values, strict=False)))


FLAT_ROWS = st.builds(flat_row, VALUES, misses=st.booleans())
NESTED_ROWS = st.builds(
    lambda k, items: Row(k=k, items=items), st.integers(0, 9), st.lists(st.integers(0, 9))
)


@pytest.mark.parametrize(
    ("schema", "rows"), [(FLAT, FLAT_ROWS), (NESTED, NESTED_ROWS)], ids=["flat", "nested"]
)
@settings(max_examples=150)
@given(data=st.data())
def test_output_is_what_the_processor_gave_in_its_order(
    schema: StructType, rows: st.SearchStrategy, data
) -> None:
    """Groups of rows of any kind, each changed after its group, come out as they were, in few batches."""
    groups = data.draw(st.lists(st.lists(rows, max_size=4), max_size=5))
    limit = data.draw(st.integers(1, 6))
    output = RowOutput(schema)
    output._max_values = limit * len(schema.names)
    expected = [row.asDict(True) for group in groups for row in group]
    expected = [{name: _taken(row.get(name)) for name in schema.names} for row in expected]
    batches = []
    for group in groups:
        batches += output.add(iter(group))
        for row in group:
            _change(row)
    if output.waits:
        batches += output.flush_all()
    assert not output.waits
    assert [row for batch in batches for row in batch.to_pylist()] == expected


@pytest.mark.parametrize("rows", [5, 40])
def test_a_refilled_object_is_what_it_was_at_the_end_of_its_group(monkeypatch, rows: int) -> None:
    """Spark's worker converts the rows of a group together, however many they are."""
    monkeypatch.setattr(processor_loop, "_MAX_ROWS", 16)
    output = RowOutput(FLAT)

    def refilled(first: int) -> Iterator[Row]:
        for k in range(first, first + rows):
            data[:] = bytes([k])
            yield Row(k=k, t=None, s=None, b=data)

    batches = []
    for first in (0, 100):
        data = bytearray()
        batches += output.add(refilled(first))
        data[:] = b"later"
    if output.waits:
        batches += output.flush_all()
    given = [(row["k"], row["b"]) for batch in batches for row in batch.to_pylist()]
    assert given == [(k, bytes([first + rows - 1])) for first in (0, 100) for k in range(first, first + rows)]
    assert len(batches) == (2 if rows > 16 else 1)


def test_rows_of_a_schema_without_columns_are_none() -> None:
    """As PySpark's worker has it: Arrow counts no rows of a batch without columns."""
    output = RowOutput(StructType())
    assert not list(output.add(iter([Row(k=1), Row(k=2)])))
    assert [batch.num_rows for batch in output.flush_all()] == [0]


def _taken(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else list(value) if isinstance(value, list) else value


def _change(row: Row) -> None:
    for value in row:
        if isinstance(value, (list, bytearray)):
            value.append(7)


KEYS = st.lists(
    st.tuples(
        st.sampled_from((0, 1, -1, None)),
        st.sampled_from(("", "a", "b", None)),
        st.sampled_from((0.0, 1.5, None)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=300)
@given(keys=KEYS, offsets=st.sampled_from(([0], [1], [0, 1], [2], [1, 2])), size=st.integers(1, 5))
def test_neighbouring_rows_with_equal_keys_are_a_group(keys: list, offsets: list[int], size: int) -> None:
    """Groups are the same however rows are cut into batches, and whatever compares the keys."""
    table = pa.table(
        {
            "a": pa.array([key[0] for key in keys], pa.int64()),
            "b": pa.array([key[1] for key in keys], pa.string()),
            "c": pa.array([key[2] for key in keys], pa.float64()),
            "n": range(len(keys)),
        }
    )
    expected: list = []
    for number, row in enumerate(keys):
        key = tuple(row[offset] for offset in offsets)
        if not expected or expected[-1][0] != key:
            expected.append((key, []))
        expected[-1][1].append((*row, number))
    groups = Groups(RowBatch.batches(iter(table.to_batches(max_chunksize=size)), offsets))
    cut = [
        (key, [tuple(row) for row in rows]) for _ in groups.runs(lambda: 3) for key, rows in groups.groups()
    ]
    assert cut == expected


def test_keys_are_compared_by_arrow_if_all_are_numbers_or_texts() -> None:
    """Columns with a null, and floating numbers, are compared by Python."""
    numbers, text = pa.array([1, 1, 2]), pa.array(["a", "b", "b"])
    assert processor_loop._starts([numbers]) == [0, 2]
    assert processor_loop._starts([numbers, text]) == [0, 1, 2]
    assert processor_loop._starts([numbers, pa.array([1, None, 2])]) is None
    assert processor_loop._starts([pa.array([1.0, 2.0, 2.0])]) is None
