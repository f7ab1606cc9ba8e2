"""Writer of checked changes, as the one-row batches that the JVM reads (`StateChanges`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state_store.core.compat import zip
from state_store.functions.group_context import NO_TIMESTAMP
from state_store.functions.result import Changes
from state_store.functions.returned_columns import struct_type

PUT, KEEP, CLEAR, REMOVE = 0, 1, 2, 3


class ChangeWriter:
    """Writer of the batches of one stream; `state_type` is the Arrow type of a state on the wire."""

    def __init__(self, output_schema: pa.Schema, state_type: pa.DataType) -> None:
        output_type = struct_type(output_schema)
        self._types = [pa.list_(t) for t in (output_type, pa.int64(), pa.int8(), pa.int64(), state_type)]
        names = ("output", "group", "change", "timeout", "state")
        self._schema = pa.schema([("done", pa.int64()), *zip(names, self._types, strict=True)])

    def write(self, changes: Changes, first: int, done: int) -> pa.RecordBatch:
        """Return one batch with `changes` of the groups from `first` on; those below `done` are finished."""
        timed = changes.timeout != NO_TIMESTAMP
        change = np.full(len(timed), -1, dtype=np.int8)
        change[timed] = KEEP
        change[changes.removed] = REMOVE
        change[changes.removed & timed] = CLEAR
        change[changes.updated] = PUT
        groups = np.flatnonzero(change >= 0)
        return self.write_lists(
            done,
            changes.output,
            pa.array(groups + first),
            pa.array(change[groups]),
            pa.array(changes.timeout[groups]),
            changes.state,
        )

    def write_output(self, output: pa.StructArray, done: int) -> pa.RecordBatch:
        """Return one batch of output alone; groups below `done` are finished."""
        nothing = [pa.array([], list_type.value_type) for list_type in self._types[1:]]
        return self.write_lists(done, output, *nothing)

    def write_lists(self, done: int, *lists: pa.Array) -> pa.RecordBatch:
        """Return one batch of `lists` (output, group, change, timeout, state), a column of one row each."""
        columns = [
            pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=dtype)
            for values, dtype in zip(lists, self._types, strict=True)
        ]
        return pa.RecordBatch.from_arrays([pa.array([done], pa.int64()), *columns], schema=self._schema)
