"""Rows of Python values, as PySpark's state variables give and take them, as Arrow columns and back."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from state_store.core.compat import zip
from state_store.functions.returned_columns import nullable

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
        values = list(zip(*(empty if row is None else row for row in rows))) or [()] * len(self._types)
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
        return list(zip(*values))


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
