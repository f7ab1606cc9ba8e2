"""Conversion of the rows of a schema: Arrow columns to tuples, and rows of a function to Arrow columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from state_store.core.compat import zip
from state_store.functions.function_errors import BadResultError
from state_store.functions.plain.flat_values import Codec, UnfitValueError, by_position
from state_store.functions.plain.nested_values import codec
from state_store.functions.plain.session_zone import SessionZone
from state_store.functions.returned_columns import conform, struct_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RowSchema:
    """The rows of one schema, in plain Python values and in Arrow."""

    def __init__(self, spark: StructType, arrow: pa.Schema, zone: SessionZone) -> None:
        self.names: list[str] = list(spark.names)
        self._arrow = arrow
        self._codecs: list[Codec] = [
            codec(f.dataType, a.type, zone) for f, a in zip(spark.fields, arrow, strict=True)
        ]
        self._nullable = [f.nullable for f in spark.fields]
        self._known_rows: set[type] = {tuple}
        self._known_values: set[tuple[type, ...]] = set()

    def tuples(self, columns: list[Any], make: Callable[[Any], Any]) -> list[Any]:
        """Return the rows of `columns` (arrays, chunked or not), each made by `make` of its values."""
        values = [c.values(_single(column)) for c, column in zip(self._codecs, columns, strict=True)]
        return list(map(make, zip(*values, strict=True)))

    def own(self, row: Any) -> tuple[Any, ...]:
        """Return `row` checked, as a tuple of values that the user's function cannot change later.

        A row whose values have the same types as those of a row before is known to be good.

        Raises:
            UnfitValueError: It is no row of this schema.
        """
        if type(row) in self._known_rows and tuple(map(type, row)) in self._known_values:
            return row
        return self._examined(row)

    def _examined(self, row: Any) -> tuple[Any, ...]:
        values = by_position(row, self.names)
        own: list[Any] = []
        for value, part, name, nullable in zip(values, self._codecs, self.names, self._nullable, strict=True):
            if value is None:
                if not nullable:
                    raise UnfitValueError(f"column {name!r} is None, but the schema says NOT NULL")
                own.append(None)
            elif type(value) in part.exact:
                own.append(value)
            else:
                try:
                    own.append(part.own(value))
                except UnfitValueError as error:
                    raise UnfitValueError(f"column {name!r}: {error}") from None
        if isinstance(row, tuple) and self._all_exact(row):
            self._known_rows.add(type(row))
            self._known_values.add(tuple(map(type, row)))
        return tuple(own)

    def _all_exact(self, row: tuple[Any, ...]) -> bool:
        return all(v is None or type(v) in c.exact for v, c in zip(row, self._codecs, strict=True))

    def struct(
        self, rows: list[tuple[Any, ...]], part_name: str, place: Callable[[int], str]
    ) -> pa.StructArray:
        """Return rows that `own` returned, as a struct array.

        `part_name` and `place(i)` name the rows and the row i in messages.

        Raises:
            BadResultError: A value does not fit its column, or is null against the schema.
        """
        columns = list(zip(*rows, strict=True)) or [()] * len(self.names)
        arrays = []
        for values, part, field in zip(columns, self._codecs, self._arrow, strict=True):
            array = self._column(list(values), part, field, part_name, place)
            arrays.append(conform(array, field, part_name, place))
        return pa.StructArray.from_arrays(arrays, fields=list(struct_type(self._arrow)))

    def _column(
        self, values: list[Any], part: Codec, field: pa.Field, part_name: str, place: Callable[[int], str]
    ) -> pa.Array:
        column = f"{part_name}: column {field.name!r} ({part.name})"
        try:
            return part.column(values)
        except (ValueError, TypeError, ArithmeticError) as error:  # Arrow's errors are of these
            for i, value in enumerate(values):
                try:
                    part.column([value])
                except (ValueError, TypeError, ArithmeticError) as its:
                    raise BadResultError(f"{column} cannot hold {value!r} of {place(i)} ({its}).") from None
            raise BadResultError(f"{column}: {error}") from error


def _single(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
