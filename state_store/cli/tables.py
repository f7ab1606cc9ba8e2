"""Output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from state_store.checkpoint.names import VersionId

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns with two blanks between; numbers to the right, the rest to the left."""
    if not rows:
        return "(none)"
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(head), *cells]) for column in range(len(head))]
    right = [all(isinstance(row[column], (int, float)) for row in rows) for column in range(len(head))]

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(texts, widths, right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, cells)])


def as_json(value: Any) -> str:
    """`value` as JSON for programs, two blanks of indentation."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def size(number: float) -> str:
    """Bytes as people read them: three significant digits."""
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            places = 0 if unit == "B" or number >= 99.95 else 1 if number >= 9.995 else 2
            return f"{number:.{places}f} {unit}"
        number /= 1024
    raise AssertionError("unreachable")


def moment(milliseconds: int) -> str:
    """A wall clock time in the local zone, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def runs(versions: Sequence[int]) -> str:
    """Ascending numbers with runs folded: `3-7 9`."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][-1] + 1:
            parts[-1].append(version)
        else:
            parts.append([version])
    return " ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def version_json(of: VersionId | None) -> dict[str, Any] | None:
    return None if of is None else {"version": of.version, "id": of.id}
