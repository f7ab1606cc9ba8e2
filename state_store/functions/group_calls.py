"""Functions that are called for one group at a time, with plain Python values, and their `GroupState`.

The groups of a call come and go as they do for a vectorised function, as one table of rows and one of states.
This module takes them apart for the function, and makes tables of the changes to each `GroupState` and of the
rows that the function returns.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState

from state_store.core.compat import zip
from state_store.functions.group_context import EXISTS, GROUP, NO_TIMESTAMP, BadResultError, Changes
from state_store.functions.plain_values import RowSchema, SessionZone, UnfitValueError, row_class, tuple_class

if TYPE_CHECKING:
    from state_store.functions.checking import Call
    from state_store.functions.group_context import Header


class PlainState(GroupState):
    """PySpark's `GroupState`; its states are named tuples, and datetimes are in the session's zone."""

    def __init__(self, common: CommonState, value: Any, group: Callable[[], str]) -> None:
        header = common.header
        super().__init__(
            optionalValue=value,
            batchProcessingTimeMs=header.batch_time_ms,
            eventTimeWatermarkMs=header.watermark_ms,
            timeoutConf=header.timeout_conf,
            hasTimedOut=header.timed_out,
            watermarkPresent=header.watermark_present,
            defined=value is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=header.state,
        )
        self._common = common
        self._group = group

    @property
    def get(self) -> Any:
        """The state as a named tuple; without state a `PySparkValueError`."""
        return self._value if self._defined else super().get

    @property
    def getOption(self) -> Any:
        """The state as a named tuple, or `None`."""
        return self._value if self._defined else None

    def update(self, newValue: Any) -> None:
        """Make `newValue` the state: a value for each column of the state schema, or a mapping by name.

        Raises:
            BadResultError: It has too many values or too few, or one that its column cannot take.
        """
        if newValue is None:
            super().update(newValue)  # which refuses it
        if not isinstance(newValue, (tuple, list, dict)):
            newValue = tuple(newValue)
        try:
            self._value = self._common.make(self._common.schema.own(newValue))
        except UnfitValueError as error:
            raise self._common.fail(f"the new state of {self._group()}: {error}.") from None
        self._defined = self._updated = True
        self._removed = False

    def setTimeoutTimestamp(self, timestampMs: float | datetime.datetime) -> None:
        """Set the timeout as PySpark does; a `datetime` without a zone is in the session's."""
        if isinstance(timestampMs, datetime.datetime):
            timestampMs = self._common.zone.micros(timestampMs) / 1000
        super().setTimeoutTimestamp(timestampMs)


@dataclasses.dataclass(frozen=True)
class CommonState:
    """The facts that the states of all groups of a stream share. `fail` makes the error with a message."""

    header: Header
    schema: RowSchema
    zone: SessionZone
    make: Callable[[Any], Any]
    fail: Callable[[str], Exception]


Emit = Callable[[pa.StructArray], Any]
"""Makes an item of a stream of answers of output rows."""

_MAX_OUTPUT_ROWS = 10_000


class GroupCaller:
    """Caller of one function for the groups of a stream. Used by the one thread of a worker."""

    def __init__(self, func: Callable[..., Any], header: Header) -> None:
        self._func = func
        self._header = header
        self._zone = SessionZone(header.time_zone)
        self._key = RowSchema(header.key, header.key_schema, self._zone)
        self._row = RowSchema(header.rows, header.row_schema, self._zone)
        self._state = RowSchema(header.state, header.state_schema, self._zone)
        self._output = RowSchema(header.output, header.output_schema, self._zone)
        self._make_key = tuple_class("Key", tuple(header.key.names))
        self._make_row = row_class(tuple(header.rows.names))
        self._make_state = tuple_class("State", tuple(header.state.names))

    def call(self, rows: pa.Table, states: pa.Table, call: Call, emit: Emit) -> Generator[Any, None, Changes]:
        """Call the function for each group of `states`; yield the items that `emit` makes of output.

        Raises:
            BadResultError: A row or a state that the function gave does not fit its schema.
        """
        common = CommonState(self._header, self._state, self._zone, self._make_state, call.fail)
        output = _Output(self._output, call)
        after = []
        for number, (key, group, before) in enumerate(self._groups(rows, states)):
            state = PlainState(common, before, functools.partial(call.group, number))
            try:
                result = self._func(key, group, state)
                if result is not None:
                    for row in _iterable(result, call):
                        output.add(row, number, result)
                        if len(output.rows) == _MAX_OUTPUT_ROWS:
                            yield emit(output.taken())
            except Exception as error:
                _name_group(error, call, number)
                raise
            after.append(state)
        return self._changes(after, output, call)

    def _groups(self, rows: pa.Table, states: pa.Table) -> Iterable[tuple[Any, list[Any], Any]]:
        """Yield key, rows and state (or `None`) of each group; columns are in the order of the schemas."""
        count = len(self._key.names)
        columns = states.columns
        keys = self._key.tuples(columns[:count], self._make_key)
        before = self._state.tuples(columns[count : count + len(self._state.names)], self._make_state)
        exists = states.column(EXISTS).to_pylist()
        all_rows = self._row.tuples(rows.columns[:-1], self._make_row)
        lengths = np.bincount(rows.column(GROUP).to_numpy(), minlength=states.num_rows)
        ends = np.cumsum(lengths).tolist()
        start = 0
        for key, state, exists_now, end in zip(keys, before, exists, ends, strict=True):
            yield key, all_rows[start:end], state if exists_now else None
            start = end

    def _changes(self, after: list[PlainState], output: _Output, call: Call) -> Changes:
        updated = [number for number, state in enumerate(after) if state._updated]
        return Changes(
            np.array([state._updated for state in after], dtype=bool),
            np.array([state._removed for state in after], dtype=bool),
            np.array([int(state._timeout_timestamp) for state in after], dtype=np.int64),
            self._state.struct(
                [after[number].get for number in updated],
                f"{call.name}: state",
                lambda i: call.group(updated[i]),
            ),
            output.taken(),
        )


class _Output:
    """The rows that the function returned and that wait to be sent, with the group of each."""

    def __init__(self, schema: RowSchema, call: Call) -> None:
        self._schema = schema
        self._call = call
        self.rows: list[tuple[Any, ...]] = []
        self._numbers: list[int] = []

    def add(self, row: Any, number: int, result: Any) -> None:
        """Add a row of the group with this number; `result` is what its function returned."""
        try:
            self.rows.append(self._schema.own(row))
        except UnfitValueError as unfit:
            error = self._call.fail(
                f"a row of {self._call.group(number)}: {unfit}. Yield rows, or return a list of them."
            )
            if hasattr(result, "throw"):  # a generator: its traceback shows the line that yields
                result.throw(error)
            raise error from None
        self._numbers.append(number)

    def taken(self) -> pa.StructArray:
        """Return all rows as a struct array. None are left."""
        numbers = self._numbers
        struct = self._schema.struct(
            self.rows, f"{self._call.name}: output", lambda i: self._call.group(numbers[i])
        )
        self.rows, self._numbers = [], []
        return struct


def _iterable(result: Any, call: Call) -> Iterable[Any]:
    """Return an iterator over the result of a function; a single row is not an iterable of rows."""
    if isinstance(result, (str, bytes, dict)) or hasattr(result, "_fields") or hasattr(result, "columns"):
        raise call.fail(f"returned a {type(result).__name__}: yield rows, or return a list of them.")
    try:
        return iter(result)
    except TypeError:
        raise call.fail(
            f"returned a {type(result).__name__}: yield rows, or return a list of them."
        ) from None


def _name_group(error: Exception, call: Call, number: int) -> None:
    """Add the group to the traceback of an error of the user's function, where Python has notes (3.11)."""
    if not isinstance(error, BadResultError) and hasattr(error, "add_note"):
        error.add_note(f"{call.name} was called for {call.group(number)}.")
