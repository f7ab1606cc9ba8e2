"""Tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from state_store.data.dataset.moments import format_moment

_LONGEST = 80


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table below a line of text. Texts are escaped and shortened."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cells(row: Mapping[str, object], units: Mapping[str, str]) -> list[object]:
    """Return the values of a row. Moments, which are numbers since 1970, become texts.

    Args:
        row: the values by column.
        units: `ms` or `us` for each column that is a moment in numbers since 1970 UTC; negative is never.
    """
    return [
        _moment(value, units[name]) if name in units and isinstance(value, int) else value
        for name, value in row.items()
    ]


def _moment(value: int, unit: str) -> str:
    return "never" if value < 0 else format_moment(value if unit == "ms" else value // 1000)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return html.escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
