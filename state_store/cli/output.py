"""Output: tables for people, JSON for programs, errors for both."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from rich import box, filesize
from rich.console import Console
from rich.table import Table
from rich.text import Text

from state_store.cli import exit_codes
from state_store.errors import StateStoreError

_PIPE_WIDTH = 10_000
"""Columns of what is not a terminal: a program that reads a table gets its rows unbroken."""


class _Output(Console):
    """Standard output; a reader that has seen enough (`| head`) is no error."""

    def on_broken_pipe(self) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(exit_codes.OK)


def output() -> Console:
    """Standard output as it is now; texts are taken literally."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return _Output(width=width, markup=False, emoji=False, highlight=False)


def print_json(value: Any) -> None:
    """Prints `value` as JSON for programs, two blanks of indentation."""
    output().out(_json(value), highlight=False)


def print_error(error: StateStoreError, *, as_json: bool) -> None:
    """Prints an error to standard error, in one line or as JSON."""
    text = _json({"error": error.to_json()}) if as_json else f"state-store: {printable(error.message)}"
    print(text, file=sys.stderr)


class Heading(NamedTuple):
    """A column of a table. Numbers are aligned to the right; texts are broken on a narrow terminal, never
    shortened.
    """

    name: str
    is_number: bool


def number_column(name: str) -> Heading:
    return Heading(name, is_number=True)


def text_column(name: str) -> Heading:
    return Heading(name, is_number=False)


def print_table(headings: Sequence[Heading], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table, `(none)` where it has no rows. Cells are texts, or anything with one."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, is_number in headings:
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    output().print(table if table.row_count else "(none)")


def printable(text: str) -> str:
    """Return a text with its control characters in hexadecimal: a name in a checkpoint steers no terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)


def size(bytes_: float) -> str:
    """Bytes as people read them, in units of 1000."""
    return filesize.decimal(int(bytes_))


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


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
