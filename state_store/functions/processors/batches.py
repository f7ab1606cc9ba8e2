"""Arrow batches of rows sorted by key, cut into groups: as rows, and as pandas frames."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import Row

from state_store.core.compat import zip

_MOST_ROWS = 10_000


class Batch:
    """The groups of a batch: `keys`, and the offsets `starts` of their rows, with the end of the last."""

    def __init__(self, row_keys: list[tuple[Any, ...]]) -> None:
        self.starts = [0]
        self.keys = row_keys[:1]
        key = row_keys[0]
        for number, row_key in enumerate(row_keys):
            if row_key != key:
                self.starts.append(number)
                self.keys.append(row_key)
                key = row_key
        self.starts.append(len(row_keys))

    def group(self, number: int) -> Iterator[Any]:
        """Yield the rows or frames of a group that lies within this batch."""
        raise NotImplementedError

    @staticmethod
    def chunks(pieces: Iterator[tuple[Any, int]]) -> Iterator[Any]:
        """Yield the rows or frames of a group of these pieces: batches, each with the group's number."""
        raise NotImplementedError


class RowBatch(Batch):
    """Rows as `pyspark.sql.Row`."""

    def __init__(self, batch: pa.RecordBatch, key_offsets: list[int]) -> None:
        columns = [column.to_pylist() for column in batch.columns]
        names, new, set_attribute = Row(*batch.schema.names), tuple.__new__, object.__setattr__
        self._rows = [new(Row, values) for values in zip(*columns)]
        for row in self._rows:
            set_attribute(row, "__fields__", names)  # `Row.__setattr__` takes three times as long as a row
        keys = (
            batch.column(offset).to_pylist()
            if pa.types.is_nested(batch.schema.types[offset])
            else columns[offset]
            for offset in key_offsets  # lists of a key are not those of a row, which the processor may change
        )
        super().__init__(list(zip(*keys)))

    @staticmethod
    def batches(batches: Iterator[pa.RecordBatch], key_offsets: list[int]) -> Iterator[RowBatch]:
        """Yield the batches of a stream; a large batch comes in several parts."""
        for batch in batches:
            for start in range(0, batch.num_rows, _MOST_ROWS):
                yield RowBatch(batch.slice(start, _MOST_ROWS), key_offsets)

    def group(self, number: int) -> Iterator[Any]:
        return iter(self._rows[self.starts[number] : self.starts[number + 1]])

    @staticmethod
    def chunks(pieces: Iterator[tuple[RowBatch, int]]) -> Iterator[Any]:
        for batch, number in pieces:
            yield from batch.group(number)


class FrameBatch(Batch):
    """Rows as pandas frames. PySpark makes them of tuples, so pandas infers the types, and so it is here."""

    def __init__(self, batch: pa.RecordBatch, stream: FrameStream) -> None:
        import pandas as pd

        series = stream.to_series(batch)
        self._stream = stream
        self._frame = pd.concat(series, axis=1)
        self._average_bytes = stream.average_bytes
        columns = [self._frame.iloc[:, offset] for offset in stream.key_offsets]
        super().__init__(list(zip(*columns)))
        names = list(self._frame.columns)
        self._fields = collections.namedtuple("Pandas", names, rename=True)._fields  # type: ignore[attr-defined]
        self._sliceable = _sliceable(self._frame, batch.schema, self._fields, stream.first_value)

    def group(self, number: int) -> Iterator[Any]:
        start, stop = self.starts[number], self.starts[number + 1]
        if self._sliceable is None or not self._fits(stop - start):
            yield from self.chunks(iter([(self, number)]))
        else:
            yield _sliced(self._sliceable, start, stop)

    def _fits(self, rows: int) -> bool:
        """Return True if so many rows come as one frame."""
        return rows <= self._stream.max_records and rows * self._average_bytes < self._stream.max_bytes

    def tuples(self, number: int) -> Iterator[Any]:
        """Yield the rows of a group as named tuples."""
        return self._frame.iloc[self.starts[number] : self.starts[number + 1]].itertuples(index=False)

    @staticmethod
    def chunks(pieces: Iterator[tuple[FrameBatch, int]]) -> Iterator[Any]:
        import pandas as pd

        rows: list[Any] = []
        stream = None
        for batch, number in pieces:
            stream = batch._stream
            for row in batch.tuples(number):
                rows.append(row)
                if len(rows) >= stream.max_records or len(rows) * batch._average_bytes >= stream.max_bytes:
                    yield pd.DataFrame(rows).iloc[:, stream.values(row)]
                    rows = []
        if rows and stream is not None:
            yield pd.DataFrame(rows).iloc[:, stream.values(rows[0])]


class FrameStream:
    """The facts that all batches of a stream share when frames are made of them."""

    def __init__(self, header: Any) -> None:
        self._header = header
        self.key_offsets = header.key_offsets
        self.first_value = header.first_value
        self.max_records = header.max_records
        self.max_bytes = header.max_bytes
        self.average_bytes = 0.0
        self._bytes = self._rows = 0

    def values(self, row: Any) -> list[int]:
        """Return the places of the columns that the processor gets."""
        return list(range(self.first_value, len(row)))

    def to_series(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the columns in pandas, as PySpark converts them."""
        from state_store.functions.frames import pandas_frames

        return pandas_frames.to_series(batch, self._header)

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[FrameBatch]:
        """Yield the batches of a stream."""
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if self.max_bytes != 2**31 - 1:
                self._bytes += sum(
                    buffer.size
                    for column in batch.columns
                    for buffer in column.buffers()
                    if buffer is not None
                )
                self._rows += batch.num_rows
                self.average_bytes = self._bytes / self._rows
            yield FrameBatch(batch, self)


_WIDER = {"int8": "int64", "int16": "int64", "int32": "int64", "float32": "float64"}
_ALIKE = frozenset(("int64", "float64", "bool", "datetime64[ns]"))


def _sliceable(frame: Any, schema: pa.Schema, fields: tuple[str, ...], first: int) -> Any:
    """Return a frame whose slices equal the frames that pandas makes of the same tuples, or `None`.

    It has the columns that the processor gets. Pandas infers the type of a column from its values; the
    type of a slice is known if each value of the column decides it.
    """
    import pandas as pd

    if int(pd.__version__.partition(".")[0]) > 2:
        return None
    parts = []
    for place in range(first, len(fields)):
        series, kind = frame.iloc[:, place], schema.field(place).type
        name = str(series.dtype)
        if name in _WIDER:
            series = series.astype(_WIDER[name])
        elif name == "timedelta64[ns]":
            if series.isna().any():
                return None
        elif name == "object":
            if not _stays_object(kind):
                return None
        elif name not in _ALIKE:
            return None
        parts.append(series)
    if not parts:
        return None
    joined = pd.DataFrame(dict(enumerate(parts)), copy=False)
    joined.columns = pd.Index(list(fields[first:]))
    return joined


def _stays_object(kind: pa.DataType) -> bool:
    """Return True if pandas makes a column of objects of any values of this type."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(check(kind) for check in (*checks, pa.types.is_date, pa.types.is_decimal, pa.types.is_nested))


def _sliced(frame: Any, start: int, stop: int) -> Any:
    import pandas as pd

    manager = frame._mgr.get_slice(slice(start, stop), axis=1)
    manager.axes = [frame.columns._view(), pd.RangeIndex._simple_new(range(stop - start))]
    return pd.DataFrame._from_mgr(manager, axes=manager.axes)
