"""Values of rows in tables for people, and as Python's JSON has them."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.text import Text

from state_store.cli.output import Cell
from state_store.cli.streams import visible, zone
from state_store.core.compat import zip
from state_store.errors import OptionError

if TYPE_CHECKING:
    import pyarrow

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

_REPEATED = (str, int, datetime.datetime, type(None))
"""Types whose equal values look alike; 0.0 and -0.0 do not."""

_MOST_KNOWN = 10_000


def rows_as_values(batch: pyarrow.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as Python values; moments that Python lacks, of the year 10000 say, are texts.

    Raises:
        OptionError: if such moments are in a list or a map.
    """
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns_as_values(batch), strict=True)]


def columns_as_values(batch: pyarrow.RecordBatch) -> list[list[Any]]:
    """Return the columns of rows, as `rows_as_values` returns the rows.

    Raises:
        OptionError: if moments that Python lacks are in a list or a map.
    """
    try:
        return [_values(column) for column in batch.columns]
    except (OverflowError, ValueError) as error:
        raise OptionError(f"Python has no such moments: {error}; write --format parquet") from error


def _values(column: pyarrow.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(_with_texts(column).to_pylist())


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
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def differing(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `diff`; that of a changed key has only the values that differ."""
    before, after = row.get("before"), row.get("after")
    if row.get("change") != "changed" or not (isinstance(before, dict) and isinstance(after, dict)):
        return row
    names = [name for name in after if before.get(name) != after[name]]
    return {**row, **{side: {name: row[side].get(name) for name in names} for side in ("before", "after")}}


def cell(value: Any, unit: str | Mapping[str, str] | None = None) -> Text:
    """Return a value as a table shows it: on one line, moments in the zone that was asked for.

    Null, an empty text and blanks look different: `null`, `''` and `'  '`.

    Args:
        value: the value, as Python has it.
        unit: `ms` or `us`, if the value is a moment in numbers since 1970 UTC; None if it is not. Of a row,
            or a list of rows: the units of those of its columns that are such moments.
    """
    shown = _cell(value, unit)
    return Text(shown) if isinstance(shown, str) else shown


def cells(values: Iterable[Any], unit: str | Mapping[str, str] | None = None) -> Iterator[Cell]:
    """Yield the cells of a column's values, as `cell` has them; equal texts and moments are made once.

    Args:
        values: the values, all of one type or null.
        unit: as `cell` takes it.
    """
    known: dict[Any, Cell] = {}
    for value in values:
        kind = type(value)
        if kind is int and unit is None:
            yield str(value)
        elif kind in _REPEATED:
            found = known.get(value)
            if found is None:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                known[value] = found = _cell(value, unit)
            yield found
        else:
            yield _cell(value, unit)


def _cell(value: Any, unit: str | Mapping[str, str] | None) -> Cell:
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


def _moment_in_numbers(value: int, unit: str) -> Cell:
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
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(_with_moments(value), ensure_ascii=False)
    return str(plain(value)).lower() if isinstance(value, bool) else str(plain(value))


def _with_moments(value: Any) -> Any:
    """Return a nested value as JSON has it, with moments as tables show them."""
    if isinstance(value, datetime.datetime) or _is_span(value):
        return _shown(value)
    if isinstance(value, dict):
        return {name: _with_moments(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
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
