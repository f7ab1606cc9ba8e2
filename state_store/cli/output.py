"""Output: tables for people, JSON for programs, errors for both, progress of long commands."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, TypeVar

import click
from rich import filesize, progress
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from state_store.cli.process import ExitCode, visible, visible_json, zone
from state_store.core.runtime import removed_at_end
from state_store.core.storage.contract import Storage
from state_store.data.dataset.moments import UNKNOWN, format_moments, moment_or_unknown
from state_store.data.query.progress import MeteredStorage
from state_store.errors import StateStoreError, StorageError

_T = TypeVar("_T")

Cell = str | Text
"""A cell of a table: a visible text, or one with a style."""


_ROWS_A_WRITE = 1000


_UUID = re.compile(r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_VERSION = re.compile(r"\b0{10,19}([0-9]+)(?=[-_])")


_CHECKSUM = re.compile(r"(?<=[0-9a-z])_[0-9a-f]{8}(?=\.sst)")


_GAP = 2


_WIDE = "state-store.wide"
_UNBOUNDED = 1 << 20
_WHOLE_CELL = 45
"""Texts up to this many columns, windows say, are not cut."""


_CUT_CELL, _FOLDED_CELL = 24, 12
"""Columns that longer texts get at least; a table without room for that is printed a value a line."""


class _Output(Console):
    """Standard output; a reader that has seen enough (`| head`) is not an error."""

    def on_broken_pipe(self) -> NoReturn:
        stop_writing()


def stop_writing() -> NoReturn:
    """End the program after the reader of standard output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(ExitCode.OK)


def _note_wide(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[_WIDE] = value


wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_note_wide,
    help="Print whole names and texts, a row a line, however wide the terminal is.",
)


def is_wide() -> bool:
    """Return True if `wide_option` was given to the command that runs."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_WIDE))


def output() -> Console:
    """Return a console on `sys.stdout` that prints texts as they are, without markup.

    It is as wide as the terminal. Elsewhere, and with `wide_option`, it has no bound, unless the variable
    COLUMNS has one for what is not a terminal.
    """
    columns = os.environ.get("COLUMNS", "")
    is_bounded = sys.stdout.isatty() or (columns.isdecimal() and int(columns) > 0)
    width = None if is_bounded and not is_wide() else _UNBOUNDED
    return _Output(width=width, markup=False, emoji=False, highlight=False)


@contextmanager
def _printing() -> Iterator[None]:
    """Let a reader that has gone end the program; other failures of standard output name it."""
    try:
        yield
    except BrokenPipeError:
        stop_writing()
    except OSError as error:
        raise StorageError(f"cannot write standard output: {error.strerror}") from error


def say(text: str = "") -> None:
    """Print a message of one or more lines."""
    with _printing():
        console = output()
        for line in Text(visible(text, lines=True)).wrap(console, console.width):
            line.rstrip()  # a line that is folded ends with its blank
            console.print(line)


def write(text: str) -> None:
    """Write a text to standard output as it is; on a terminal, escape characters that would act on it."""
    with _printing():
        sys.stdout.write(visible(text, lines=True) if sys.stdout.isatty() else text)


def print_json(value: Any) -> None:
    """Print `value` as JSON for programs, with an indentation of two."""
    write(json_text(value))


def json_text(value: Any) -> str:
    """Return what `print_json` prints."""
    return _json(value) + "\n"


def print_error(error: StateStoreError, *, as_json: bool) -> None:
    """Print an error to standard error, as a remark or as JSON."""
    if as_json:
        print(_json({"error": error.to_json()}), file=sys.stderr)
    else:
        print_note(error.message)


def print_note(text: str) -> None:
    """Print a remark for people to standard error, in one line that a terminal breaks between words."""
    width = None if sys.stderr.isatty() else _UNBOUNDED
    console = Console(stderr=True, width=width, markup=False, emoji=False, highlight=False)
    console.print(f"state-store: {visible(text)}")


class Heading(NamedTuple):
    """A column of a table. Numbers are aligned to the right; they and what `is_whole` are not folded."""

    name: str
    is_number: bool
    is_whole: bool = False


def number_column(name: str) -> Heading:
    """Return the heading of a column of numbers."""
    return Heading(name, is_number=True)


def text_column(name: str) -> Heading:
    """Return the heading of a column of texts."""
    return Heading(name, is_number=False)


def print_table(headings: Sequence[Heading], rows: Iterable[Sequence[object]], *, cut: bool = False) -> None:
    """Print a table, or `(none)` if it has no rows.

    Args:
        headings: the columns.
        rows: cells, which are texts or anything that has one.
        cut: a text that is too long for the output ends with an ellipsis, instead of going on in the next
            line.
    """
    columns = [list(column) for column in zip(*(map(_cell, row) for row in rows), strict=True)]
    print_columns(headings, columns or [[] for _ in headings], cut=cut)


def print_columns(headings: Sequence[Heading], columns: Sequence[Sequence[Cell]], *, cut: bool) -> None:
    """Print a table as `print_table`, of columns of cells whose texts are visible."""
    if not columns or not columns[0]:
        say("(none)")
        return
    names = [heading._replace(name=visible(heading.name)) for heading in headings]
    natural = [
        max(cell_len(heading.name), max(map(_width, column)))
        for heading, column in zip(names, columns, strict=True)
    ]
    widths = _fitted(names, natural, cut=cut)
    if widths is None:
        _print_values(names, zip(*columns, strict=True))
        return
    rule = ["-" * width for width in widths]
    _print_rows(
        chain([[Text(heading.name, "bold") for heading in names], rule], zip(*columns, strict=True)),
        widths,
        names,
        cut=cut,
    )


def fits(columns: Iterable[tuple[Heading, Iterable[object]]]) -> bool:
    """Return True if a table is narrow enough for the output, with whole texts, a row a line."""
    widths = [max(_width(_cell(value)) for value in (heading.name, *values)) for heading, values in columns]
    return sum(widths) + _GAP * (len(widths) - 1) <= output().width


def short_names(text: str) -> str:
    """Return a text with the names of the store's files cut: ids to eight digits, without leading zeros.

    `--wide` shows them whole.
    """
    return _UUID.sub(r"\1", _VERSION.sub(r"\1", _CHECKSUM.sub("", text)))


def print_tree(tree: Tree) -> None:
    """Print a tree."""
    with _printing():
        output().print(tree)


def _fitted(headings: Sequence[Heading], natural: Sequence[int], *, cut: bool) -> list[int] | None:
    """Return the columns' widths in the output; None if there is too little room.

    The longest texts give way.
    """
    least = [
        max(cell_len(heading.name), _CUT_CELL if cut else _FOLDED_CELL)
        if not (heading.is_number or heading.is_whole) and width > (_WHOLE_CELL if cut else _FOLDED_CELL)
        else width
        for heading, width in zip(headings, natural, strict=True)
    ]
    widths = list(natural)
    room = output().width - _GAP * (len(widths) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        longest = max(range(len(widths)), key=lambda place: (widths[place] > least[place], widths[place]))
        others = max(
            (width for place, width in enumerate(widths) if place != longest and width > least[place]),
            default=0,
        )
        goal = max(least[longest], min(others, widths[longest] - 1), widths[longest] - (sum(widths) - room))
        widths[longest] = goal
    return widths


def _print_rows(
    rows: Iterable[Sequence[Cell]], widths: Sequence[int], headings: Sequence[Heading], *, cut: bool
) -> None:
    """Print rows; those that need neither colours nor lines of their own are written together."""
    console = output()
    is_terminal = console.is_terminal
    lines: list[str] = []
    for row in rows:
        line = _line(row, widths, headings, is_terminal=is_terminal)
        if line is not None:
            lines.append(line)
        if lines and (line is None or len(lines) == _ROWS_A_WRITE):
            write("".join(lines))
            lines.clear()
        if line is None:
            _print_row(console, [_styled(value) for value in row], widths, headings, cut=cut)
    write("".join(lines))


def _line(
    row: Sequence[Cell], widths: Sequence[int], headings: Sequence[Heading], *, is_terminal: bool
) -> str | None:
    """Return a row as a line of plain text; None if it has a style for a terminal, or a text is too long."""
    padded = []
    for value, width, heading in zip(row, widths, headings, strict=True):
        if is_terminal and isinstance(value, Text):
            return None
        blanks = width - _width(value)
        if blanks < 0:
            return None
        text = _plain(value)
        padded.append(" " * blanks + text if heading.is_number else text + " " * blanks)
    return (" " * _GAP).join(padded).rstrip() + "\n"


def _print_row(
    console: Console, row: Sequence[Text], widths: Sequence[int], headings: Sequence[Heading], *, cut: bool
) -> None:
    """Print a row: its texts are cut, or go on in the next lines."""
    columns: list[list[Text]] = []
    for value, width in zip(row, widths, strict=True):
        if cell_len(value.plain) <= width:
            columns.append([value])
        elif cut:
            text = value.copy()
            text.truncate(width, overflow="ellipsis")
            columns.append([text])
        else:
            columns.append(list(value.wrap(console, width, overflow="fold")))
    for number in range(max(map(len, columns))):
        line = Text()
        for place, (lines, width) in enumerate(zip(columns, widths, strict=True)):
            text = lines[number] if number < len(lines) else Text()
            blanks = " " * (width - cell_len(text.plain))
            line.append(" " * _GAP if place else "")
            parts = (blanks, text) if headings[place].is_number else (text, blanks)
            for part in parts:
                line.append(part)
        line.rstrip()
        _print_line(console, line)


def _print_values(headings: Sequence[Heading], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a value a line, rows apart: for tables that are wider than the output."""
    console = output()
    names = max(cell_len(heading.name) for heading in headings)
    values = max(console.width - names - _GAP, _FOLDED_CELL)
    value_headings = (text_column(""), text_column(""))
    for number, row in enumerate(rows):
        if number:
            say()
        for heading, value in zip(headings, row, strict=True):
            _print_row(
                console, (Text(heading.name), _styled(value)), (names, values), value_headings, cut=False
            )


def _print_line(console: Console, line: Text) -> None:
    """Print a line as it is: a terminal that is too narrow breaks it, and nothing is lost."""
    if console.is_terminal:
        console.print(line, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
    else:
        write(line.plain + "\n")


def _cell(value: object) -> Cell:
    return value if isinstance(value, Text) else visible(str(value))


def _plain(value: Cell) -> str:
    return value if isinstance(value, str) else value.plain


def _styled(value: Cell) -> Text:
    return Text(value) if isinstance(value, str) else value


def _width(value: Cell) -> int:
    """Return how many columns of a terminal a cell takes."""
    text = _plain(value)
    return len(text) if text.isascii() else cell_len(text)


def size(bytes_: float) -> str:
    """Return bytes as people read them, in units of 1000."""
    return filesize.decimal(int(bytes_))


def moment(milliseconds: int | None) -> str:
    """Return a moment as a text that `--at` reads back, with the offset of its zone; None is unknown."""
    return moment_or_unknown(milliseconds, zone())


def moment_cells(name: str, milliseconds: Sequence[int | None]) -> tuple[Heading, list[str]]:
    """Return a column of moments; the offset of the zone is in the heading if all have it in common.

    Args:
        name: the heading.
        milliseconds: the moments, in ms since 1970 UTC; None: nobody knows it.
    """
    known_moments = [moment for moment in milliseconds if moment is not None]
    offset, known_texts = format_moments(known_moments, zone())
    pending = iter(known_texts)
    texts = [UNKNOWN if moment is None else next(pending) for moment in milliseconds]
    return Heading(f"{name} ({offset})" if offset else name, is_number=False, is_whole=True), texts


def _json(value: Any) -> str:
    return visible_json(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


SHOWN_AFTER_S = 1.0


class Meter:
    """Counter of stores, and of bytes or another unit. A context manager, safe for any thread.

    The counts are on standard error if that is a terminal, once the work has taken `SHOWN_AFTER_S`, and are
    removed at the end.
    """

    def __init__(
        self, done: str, stores: int, *, unit: str = "bytes", console: Console | None = None
    ) -> None:
        self._console = console or Console(stderr=True)
        self._progress = progress.Progress(
            progress.TextColumn("{task.description} {task.fields[done]}/{task.fields[stores]} stores"),
            progress.BarColumn(),
            *(
                [progress.DownloadColumn(), progress.TransferSpeedColumn()]
                if unit == "bytes"
                else [_CountColumn(unit)]
            ),
            progress.TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task(visible(done), total=None, done=0, stores=stores)
        self._lock = threading.Lock()
        self._stores = stores
        self._begun = self._done = self._expected = 0
        self.shown = threading.Event()
        """Set once the counts are on the terminal."""
        self._timer = threading.Timer(SHOWN_AFTER_S, self._show)
        self._timer.daemon = True
        self._until_end = ExitStack()

    def __enter__(self) -> Meter:
        if self._console.is_terminal:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()
        self._until_end.close()

    def hide(self) -> None:
        """Take the counts off the terminal, on which other lines are going to be printed; idempotent."""
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()
        if self.shown.is_set():  # otherwise an empty line would be left without a terminal
            self._progress.stop()
            self.shown.clear()

    def hidden_before(self, batches: Iterable[_T]) -> Iterator[_T]:
        """Yield what is going to be printed; take the counts off the terminal before the first."""
        for batch in batches:
            self.hide()
            yield batch

    def expect(self, amount: int) -> None:
        """Count a store that is begun, of which this many bytes, or rows, are going to be moved.

        Before the first call the total is not known. Stores that are not begun count as the average of the
        others.
        """
        with self._lock:
            self._begun += 1
            self._expected += amount
            total = self._expected * max(self._stores, self._begun) / self._begun
            self._progress.update(self._task, total=total)

    def moved(self, amount: int) -> None:
        """Add to the bytes, or rows, that were moved."""
        self._progress.advance(self._task, amount)

    def metered(self, storage: Storage) -> Storage:
        """Return the storage, with its transfers counted here."""
        return MeteredStorage(storage, self.moved)

    def store_done(self) -> None:
        """Count a store that is done."""
        with self._lock:
            self._done += 1
            self._progress.update(self._task, done=self._done)

    def _show(self) -> None:
        self._until_end.enter_context(removed_at_end(self._progress.stop))
        self._progress.start()
        self.shown.set()


class _CountColumn(progress.ProgressColumn):
    """A number of rows or batches, the total if it is known, and the number a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: progress.Task) -> Text:
        rate = f", {task.speed:,.0f} a second" if task.speed else ""
        total = "" if task.total is None else f"/{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total} {self._unit}{rate}")
