"""The worker's side of a marked processor with the session extension: tables of many groups in and out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state_store.core.compat import zip
from state_store.functions.checking import struct_type
from state_store.functions.group_context import GROUP, GroupTooLargeError, Header
from state_store.functions.processors.processor_loop import ProcessorLoop
from state_store.functions.processors.variables import BatchedHandle
from state_store.functions.vectors.call_state import TIMER, RowColumns
from state_store.functions.vectors.processor import Calls, VectorHandle, header_of


class Loop(ProcessorLoop):
    """A pass over the groups and timers of a partition. Used by the one thread of a worker."""

    def __init__(self, processor: Any, output: Any, header: Any) -> None:
        super().__init__(processor, output, header)
        query = header_of(processor)
        self._query: Header = dataclasses.replace(
            query,
            time_zone=header.time_zone,
            large_types=False,
            runner=header.runner,
            batch_time_ms=header.batch_time_ms,
            watermark_ms=header.watermark_ms,
        )
        self._calls = Calls(processor, self._query)
        self._calls.at(self._times)
        self._output = _Passed()
        self._key_columns = RowColumns(self._query.key_schema)
        self._batch_schema = pa.schema(list(struct_type(self._query.output_schema)))

    def _declare(self) -> None:
        """Call the user's `init`, whose variables know the session of this task."""
        handle = BatchedHandle(self._session, self._timers)
        declare = type(self._processor).init.__wrapped__
        declare(self._processor, VectorHandle(handle, self._calls.states, self._timers))

    def _with_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        header, session = self._header, self._session
        for table in whole_groups(batches, header.key_offsets, header.max_group_bytes):
            columns = [column.combine_chunks() for column in table.columns]
            starts = borders([columns[offset] for offset in header.key_offsets])
            first = pa.array(starts)
            keys = [columns[offset].take(first) for offset in header.key_offsets]
            index = np.repeat(np.arange(len(starts), dtype=np.int32), np.diff([*starts, table.num_rows]))
            names = table.column_names[header.first_value :]
            rows = pa.Table.from_arrays(
                [*columns[header.first_value :], pa.array(index)], names=[*names, GROUP]
            )
            call = self._begin(keys, timed_out=False)
            yield from self._given(self._calls.rows(self._as_query(keys), self._rows_as_query(rows), call))
        session.end()

    def _begin(self, keys: list[pa.Array], *, timed_out: bool) -> Any:
        session = self._session
        session.begin(self._key_columns.rows(keys))
        return self._calls.states._begin(
            self._as_query(keys), session.enter, session.fetch, timed_out=timed_out
        )

    def _as_query(self, keys: list[pa.Array]) -> list[pa.Array]:
        return [key.cast(field.type) for key, field in zip(keys, self._query.key_schema, strict=True)]

    def _rows_as_query(self, rows: pa.Table) -> pa.Table:
        schema = self._query.row_schema
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(rows.columns, schema)
        ]
        return pa.Table.from_arrays([*columns, rows.column(len(columns))], names=rows.column_names)

    def _expired(self, part: list[tuple[Any, int]]) -> Iterator[pa.RecordBatch]:
        """Give what the processor gives for timers that have expired, and delete each after the call."""
        places: dict[Any, int] = {}
        groups = [places.setdefault(self._keys.key(tuple(key)), len(places)) for key, _ in part]
        first = {group: key for group, (key, _) in reversed(list(zip(groups, part)))}
        keys = self._key_columns.columns([first[group] for group in range(len(places))])
        call = self._begin(keys, timed_out=True)
        timers = pa.Table.from_arrays(
            [pa.array([at for _, at in part], pa.int64()), pa.array(groups, pa.int32())], names=[TIMER, GROUP]
        )
        yield from self._given(self._calls.timers(keys, timers, call))
        for group, (_, at) in zip(groups, part, strict=True):
            self._session.enter(group)
            self._timers.delete(at)

    def _given(self, outputs: Iterator[pa.StructArray]) -> Iterator[pa.RecordBatch]:
        for output in outputs:
            if len(output):
                yield pa.RecordBatch.from_arrays(output.flatten(), schema=self._batch_schema)


class _Passed:
    """Output that goes on as it comes: it is in batches already."""

    waits = False

    def add(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches as they are."""
        return batches


def whole_groups(
    batches: Iterator[pa.RecordBatch], key_offsets: list[int], max_group_bytes: int
) -> Iterator[pa.Table]:
    """Yield the rows of a partition, sorted by key, in tables that end with a group.

    Raises:
        GroupTooLargeError: the rows of one group exceed `max_group_bytes`.
    """
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        starts = borders([batch.column(offset) for offset in key_offsets])
        continues = bool(waiting) and _continues(waiting[-1], batch, key_offsets)
        if waiting and not continues:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_bytes = [], 0
        last = int(starts[-1])
        if last:
            yield pa.Table.from_batches([*waiting, batch.slice(0, last)])
            waiting, waiting_bytes = [], 0
        waiting.append(batch.slice(last))
        waiting_bytes += waiting[-1].nbytes
        if waiting_bytes > max_group_bytes:
            key = ", ".join(repr(waiting[0].column(offset)[0].as_py()) for offset in key_offsets)
            raise GroupTooLargeError(
                f"the rows of group ({key}) exceed {max_group_bytes} bytes, the limit up to which a "
                "vectorised processor gets a group: raise "
                "spark.sql.streaming.stateStore.incremental.vectorized.maxGroupBytes, or use a processor "
                "that is called once a group"
            )
    if waiting:
        yield pa.Table.from_batches(waiting)


def _continues(before: pa.RecordBatch, batch: pa.RecordBatch, key_offsets: list[int]) -> bool:
    """Return True if the first row of a batch has the key of the last row before it."""
    pairs = [
        pa.concat_arrays([before.column(offset).slice(before.num_rows - 1), batch.column(offset).slice(0, 1)])
        for offset in key_offsets
    ]
    return len(borders(pairs)) == 1


def borders(keys: list[pa.Array]) -> np.ndarray:
    """Return the indexes of the rows, in key columns of at least one row, whose key is not that before."""
    count = len(keys[0])
    begins = np.zeros(count, bool)
    begins[0] = True
    for key in keys:
        begins[1:] |= _differ(key.slice(1), key.slice(0, count - 1))
    return np.flatnonzero(begins)


def _differ(these: pa.Array, those: pa.Array) -> np.ndarray:
    """Return True where the values of two arrays differ; nulls are equal, and NaN is equal to NaN."""
    kind = these.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return np.array([a != b for a, b in zip(these.to_pylist(), those.to_pylist(), strict=True)], bool)
    different = pc.not_equal(these, those)
    if pa.types.is_floating(kind):
        different = pc.and_(different, pc.invert(pc.and_(pc.is_nan(these), pc.is_nan(those))))
    if these.null_count or those.null_count:
        different = different.fill_null(False)
        different = pc.or_(different, pc.xor(these.is_null(), those.is_null()))
    return different.to_numpy(zero_copy_only=False)
