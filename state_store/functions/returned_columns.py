"""Conversion of returned columns to the types of the schema, or refusal with the reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state_store.core.compat import zip
from state_store.functions.function_errors import BadResultError


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
            array.slice(i, 1).cast(target)
        except pa.ArrowInvalid:
            return i
    return 0


_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


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
