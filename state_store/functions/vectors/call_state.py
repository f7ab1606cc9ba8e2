"""The state of the groups of one call, as tables.

The variables below hold PySpark's own for one group at a time, and go through the groups. With the session
extension, those answer from what was fetched for all groups in one message. Rows of Python values, as
PySpark's state variables give and take them, become Arrow columns and back (`RowColumns`).
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from state_store.functions.checking import (
    Call,
    as_array,
    as_table,
    group_indexes,
    milliseconds,
    nullable,
    struct_of,
)
from state_store.functions.frames import pandas_frame, pandas_table, polars_frame, polars_table
from state_store.functions.group_context import EXISTS, GROUP, Context, Header

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


Convert = Callable[[Any], Any]


class RowColumns:
    """Converter of rows of one schema. Immutable; used by any thread.

    Args:
        schema: the Arrow schema of the rows, with moments in the session's time zone.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._types = [nullable(field.type) for field in schema]
        self._to_arrow = [_to_arrow(kind) for kind in self._types]
        self._to_python = [_to_python(kind) for kind in self._types]

    def columns(self, rows: Sequence[Any]) -> list[pa.Array]:
        """Return the columns of rows, each a sequence of values or None for a row without any."""
        if not self._types:
            return []
        empty = (None,) * len(self._types)
        values = list(zip(*(empty if row is None else row for row in rows), strict=True)) or [()] * len(
            self._types
        )
        return [
            pa.array(column if convert is None else [_call(convert, v) for v in column], type=kind)
            for column, convert, kind in zip(values, self._to_arrow, self._types, strict=True)
        ]

    def rows(self, columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
        """Return the rows of columns of this schema, as tuples."""
        values = [
            column.to_pylist() if convert is None else [_call(convert, v) for v in column.to_pylist()]
            for column, convert in zip(columns, self._to_python, strict=True)
        ]
        return list(zip(*values, strict=True))


def _call(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _to_arrow(kind: pa.DataType) -> Convert | None:
    """Return the function that makes a value of PySpark one of pyarrow; None if both are the same."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # A moment is naive there, in the zone of the worker.
        return lambda value: value.astimezone(datetime.timezone.utc)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [_to_arrow(field.type) or _same for field in kind]
        return lambda value: {
            name: _call(part, item) for name, part, item in zip(names, parts, tuple(value), strict=True)
        }
    if pa.types.is_map(kind):
        key, item = _to_arrow(kind.key_type) or _same, _to_arrow(kind.item_type) or _same
        return lambda value: [(key(k), _call(item, v)) for k, v in value.items()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _to_arrow(kind.value_type)
        return None if element is None else lambda value: [_call(element, item) for item in value]
    return None


def _to_python(kind: pa.DataType) -> Convert | None:
    """Return the function that makes a value of `to_pylist` one for PySpark; None if both are the same."""
    if pa.types.is_struct(kind):
        parts = [_to_python(field.type) or _same for field in kind]
        return lambda value: tuple(_call(part, v) for part, v in zip(parts, value.values(), strict=True))
    if pa.types.is_map(kind):
        key, item = _to_python(kind.key_type) or _same, _to_python(kind.item_type) or _same
        return lambda value: {key(k): _call(item, v) for k, v in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _to_python(kind.value_type)
        return None if element is None else lambda value: [_call(element, item) for item in value]
    return None


def _same(value: Any) -> Any:
    return value


TIMER = "__timer_ms"


class States:
    """The state of the groups of a call: `state["name"]` or `state.name` is the variable of that name.

    Attributes:
        batch_time_ms: the start of the micro-batch, milliseconds since the epoch; None without a time mode.
        watermark_ms: the event-time watermark in the same unit, None if there is none.
        timers: the timers of the groups.
    """

    def __init__(self, frame: str, name: str, header: Header) -> None:
        self.batch_time_ms: int | None = None
        self.watermark_ms: int | None = None
        self.timers: TimerColumns
        self._frame = frame
        self._name = name
        self._header = header
        self._variables: dict[str, Any] = {}
        self._call: Call | None = None
        self._enter: Callable[[int], None] = lambda slot: None
        self._fetch: Callable[[Any], None] | None = None

    def __getitem__(self, name: str) -> Any:
        try:
            return self._variables[name]
        except KeyError:
            variable_names = ", ".join(self._variables) or "none"
            raise KeyError(
                f"{self._name} declares no state variable {name!r} in init; it has: {variable_names}"
            ) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self._variables]

    def _begin(
        self,
        keys: list[pa.Array],
        enter: Callable[[int], None],
        fetch: Callable[[Any], None] | None,
        *,
        timed_out: bool,
    ) -> Call:
        """Begin a call for groups with these key columns; `enter` makes one of them the present one."""
        header = self._header
        context = Context(
            -1 if self.batch_time_ms is None else self.batch_time_ms,
            self.watermark_ms,
            header.timeout_conf,
            timed_out,
            False,
            False,
            header.state_schema,
            header.output_schema,
        )
        groups = len(keys[0]) if keys else 1
        self._call = Call(self._name, context, keys, header.key.names, frozenset(), groups)
        self._enter, self._fetch = enter, fetch
        return self._call

    @property
    def _present(self) -> Call:
        if self._call is None:
            raise RuntimeError(f"{self._name}: state can be used in handle and handle_timers, not in init")
        return self._call

    def _table(self, columns: list[pa.Array], names: list[str]) -> Any:
        """Return columns as the table or frame that the processor asked for."""
        table = pa.Table.from_arrays(columns, names=names)
        if self._frame == "pandas":
            return pandas_frame(table, self._header)
        if self._frame == "polars":
            return polars_frame(table)
        return table

    def _given(self, value: Any, schema: StructType, arrow: pa.Schema, part: str) -> pa.Table:
        """Return a table or frame that the processor gave as a table. Raises BadResultError."""
        call = self._present
        if self._frame == "pandas":
            value = pandas_table(value, schema, part, call, self._header)
        elif self._frame == "polars":
            value = polars_table(value, arrow, part, call)
        return as_table(value, part, call)


class _Columns:
    """The parts that all kinds of variables share."""

    def __init__(self, states: States, name: str, variable: Any, schema: StructType) -> None:
        self._states = states
        self._name = name
        self._variable = variable
        self._schema = schema
        self._arrow = states._header.arrow(schema)
        self._rows = RowColumns(self._arrow)

    def clear(self, groups: Any = None) -> None:
        """Remove the state of groups.

        Args:
            groups: indexes of groups, or one boolean for each; default: all of them.
        """
        states = self._states
        call = states._present
        slots: Iterable[int] = range(call.groups)
        if groups is not None:
            array = as_array(groups, f"{self._name}.clear", call)
            if not pa.types.is_boolean(array.type):
                slots = group_indexes(array, f"{self._name}.clear", call).tolist() if len(array) else ()
            elif len(array) == call.groups:
                slots = np.flatnonzero(array.fill_null(False).to_numpy(zero_copy_only=False)).tolist()
            else:
                raise call.fail(
                    f"{self._name}.clear has {len(array)} booleans for {call.groups} groups: one for each."
                )
        for slot in slots:
            states._enter(slot)
            self._variable.clear()

    def _entries(self, read: Callable[[], Iterable[Any]]) -> tuple[list[int], list[Any]]:
        """Return what `read` gives for each group, one after the other, and the group of each."""
        states = self._states
        groups = states._present.groups
        if states._fetch is not None:
            states._fetch(self._variable)
        counts: list[int] = []
        entries: list[Any] = []
        for slot in range(groups):
            states._enter(slot)
            before = len(entries)
            entries.extend(read())
            counts.append(len(entries) - before)
        return counts, entries

    def _by_group(self, table: pa.Table, part: str) -> np.ndarray:
        """Return the group of each row of a table that has the column `__group`. Raises BadResultError."""
        call = self._states._present
        if GROUP not in table.column_names:
            raise call.fail(f"{part} lacks column {GROUP!r}, which says the group that each row is for.")
        return group_indexes(table.column(GROUP), f"{part} column {GROUP!r}", call)

    def _checked(self, table: pa.Table, rows: RowColumns, groups: Any, part: str) -> list[tuple[Any, ...]]:
        call = self._states._present
        struct = struct_of(table, rows.schema, part, lambda row: call.group(int(groups[row])), call)
        return rows.rows(struct.flatten())


def _index(counts: list[int]) -> pa.Array:
    return pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))


class ValueColumns(_Columns):
    """A value state: a row of its columns for each group."""

    def table(self) -> Any:
        """Return a row for each group: the columns of the state, null without one, `__exists`, `__group`."""
        _, values = self._entries(lambda: (self._variable.get(),))
        exists = pa.array([value is not None for value in values], pa.bool_())
        group = pa.array(np.arange(len(values), dtype=np.int32))
        columns = [*self._rows.columns(values), exists, group]
        return self._states._table(columns, [*self._arrow.names, EXISTS, GROUP])

    def update(self, values: Any) -> None:
        """Give groups a new value.

        Args:
            values: a row for each group in their order; or, with a column `__group`, rows for those groups.

        Raises:
            BadResultError: a column is missing or has another type, or a group is unknown or named twice.
        """
        states, part = self._states, f"{self._name}.update"
        call = states._present
        table = states._given(values, self._schema, self._arrow, part)
        if GROUP in table.column_names:
            groups = self._by_group(table, part)
            if len(np.unique(groups)) != len(groups):
                order = np.sort(groups)
                twice = order[1:][order[1:] == order[:-1]][0]
                raise call.fail(f"{part} has two rows for {call.group(int(twice))}: give one.")
        elif table.num_rows == call.groups:
            groups = np.arange(call.groups)
        else:
            raise call.fail(
                f"{part} has {table.num_rows} rows for {call.groups} groups: give one for each, or a column "
                f"{GROUP!r}."
            )
        for slot, row in zip(groups.tolist(), self._checked(table, self._rows, groups, part), strict=True):
            states._enter(slot)
            self._variable.update(row)


class ListColumns(_Columns):
    """A list state: a row for each entry, with the group that it belongs to."""

    def table(self) -> Any:
        """Return the entries of all groups in order: the columns of the state, `__group`."""
        counts, entries = self._entries(lambda: self._variable.get())
        columns = [*self._rows.columns(entries), _index(counts)]
        return self._states._table(columns, [*self._arrow.names, GROUP])

    def append(self, entries: Any) -> None:
        """Append entries to the lists of the groups in their column `__group`.

        Raises:
            BadResultError: as `ValueColumns.update`.
        """
        self._write(entries, "append", lambda variable, rows: variable.appendList(rows))

    def put(self, entries: Any) -> None:
        """Put entries in place of the lists of the groups in their column `__group`; others keep theirs.

        Raises:
            BadResultError: as `ValueColumns.update`.
        """
        self._write(entries, "put", lambda variable, rows: variable.put(rows))

    def _write(self, entries: Any, name: str, write: Callable[[Any, list[Any]], None]) -> None:
        states, part = self._states, f"{self._name}.{name}"
        table = states._given(entries, self._schema, self._arrow, part)
        groups = self._by_group(table, part)
        rows = self._checked(table, self._rows, groups, part)
        order = np.argsort(groups, kind="stable").tolist()
        for slot, places in itertools.groupby(order, key=groups.__getitem__):
            states._enter(int(slot))
            write(self._variable, [rows[place] for place in places])


class MapColumns(_Columns):
    """A map state: a row for each entry, with the group that it belongs to.

    A column of the key whose name the value has too is called `key.<name>`.
    """

    def __init__(
        self, states: States, name: str, variable: Any, keys: StructType, schema: StructType
    ) -> None:
        from pyspark.sql.types import StructField, StructType

        super().__init__(states, name, variable, schema)
        named = [
            StructField(f"key.{f.name}" if f.name in schema.names else f.name, f.dataType, f.nullable)
            for f in keys.fields
        ]
        self._key_schema = StructType(named)
        self._key_arrow = states._header.arrow(self._key_schema)
        self._key_rows = RowColumns(self._key_arrow)

    def table(self) -> Any:
        """Return the entries of all groups: the columns of the key, those of the value, `__group`."""
        counts, entries = self._entries(lambda: self._variable.iterator())
        keys = self._key_rows.columns([key for key, _ in entries])
        values = self._rows.columns([value for _, value in entries])
        names = [*self._key_arrow.names, *self._arrow.names, GROUP]
        return self._states._table([*keys, *values, _index(counts)], names)

    def update(self, entries: Any) -> None:
        """Set entries of the maps of the groups in their column `__group`.

        Raises:
            BadResultError: as `ValueColumns.update`.
        """
        from pyspark.sql.types import StructType

        part = f"{self._name}.update"
        schema = StructType([*self._key_schema.fields, *self._schema.fields])
        table = self._states._given(entries, schema, pa.schema([*self._key_arrow, *self._arrow]), part)
        groups = self._by_group(table, part)
        keys = self._checked(table, self._key_rows, groups, part)
        values = self._checked(table, self._rows, groups, part)
        for slot, key, value in zip(groups.tolist(), keys, values, strict=True):
            self._states._enter(slot)
            self._variable.updateValue(key, value)

    def remove(self, keys: Any) -> None:
        """Remove entries by the columns of their key, from the maps of the groups in the column `__group`.

        Raises:
            BadResultError: as `ValueColumns.update`.
        """
        part = f"{self._name}.remove"
        table = self._states._given(keys, self._key_schema, self._key_arrow, part)
        groups = self._by_group(table, part)
        for slot, key in zip(
            groups.tolist(), self._checked(table, self._key_rows, groups, part), strict=True
        ):
            self._states._enter(slot)
            self._variable.removeKey(key)


class TimerColumns:
    """The timers of the groups: moments in milliseconds since the epoch."""

    def __init__(self, states: States, handle: Any, timers: Any) -> None:
        self._states = states
        self._handle = handle
        self._timers = timers

    def table(self) -> Any:
        """Return a row for each timer of the groups: `__timer_ms`, `__group`."""
        states = self._states
        if states._fetch is not None:
            states._fetch(self._timers)
        counts: list[int] = []
        moments: list[int] = []
        for slot in range(states._present.groups):
            states._enter(slot)
            before = len(moments)
            moments.extend(int(moment) for moment in self._handle.listTimers())
            counts.append(len(moments) - before)
        return states._table([pa.array(moments, pa.int64()), _index(counts)], [TIMER, GROUP])

    def register(self, moments: Any) -> None:
        """Register timers.

        Args:
            moments: one for each group, null for none: milliseconds since the epoch, timestamps, or durations
                from the start of the batch; or a table with the columns `__timer_ms` and `__group`.
        """
        self._each(moments, "timers.register", self._handle.registerTimer)

    def delete(self, moments: Any) -> None:
        """Delete timers; `moments` as in `register`."""
        self._each(moments, "timers.delete", self._handle.deleteTimer)

    def _each(self, moments: Any, part: str, change: Callable[[int], None]) -> None:
        states = self._states
        for slot, moment_ms in self._given(moments, part):
            states._enter(slot)
            change(moment_ms)

    def _given(self, moments: Any, part: str) -> Iterator[tuple[int, int]]:
        states = self._states
        call = states._present
        if hasattr(moments, "columns"):  # a table or a frame, and not a column
            moment_table = moments
            if not isinstance(moments, (pa.Table, pa.RecordBatch)):
                moment_table = pa.table(
                    {name: as_array(moments[name], part, call) for name in moments.columns}
                )
            table = as_table(moment_table, part, call)
            for name in (TIMER, GROUP):
                if name not in table.column_names:
                    raise call.fail(f"{part} lacks column {name!r}: give columns {[TIMER, GROUP]}.")
            groups = group_indexes(table.column(GROUP), f"{part} column {GROUP!r}", call).tolist()
            array = milliseconds(as_array(table.column(TIMER), part, call), call, part)
        else:
            array = milliseconds(as_array(moments, part, call), call, part)
            if len(array) != call.groups:
                raise call.fail(
                    f"{part} has {len(array)} moments for {call.groups} groups: one for each, null for none."
                )
            groups = list(range(call.groups))
        for slot, moment_ms in zip(groups, array.to_pylist(), strict=True):
            if moment_ms is not None:
                yield slot, moment_ms
