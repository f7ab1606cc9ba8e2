"""Rows in the format that was asked for: a table for people, CSV, JSON or Parquet for programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import click

from state_store.cli.command import WholeNumber, json_option
from state_store.cli.output import (
    Cell,
    number_column,
    print_columns,
    print_table,
    say,
    text_column,
    write,
)
from state_store.cli.rows.cells import cell, cells, columns_as_values, differing, rows_as_values
from state_store.cli.rows.texts import RowTexts, csv_of, document_of, lines_of
from state_store.core.interruption import removed_at_end
from state_store.core.storage.durable import remove_unneeded
from state_store.data.dataset.export import local_path, new_file, writing_file
from state_store.data.query.arguments import counted
from state_store.errors import ConflictError, OptionError

if TYPE_CHECKING:
    import pyarrow

FORMATS = ("table", "csv", "json", "parquet")
LIMIT = 20
"""Rows of a table, unless another number is asked for."""

DOCUMENT = "document"
"""The format of `--json`: all rows as one JSON document."""

GUARDED = "guarded csv"
"""The format of `--format csv --guard-formulas`."""

Units = Mapping[str, Union[str, Mapping[str, str]]]
"""Columns with the units that `cell` takes."""


def format_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--format`, `--guard-formulas`, `--output` and `--json`; the function gets `form` and `target`."""

    @functools.wraps(function)
    def of_form(*given: Any, form: str | None, guard: bool, as_json: bool, **others: Any) -> Any:
        if as_json and form is not None:
            raise click.UsageError("--json and --format exclude each other")
        if guard and form != "csv":
            raise click.UsageError("--guard-formulas is for --format csv")
        if form == "parquet" and others["target"] is None:
            raise OptionError("Parquet is written to a file: give --output FILE", option="--output")
        return function(*given, form=DOCUMENT if as_json else GUARDED if guard else form or "table", **others)

    declared: Callable[..., Any] = of_form
    for decorate in (
        click.option(
            "--output",
            "target",
            metavar="FILE",
            help="Write there (a path or URI); no file is replaced.",
        ),
        click.option(
            "--guard-formulas",
            "guard",
            is_flag=True,
            help="In CSV, put ' before texts that a spreadsheet would run as formulas.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            help="The format of rows: json is an object a line (JSON Lines); --json is one document for all "
            "rows; parquet needs --output. Default: table.",
        ),
        json_option,
    ):
        declared = decorate(declared)
    return declared


limit_option = click.option(
    "--limit",
    type=WholeNumber(0, 2**62),
    metavar="N",
    help=f"At most this many rows, 0: all. Default: {LIMIT} in a table, else all.",
)


def most_rows(form: str, limit: int | None) -> int | None:
    """Return how many rows are shown at most: by `--limit`, or those of a table; None is all."""
    return LIMIT if limit is None and form == "table" else limit or None


def print_first(
    batches: Iterable[pyarrow.RecordBatch],
    schema: pyarrow.Schema,
    form: str,
    target: str | None,
    limit: int | None,
    described: str,
    units: Units | None = None,
) -> None:
    """Print or write as many rows as `limit_option` says, and below a table their number.

    Args:
        batches: the rows.
        schema: their columns.
        form: the format.
        target: a file, or None for standard output.
        limit: the value of `limit_option`.
        described: a noun and its complement, such as `row of version 3`.
        units: columns of moments that are numbers, each with its unit, and columns that are rows, each with
            the units of its own columns.

    Raises:
        StateStoreError: as `print_rows`.
    """
    maximum = most_rows(form, limit)
    shown = print_rows(_first(batches, maximum), schema, form, target, units)
    if form == "table" and target is None:
        noun, _, complement = described.partition(" ")
        more = f" (the first {maximum}; --limit 0 shows all)" if shown == maximum else ""
        say(f"\n{f'{counted(shown, noun)} {complement}'.rstrip()}{more}")


def _first(batches: Iterable[pyarrow.RecordBatch], limit: int | None) -> Iterator[pyarrow.RecordBatch]:
    """Yield at most `limit` rows of the batches; None is all."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return


def print_rows(
    batches: Iterator[pyarrow.RecordBatch],
    schema: pyarrow.Schema,
    form: str,
    target: str | None,
    units: Units | None = None,
) -> int:
    """Print rows, or write them to `target`, and return their number.

    Raises:
        ConflictError: if the target exists.
        OptionError: if Parquet has no place for a type. No file is left then, nor after any other error.
    """
    if target is None:
        if form == "table":
            return _print_table(batches, schema, units or {})
        return _write_texts(batches, schema, form, write)
    path = local_path(target)
    if path is None:
        with new_file(target) as local:
            return _write_file(batches, schema, form, local)
    if path.exists():
        raise ConflictError(f"'{path}' exists already; it is not replaced", file=str(path))
    return _write_file(batches, schema, form, path)


def _write_file(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, form: str, path: Path) -> int:
    with open(path, "xb"):
        pass
    try:
        with removed_at_end(path.unlink), writing_file(path) as reading:
            read = reading(batches)
            if form == "parquet":
                return _write_parquet(read, schema, str(path))
            with open(path, "w", encoding="utf-8", newline="", errors="surrogatepass") as file:
                return _write_texts(read, schema, form, file.write)
    except BaseException:
        remove_unneeded(path)
        raise


def _write_texts(
    batches: Iterator[pyarrow.RecordBatch],
    schema: pyarrow.Schema,
    form: str,
    write_text: Callable[[str], Any],
) -> int:
    make = {"json": lines_of, DOCUMENT: document_of}.get(form, csv_of)
    rows = 0
    with RowTexts(schema, guard=form == GUARDED) as texts:
        for count, text in make(texts, batches):
            rows += count
            write_text(text)
    return rows


def _print_table(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, units: Units) -> int:
    import pyarrow

    headings = []
    for field in schema:
        is_number = pyarrow.types.is_integer(field.type) or pyarrow.types.is_floating(field.type)
        is_number = is_number and field.name not in units
        headings.append(number_column(field.name) if is_number else text_column(field.name))
    columns: list[list[Cell]] = [[] for _ in headings]
    for batch in batches:
        for column, name, values in zip(columns, schema.names, _shown_values(batch)):
            column.extend(cells(values, units.get(name)))
    print_columns(headings, columns, cut=True)
    return len(columns[0]) if columns else 0


def _shown_values(batch: pyarrow.RecordBatch) -> list[list[Any]]:
    """Return the columns of rows; rows of `diff` have only the values that differ."""
    names = batch.schema.names
    if not {"change", "before", "after"} <= set(names):
        return columns_as_values(batch)
    rows = [differing(row) for row in rows_as_values(batch)]
    return [[row[name] for row in rows] for name in names]


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
        raise OptionError(
            f"Parquet has no such type: {error}; leave the column out with --columns"
        ) from error
    return rows


def print_row(row: Mapping[str, Any], units: Mapping[str, str]) -> None:
    """Print one row for people, a column a line."""
    print_table(
        (text_column("column"), text_column("value")),
        ((name, cell(value, units.get(name))) for name, value in row.items()),
    )
