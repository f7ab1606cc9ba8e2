"""The local directories of an open store, for its incoming deltas, its bases and its merges.

All of them are on one file system, so that files pass between them as hard links. Safe for any thread.

Only their owner can open them. The files in them have the mode that the umask gives: in local checkpoint
storage a delta becomes a hard link, and this module does not decide who may read it there.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from state_store.core.runtime import SYSTEM, Runtime
from state_store.errors import BusyError


class Workspace:
    """Directories below `root`, which is private to this process and store. `open` makes them."""

    def __init__(self, root: Path, *, runtime: Runtime = SYSTEM) -> None:
        self.root = root
        self._runtime = runtime
        self._numbers = itertools.count(1)
        self._removed = False

    @property
    def incoming(self) -> Path:
        """Directory in which the JVM puts deltas before it commits them."""
        return self.root / "incoming"

    def open(self, *, held: Collection[Path] = ()) -> None:
        """Make `incoming`, and remove the files that a dead predecessor left.

        Args:
            held: The bases that the JVM has open; they stay.
        """
        make_private(self.incoming)
        for path in (*self.root.glob("scratch-*"), *self.root.glob("base-*")):
            if path not in held:
                shutil.rmtree(path, ignore_errors=True)

    def new_base(self, version: int) -> Path:
        """Make a directory for the database of `version`; the caller removes it."""
        return self._new(f"base-{version}")

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a directory that is removed after the body."""
        directory = self._new("scratch")
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def owns(self, directory: Path) -> bool:
        """Return True if `directory` is one of the bases here."""
        return directory.parent == self.root and directory.name.startswith("base-")

    def remove(self) -> None:
        """Remove everything for good, so that work that still runs finds no place. May be called twice."""
        self._removed = True
        shutil.rmtree(self.root, ignore_errors=True)

    def _new(self, prefix: str) -> Path:
        if self._removed:
            raise BusyError(f"'{self.root}' was removed: the store is closed")
        directory = self.root / f"{prefix}-{next(self._numbers)}-{self._runtime.unique(3)}"
        make_private(directory)
        return directory


def discard(directory: Path) -> None:
    """Remove a base, if it is there, although threads may still make files in it.

    They find it under its name no more, so they cannot keep it from being removed. What a failing disk keeps
    goes when the workspace is opened again.
    """
    doomed = directory.with_name(f"scratch-{directory.name}")
    try:
        directory.rename(doomed)
    except OSError:
        doomed = directory
    shutil.rmtree(doomed, ignore_errors=True)


def make_private(directory: Path) -> None:
    """Make `directory` and its missing parents, for their owner alone. Leave a directory that exists."""
    if directory.is_dir():
        return
    make_private(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
