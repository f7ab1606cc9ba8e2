"""Tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

_LONGEST = 80


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table below a line of text. Texts are escaped and shortened."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def moment(ms: int) -> str:
    """Return a time in UTC, to the second, from milliseconds since 1970 UTC."""
    return f"{datetime.fromtimestamp(ms // 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return html.escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
