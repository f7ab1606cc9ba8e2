"""Rows as JSON and CSV texts, made column by column by DuckDB."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from state_store.cli.rows.cells import plain
from state_store.cli.streams import visible_json
from state_store.data.dataset.sql import Connection, quoted

if TYPE_CHECKING:
    import pyarrow

_ROWS = "rows"
_FORMULA = r"^[=+\-@\t\r＝＋－＠]"
"""Texts that spreadsheets run as formulas begin so."""


class RowTexts:
    """Maker of texts of a schema's batches. A context manager; safe for one thread at a time."""

    def __init__(self, schema: pyarrow.Schema, *, guard: bool = False) -> None:
        """Plan the texts.

        Args:
            schema: the columns.
            guard: in CSV, texts that a spreadsheet would run as formulas get an apostrophe in front.
        """
        self._schema = schema
        self._guard = guard
        self._names = [f"c{number}" for number in range(len(schema))]
        self._is_known = [is_known(field.type) for field in schema]
        self._connection = Connection(utc=True, option="--format")

    def __enter__(self) -> RowTexts:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def json(self, batch: pyarrow.RecordBatch) -> list[str]:
        """Return a JSON object for each row, on one line each."""
        columns = [
            f"{json.dumps(field.name, ensure_ascii=False)}: ".replace("'", "''") for field in self._schema
        ]
        parts = [
            f"'{', ' if number else ''}{label}' || "
            f"coalesce(CAST(to_json({self._value(number)}) AS VARCHAR), 'null')"
            for number, label in enumerate(columns)
        ]
        joined = " || ".join(parts) or "''"
        return list(self._query(batch, f"'{{' || {joined} || '}}' AS text")["text"].to_pylist())

    def csv_header(self) -> str:
        """Return the line with the names of the columns."""
        import csv

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(
            [
                f"'{name}" if self._guard and name[:1] in "=+-@\t\r" and name else name
                for name in self._schema.names
            ]
        )
        return text.getvalue()

    def csv(self, batch: pyarrow.RecordBatch) -> str:
        """Return lines of CSV. Texts are in quotes and nulls are empty; nested values are JSON."""
        import pyarrow.csv

        shown = [f"{self._flat(number)} AS {name}" for number, name in enumerate(self._names)]
        found = self._query(batch, ", ".join(shown))
        sink = io.BytesIO()
        pyarrow.csv.write_csv(found, sink, pyarrow.csv.WriteOptions(include_header=False))
        return sink.getvalue().decode("utf-8")

    def _query(self, batch: pyarrow.RecordBatch, shown: str) -> pyarrow.Table:
        import pyarrow

        columns = [
            column if is_known_ else _in_python(column)
            for column, is_known_ in zip(batch.columns, self._is_known)
        ]
        self._connection.register(_ROWS, pyarrow.Table.from_arrays(columns, self._names))
        with self._connection.translated():
            return self._connection.rows(f"SELECT {shown} FROM {_ROWS}").read_all()

    def _value(self, number: int) -> str:
        """Return the expression of a column's value, as `to_json` takes it."""
        name = self._names[number]
        return (
            _expression(name, self._schema.field(number).type)
            if self._is_known[number]
            else f"CAST({name} AS JSON)"
        )

    def _flat(self, number: int) -> str:
        """Return the expression of a column's value in CSV."""
        import pyarrow

        kind, value = self._schema.field(number).type, self._value(number)
        if not self._is_known[number]:
            return f"CASE WHEN {value} = 'null' THEN NULL ELSE trim(CAST({value} AS VARCHAR), '\"') END"
        if pyarrow.types.is_nested(kind):
            return f"CAST(to_json({value}) AS VARCHAR)"
        if pyarrow.types.is_floating(kind):
            return self._names[number]
        if self._guard and (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
            return f"CASE WHEN regexp_matches({value}, '{_FORMULA}') THEN '''' || {value} ELSE {value} END"
        return value


def is_known(kind: pyarrow.DataType) -> bool:
    """Return True if DuckDB makes JSON of a type as this package does."""
    import pyarrow

    types = pyarrow.types
    if types.is_struct(kind):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        inner = [kind.field(place).type for place in range(kind.num_fields)]
        return (
            bool(names) and len({name.lower() for name in names}) == len(names) and all(map(is_known, inner))
        )
    if types.is_list(kind):
        return is_known(kind.value_type)
    if types.is_map(kind):
        return is_known(kind.key_type) and is_known(kind.item_type)
    return (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_decimal128(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_date32(kind)
        or (types.is_timestamp(kind) and kind.unit in ("ms", "us"))
    )


def _expression(value: str, kind: pyarrow.DataType) -> str:
    """Return the SQL that makes of a value what JSON shows."""
    import pyarrow

    types = pyarrow.types
    if types.is_floating(kind):
        return (
            f"CASE WHEN isfinite({value}) THEN to_json({value}) WHEN isnan({value}) THEN to_json('NaN') "
            f"WHEN {value} > 0 THEN to_json('Infinity') WHEN {value} < 0 THEN to_json('-Infinity') END"
        )
    if types.is_decimal(kind):
        return f"CAST({value} AS VARCHAR)"
    if types.is_binary(kind):
        return f"to_base64({value})"
    if types.is_date(kind):
        return f"CAST({value} AS VARCHAR)"
    if types.is_timestamp(kind):
        offset = "" if kind.tz is None else "+00:00"
        return f"replace(strftime({value}, '%Y-%m-%dT%H:%M:%S.%f{offset}'), '.000000', '')"
    if types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        parts = [
            f"{quoted(field.name)} := {_expression(f'{value}.{quoted(field.name)}', field.type)}"
            for field in fields
        ]
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({', '.join(parts)}) END"
    if types.is_list(kind):
        inner = _expression("e", kind.value_type)
        return value if inner == "e" else f"list_transform({value}, lambda e: {inner})"
    if types.is_map(kind):
        pair = f"json_array({_expression('e.key', kind.key_type)}, {_expression('e.value', kind.item_type)})"
        return f"list_transform(map_entries({value}), lambda e: {pair})"
    return value


def _in_python(column: pyarrow.Array) -> pyarrow.Array:
    """Return the JSON texts of values, such as durations, that DuckDB would write differently."""
    import pyarrow

    return pyarrow.array(
        [json.dumps(plain(value), ensure_ascii=False) for value in column.to_pylist()], pyarrow.string()
    )


def csv_of(texts: RowTexts, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[int, str]]:
    """Yield the header as CSV, then each batch, each text with its number of rows (0 for the header)."""
    yield 0, texts.csv_header()
    for batch in batches:
        yield batch.num_rows, texts.csv(batch)


def lines_of(texts: RowTexts, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[int, str]]:
    """Yield each batch as JSON, an object a line, with its number of rows."""
    for batch in batches:
        yield batch.num_rows, visible_json("".join(f"{text}\n" for text in texts.json(batch)))


def document_of(texts: RowTexts, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[int, str]]:
    """Yield the parts of one JSON array, a row a line: each batch with its number of rows, and the end."""
    first = "["
    for batch in batches:
        if batch.num_rows:
            yield batch.num_rows, visible_json(first + "\n  " + ",\n  ".join(texts.json(batch)))
            first = ","
    yield 0, "[]\n" if first == "[" else "\n]\n"
