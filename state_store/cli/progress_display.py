"""Progress of long commands: bytes or rows moved, their rate, the time left.

It is shown on a terminal after a second.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from state_store.cli.streams import visible
from state_store.core.interruption import removed_at_end
from state_store.core.storage.contract import Storage
from state_store.data.query.progress import MeteredStorage

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
        self._progress = Progress(
            TextColumn("{task.description} {task.fields[done]}/{task.fields[stores]} stores"),
            BarColumn(),
            *([DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [_CountColumn(unit)]),
            TimeRemainingColumn(),
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
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()
        if self.shown.is_set():  # otherwise an empty line would be left without a terminal
            self._progress.stop()
        self._until_end.close()

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


class _CountColumn(ProgressColumn):
    """A number of rows or batches, the total if it is known, and the number a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        rate = f", {task.speed:,.0f} a second" if task.speed else ""
        total = "" if task.total is None else f"/{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total} {self._unit}{rate}")
