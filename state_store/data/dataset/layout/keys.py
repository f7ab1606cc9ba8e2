"""A key that a user names: as a filter, as the bytes that a store has, and the partition that it is in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, tzinfo
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.data.dataset.layout.columns import FAMILY_BYTES, encoded_keys
from state_store.data.dataset.layout.views import View
from state_store.data.dataset.moments import parse_moment
from state_store.data.rows.hashing import partitions_of
from state_store.errors import FormatError, OptionError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

Key = Any
"""A key as callers give it.

A value if keys have one column, else a sequence of values in the order of the columns, or a mapping from
their names.
"""

_GROUPING_KEYS = ("key", "groupingKey", "elementKey")
"""Names of the grouping key in stores whose keys begin with other columns.

Timers have `key`; indexes of times to live have `groupingKey` up to Spark 4.0 and `elementKey` since.
"""


_SPAN = re.compile(r"([^{].*) to (.*)")
"""A window as tables show it; the end lacks its date if that is the date of the start."""


def key_columns(
    view: View, key: Key, zone: tzinfo | None = None, units: Mapping[str, str] = MappingProxyType({})
) -> list[pyarrow.Array]:
    """Return a key as arrays of one row, one for each column of the key that the view shows.

    Args:
        view: the store.
        key: the key; texts are parsed.
        zone: the zone of texts that are moments and name none; None is the local one.
        units: columns that are moments in numbers, each with its unit, `ms` or `us`; their texts may be
            moments.

    Raises:
        OptionError: the key lacks a column, has one too many, or has a value of another type.
    """
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
    return [
        _typed(value, field, zone, units.get(field.name)) for value, field in zip(values, fields, strict=True)
    ]


def key_bytes(view: View, columns: Sequence[pyarrow.Array], family: int) -> bytes:
    """Return the key as a store has it, with the id of the column family.

    Raises:
        FormatError: the key cannot be encoded.
    """
    (encoded,) = encoded_keys(view, columns, 1)
    return family.to_bytes(FAMILY_BYTES, "big") + encoded


def partition_of(view: View, columns: Sequence[pyarrow.Array]) -> int | None:
    """Return the partition in which Spark keeps the key; None if its columns do not tell."""
    try:
        chosen = [columns[number] for number in partitioning_columns(view)]
        return int(key_partitions(view, chosen, 1, view.operator.stores[view.store])[0])
    except FormatError:
        return None


def partitioning_columns(view: View) -> list[int]:
    """Return the numbers of the key's columns by which Spark partitions, for `key_partitions`.

    Raises:
        FormatError: the columns are not known.
    """
    numbers, layout = list(range(len(view.schema.key))), view.schema.layout
    if view.operator.name.startswith("transformWithState"):
        if not layout.is_ordered:
            return list(layout.first) or numbers
        grouping = [number for number in numbers if view.schema.key.names[number] in _GROUPING_KEYS]
        if len(grouping) != 1:
            raise FormatError(
                f"'{view.name}' of operator {view.operator.id} ({view.operator.name}) is ordered by other "
                f"columns than its keys ({', '.join(view.schema.key.names)}): the partition of a key cannot "
                "be told"
            )
        return grouping
    is_last_apart = view.operator.name.startswith("sessionWindow") or view.has_row_numbers
    return numbers[:-1] if is_last_apart else numbers


def key_partitions(view: View, columns: Sequence[pyarrow.Array], count: int, partitions: int) -> Any:
    """Return the partitions of `count` keys, as a numpy array of int64, by their `partitioning_columns`.

    Raises FormatError as `partitions_of`.
    """
    import numpy

    fields = [view.schema.key.field(number) for number in partitioning_columns(view)]
    if not fields:
        return numpy.zeros(count, numpy.int64)
    if view.is_index_of_map:  # the hash of the key and the user's key together
        columns, fields = [columns[0].flatten()[0]], [fields[0].type.field(0)]
    return partitions_of(columns, fields, partitions)


def key_filter(view: View, columns: Sequence[pyarrow.Array]) -> pyarrow.compute.Expression:
    """Return an expression that is true for the rows of a key.

    Raises:
        OptionError: a column is a list or a map.
    """
    import pyarrow.compute

    expression = pyarrow.compute.scalar(True)
    fields = [field for field in view.schema.key if field.name not in view.hidden]
    for field, column in zip(fields, columns, strict=True):
        expression = expression & _equals(pyarrow.compute.field(field.name), (field.name,), column[0])
    return expression


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
    expression = reference.is_valid()
    for index in range(value.type.num_fields):
        inner = (*path, value.type.field(index).name)
        expression = expression & _equals(pyarrow.compute.field(*inner), inner, value[index])
    return expression


def scalar_of(text: str, kind: pyarrow.DataType, zone: tzinfo | None = None) -> pyarrow.Scalar:
    """Return the value that a text stands for.

    Structs and lists are JSON; a window may be as tables show it, `START to END`, and a struct of one field
    may be the value of that.

    Args:
        text: the text.
        kind: the type of the value.
        zone: the zone of moments whose texts name none; None is the local one.

    Raises:
        ArrowException or ValueError: the text is no value of the type.
    """
    import pyarrow

    types = pyarrow.types
    if types.is_string(kind):
        return pyarrow.scalar(text, kind)
    if _is_span(kind) and (span := _SPAN.fullmatch(text.strip())):
        start, end = span[1], span[2] if "-" in span[2][:5] else f"{span[1][:10]} {span[2]}"
        return pyarrow.scalar(_of_json({"start": start, "end": end}, kind, zone), kind)
    if _has_one_field(kind) and not text.lstrip().startswith("{"):
        return pyarrow.scalar({kind.field(0).name: scalar_of(text, kind.field(0).type, zone).as_py()}, kind)
    if types.is_nested(kind):
        value = _of_json(json.loads(text), kind, zone)
        _check_structs(value, kind)
        return pyarrow.scalar(value, kind)
    if types.is_timestamp(kind) and kind.tz is not None:
        try:
            return pyarrow.scalar(parse_moment(text, zone), kind)
        except OptionError as error:
            raise ValueError(error.message) from error
    return pyarrow.scalar(text).cast(kind)


def _has_one_field(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return pyarrow.types.is_struct(kind) and kind.num_fields == 1


def _is_span(kind: pyarrow.DataType) -> bool:
    """Return True if a type is that of windows."""
    import pyarrow

    names = [kind.field(place).name for place in range(kind.num_fields)]
    return (
        pyarrow.types.is_struct(kind)
        and names == ["start", "end"]
        and all(pyarrow.types.is_timestamp(kind.field(name).type) for name in names)
    )


def _of_json(value: Any, kind: pyarrow.DataType, zone: tzinfo | None) -> Any:
    import pyarrow

    if isinstance(value, str):
        return scalar_of(value, kind, zone).as_py()
    if isinstance(value, list) and pyarrow.types.is_struct(kind):
        raise ValueError("a struct is a JSON object")
    if isinstance(value, dict) and pyarrow.types.is_struct(kind):
        _check_fields(value, kind)
        return {name: _of_json(inner, kind.field(name).type, zone) for name, inner in value.items()}
    if isinstance(value, list) and pyarrow.types.is_list(kind):
        return [_of_json(inner, kind.value_type, zone) for inner in value]
    return value


def _check_fields(value: Mapping[Any, Any], kind: pyarrow.DataType) -> None:
    """Raise ValueError if a struct lacks a field or has an unknown one: Arrow would take null for it."""
    names = [kind.field(place).name for place in range(kind.num_fields)]
    unknown = [name for name in value if name not in names]
    if unknown:
        raise ValueError(f"it has no field {unknown[0]!r}")
    missing = [name for name in names if name not in value]
    if missing:
        raise ValueError(f"its field {missing[0]!r} is missing; null is a value, too")


def _check_structs(value: Any, kind: pyarrow.DataType) -> None:
    """Check the structs of a Python value as `_check_fields` does, and its numbers and dates.

    Raises:
        ValueError: also if Arrow would cut off a fraction, or the time of a day.
    """
    import pyarrow

    if isinstance(value, Mapping) and pyarrow.types.is_struct(kind):
        _check_fields(value, kind)
        for name, inner in value.items():
            _check_structs(inner, kind.field(name).type)
    elif isinstance(value, (list, tuple)) and pyarrow.types.is_list(kind):
        for inner in value:
            _check_structs(inner, kind.value_type)
    elif pyarrow.types.is_integer(kind) and isinstance(value, (Real, Decimal)) and value % 1 != 0:
        raise ValueError("it is no whole number")
    elif pyarrow.types.is_date(kind) and isinstance(value, datetime) and value.time() != time.min:
        raise ValueError("it has a time of the day")


def _typed(value: Any, field: pyarrow.Field, zone: tzinfo | None, unit: str | None) -> pyarrow.Array:
    """Return one value in the column's type; a text is parsed."""
    import pyarrow

    try:
        if not isinstance(value, str):
            if _has_one_field(field.type) and isinstance(value, (int, float, bytes, date, Decimal)):
                value = {field.type.field(0).name: value}
            _check_structs(value, field.type)
            return pyarrow.array([value], field.type)
        if value.strip() == "null" and not pyarrow.types.is_string(field.type):
            return pyarrow.nulls(1, field.type)
        if unit is not None and not value.strip().lstrip("-").isdecimal():
            moment = scalar_of(value, pyarrow.timestamp(unit, "UTC"), zone)
            return pyarrow.array([moment.cast(pyarrow.int64()).as_py()], field.type)
        return pyarrow.array([scalar_of(value, field.type, zone).as_py()], field.type)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise OptionError(
            f"{value!r} is no value of column '{field.name}', which has type {field.type}: {error}"
        ) from error
