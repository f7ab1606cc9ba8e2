"""Tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

_LONGEST = 80


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line above it. Texts are taken literally, and shortened."""
    head = "".join(f"<th>{html.escape(one)}</th>" for one in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(one)}</td>' for one in row)}</tr>" for row in rows)
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def moment(ms: int) -> str:
    """A wall clock time, to the second, from milliseconds since 1970 UTC."""
    return f"{datetime.fromtimestamp(ms // 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return html.escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
