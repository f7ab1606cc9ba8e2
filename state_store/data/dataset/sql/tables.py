"""State as DuckDB reads it: an Arrow dataset that is scanned by columns and conditions.

Columns of a store that are moments as numbers (time-outs, times to live, timers) are timestamps in SQL, and
null if there is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from state_store.core.compat import zip
from state_store.data.dataset.layout.columns import Columns
from state_store.data.dataset.layout.views import EXPIRES_MS, TIMER_MS, View

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

_LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; later moments are null in SQL."""

_NESTED = "FieldRef.Nested("
"""The beginning of a field of a struct in the text of an expression of Arrow."""


class Source(Protocol):
    """A state that can be read; the end of `with` closes it."""

    def __enter__(self) -> Source: ...
    def __exit__(self, *error: Any) -> None: ...

    def matching(
        self, columns: Sequence[str], pushed: pyarrow.compute.Expression | None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield at least the rows for which the expression may be true, with some columns."""


NO_MOMENT = -1
"""Spark's number for the lack of a time-out or a time to live."""

Opened = Callable[[Sequence[int]], Source]
"""Function that opens some partitions of a state."""

Scanned = Callable[["Sequence[str] | None", "pyarrow.compute.Expression | None"], Iterator[Any]]
"""Function that yields batches with some columns (None: all), filtered by an expression (None: all rows)."""


@dataclass(frozen=True)
class StateTable:
    """A table: its columns, and a function that scans it; several scans may run at the same time."""

    schema: pyarrow.Schema
    scanned: Scanned


def state_table(
    view: View,
    partitions: Sequence[int],
    opened: Opened,
    key: pyarrow.compute.Expression | None = None,
) -> StateTable:
    """Return a view as a table.

    Args:
        view: the store.
        partitions: the partitions to read.
        opened: opens partitions, once for each scan.
        key: an expression on the view's own columns that keeps rows; None keeps all.
    """
    schema, units = shown_schema(view), moment_columns(view)
    numbers = tuple(partitions)

    def scanned(
        columns: Sequence[str] | None, pushed: pyarrow.compute.Expression | None
    ) -> Iterator[pyarrow.RecordBatch]:
        names = schema.names if columns is None else list(columns)
        needed = named_columns(schema, names, pushed, key)
        chosen = numbers if pushed is None else pruned(pushed, view, numbers)
        if not chosen:
            return
        with opened(chosen) as state:
            for batch in state.matching(needed, pushed):
                kept = as_moments(batch if key is None else batch.filter(key), units)
                if pushed is not None:
                    kept = kept.filter(pushed)
                yield kept.select(names)

    return StateTable(schema, scanned)


def named_columns(
    schema: pyarrow.Schema, names: Sequence[str], *expressions: pyarrow.compute.Expression | None
) -> list[str]:
    """Return the columns in `names` and those that expressions may name: their texts contain the names."""
    texts = [str(expression) for expression in expressions if expression is not None]
    return [name for name in schema.names if name in names or any(name in text for text in texts)]


def pruned(pushed: pyarrow.compute.Expression, view: View, partitions: Sequence[int]) -> tuple[int, ...]:
    """Return the partitions that may have rows for which an expression on `partition_id` is true."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.fs

    name = Columns(view).partition_field.name
    if name not in str(pushed):
        return tuple(partitions)
    field = pyarrow.compute.field(name)
    fragments = pyarrow.dataset.FileSystemDataset.from_paths(
        [f"/{number}" for number in partitions],
        schema=shown_schema(view),
        format=pyarrow.dataset.ParquetFileFormat(),
        filesystem=pyarrow.fs.LocalFileSystem(),
        partitions=[field == pyarrow.scalar(number, pyarrow.int32()) for number in partitions],
    )
    try:
        return tuple(int(fragment.path[1:]) for fragment in fragments.get_fragments(filter=pushed))
    except (pyarrow.ArrowException, TypeError, ValueError):
        return tuple(partitions)


def key_of(
    pushed: pyarrow.compute.Expression | None, fields: Sequence[pyarrow.Field]
) -> dict[str, Any] | None:
    """Return the key that an expression demands, by its columns; None if it leaves a column open.

    Only columns of texts and whole numbers count: their equality in SQL is that of their encoding. An
    expression on a field of a struct demands no key: Arrow's function asserts that there is none.
    """
    import pyarrow
    import pyarrow.dataset

    if pushed is None or not fields or _NESTED in str(pushed):
        return None
    try:
        wanted = pyarrow.dataset.get_partition_keys(pushed)
    except (pyarrow.ArrowException, TypeError, ValueError):
        return None
    key = {}
    for field in fields:
        value = wanted.get(field.name)
        is_text = pyarrow.types.is_string(field.type) and isinstance(value, str)
        is_number = pyarrow.types.is_integer(field.type) and type(value) is int
        if not (is_text or is_number):
            return None
        key[field.name] = value
    return key


@functools.cache
def table_class() -> Any:
    """Return the class that DuckDB takes as an Arrow dataset: `scanner` gets columns and a filter."""
    import pyarrow
    import pyarrow.dataset

    class Scannable(pyarrow.dataset.Dataset):
        """A table; it keeps the errors of its scans in a list, since DuckDB passes on only their text."""

        def __init__(self, table: StateTable, failures: list[Exception]) -> None:
            self._table = table
            self._failures = failures

        @property
        def schema(self) -> pyarrow.Schema:
            return self._table.schema

        def scanner(
            self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any
        ) -> pyarrow.dataset.Scanner:
            names = self.schema.names if columns is None else columns
            schema = pyarrow.schema([self.schema.field(name) for name in names])
            reader = pyarrow.RecordBatchReader.from_batches(schema, self._batches(columns, filter))
            return pyarrow.dataset.Scanner.from_batches(reader)

        def _batches(self, columns: Sequence[str] | None, filter: Any) -> Iterator[pyarrow.RecordBatch]:
            try:
                yield from self._table.scanned(columns, filter)
            except Exception as error:
                self._failures.append(error)
                raise

    return Scannable


def moment_columns(view: View) -> dict[str, str]:
    """Return the columns of a view that are moments as numbers since 1970 UTC, with units `ms`, `us`."""
    names = {field.name: str(field.type) for field in Columns(view).schema}
    units = {}
    if view.has_groups:
        units["timeoutTimestamp"] = "ms"
    if view.operator.name.startswith("dedupe"):
        units["expiresAtMicros"] = "us"
    if view.operator.name.startswith("transformWithState"):
        units.update(dict.fromkeys((EXPIRES_MS, TIMER_MS, "expirationMs"), "ms"))
    return {name: unit for name, unit in units.items() if names.get(name) == "int64"}


def shown_schema(view: View) -> pyarrow.Schema:
    """Return the columns of a view as SQL shows them."""
    import pyarrow

    units = moment_columns(view)
    return pyarrow.schema(
        [
            pyarrow.field(field.name, pyarrow.timestamp(units[field.name], "UTC"))
            if field.name in units
            else field
            for field in Columns(view).schema
        ]
    )


def as_moments(batch: pyarrow.RecordBatch, units: Mapping[str, str]) -> pyarrow.RecordBatch:
    """Return a batch with moments in place of numbers; null if the number means that there is none."""
    import pyarrow
    import pyarrow.compute

    if not any(name in units for name in batch.schema.names):
        return batch
    columns, fields = list(batch.columns), list(batch.schema)
    for index, field in enumerate(fields):
        unit = units.get(field.name)
        if unit is None or not pyarrow.types.is_integer(field.type):
            continue
        numbers, latest = columns[index], _LATEST_MS * (1000 if unit == "us" else 1)
        known = pyarrow.compute.and_(
            pyarrow.compute.greater_equal(numbers, 0), pyarrow.compute.less_equal(numbers, latest)
        )
        kind = pyarrow.timestamp(unit, "UTC")
        columns[index] = pyarrow.compute.if_else(known, numbers, pyarrow.scalar(None, field.type)).cast(kind)
        fields[index] = pyarrow.field(field.name, kind)
    return pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields))


def restored(
    batch: pyarrow.RecordBatch, schema: pyarrow.Schema, units: Mapping[str, str]
) -> pyarrow.RecordBatch:
    """Return rows from DuckDB with their original types; `units` are those of moments."""
    import pyarrow

    columns = [
        _of_type(column, field.type, units.get(field.name))
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _of_type(column: pyarrow.Array, kind: pyarrow.DataType, unit: str | None) -> pyarrow.Array:
    import pyarrow

    if column.type == kind:
        return column
    if unit is not None and pyarrow.types.is_timestamp(column.type):
        return column.cast(pyarrow.timestamp(unit, "UTC")).cast(kind).fill_null(NO_MOMENT)
    try:
        return column.cast(kind)
    except pyarrow.ArrowNotImplementedError:
        return pyarrow.array([_with_spans(value) for value in column.to_pylist()], kind)


def _with_spans(value: Any) -> Any:
    """Return a Python value with its intervals as `timedelta`."""
    if isinstance(value, dict):
        return {name: _with_spans(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_with_spans, value))
    if hasattr(value, "nanoseconds") and hasattr(value, "months"):
        return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    return value
