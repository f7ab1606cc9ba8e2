"""Cuts the rows of many groups into one pandas frame a group, each as if its rows had been converted alone.

A batch is converted once. Pandas has no nulls in columns of integers and booleans: there PySpark's conversion
of a group depends on whether *that group* has a null, so such columns are converted twice, with and without
nulls, and every group takes the one that is right for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state_store.vectorization import pandas_frames
from state_store.vectorization.context import Header


def cut(batch: pa.RecordBatch, header: Header) -> GroupFrames:
    """The frames and keys of the groups in ``batch``, in the layout of the JVM's ``GroupsCall``."""
    lists = batch.column(5)
    offsets = lists.offsets.to_numpy()
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    columns = [Column(a, f, header) for a, f in zip(values.flatten(), header.row_schema, strict=True)]
    keys = [Column(a, f, header) for a, f in zip(batch.column(3).flatten(), header.key_schema, strict=True)]
    return GroupFrames(columns, keys, offsets - offsets[0], header.rows.names)


class Column:
    """One column of all groups in pandas; ``some`` where it has no nulls, ``nullable`` where it has."""

    def __init__(self, array: pa.Array, field: pa.Field, header: Header) -> None:
        def converted(values: pa.Array) -> Any:
            return pandas_frames.to_series(pa.table([values], names=[field.name]), header)[0]

        self.nulls: np.ndarray | None = None
        if array.null_count and (pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)):
            zero = pa.scalar(False if pa.types.is_boolean(array.type) else 0, type=array.type)
            self.nullable = converted(array)
            self.some = converted(pc.fill_null(array, zero))
            self.nulls = np.concatenate([[0], np.cumsum(array.is_null().to_numpy(zero_copy_only=False))])
        else:
            self.some = self.nullable = converted(array)

    def source(self, start: int, stop: int) -> Any:
        """The whole converted column to take rows ``start`` to ``stop`` from."""
        if self.nulls is not None and self.nulls[stop] > self.nulls[start]:
            return self.nullable
        return self.some


class GroupFrames:
    """The frames of one batch's groups, made one by one as they are asked for."""

    def __init__(
        self, columns: list[Column], keys: list[Column], offsets: np.ndarray, names: list[str]
    ) -> None:
        import pandas as pd

        self._columns = columns
        self._keys = keys
        self._offsets = offsets.tolist()
        self._names = pd.Index(names)
        self._whole = None
        if all(c.nulls is None for c in columns):
            self._whole = pd.DataFrame(dict(enumerate(c.some for c in columns)), copy=False)
            self._whole.columns = self._names

    def key(self, i: int) -> tuple[Any, ...]:
        """The grouping values of group ``i``, as scalars of the converted columns."""
        return tuple(column.source(i, i + 1).iat[i] for column in self._keys)

    def frame(self, i: int) -> Any:
        """The rows of group ``i`` with a fresh range index; without rows a frame of objects, as Spark's."""
        import pandas as pd

        start, stop = self._offsets[i], self._offsets[i + 1]
        if start == stop:
            return pd.DataFrame(columns=self._names)
        if self._whole is not None:
            frame = self._whole.iloc[start:stop]
        else:
            parts = {n: c.source(start, stop).iloc[start:stop] for n, c in enumerate(self._columns)}
            frame = pd.DataFrame(parts, copy=False)
            frame.columns = self._names
        frame.index = pd.RangeIndex(stop - start)
        frame._is_copy = None  # its rows are in no other frame: changing them in place is no mistake
        return frame
