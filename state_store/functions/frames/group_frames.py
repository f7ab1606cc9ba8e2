"""Slicing of rows into a pandas frame for each group, as if its rows had been converted alone.

A batch is converted once. Pandas has no nulls in columns of integers and booleans: there PySpark's conversion
of a group depends on whether *that group* has a null, so such columns are converted twice, with and without
nulls, and every group is cut from the whole frame whose columns are right for it.

Frames are cut and put together by internals of pandas (`_mgr`, `_from_mgr`), the same since pandas 2.1,
because `iloc` takes three times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from state_store.core.compat import zip
from state_store.functions.frames import pandas_frames
from state_store.functions.group_context import Header
from state_store.functions.returned_columns import bounds


def cut(batch: pa.RecordBatch, header: Header) -> GroupFrames:
    """Return the frames and keys of the groups in `batch`, in the layout of the JVM's `GroupsCall`."""
    lists = batch.column(5)
    offsets = bounds(lists)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    columns = [Column(a, f, header) for a, f in zip(values.flatten(), header.row_schema, strict=True)]
    keys = [Column(a, f, header) for a, f in zip(batch.column(3).flatten(), header.key_schema, strict=True)]
    return GroupFrames(columns, keys, offsets - offsets[0], header.rows.names)


class Column:
    """A column of all groups in pandas; `some` where it has no nulls, `nullable` where it has."""

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

    def is_nullable(self, start: int, stop: int) -> bool:
        """Return True if there is a null in rows `start` to `stop` that pandas has no place for."""
        return self.nulls is not None and bool(self.nulls[stop] > self.nulls[start])


class GroupFrames:
    """The frames of one batch's groups, made one by one as they are asked for."""

    def __init__(
        self, columns: list[Column], keys: list[Column], offsets: np.ndarray, names: list[str]
    ) -> None:
        self._columns = columns
        self._keys = keys
        self._offsets = offsets.tolist()
        self._names = pd.Index(names)
        self._no_nulls = (False,) * len(columns)
        self._has_nulls = any(column.nulls is not None for column in columns)
        self._frames: dict[tuple[bool, ...], Any] = {}

    def key(self, i: int) -> tuple[Any, ...]:
        """Return the grouping values of group `i`, as scalars of the converted columns."""
        return tuple((c.nullable if c.is_nullable(i, i + 1) else c.some).iat[i] for c in self._keys)

    def frame(self, i: int) -> Any:
        """Return the rows of group `i` with a new range index; a frame of objects without rows, as Spark."""
        start, stop = self._offsets[i], self._offsets[i + 1]
        if start == stop:
            return pd.DataFrame(columns=self._names)
        manager = self._all_rows(start, stop)._mgr.get_slice(slice(start, stop), axis=1)
        # Axes of its own: they can be given names.
        manager.axes = [self._names._view(), pd.RangeIndex._simple_new(range(stop - start))]
        return pd.DataFrame._from_mgr(manager, axes=manager.axes)

    def _all_rows(self, start: int, stop: int) -> Any:
        """Return the rows of all groups, in columns of the types that rows `start` to `stop` have alone."""
        nullable = self._no_nulls
        if self._has_nulls:
            nullable = tuple(column.is_nullable(start, stop) for column in self._columns)
        frame = self._frames.get(nullable)
        if frame is None:
            parts = [c.nullable if n else c.some for c, n in zip(self._columns, nullable, strict=True)]
            frame = self._frames[nullable] = pd.DataFrame(dict(enumerate(parts)), copy=False)
        return frame
