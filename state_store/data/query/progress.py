"""Progress of long work on many stores: counted here, shown by the caller's callback or by a progress bar."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import Storage
from state_store.core.storage.contract import ForwardingStorage, Span
from state_store.errors import OptionError


class Progress(Protocol):
    """Receiver of the progress of work on many stores. Safe for any thread."""

    def expect(self, size_bytes: int) -> None:
        """Note that work on a store begins and is going to move `size_bytes` bytes."""

    def metered(self, storage: Storage) -> Storage:
        """Return a storage that counts its transfers here and otherwise does what `storage` does."""

    def store_done(self) -> None:
        """Note that one more store is done."""


@dataclass(frozen=True)
class ProgressUpdate:
    """The state of long work: the argument of a progress callback.

    Attributes:
        task: the kind of work, such as `verified`.
        stores_done: stores that are done.
        stores: stores in all.
        done: bytes or rows that were moved so far.
        expected: bytes or rows in all, extrapolated from the stores that were begun; None before the first.
        unit: `bytes` or `rows`.
    """

    task: str
    stores_done: int
    stores: int
    done: int
    expected: int | None
    unit: str


ProgressCallback = Callable[[ProgressUpdate], object]
ProgressOption = bool | ProgressCallback | Progress | None
"""Type of the argument `progress`: nothing, True for a bar, a callback, or an object that counts itself."""


class Counter:
    """A `Progress` that calls a function after each change. Safe for any thread; calls do not overlap."""

    def __init__(
        self,
        callback: ProgressCallback,
        task: str,
        stores: int,
        unit: str = "bytes",
        *,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._callback = callback
        self._task, self._unit = task, unit
        self._stores = stores
        self._lock = runtime.lock()
        self._started = self._stores_done = self._done = self._expected = 0

    def expect(self, amount: int) -> None:
        """Note that work on a store begins and is going to move `amount` bytes or rows."""
        with self._lock:
            self._started += 1
            self._expected += amount
            self._report()

    def moved(self, amount: int) -> None:
        """Add to the bytes or rows that were moved."""
        with self._lock:
            self._done += amount
            self._report()

    def metered(self, storage: Storage) -> Storage:
        """Return `storage` with its transfers counted here."""
        return MeteredStorage(storage, self.moved)

    def store_done(self) -> None:
        """Note that one more store is done."""
        with self._lock:
            self._stores_done += 1
            self._report()

    def _report(self) -> None:
        expected = None
        if self._started:
            expected = self._expected * max(self._stores, self._started) // self._started
        self._callback(
            ProgressUpdate(
                self._task,
                self._stores_done,
                self._stores,
                self._done,
                None if expected is None else max(expected, self._done),
                self._unit,
            )
        )


@contextmanager
def reporting(progress: ProgressOption, task: str, stores: int, unit: str = "bytes") -> Iterator[Any]:
    """Turn the argument `progress` of a public function into a `Progress`, or into None.

    Args:
        progress: None or False: nothing is reported. True: a bar of rich or tqdm, whichever is installed; of
            tqdm in a notebook if both are.
            A function: it is called with a `ProgressUpdate` after each change, by any thread, one at a time.
            An object with the methods of `Progress`: it is used as it is.
        task: the kind of work, such as `verified`.
        stores: stores in all.
        unit: `bytes` or `rows`.

    Raises:
        OptionError: `progress` is none of these, or is True and neither package is installed.
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        with _bar(task, stores, unit) as callback:
            yield Counter(callback, task, stores, unit)
    elif hasattr(progress, "expect") and hasattr(progress, "store_done"):
        yield progress
    elif callable(progress):
        yield Counter(progress, task, stores, unit)
    else:
        raise OptionError(
            f"progress is None, True, or a function of one argument, not {progress!r}", option="progress"
        )


def _bar(task: str, stores: int, unit: str) -> AbstractContextManager[ProgressCallback]:
    installed = [package for package in ("rich", "tqdm") if _is_installed(package)]
    if not installed:
        raise OptionError("progress=True needs the Python package rich or tqdm", option="progress")
    if installed == ["tqdm"] or ("tqdm" in installed and _in_notebook()):
        return _tqdm_bar(task, stores, unit)
    return _rich_bar(task, stores)


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _in_notebook() -> bool:
    """Return True if a notebook shows what this process prints. There rich needs `ipywidgets`."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return running is not None and "IPKernelApp" in running.config


@contextmanager
def _rich_bar(task: str, stores: int) -> Iterator[ProgressCallback]:
    from rich.progress import Progress as Bar

    with Bar(transient=True) as bar:
        number = bar.add_task(f"{task} 0/{stores} stores", total=None)

        def update(now: ProgressUpdate) -> None:
            text = f"{task} {now.stores_done}/{now.stores} stores"
            bar.update(number, completed=now.done, total=now.expected, description=text)

        yield update


@contextmanager
def _tqdm_bar(task: str, stores: int, unit: str) -> Iterator[ProgressCallback]:
    from tqdm.auto import tqdm

    unit_text = "B" if unit == "bytes" else f" {unit}"
    with tqdm(desc=f"{task} 0/{stores} stores", unit=unit_text, unit_scale=True, leave=False) as bar:

        def update(now: ProgressUpdate) -> None:
            bar.set_description(f"{task} {now.stores_done}/{now.stores} stores", refresh=False)
            bar.total = now.expected
            bar.update(now.done - bar.n)

        yield update


class MeteredStorage(ForwardingStorage):
    """A storage that reports the bytes of its uploads and downloads, and closes `inner` with itself."""

    def __init__(self, inner: Storage, moved: Callable[[int], object]) -> None:
        super().__init__(inner)
        self._moved = moved

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self.inner.upload(local, path, overwrite=overwrite)
        self._moved(local.stat().st_size)

    def download(self, path: str, local: Path) -> None:
        self.inner.download(path, local)
        self._moved(local.stat().st_size)

    def download_spans(self, spans: Sequence[Span]) -> list[int]:
        copied = self.inner.download_spans(spans)
        self._moved(sum(copied))
        return copied

    def close(self) -> None:
        self.inner.close()
