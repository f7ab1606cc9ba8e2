"""Encoded rows as Arrow batches: keys and values in columns, no object of Python for a row.

A batch has at least the columns `key` and `value`, of type large_binary.

Rows on their way to new partitions wait in a `SortedSpool`: a local file of sorted runs, read as one stream
in order. They are kept in memory up to a bound. Then they are sorted, and those of each partition are written
as a run; rows that arrive in order become one run however many they are. Reading merges the runs of a
partition as streams: of each run a chunk is in memory, and the rows of a few chunks are sorted together.
"""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

KEY, VALUE = "key", "value"

Targets = int | Any
"""The partition of all rows of a batch, or a numpy array of that of each."""

MEMORY_BYTES = 48 << 20
"""Bytes of rows in memory, over all partitions. They are copied once while they are sorted."""

_BATCH_BYTES = 2 << 10
"""Bytes of memory that a batch takes beside those of its rows."""

_CHUNK_BYTES = 64 << 10
"""Bytes that are read at a time of each run: there may be many runs."""

_STEP_BYTES = 4 << 20
"""Bytes of chunks whose rows are merged at once."""


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


# ---- rows that wait, sorted by partition and key -----------------------------------------------------------


@dataclass
class _Run:
    """A sorted run in the file: offset, size and last key of each chunk."""

    places: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    last_keys: list[bytes] = field(default_factory=list)


class SortedSpool:
    """The rows of several partitions, in each partition sorted by their column `key`.

    Rows with the same key stay in the order in which they were added. All batches have the same columns.
    `close` closes the file and removes nothing. One thread at a time.
    """

    def __init__(self, path: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        """Make the file.

        Args:
            path: a local file.
            memory_bytes: the bound of the rows in memory.
        """
        self._file = path.open("w+b")
        self._memory_bytes = memory_bytes
        self._used_bytes = 0
        self._waiting: list[tuple[pyarrow.RecordBatch, Targets]] = []
        self._schema: pyarrow.Schema | None = None
        self._runs: dict[int, list[_Run]] = {}
        self.rows: Counter[int] = Counter()
        """The number of rows that were added, by partition."""
        self.sizes: Counter[int] = Counter()
        """The bytes of their keys and values, by partition."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, batch: pyarrow.RecordBatch, targets: Targets) -> None:
        """Add rows to a partition, or each to its own."""
        if not batch.num_rows:
            return
        for number, rows, size_bytes in tallied(batch, targets):
            self.rows[number] += rows
            self.sizes[number] += size_bytes
        self._schema = batch.schema
        self._waiting.append((batch, targets))
        self._used_bytes += batch.nbytes + _BATCH_BYTES
        if self._used_bytes > self._memory_bytes:
            self._write_out()

    def merged(self, partition: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a partition in the order of their keys; nothing may be added meanwhile.

        All rows of a key are in one batch.
        """
        self._write_out()
        runs = self._runs.get(partition, [])
        cursors = [_Cursor(self._file, run, self._schema) for run in runs]
        ends = sorted(end for run in runs for end in zip(run.last_keys, run.sizes, strict=True))
        size_bytes = 0
        for number, (key, chunk_bytes) in enumerate(ends, start=1):
            size_bytes += chunk_bytes
            if size_bytes >= _STEP_BYTES or number == len(ends):
                batches = [batch for cursor in cursors for batch in cursor.take_up_to(key)]
                if batches:
                    yield _in_order(gathered(batches))
                size_bytes = 0

    def runs(self, partition: int) -> int:
        """Return the number of sorted runs that a partition has in the file."""
        return len(self._runs.get(partition, ()))

    def _write_out(self) -> None:
        """Write the rows in memory to the file, those of each partition as a run or the end of one."""
        import numpy

        if not self._waiting:
            return
        batch = gathered([batch for batch, _ in self._waiting])
        targets = numpy.concatenate(
            [
                numpy.full(len(batch), numbers) if isinstance(numbers, int) else numbers
                for batch, numbers in self._waiting
            ]
        )
        self._waiting, self._used_bytes = [], 0
        rows = max(1, _CHUNK_BYTES * len(batch) // max(1, batch.nbytes))
        order = _order(batch[KEY])
        order = order[numpy.argsort(targets[order], kind="stable")]
        self._file.seek(0, 2)
        for number, first, end in runs_of(targets[order]):
            self._write_run(number, batch, order[first:end], rows)

    def _write_run(self, partition: int, batch: pyarrow.RecordBatch, order: Any, rows: int) -> None:
        """Write some rows of a batch, so many in a chunk, as a run of a partition or the end of one."""
        import pyarrow

        runs = self._runs.setdefault(partition, [])
        if not runs or batch[KEY][int(order[0])].as_py() < runs[-1].last_keys[-1]:
            runs.append(_Run())
        run = runs[-1]
        for first in range(0, len(order), rows):
            chunk = batch.take(pyarrow.array(order[first : first + rows]))
            run.places.append(self._file.tell())
            run.sizes.append(self._file.write(chunk.serialize()))
            run.last_keys.append(chunk[KEY][-1].as_py())


class _Cursor:
    """A position in a run."""

    def __init__(self, file: Any, run: _Run, schema: pyarrow.Schema) -> None:
        self._file = file
        self._run = run
        self._schema = schema
        self._chunk = 0
        self._batch: pyarrow.RecordBatch | None = None
        self._at = 0

    def take_up_to(self, key: bytes) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows up to a key, those with that key included, and go on after them."""
        run = self._run
        while self._chunk < len(run.places):
            batch = self._read() if self._batch is None else self._batch
            if run.last_keys[self._chunk] <= key:
                yield batch.slice(self._at)
                self._batch, self._at, self._chunk = None, 0, self._chunk + 1
                continue
            end = bisect.bisect_right(_Texts(batch[KEY]), key, lo=self._at)
            if end > self._at:
                yield batch.slice(self._at, end - self._at)
            self._batch, self._at = batch, end
            return

    def _read(self) -> pyarrow.RecordBatch:
        import pyarrow

        self._file.seek(self._run.places[self._chunk])
        return pyarrow.ipc.read_record_batch(
            pyarrow.py_buffer(self._file.read(self._run.sizes[self._chunk])), self._schema
        )


class _Texts(Sequence[bytes]):
    """The bytes of an array, as a sequence that makes each on access."""

    def __init__(self, texts: pyarrow.Array) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: Any) -> Any:
        return self._texts[number].as_py()


def _in_order(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return the rows in the order of their keys."""
    import pyarrow

    if _is_sorted(batch[KEY]):
        return batch
    return batch.take(pyarrow.array(_order(batch[KEY])))


def _order(keys: pyarrow.Array) -> Any:
    """Return the places of keys in their order, equal ones as they are: a numpy array."""
    import numpy
    import pyarrow.compute

    if _is_sorted(keys):
        return numpy.arange(len(keys))
    return pyarrow.compute.sort_indices(keys).to_numpy().astype(numpy.int64)


def _is_sorted(keys: pyarrow.Array) -> bool:
    import pyarrow.compute

    return bool(pyarrow.compute.all(pyarrow.compute.less_equal(keys[:-1], keys[1:])).as_py())
