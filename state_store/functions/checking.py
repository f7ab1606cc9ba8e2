"""Checks of a result against the call that it answers, and its conversion into one change per group.

Each returned column is converted to the type of the schema, or refused with the reason (`conform`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state_store.functions.group_context import (
    EXISTS,
    GROUP,
    NO_TIMESTAMP,
    TIMEOUT,
    BadResultError,
    Changes,
    Context,
    Result,
)


def _has_no_type(_: pa.DataType) -> bool:
    return False


# PyArrow has views since release 16, and Spark 4.0 takes one from release 11 on.
_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    getattr(pa.types, "is_string_view", _has_no_type),
)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    getattr(pa.types, "is_binary_view", _has_no_type),
    pa.types.is_fixed_size_binary,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


@dataclasses.dataclass(frozen=True)
class Call:
    """The call that a result answers: context, key columns of the groups, names in `states`."""

    name: str
    context: Context
    keys: list[pa.Array]
    key_names: list[str]
    state_columns: frozenset[str]
    groups: int

    def group(self, index: int) -> str:
        """Return the text for a group in messages: its key."""
        values = ", ".join(
            f"{n}={k[index].as_py()!r}" for n, k in zip(self.key_names, self.keys, strict=True)
        )
        return f"group ({values})"

    def fail(self, message: str) -> BadResultError:
        """Return an error that names the function. To be raised by the caller."""
        return BadResultError(f"{self.name}: {message}")


def check(result: Result, call: Call) -> Changes:
    """Return the changes that `result` asks for.

    Raises:
        BadResultError: The result breaks a rule. Nothing was written for this call.
    """
    updated, state = _state(result.state, call)
    removed = _removed(result.remove, call)
    both = np.flatnonzero(updated & removed)
    if len(both):
        raise call.fail(
            f"Result.state and Result.remove both name {call.group(int(both[0]))}: name it in one of them."
        )
    timeout = _timeout(result.timeout, call)
    return Changes(updated, removed, timeout, state, output_of(result.output, call))


def as_table(value: Any, part: str, call: Call) -> pa.Table:
    """Return `value` as a table; record batches and mappings of columns are taken too."""
    if isinstance(value, pa.Table):
        table = value
    elif isinstance(value, pa.RecordBatch):
        table = pa.Table.from_batches([value])
    else:
        raise call.fail(f"{part} is a {type(value).__name__}: return a pyarrow.Table.")
    names = table.column_names
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise call.fail(f"{part} has column {twice!r} twice: every column once.")
    return table


def struct_of(
    table: pa.Table, schema: pa.Schema, part: str, place: Callable[[int], str], call: Call
) -> pa.StructArray:
    """Return columns of a table as rows of `schema`.

    Raises:
        BadResultError: A column is missing or does not fit; the text has `part` and `place(row)`.
    """
    arrays = []
    for field in schema:
        if field.name not in table.column_names:
            raise call.fail(
                f"{part} lacks column {field.name!r} ({field.type}): return columns {schema.names}."
            )
        try:
            arrays.append(conform(table.column(field.name), field, part, place))
        except BadResultError as error:
            raise call.fail(str(error)) from error.__cause__
    return pa.StructArray.from_arrays(arrays, fields=list(struct_type(schema)))


def output_of(output: Any, call: Call, part: str = "Result.output") -> pa.StructArray:
    """Return the rows of a table of output, which `part` names in messages. Raises BadResultError."""
    schema = call.context.output_schema
    if output is None:
        return pa.array([], type=struct_type(schema))
    table = as_table(output, part, call)
    extra = [n for n in table.column_names if n not in schema.names]
    if extra:
        raise call.fail(f"{part} has column {extra[0]!r}, which the output schema has not: {schema.names}.")
    return struct_of(table, schema, part, lambda row: f"row {row}", call)


def _state(state: Any, call: Call) -> tuple[np.ndarray, pa.StructArray]:
    updated = np.zeros(call.groups, dtype=bool)
    schema = call.context.state_schema
    if state is None:
        return updated, pa.array([], type=struct_type(schema))
    table = as_table(state, "Result.state", call)
    extra = [n for n in table.column_names if n not in call.state_columns]
    if extra:
        raise call.fail(
            f"Result.state has column {extra[0]!r}, which the state schema has not: {schema.names}."
        )
    if GROUP in table.column_names:
        groups = group_indexes(table.column(GROUP), f"Result.state column {GROUP!r}", call)
    elif table.num_rows == call.groups:
        groups = np.arange(call.groups)
    else:
        raise call.fail(
            f"Result.state has {table.num_rows} rows for {call.groups} groups: return one for each row of "
            f"states, or a column {GROUP!r} that says which group each row is for."
        )
    updated[groups] = True
    if np.any(groups[1:] <= groups[:-1]):
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        twice = np.flatnonzero(groups[1:] == groups[:-1])
        if len(twice):
            raise call.fail(f"Result.state has two rows for {call.group(int(groups[twice[0]]))}: return one.")
        table = table.take(pa.array(order))
    return updated, struct_of(table, schema, "Result.state", lambda row: call.group(int(groups[row])), call)


def group_indexes(values: Any, part: str, call: Call) -> np.ndarray:
    """Return a column of group indexes. Raises BadResultError for one that is unknown."""
    array = as_array(values, part, call)
    if not pa.types.is_integer(array.type):
        raise call.fail(f"{part} is {array.type}: give group indexes, as in states[{GROUP!r}].")
    if array.null_count:
        raise call.fail(
            f"{part} has a null at {pc.index(array.is_null(), True).as_py()}: give group indexes."
        )
    groups = array.to_numpy(zero_copy_only=False).astype(np.int64)
    unknown = np.flatnonzero((groups < 0) | (groups >= call.groups))
    if len(unknown):
        raise call.fail(
            f"{part} names group {groups[unknown[0]]}, which is unknown: "
            f"states has groups 0 to {call.groups - 1}."
        )
    return groups


def _removed(remove: Any, call: Call) -> np.ndarray:
    removed = np.zeros(call.groups, dtype=bool)
    if remove is None:
        return removed
    array = as_array(remove, "Result.remove", call)
    if not pa.types.is_boolean(array.type):
        if len(array):
            removed[group_indexes(array, "Result.remove", call)] = True
        return removed
    if len(array) != call.groups:
        raise call.fail(
            f"Result.remove has {len(array)} booleans for {call.groups} groups: one for each row of states."
        )
    return array.fill_null(False).to_numpy(zero_copy_only=False)


def _timeout(timeout: Any, call: Call) -> np.ndarray:
    context = call.context
    if timeout is None:
        return np.full(call.groups, NO_TIMESTAMP, dtype=np.int64)
    array = as_array(timeout, "Result.timeout", call)
    if len(array) != call.groups:
        raise call.fail(
            f"Result.timeout has {len(array)} entries for {call.groups} groups: "
            "one for each row of states, null for none."
        )
    is_set = array.is_valid().to_numpy(zero_copy_only=False)
    millis = np.where(
        is_set, milliseconds(array, call).fill_null(0).to_numpy(zero_copy_only=False), NO_TIMESTAMP
    )
    first = _first(is_set)
    if first is not None and context.timeout_conf == "NoTimeout":
        raise call.fail(
            f"Result.timeout sets a timeout for {call.group(first)}, "
            "but the query was started with NoTimeout."
        )
    _check_moments(millis.astype(np.int64), is_set, call)
    return millis.astype(np.int64)


def _check_moments(millis: np.ndarray, is_set: np.ndarray, call: Call) -> None:
    context = call.context
    bad = _first(is_set & (millis <= 0))
    if bad is not None:
        raise call.fail(
            f"Result.timeout is {millis[bad]} ms for {call.group(bad)}: a timeout must be positive."
        )
    if context.timeout_conf == "ProcessingTimeTimeout":
        bad = _first(is_set & (millis <= context.batch_time_ms))
        if bad is not None:
            raise call.fail(
                f"Result.timeout is {millis[bad]} ms for {call.group(bad)}, not after the start of the batch "
                f"({context.batch_time_ms} ms): a processing-time timeout lies in the future."
            )
    elif context.watermark_ms is not None:
        bad = _first(is_set & (millis < context.watermark_ms))
        if bad is not None:
            raise call.fail(
                f"Result.timeout is {millis[bad]} ms for {call.group(bad)}, earlier than the watermark "
                f"({context.watermark_ms} ms)."
            )


def milliseconds(array: pa.Array, call: Call, part: str = "Result.timeout") -> pa.Array:
    """Return moments, or durations from the start of the batch, as milliseconds since the epoch.

    Raises:
        BadResultError: They are neither; the text has `part`.
    """
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return array.cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_duration(kind):
        if call.context.timeout_conf == "EventTimeTimeout":
            raise call.fail(f"{part} is a duration, but EventTimeTimeout needs moments: give timestamps.")
        return pc.add(array.cast(pa.duration("ms"), safe=False).cast(pa.int64()), call.context.batch_time_ms)
    raise call.fail(f"{part} is {kind}: give milliseconds since the epoch, timestamps or durations.")


def _first(mask: np.ndarray) -> int | None:
    indexes = np.flatnonzero(mask)
    return int(indexes[0]) if len(indexes) else None


def as_array(values: Any, part: str, call: Call) -> pa.Array:
    """Return a column, a series or a sequence as one array. Raises BadResultError."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise call.fail(f"{part} is a {type(values).__name__} that is not a column ({error}).") from None


STATE_EXTRAS = frozenset((GROUP, EXISTS, TIMEOUT))
"""Columns of `states` beside keys and state, which a returned state may still have."""


def conform(
    column: pa.ChunkedArray | pa.Array, field: pa.Field, part: str, place: Callable[[int], str]
) -> pa.Array:
    """Return `column` as one array of the type of `field`, with nulls allowed at any depth of the type.

    Types that hold every value of the column's type are cast (a narrower integer, a plain or
    large or dictionary string, another unit or zone of a timestamp); others are refused, as
    are nulls where `field` forbids them.

    `part` names the table in messages ("Result.state"), `place(i)` the row i of it.

    Raises:
        BadResultError: The type differs, a value does not fit, or a null is where none may be.
    """
    array = _single(column)
    target = nullable(field.type)
    if array.type != target:
        array = _cast(array, pa.field(field.name, target), part, place)
    row = first_forbidden_null(array, field)
    if row is not None:
        raise BadResultError(
            f"{part}: column {field.name!r} has a null for {place(row)}, but the schema says NOT NULL."
        )
    return array


def nullable(dtype: pa.DataType) -> pa.DataType:
    """Return `dtype` with nulls allowed everywhere in it, as arrays travel."""
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(f.name, nullable(f.type)) for f in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(dtype.key_type, nullable(dtype.item_type))
    if _is(dtype, _LISTS):
        return pa.list_(nullable(dtype.value_type))
    return dtype


def struct_type(schema: pa.Schema) -> pa.StructType:
    """Return the type of one row of `schema`, nullable everywhere."""
    return nullable(pa.struct(list(schema)))


def _single(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], type=column.type)


def _cast(array: pa.Array, field: pa.Field, part: str, place: Callable[[int], str]) -> pa.Array:
    if not _may_cast(array.type, field.type):
        raise BadResultError(
            f"{part}: column {field.name!r} is {array.type}, but the schema says {field.type}: cast it."
        )
    if pa.types.is_nested(array.type):
        array = pa.concat_arrays([array])  # casts of slices lose the length of columns of nulls within
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        row = _first_that_fails(array, field.type)
        raise BadResultError(
            f"{part}: column {field.name!r} is {array.type} and its value for {place(row)} does not fit "
            f"{field.type} ({error})."
        ) from None


def _first_that_fails(array: pa.Array, target: pa.DataType) -> int:
    for i in range(len(array)):
        try:
            pa.concat_arrays([array.slice(i, 1)]).cast(target)
        except pa.ArrowInvalid:
            return i
    return 0


def _is(dtype: pa.DataType, kinds: tuple[Callable[[pa.DataType], bool], ...]) -> bool:
    return any(kind(dtype) for kind in kinds)


def _may_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if a checked cast from `source` changes the representation of values and not the values."""
    if source == target or pa.types.is_null(source):
        return True
    if pa.types.is_dictionary(source):
        return _may_cast(source.value_type, target)
    if pa.types.is_integer(target):
        return pa.types.is_integer(source)
    if pa.types.is_floating(target):
        return pa.types.is_floating(source) and source.bit_width <= target.bit_width
    if pa.types.is_timestamp(target):
        return pa.types.is_timestamp(source) and (source.tz is None) == (target.tz is None)
    if pa.types.is_decimal(target):
        return pa.types.is_decimal(source)
    if pa.types.is_struct(target):
        return pa.types.is_struct(source) and _structs_may_cast(source, target)
    if pa.types.is_map(target):
        return (
            pa.types.is_map(source)
            and _may_cast(source.key_type, target.key_type)
            and _may_cast(source.item_type, target.item_type)
        )
    if _is(target, _LISTS):
        return _is(source, _LISTS) and _may_cast(source.value_type, target.value_type)
    return any(
        _is(source, kinds) and _is(target, kinds) for kinds in (_TEXT, _BYTES, (pa.types.is_duration,))
    )


def _structs_may_cast(source: pa.StructType, target: pa.StructType) -> bool:
    if [f.name for f in source] != [f.name for f in target]:
        return False
    return all(_may_cast(s.type, t.type) for s, t in zip(source, target, strict=True))


def bounds(lists: pa.Array) -> np.ndarray:
    """Return where each list or map begins among its values, and where the last ends.

    An empty column that Java wrote has no offsets: Arrow would read bytes of other data.
    """
    return lists.offsets.to_numpy() if len(lists) else np.zeros(1, np.int32)


def parts_of(array: pa.Array) -> list[pa.Array]:
    """Return the arrays of the items of a nested array: fields of structs, elements, keys and values."""
    if not len(array):
        return []
    if pa.types.is_struct(array.type):
        return array.flatten()
    offsets = bounds(array)
    columns = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    return [column.slice(offsets[0], offsets[-1] - offsets[0]) for column in columns]


def readable(array: pa.Array) -> pa.Array:
    """Return `array`, made anew if a list or map in it may have no offsets (`bounds`).

    Most of Arrow's functions, and the conversion to pandas, read the offsets of an empty column, too.
    """
    return pa.array(array.to_pylist(), type=array.type) if _may_lack_offsets(array) else array


def _may_lack_offsets(array: pa.Array) -> bool:
    return pa.types.is_nested(array.type) and (
        not len(array) or any(_may_lack_offsets(part) for part in parts_of(array))
    )


def first_forbidden_null(array: pa.Array, field: pa.Field) -> int | None:
    """Return the first row of `array` with a null, at any depth, that `field` forbids; `None` without."""
    if not _forbids_null(field):
        return None
    if not field.nullable and array.null_count:
        return pc.index(array.is_null(), True).as_py()
    if pa.types.is_struct(field.type):
        return _first_in_struct(array, field.type)
    if _is(field.type, _LISTS):
        return _first_in_list(array, array.values, field.type.value_field)
    if pa.types.is_map(field.type):
        return _first_in_list(array, array.items, field.type.item_field)
    return None


def _forbids_null(field: pa.Field) -> bool:
    if not field.nullable:
        return True
    if pa.types.is_struct(field.type):
        return any(_forbids_null(child) for child in field.type)
    if pa.types.is_map(field.type):
        return _forbids_null(field.type.item_field)
    return _is(field.type, _LISTS) and _forbids_null(field.type.value_field)


def _first_in_struct(array: pa.StructArray, dtype: pa.StructType) -> int | None:
    present = pc.indices_nonzero(array.is_valid())
    rows = []
    for i, child in enumerate(dtype):
        row = first_forbidden_null(array.field(i).take(present), child)
        if row is not None:
            rows.append(present[row].as_py())
    return min(rows, default=None)


def _first_in_list(array: pa.Array, values: pa.Array, child: pa.Field) -> int | None:
    offsets = bounds(array)
    row = first_forbidden_null(values.slice(offsets[0], offsets[-1] - offsets[0]), child)
    if row is None:
        return None
    return int(offsets.searchsorted(row + offsets[0], side="right")) - 1
