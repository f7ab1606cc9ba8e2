"""How far a long command is: bytes or rows moved, their rate, the time left; shown on a terminal after a
second.
"""

from __future__ import annotations

import threading
from pathlib import Path
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

from state_store.core.storage.contract import Entry, Storage

SHOWN_AFTER_S = 1.0


class Meter:
    """Counts bytes, or rows with `rows`, and stores. A context manager: what it showed is gone at its end.
    Safe for any thread.

    Shown on standard error where that is a terminal, once the work has taken `SHOWN_AFTER_S`.
    """

    def __init__(self, what: str, stores: int, *, rows: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description} {task.fields[done]}/{task.fields[stores]} stores"),
            BarColumn(),
            *([_RowsColumn()] if rows else [DownloadColumn(), TransferSpeedColumn()]),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task(what, total=None, done=0, stores=stores)
        self._lock = threading.Lock()
        self._stores = stores
        self._begun = self._done = self._expected = 0
        self.shown = threading.Event()
        """Set once it is on the terminal."""
        self._timer = threading.Timer(SHOWN_AFTER_S, self._show)
        self._timer.daemon = True

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
        if self.shown.is_set():  # else it would leave an empty line where there is no terminal
            self._progress.stop()

    def expect(self, amount: int) -> None:
        """A store is begun with, and this many of its bytes, or rows, are going to be moved. Until the first
        call nobody knows how many there are.

        Stores that are not begun with count as the average of the others.
        """
        with self._lock:
            self._begun += 1
            self._expected += amount
            total = self._expected * max(self._stores, self._begun) / self._begun
            self._progress.update(self._task, total=total)

    def moved(self, amount: int) -> None:
        """Adds to the bytes, or rows, that were."""
        self._progress.advance(self._task, amount)

    def metered(self, storage: Storage) -> Storage:
        """The storage, with its transfers counted here."""
        return MeteredStorage(storage, self)

    def store_done(self) -> None:
        """One more store is done."""
        with self._lock:
            self._done += 1
            self._progress.update(self._task, done=self._done)

    def _show(self) -> None:
        self._progress.start()
        self.shown.set()


class _RowsColumn(ProgressColumn):
    """Rows done, rows in all where that is known, and how many a second."""

    def render(self, task: Task) -> Text:
        rate = f", {task.speed:,.0f} a second" if task.speed else ""
        total = "" if task.total is None else f"/{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total} rows{rate}")


class MeteredStorage(Storage):
    """A storage that tells a meter of the files it brings and takes away; otherwise the one it is given."""

    def __init__(self, storage: Storage, meter: Meter) -> None:
        self.location = storage.location
        self.is_local = storage.is_local
        self._storage = storage
        self._meter = meter

    def list_files(self, directory: str) -> list[Entry]:
        return self._storage.list_files(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._storage.read(path, offset, length)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._storage.write(path, data, overwrite=overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self._storage.upload(local, path, overwrite=overwrite)
        self._meter.moved(local.stat().st_size)

    def download(self, path: str, local: Path) -> None:
        self._storage.download(path, local)
        self._meter.moved(local.stat().st_size)

    def download_part(self, path: str, local: Path, offset: int, length: int) -> int:
        size_bytes = self._storage.download_part(path, local, offset, length)
        self._meter.moved(size_bytes)
        return size_bytes

    def delete(self, path: str) -> None:
        self._storage.delete(path)

    def exists(self, path: str) -> bool:
        return self._storage.exists(path)

    def directories(self, directory: str | None = None) -> list[str]:
        return self._storage.directories(directory)

    def delete_directory(self, directory: str) -> None:
        self._storage.delete_directory(directory)

    def close(self) -> None:
        self._storage.close()
