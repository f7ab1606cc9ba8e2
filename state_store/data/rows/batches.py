"""Encoded rows as Arrow batches: keys and values in columns, no object of Python for a row.

A batch has at least the columns `key` and `value`, of type large_binary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

KEY, VALUE = "key", "value"

Targets = int | Any
"""The partition of all rows of a batch, or a numpy array of that of each."""


def pairs(keys: pyarrow.Array, values: pyarrow.Array) -> pyarrow.RecordBatch:
    """Return keys and values, both of type large_binary, as a batch."""
    import pyarrow

    return pyarrow.RecordBatch.from_arrays([keys, values], [KEY, VALUE])


def binaries(texts: Iterable[bytes]) -> pyarrow.LargeBinaryArray:
    """Return bytes as an array."""
    import pyarrow

    return pyarrow.array(texts, pyarrow.large_binary())


def sizes_of(texts: pyarrow.LargeBinaryArray) -> Any:
    """Return the length of each text, 0 for nulls, as a numpy array of int64."""
    import pyarrow.compute

    return pyarrow.compute.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False)


def tallied(batch: pyarrow.RecordBatch, targets: Targets) -> Iterator[tuple[int, int, int]]:
    """Yield each partition of a batch with its number of rows, and the bytes of their keys and values."""
    import numpy

    sizes = sizes_of(batch[KEY]) + sizes_of(batch[VALUE])
    if isinstance(targets, int):
        yield targets, len(sizes), int(sizes.sum())
        return
    numbers, places = numpy.unique(targets, return_inverse=True)
    rows, size_bytes = numpy.bincount(places), numpy.bincount(places, sizes).astype(numpy.int64)
    yield from zip(numbers.tolist(), rows.tolist(), size_bytes.tolist(), strict=True)


def gathered(batches: Sequence[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    """Return the rows of at least one batch as one."""
    import pyarrow

    if len(batches) == 1:
        return batches[0]
    columns = pyarrow.Table.from_batches(batches).combine_chunks().columns
    arrays = [column.chunk(0) if column.num_chunks else pyarrow.array([], column.type) for column in columns]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=batches[0].schema)


def parts(batch: pyarrow.RecordBatch, targets: Any) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
    """Yield the rows of each partition, in the order in which they are.

    Args:
        batch: the rows.
        targets: the partition of each, a numpy array.
    """
    import numpy
    import pyarrow

    order = numpy.argsort(targets, kind="stable")
    ordered = batch.take(pyarrow.array(order))
    for number, first, end in runs_of(targets[order]):
        yield number, ordered.slice(first, end - first)


def runs_of(numbers: Any) -> Iterator[tuple[int, int, int]]:
    """Yield each number of an ascending array with the place of its first one, and that after its last."""
    import numpy

    different, firsts = numpy.unique(numbers, return_index=True)
    bounds = [*firsts.tolist(), len(numbers)]
    yield from zip(different.tolist(), bounds[:-1], bounds[1:], strict=True)


def first_of_keys(batch: pyarrow.RecordBatch) -> Any:
    """Return the places of the rows, which are in order, that are the first of their key: a numpy array."""
    import numpy
    import pyarrow.compute

    keys = batch[KEY]
    differs = pyarrow.compute.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return numpy.concatenate([numpy.zeros(min(1, len(keys)), numpy.int64), numpy.flatnonzero(differs) + 1])


def records_of(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[tuple[bytes, Any]]:
    """Yield the keys and values of batches, one by one; None for a null."""
    for batch in batches:
        yield from zip(batch[KEY].to_pylist(), batch[VALUE].to_pylist(), strict=True)


def within_bytes(batch: pyarrow.RecordBatch, size_bytes: int) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a batch as slices of about that many bytes, if rows are about as large as others."""
    rows = max(1, size_bytes * batch.num_rows // max(1, batch.nbytes))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def of_bytes(batches: Iterable[pyarrow.RecordBatch], size_bytes: int) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of small batches as batches of about that many bytes."""
    waiting: list[pyarrow.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= size_bytes:
            yield gathered(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield gathered(waiting)
