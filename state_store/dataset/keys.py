"""A key that a user names: as a filter, as the bytes that a store has, and the partition that it is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from state_store.dataset.columns import FAMILY_BYTES
from state_store.dataset.views import View
from state_store.errors import FormatError, OptionError
from state_store.rows.encoder import encode_keys
from state_store.rows.hashing import partitions_of

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

Key = Any
"""A value where keys have one column, else a sequence of values in the order of the columns, or a mapping
from their names."""


def key_columns(view: View, key: Key) -> list[pyarrow.Array]:
    """The key as columns of one row, of those that the view shows. Raises OptionError for a key that lacks a
    column, has one too many, or a value of another type."""

    fields = [field for field in view.schema.key if field.name not in view.hidden]
    names = [field.name for field in fields]
    if isinstance(key, Mapping):
        if set(key) != set(names):
            raise OptionError(f"a key has the columns {', '.join(names)}, not {', '.join(map(str, key))}")
        values: Sequence[Any] = [key[name] for name in names]
    elif isinstance(key, (tuple, list)) and (len(fields) != 1 or len(key) == 1):
        values = key
    else:
        values = [key]
    if len(values) != len(fields):
        raise OptionError(f"a key has {len(fields)} columns ({', '.join(names)}), not {len(values)}")
    return [_typed(value, field) for value, field in zip(values, fields, strict=True)]


def key_bytes(view: View, columns: Sequence[pyarrow.Array], family: int) -> bytes:
    """The key as a store has it. Raises FormatError for one that cannot be encoded."""
    if view.schema.avro is not None:
        raise FormatError(f"keys of '{view.name}' are encoded with Avro: scan with a filter")
    (encoded,) = encode_keys(columns, 1, view.schema.layout, before=family.to_bytes(FAMILY_BYTES, "big"))
    return encoded


def partition_of(view: View, columns: Sequence[pyarrow.Array]) -> int | None:
    """The partition in which Spark keeps the key; None where that cannot be told from its columns."""
    try:
        numbers = partitioning_columns(view)
        if not numbers:
            return 0
        fields = [view.schema.key.field(number) for number in numbers]
        columns = [columns[number] for number in numbers]
        return int(partitions_of(columns, fields, view.operator.stores[view.store])[0])
    except FormatError:
        return None


def partitioning_columns(view: View) -> list[int]:
    """The numbers of the key's columns by which Spark partitions. Raises FormatError where that is not known:
    for state variables whose keys are not the first thing in what Spark stores them under."""
    numbers, layout = list(range(len(view.schema.key))), view.schema.layout
    if view.schema.avro is not None:
        raise FormatError(f"keys of '{view.name}' are encoded with Avro: no row is moved or written")
    if view.operator.name.startswith("transformWithState"):
        if layout.is_ordered:
            raise FormatError(
                f"'{view.name}' of operator {view.operator.id} ({view.operator.name}) is ordered by other "
                "columns than its keys: the partition of a key cannot be told"
            )
        return list(layout.first) or numbers
    is_last_apart = view.operator.name.startswith("sessionWindow") or view.has_row_numbers
    return numbers[:-1] if is_last_apart else numbers


def key_filter(view: View, columns: Sequence[pyarrow.Array]) -> pyarrow.compute.Expression:
    """Which rows have the key. Raises OptionError for columns of lists or maps."""
    import pyarrow.compute

    found = pyarrow.compute.scalar(True)
    fields = [field for field in view.schema.key if field.name not in view.hidden]
    for field, column in zip(fields, columns, strict=True):
        found = found & _equals(pyarrow.compute.field(field.name), (field.name,), column[0])
    return found


def _equals(
    reference: pyarrow.compute.Expression, path: tuple[str, ...], value: pyarrow.Scalar
) -> pyarrow.compute.Expression:
    import pyarrow
    import pyarrow.compute

    if not value.is_valid:
        return reference.is_null()
    if pyarrow.types.is_nested(value.type) and not pyarrow.types.is_struct(value.type):
        raise OptionError(f"rows cannot be found by column '{path[0]}', which has type {value.type}")
    if not pyarrow.types.is_struct(value.type):
        return reference == value
    found = reference.is_valid()
    for index in range(value.type.num_fields):
        inner = (*path, value.type.field(index).name)
        found = found & _equals(pyarrow.compute.field(*inner), inner, value[index])
    return found


def _typed(value: Any, field: pyarrow.Field) -> pyarrow.Array:
    """One value as the column's type; a text is read as what it stands for."""
    import pyarrow

    try:
        if isinstance(value, str) and not pyarrow.types.is_string(field.type):
            return pyarrow.array([value]).cast(field.type)
        return pyarrow.array([value], field.type)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise OptionError(
            f"{value!r} is no value of column '{field.name}', which has type {field.type}: {error}"
        ) from error
