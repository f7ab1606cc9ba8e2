"""Output of a processor as Arrow batches: the conversions of PySpark's worker, for many groups at once.

PySpark's worker converts output before the processor goes on. Here output waits for that of other groups, so
what the processor can still change is copied.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from state_store.core.compat import zip
from state_store.functions.frames import pandas_frames
from state_store.functions.frozen_values import SCALARS, frozen, is_frozen
from state_store.functions.group_context import to_arrow_schema

_MOST_ROWS = 10_000
_MOST_BYTES = 16 << 20


def rough_size(value: Any) -> int:
    """Return about how many bytes a value of a row takes."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return len(value)
    if kind is list or isinstance(value, tuple):
        total = 16
        for item in value:
            kind = type(item)
            total += 16 if kind is int or kind is float or item is None else rough_size(item)
        return total
    if kind is dict:
        return 16 + sum(map(rough_size, value)) + sum(map(rough_size, value.values()))
    return getattr(value, "nbytes", 16)


class RowOutput:
    """Rows of `pyspark.sql.Row` that wait to be sent, as they were when the processor gave them.

    A row of scalars is kept as it is. Of any other PySpark's worker makes a dict at once, with copies of
    lists and dicts. Objects that this does not copy, such as a `bytearray`, it converts at the end of the
    group; here they are copied at that end.
    """

    def __init__(self, schema: Any) -> None:
        from pyspark.sql.types import Row

        self._schema = to_arrow_schema(schema, "UTC", False)
        self._names = list(schema.names)
        self._is_flat = len(set(self._names)) == len(self._names) and not any(
            pa.types.is_nested(field.type) for field in self._schema
        )
        self._row = Row
        self._rows: list[Any] = []
        self._bytes = 0

    def add(self, results: Any) -> Iterator[pa.RecordBatch]:
        """Add the rows that the processor returned for a group; yield a batch when there are many."""
        rows, row_class, uncopied = self._rows, self._row, []
        for row in results:
            if not (type(row) is row_class and SCALARS.issuperset(map(type, row))):
                row = row.asDict(True)
                if not all(map(_is_own, row.values())):
                    uncopied.append(len(rows))
            rows.append(row)
            self._bytes += rough_size(row)
            if len(rows) >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
                yield from self.flush_all()
                rows, uncopied = self._rows, []
        for place in uncopied:
            rows[place] = frozen(rows[place])

    @property
    def waits(self) -> bool:
        """True if rows wait."""
        return bool(self._rows)

    def flush_all(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows as a batch and forget them."""
        rows, self._rows, self._bytes = self._rows, [], 0
        names, row_class = self._names, self._row
        if self._is_flat and all(
            type(row) is row_class and getattr(row, "__fields__", None) == names and len(row) == len(names)
            for row in rows
        ):
            arrays = [pa.array(column, type=field.type) for column, field in zip(zip(*rows), self._schema)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        else:
            dicts = [row if type(row) is dict else row.asDict(True) for row in rows]
            yield pa.RecordBatch.from_pylist(dicts, schema=self._schema)


def _is_own(value: Any) -> bool:
    """Return True if the processor cannot change a value of `Row.asDict(True)`, which has its own lists."""
    kind = type(value)
    if kind is list or kind is dict:
        return all(map(_is_own, value if kind is list else value.values()))
    return is_frozen(value)


class FrameOutput:
    """Pandas frames that wait to be sent, as they were when the processor gave them."""

    def __init__(self, schema: Any, header: Any) -> None:
        from state_store.functions.frames.frame_runs import FrameRuns

        self._schema = schema
        self._header = header
        self._new_runs = functools.partial(FrameRuns, _copied)
        self._runs = self._new_runs()
        self._bytes = 0

    def add(self, results: Any) -> Iterator[pa.RecordBatch]:
        """Add the frames that the processor returned for a group; yield batches when there are many rows.

        Raises:
            PySparkValueError: one of them is no frame.
        """
        import pandas as pd

        for frame in results:
            if not isinstance(frame, pd.DataFrame):
                raise _no_frame()
            if len(frame) == 0:
                yield from self._converted([frame])  # for its errors
                continue
            size = _frame_size(frame)
            if len(frame) >= _MOST_ROWS or size >= _MOST_BYTES:  # no copy of a large one
                yield from self.flush_all()
                yield from self._converted([frame])
                continue
            self._runs.add(frame)
            self._bytes += size
            if self._runs.rows >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
                yield from self.flush_all()

    @property
    def waits(self) -> bool:
        """True if rows wait."""
        return self._runs.rows > 0

    def flush_all(self) -> Iterator[pa.RecordBatch]:
        """Yield all frames as batches and forget them."""
        runs, self._runs, self._bytes = self._runs, self._new_runs(), 0
        yield from self._converted(runs.runs())

    def _converted(self, frames: list[Any]) -> Iterator[pa.RecordBatch]:
        for frame in frames:
            struct = pandas_frames.to_struct([frame], self._schema, self._header)
            if len(struct):
                yield pa.RecordBatch.from_arrays(struct.flatten(), schema=pa.schema(list(struct.type)))


def _copied(values: Any) -> Any:
    """Return a copy of the values of a block of a frame."""
    copy = values.copy()
    if values.dtype == object and not SCALARS.issuperset(map(type, values.flat)):
        flat = copy.reshape(-1)  # a view: the copy is contiguous
        for place, cell in enumerate(flat):
            if not is_frozen(cell):
                flat[place] = frozen(cell)
    return copy


def _frame_size(frame: Any) -> int:
    """Return about how many bytes the values of `frame` take."""
    total = 0
    for block in frame._mgr.blocks:
        values = block.values
        total += sum(map(rough_size, values.ravel())) if values.dtype == object else values.nbytes
    return total


def _no_frame() -> Exception:
    from pyspark.errors import PySparkValueError

    return PySparkValueError(
        "Invalid return type. Please make sure that the UDF returns a "
        "pandas.DataFrame when the specified return type is StructType."
    )
