"""Encoded rows in Arrow batches: put to partitions, cut to a size, and grouped by key."""

from __future__ import annotations

import numpy
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_store.core.engine.rows import ByteSlices
from state_store.data.rows.batches import (
    binaries,
    first_of_keys,
    gathered,
    of_bytes,
    pairs,
    parts,
    records_of,
    tallied,
    within_bytes,
)

KEYS = st.lists(st.binary(max_size=5), max_size=40)


def batch_of(keys: list[bytes]) -> pa.RecordBatch:
    """Return keys, each with its number as the value."""
    return pairs(binaries(keys), binaries(b"%d" % number for number in range(len(keys))))


@given(KEYS, st.integers(1, 5))
def test_each_row_goes_to_its_partition_in_the_order_of_the_batch(keys: list[bytes], count: int) -> None:
    batch, targets = batch_of(keys), numpy.array([sum(key) % count for key in keys], numpy.int64)
    found = {number: list(records_of([part])) for number, part in parts(batch, targets)}
    records = list(records_of([batch]))
    expected = {
        number: [record for record in records if sum(record[0]) % count == number]
        for number in set(targets.tolist())
    }
    assert found == expected
    assert {number: (rows, size) for number, rows, size in tallied(batch, targets)} == {
        number: (len(some), sum(len(key) + len(value) for key, value in some))
        for number, some in expected.items()
    }


@given(KEYS)
def test_the_first_rows_of_keys_in_order_are_found(keys: list[bytes]) -> None:
    keys = sorted(keys)
    expected = [at for at in range(len(keys)) if not at or keys[at] != keys[at - 1]]
    assert first_of_keys(batch_of(keys)).tolist() == expected


@pytest.mark.parametrize("value_bytes", [10, 5000])
def test_batches_are_cut_and_gathered_by_their_bytes(value_bytes: int) -> None:
    rows = [(b"%06d" % number, bytes(value_bytes)) for number in range(20_000 // value_bytes)]
    batch = pairs(binaries(key for key, _ in rows), binaries(value for _, value in rows))
    slices = list(within_bytes(batch, 6000))
    assert len(slices) > 2 and max(part.nbytes for part in slices) < 6000 + value_bytes + 40
    again = list(of_bytes(iter(slices), 11_000))
    assert all(11_000 <= part.nbytes < 17_000 + value_bytes for part in again[:-1]) and len(again) > 1
    assert list(records_of(again)) == list(records_of(slices)) == rows
    assert not list(of_bytes(iter([]), 1)) and not list(within_bytes(batch.slice(0, 0), 1))


@given(KEYS, st.data())
def test_slices_of_an_array_are_its_bytes(keys: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(keys)))
    array = gathered([batch_of(keys), batch_of(keys[:1])])["key"].slice(start)
    found = ByteSlices.of(array)
    assert list(found.to_list()) == [*keys, *keys[:1]][start:]
    assert len(found.data) == sum(found.lengths)
