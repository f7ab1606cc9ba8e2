"""Rows as a table for people, or as CSV, JSON or Parquet for programs."""

from __future__ import annotations

import base64
import csv
import datetime
import functools
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from state_store.cli.command import json_option
from state_store.cli.output import number_column, output, print_table, text_column
from state_store.data.dataset.table_files import local_path, new_file
from state_store.errors import ConflictError, OptionError

if TYPE_CHECKING:
    import pyarrow

FORMATS = ("table", "csv", "json", "parquet")
LIMIT = 20
"""Rows of a table, where nothing else is asked for."""

_LONGEST_CELL = 60


DOCUMENT = "document"
"""What `--json` is among the formats: all rows as one JSON document."""


def format_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--format`, `--output` and `--json`, whose function gets `form` and `target`."""

    @functools.wraps(function)
    def of_form(*given: Any, form: str | None, as_json: bool, **others: Any) -> Any:
        if as_json and form is not None:
            raise click.UsageError("--json and --format exclude each other")
        return function(*given, form=DOCUMENT if as_json else form or "table", **others)

    declared: Callable[..., Any] = of_form
    for decorate in (
        click.option(
            "--output",
            "target",
            metavar="FILE",
            help="Write there (a path or URI); no file is replaced.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            help="How rows are printed: json is an object a line, parquet needs --output. Default: table.",
        ),
        json_option,
    ):
        declared = decorate(declared)
    return declared


limit_option = click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most this many rows, 0: all. Default: {LIMIT} in a table, else all.",
)


def print_first(
    batches: Iterable[pyarrow.RecordBatch],
    schema: pyarrow.Schema,
    form: str,
    target: str | None,
    limit: int | None,
    what: str,
) -> None:
    """Prints or writes as many rows as `limit_option` says, and below a table how many they are of `what`.

    Raises as `print_rows`.
    """
    most = LIMIT if limit is None and form == "table" else limit or None
    shown = print_rows(_first(batches, most), schema, form, target)
    if form == "table" and target is None:
        more = f" (the first {most}; --limit 0 shows all)" if shown == most else ""
        output().print(f"\n{shown} {what}{more}")


def _first(batches: Iterable[pyarrow.RecordBatch], most: int | None) -> Iterator[pyarrow.RecordBatch]:
    """At most this many rows of the batches; None: all."""
    left = most
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return


def print_rows(
    batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, form: str, target: str | None
) -> int:
    """Prints the rows, or writes them to `target`; gives their number.

    Raises ConflictError when the target exists, OptionError for Parquet without one.
    """
    if form == "parquet" and target is None:
        raise OptionError("Parquet is written to a file: give --output FILE", option="--output")
    path = None if target is None else local_path(target)
    if target is not None and path is None:
        with new_file(target) as local:
            return print_rows(batches, schema, form, str(local))
    if path is not None and path.exists():
        raise ConflictError(f"'{path}' exists already; it is not replaced", file=str(path))
    if form == "parquet":
        return _write_parquet(batches, schema, str(path))
    if form == "table" and path is None:
        return _print_table(batches, schema)
    write = {"csv": _csv, "json": _json, "table": _csv, DOCUMENT: _document}[form]
    if path is None:
        return write(batches, schema, lambda text: output().out(text, end="", highlight=False))
    with open(path, "x", encoding="utf-8") as file:
        return write(batches, schema, file.write)


def rows_as_values(batch: pyarrow.RecordBatch) -> list[dict[str, Any]]:
    """The rows as Python values; moments that Python has not, of the year 10000 say, as texts. Raises
    OptionError where these are in a list or a map.
    """
    try:
        return list(batch.to_pylist())
    except (OverflowError, ValueError):
        columns = [_with_texts(column) for column in batch.columns]
    try:
        return [dict(zip(batch.schema.names, row)) for row in zip(*(one.to_pylist() for one in columns))]
    except (OverflowError, ValueError) as error:
        raise OptionError(f"Python has no such moments: {error}; write --format parquet") from error


def _with_texts(column: pyarrow.Array) -> pyarrow.Array:
    """A column with texts in place of dates and moments, inside of structs, too."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_timestamp(kind) or pyarrow.types.is_date(kind):
        return column.cast(pyarrow.string())
    if not pyarrow.types.is_struct(kind):
        return column
    inner = [_with_texts(one) for one in column.flatten()]
    names = [kind.field(number).name for number in range(kind.num_fields)]
    return pyarrow.StructArray.from_arrays(inner, names, mask=column.is_null())


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes as base64, times by ISO 8601, and as texts decimals, durations, and
    floating numbers that are not finite.
    """
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (Decimal, datetime.timedelta)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def cell(value: Any) -> str:
    """A value in a table: short, on one line."""
    shown = plain(value)
    text = "" if shown is None else shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    text = text.replace("\n", "\\n")
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 3]}..."


def _print_table(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema) -> int:
    import pyarrow

    headings = []
    for field in schema:
        is_number = pyarrow.types.is_integer(field.type) or pyarrow.types.is_floating(field.type)
        headings.append(number_column(field.name) if is_number else text_column(field.name))
    rows = [[cell(value) for value in row.values()] for batch in batches for row in rows_as_values(batch)]
    print_table(headings, rows)
    return len(rows)


def _csv(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, write: Callable[[str], Any]) -> int:
    rows = 0
    write(_csv_lines([schema.names]))
    for batch in batches:
        rows += batch.num_rows
        write(_csv_lines([[_csv_value(value) for value in row.values()] for row in rows_as_values(batch)]))
    return rows


def _csv_lines(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _csv_value(value: Any) -> Any:
    shown = plain(value)
    return json.dumps(shown, ensure_ascii=False) if isinstance(shown, (dict, list)) else shown


def _json(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, write: Callable[[str], Any]) -> int:
    """One JSON object a line."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        write("".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in rows_as_values(batch)))
    return rows


def _document(
    batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, write: Callable[[str], Any]
) -> int:
    """A JSON array, a row a line."""
    rows = 0
    for batch in batches:
        for row in rows_as_values(batch):
            write(f"{',' if rows else '['}\n  {json.dumps(plain(row), ensure_ascii=False)}")
            rows += 1
    write("\n]\n" if rows else "[]\n")
    return rows


def _write_parquet(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, target: str) -> int:
    import pyarrow
    import pyarrow.parquet

    rows = 0
    try:
        with pyarrow.parquet.ParquetWriter(target, schema) as writer:
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(batch)
    except pyarrow.ArrowNotImplementedError as error:
        Path(target).unlink(missing_ok=True)
        raise OptionError(
            f"Parquet has no such type: {error}; leave the column out with --columns"
        ) from error
    return rows


def print_row(row: dict[str, Any]) -> None:
    """Prints one row for people, a column a line."""
    print_table(
        (text_column("column"), text_column("value")), ((name, _line(one)) for name, one in row.items())
    )


def _line(value: Any) -> str:
    shown = plain(value)
    return "" if shown is None else shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
