"""Checks of a result against the call that it answers, and its conversion into one change per group."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state_store.core.compat import zip
from state_store.functions.function_errors import BadResultError
from state_store.functions.group_context import EXISTS, GROUP, NO_TIMESTAMP, TIMEOUT, Context
from state_store.functions.result import Changes, Result
from state_store.functions.returned_columns import conform, struct_type


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
    given = array.is_valid().to_numpy(zero_copy_only=False)
    millis = np.where(
        given, milliseconds(array, call).fill_null(0).to_numpy(zero_copy_only=False), NO_TIMESTAMP
    )
    first = _first(given)
    if first is not None and context.timeout_conf == "NoTimeout":
        raise call.fail(
            f"Result.timeout sets a timeout for {call.group(first)}, "
            "but the query was started with NoTimeout."
        )
    _check_moments(millis.astype(np.int64), given, call)
    return millis.astype(np.int64)


def _check_moments(millis: np.ndarray, given: np.ndarray, call: Call) -> None:
    context = call.context
    bad = _first(given & (millis <= 0))
    if bad is not None:
        raise call.fail(
            f"Result.timeout is {millis[bad]} ms for {call.group(bad)}: a timeout must be positive."
        )
    if context.timeout_conf == "ProcessingTimeTimeout":
        bad = _first(given & (millis <= context.batch_time_ms))
        if bad is not None:
            raise call.fail(
                f"Result.timeout is {millis[bad]} ms for {call.group(bad)}, not after the start of the batch "
                f"({context.batch_time_ms} ms): a processing-time timeout lies in the future."
            )
    elif context.watermark_ms is not None:
        bad = _first(given & (millis < context.watermark_ms))
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
    found = np.flatnonzero(mask)
    return int(found[0]) if len(found) else None


def as_array(values: Any, part: str, call: Call) -> pa.Array:
    """Return a column, a series or a sequence as one array. Raises BadResultError."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise call.fail(f"{part} is a {type(values).__name__} that is no column ({error}).") from None


STATE_EXTRAS = frozenset((GROUP, EXISTS, TIMEOUT))
"""Columns of `states` beside keys and state, which a returned state may still have."""
