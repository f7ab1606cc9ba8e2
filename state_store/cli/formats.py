"""Rows in the format that was asked for: a table for people, CSV, JSON or Parquet for programs.

A table is made of cells, which show values as people read them. DuckDB makes JSON and CSV column by column;
values of which it makes other texts than Python are made in Python.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import functools
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from state_store.cli import output
from state_store.cli.command import WholeNumber, json_option
from state_store.cli.process import visible, visible_json, zone
from state_store.core.runtime import removed_at_end
from state_store.core.storage.local_disk import remove_unneeded
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


_FORM_BY_SUFFIX = {".json": DOCUMENT, ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


Units = Mapping[str, str | Mapping[str, str]]
"""Columns with the units that `cell` takes."""


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


_DAY_US = 86_400_000_000


_REPEATED = (str, int, datetime.datetime, type(None))
"""Types whose equal values look alike; 0.0 and -0.0 do not."""


_MAX_CELLS = 10_000


_ROWS = "rows"


_FORMULA = r"^[=+\-@\t\r＝＋－＠]"
"""Texts that spreadsheets run as formulas begin so."""


def format_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--format`, `--guard-formulas`, `--output` and `--json`; the function gets `form` and `target`."""

    @functools.wraps(function)
    def of_form(*arguments: Any, form: str | None, guard: bool, as_json: bool, **others: Any) -> Any:
        if as_json and form is not None:
            raise click.UsageError("--json and --format exclude each other")
        if others["target"] is not None:
            if form == "table":
                raise click.UsageError(
                    "a table is printed; a file is csv, json or parquet: --format says which"
                )
            form = form or (None if as_json else form_of_file(others["target"]))
        if guard and form != "csv":
            raise click.UsageError("--guard-formulas is for --format csv")
        if form == "parquet" and others["target"] is None:
            raise OptionError("Parquet is written to a file: give --output FILE", option="--output")
        return function(
            *arguments, form=DOCUMENT if as_json else GUARDED if guard else form or "table", **others
        )

    declared: Callable[..., Any] = of_form
    for decorate in (
        click.option(
            "--output",
            "target",
            metavar="FILE",
            help="Write all rows there (a path or URI); no file is replaced.",
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
            "rows; parquet needs --output. Default: table; in a file what its name ends in, else csv.",
        ),
        output.wide_option,
        json_option,
    ):
        declared = decorate(declared)
    return declared


def form_of_file(target: str) -> str:
    """Return the format of a file, if none is asked for: by the end of its name, else CSV."""
    return _FORM_BY_SUFFIX.get(PurePosixPath(target).suffix.lower(), "csv")


limit_option = click.option(
    "--limit",
    type=WholeNumber(0, 2**62),
    metavar="N",
    help=f"At most this many rows, 0: all. Default: {LIMIT} in a table, else all.",
)


def max_rows(form: str, limit: int | None) -> int | None:
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
    maximum = max_rows(form, limit)
    count = print_rows(_first(batches, maximum), schema, form, target, units)
    if form == "table" and target is None:
        noun, _, complement = described.partition(" ")
        more = f" (the first {maximum}; --limit 0 shows all)" if count == maximum else ""
        output.say(f"\n{f'{counted(count, noun)} {complement}'.rstrip()}{more}")


def _first(batches: Iterable[pyarrow.RecordBatch], limit: int | None) -> Iterator[pyarrow.RecordBatch]:
    """Yield at most `limit` rows of the batches; None is all."""
    rows_left = limit
    for batch in batches:
        if rows_left is None:
            yield batch
            continue
        yield batch.slice(0, rows_left)
        rows_left -= min(rows_left, batch.num_rows)
        if not rows_left:
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
            return _print_rows_as_table(batches, schema, units or {})
        return _write_texts(batches, schema, form, output.write)
    with _file_at(target) as local:
        return _write_file(batches, schema, form, local)


@contextlib.contextmanager
def _file_at(target: str) -> Iterator[Path]:
    """Yield an empty file that becomes the target when the body ends; if it fails, nothing is left.

    Raises:
        ConflictError: if the target exists.
    """
    path = local_path(target)
    if path is not None and path.exists():
        raise ConflictError(f"'{path}' exists already; it is not replaced", file=str(path))
    with new_file(target) if path is None else contextlib.nullcontext(path) as local:
        with open(local, "xb"):
            pass
        try:
            with removed_at_end(local.unlink):
                yield local
        except BaseException:
            remove_unneeded(local)
            raise


def _print_rows_as_table(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, units: Units) -> int:
    import pyarrow

    headings = []
    for field in schema:
        is_number = pyarrow.types.is_integer(field.type) or pyarrow.types.is_floating(field.type)
        is_number = is_number and field.name not in units
        headings.append(output.number_column(field.name) if is_number else output.text_column(field.name))
    columns: list[list[output.Cell]] = [[] for _ in headings]
    for batch in batches:
        for column, name, values in zip(columns, schema.names, _shown_values(batch), strict=True):
            column.extend(cells(values, units.get(name)))
    output.print_columns(headings, columns, cut=True)
    return len(columns[0]) if columns else 0


def _shown_values(batch: pyarrow.RecordBatch) -> list[list[Any]]:
    """Return the columns of rows; rows of `diff` have only the values that differ."""
    names = batch.schema.names
    if not {"change", "before", "after"} <= set(names):
        return columns_as_values(batch)
    rows = [differing(row) for row in rows_as_values(batch)]
    return [[row[name] for row in rows] for name in names]


def differing(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `diff`; that of a changed key has only the values that differ."""
    before, after = row.get("before"), row.get("after")
    if row.get("change") != "changed" or not (isinstance(before, dict) and isinstance(after, dict)):
        return row
    # By their texts: NaN is not equal to itself, and 0.0 is to -0.0.
    names = [name for name in after if repr(before.get(name)) != repr(after[name])]
    return {**row, **{side: {name: row[side].get(name) for name in names} for side in ("before", "after")}}


def print_row(row: Mapping[str, Any], units: Mapping[str, str]) -> None:
    """Print one row for people, a column a line."""
    output.print_table(
        (output.text_column("column"), output.text_column("value")),
        ((name, cell(value, units.get(name))) for name, value in row.items()),
    )


def columns_as_values(batch: pyarrow.RecordBatch) -> list[list[Any]]:
    """Return the columns of rows, as `rows_as_values` returns the rows.

    Raises:
        OptionError: if moments that Python lacks are in a list or a map.
    """
    return [_values(column) for column in batch.columns]


def rows_as_values(batch: pyarrow.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as Python values; moments that Python lacks, of the year 10000 say, are texts.

    Raises:
        OptionError: if such moments are in a list or a map.
    """
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns_as_values(batch), strict=True)]


def _values(column: pyarrow.Array) -> list[Any]:
    """Return the values of a column. Raises OptionError as `columns_as_values`."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        pass
    try:
        return list(_with_texts(column).to_pylist())
    except (OverflowError, ValueError) as error:
        raise OptionError(f"Python has no such moments: {error}; write --format parquet") from error


def _with_texts(column: pyarrow.Array) -> pyarrow.Array:
    """Return a column with texts in place of dates and moments, inside of structs, too."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_timestamp(kind) or pyarrow.types.is_date(kind):
        return column.cast(pyarrow.string())
    if not pyarrow.types.is_struct(kind):
        return column
    inner = [_with_texts(field) for field in column.flatten()]
    names = [kind.field(number).name for number in range(kind.num_fields)]
    return pyarrow.StructArray.from_arrays(inner, names, mask=column.is_null())


def cell(value: Any, unit: str | Mapping[str, str] | None = None) -> Text:
    """Return a value as a table shows it: on one line, moments in the zone that was asked for.

    Null, an empty text and blanks look different: `null`, `''` and `'  '`.

    Args:
        value: the value, as Python has it.
        unit: `ms` or `us`, if the value is a moment in numbers since 1970 UTC; None if it is not. Of a row,
            or a list of rows: the units of those of its columns that are such moments.
    """
    text = _cell(value, unit)
    return Text(text) if isinstance(text, str) else text


def cells(values: Iterable[Any], unit: str | Mapping[str, str] | None = None) -> Iterator[output.Cell]:
    """Yield the cells of a column's values, as `cell` has them; equal texts and moments are made once.

    Args:
        values: the values, all of one type or null.
        unit: as `cell` takes it.
    """
    made_cells: dict[Any, output.Cell] = {}
    for value in values:
        kind = type(value)
        if kind is int and unit is None:
            yield str(value)
        elif kind in _REPEATED:
            cell_ = made_cells.get(value)
            if cell_ is None:
                if len(made_cells) >= _MAX_CELLS:
                    made_cells.clear()
                made_cells[value] = cell_ = _cell(value, unit)
            yield cell_
        else:
            yield _cell(value, unit)


def _cell(value: Any, unit: str | Mapping[str, str] | None) -> output.Cell:
    if value is None:
        return Text("null", "dim")
    if isinstance(unit, str):
        if isinstance(value, int):
            return _moment_in_numbers(value, unit)
    elif unit:
        value = _with_units(value, unit)
    if isinstance(value, str):
        is_plain = value and value == value.strip() and value != "null"
        return visible(value if is_plain else f"'{value}'")
    return visible(_shown(value))


def _with_units(value: Any, units: Mapping[str, str]) -> Any:
    """Return a row, or a list of rows, in which moments are texts and no longer numbers since 1970."""
    if isinstance(value, list):
        return [_with_units(row, units) for row in value]
    if not isinstance(value, dict):
        return value
    return {
        name: str(_moment_in_numbers(inner, units[name])) if name in units and type(inner) is int else inner
        for name, inner in value.items()
    }


def _moment_in_numbers(value: int, unit: str) -> output.Cell:
    if value < 0:
        return Text("never", "dim")
    try:
        moment = _EPOCH + datetime.timedelta(**{"milliseconds" if unit == "ms" else "microseconds": value})
        return _shown(moment)
    except OverflowError:
        return str(value)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo is None else value.astimezone(zone())).isoformat(sep=" ")
    if _is_span(value):
        return _span(value["start"], value["end"])
    if isinstance(value, (dict, list, tuple)) and not _is_interval(value):
        return json.dumps(_with_moments(value), ensure_ascii=False)
    return str(plain(value)).lower() if isinstance(value, bool) else str(plain(value))


def _with_moments(value: Any) -> Any:
    """Return a nested value as JSON has it, with moments as tables show them."""
    if isinstance(value, datetime.datetime) or _is_span(value):
        return _shown(value)
    if isinstance(value, dict):
        return {name: _with_moments(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) and not _is_interval(value):
        return [_with_moments(inner) for inner in value]
    return plain(value)


def _is_span(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and list(value) == ["start", "end"]
        and all(isinstance(moment, datetime.datetime) for moment in value.values())
    )


def _span(start: datetime.datetime, end: datetime.datetime) -> str:
    """Return a window; its end has no date if that is the date of the start, so that both are seen."""
    first, last = _shown(start), _shown(end)
    return f"{first} to {last[11:] if first[:10] == last[:10] else last}"


def plain(value: Any) -> Any:
    """Return a value as JSON has it.

    Bytes are base64, times ISO 8601 (in UTC if they have a zone), and decimals, durations and floating
    numbers that are not finite are texts.
    """
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (Decimal, datetime.timedelta)):
        return str(value)
    if _is_interval(value):
        return _interval(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def _is_interval(value: Any) -> bool:
    """Return True for an interval as DuckDB and Arrow have it, in months, days and nanoseconds."""
    return hasattr(value, "nanoseconds") and hasattr(value, "months")


def _interval(value: Any) -> str:
    """Return an interval; without months it reads as the `timedelta` of a column of days to seconds."""
    days, microseconds = divmod(value.days * _DAY_US + value.nanoseconds // 1000, _DAY_US)
    parts = [counted(value.months, "month")] if value.months else []
    parts += [counted(days, "day")] if days else []
    if microseconds or not parts or (days and not value.months):
        parts.append(str(datetime.timedelta(microseconds=microseconds)))
    return ", ".join(parts)


def print_document(value: Any, target: str | None) -> None:
    """Print values as a JSON document, or write the same to `target`.

    Raises:
        ConflictError: if the target exists.
    """
    if target is None:
        output.print_json(value)
        return
    with _file_at(target) as local, writing_file(local):
        local.write_text(output.json_text(value), encoding="utf-8", errors="surrogatepass")


def _write_file(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, form: str, path: Path) -> int:
    with writing_file(path) as reading:
        read = reading(batches)
        if form == "parquet":
            return _write_parquet(read, schema, path)
        with open(path, "w", encoding="utf-8", newline="", errors="surrogatepass") as file:
            return _write_texts(read, schema, form, file.write)


def _write_parquet(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema, target: Path) -> int:
    import pyarrow
    import pyarrow.parquet

    rows = 0
    try:
        with (
            open(target, "wb") as file,
            pyarrow.parquet.ParquetWriter(file, schema, write_page_checksum=True) as writer,
        ):
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(batch)
    except pyarrow.ArrowNotImplementedError as error:
        raise OptionError(
            f"Parquet has no such type: {error}; leave the column out with --columns"
        ) from error
    return rows


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


class RowTexts:
    """Maker of texts of a schema's batches. A context manager; safe for one thread at a time."""

    def __init__(self, schema: pyarrow.Schema, *, guard: bool = False) -> None:
        """Plan the texts.

        Args:
            schema: the columns.
            guard: in CSV, texts that a spreadsheet would run as formulas get an apostrophe in front.
        """
        from state_store.data.dataset.sql import Connection

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

        expressions = [f"{self._flat(number)} AS {name}" for number, name in enumerate(self._names)]
        table = self._query(batch, ", ".join(expressions))
        sink = io.BytesIO()
        pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(include_header=False))
        return sink.getvalue().decode("utf-8")

    def _query(self, batch: pyarrow.RecordBatch, expressions: str) -> pyarrow.Table:
        import pyarrow

        columns = [
            column if is_known_ else _in_python(column)
            for column, is_known_ in zip(batch.columns, self._is_known, strict=True)
        ]
        self._connection.register(_ROWS, pyarrow.Table.from_arrays(columns, self._names))
        with self._connection.translated():
            return self._connection.rows(f"SELECT {expressions} FROM {_ROWS}").read_all()

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
        from state_store.data.dataset.sql import quoted

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
        [json.dumps(plain(value), ensure_ascii=False) for value in _values(column)], pyarrow.string()
    )
