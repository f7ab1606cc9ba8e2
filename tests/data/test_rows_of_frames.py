"""The way of the rows of a DataFrame through Spark's shuffle: encoded, sent, and taken out again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from state_store.data import jobs
from state_store.data.rows.batches import binaries, pairs
from state_store.errors import FormatError, from_json

SMALL, PARTITIONS = 100, 3
SCHEMA = pairs(binaries([]), binaries([])).schema


def batches(count: int, wrong: int = -1) -> Iterator[pa.RecordBatch]:
    for first in range(0, count, SMALL):
        yield pa.record_batch({"n": [-1 if n == wrong else n for n in range(first, first + SMALL)]})


class Encoder:
    """Rows for batches of numbers; it takes note of the sizes of the batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, object]]:
        self.sizes.append(len(batch))
        numbers = batch["n"].to_numpy()
        if (numbers < 0).any():
            raise FormatError("a number is below 0")
        texts = binaries(b"%06d" % number for number in numbers.tolist())
        half = len(batch) // 2
        for some in (slice(0, half), slice(half, None)):
            yield pairs(texts[some], texts[some]), numbers[some] % PARTITIONS


def taken(found: Iterator[tuple[int, tuple[int, pa.RecordBatch]]]) -> dict[int, list[bytes]]:
    """Return the keys that come to each partition, when the rows have been bytes."""
    keys: dict[int, list[bytes]] = {}
    for partition, rows in found:
        table, batch = jobs._unpacked(jobs._packed(*rows), [None, SCHEMA])
        assert table == 1
        keys.setdefault(partition, []).extend(batch["key"].to_pylist())
        assert batch["key"] == batch["value"]
    return keys


def test_rows_are_encoded_many_at_once_and_come_to_their_partitions_in_order(monkeypatch):
    monkeypatch.setattr(jobs, "_ENCODED_BYTES", 8 * 4 * SMALL)
    monkeypatch.setattr(jobs, "_SENT_BYTES", 20_000)
    encoder, sent = Encoder(), []
    for partition, rows in jobs._encoded(1, batches(2000), encoder):
        sent.append((partition, rows))
    assert encoder.sizes == [400] * 5
    assert PARTITIONS < len(sent) < PARTITIONS * 5, "they are put to partitions some batches at a time"
    keys = taken(iter(sent))
    assert keys == {
        number: [b"%06d" % n for n in range(2000) if n % PARTITIONS == number] for number in range(PARTITIONS)
    }
    assert not list(jobs._encoded(1, iter([]), encoder))


def test_a_row_that_cannot_be_encoded_travels_as_an_error():
    (*_, (partition, (table, rows))) = jobs._encoded(0, batches(300, wrong=250), Encoder())
    table, errors = jobs._unpacked(jobs._packed(table, rows), [SCHEMA])
    assert (partition, table) == (0, jobs._FAILED)
    with pytest.raises(FormatError, match="a number is below 0"):
        raise from_json(errors[0])


def test_the_numbers_of_rows_that_were_sent_travel_with_them():
    assert jobs._unpacked(jobs._packed(jobs._SENT, [3, 17]), []) == (jobs._SENT, [3, 17])
