"""The local databases of one store: the newest, from which the next merge starts, and those that the JVM has
open.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from state_store.files.workspace import Workspace
from state_store.snapshots.local_database import LocalDatabase


class LocalDatabases:
    """Who uses which base; a directory that nobody uses any more is removed. Safe for any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._newest: LocalDatabase | None = None
        self._held: dict[Path, int] = {}

    @property
    def newest(self) -> LocalDatabase | None:
        return self._newest

    def borrow(self) -> LocalDatabase | None:
        """The newest base, which stays until it is taken back."""
        with self._lock:
            if self._newest is not None:
                self._held[self._newest.directory] = self._held.get(self._newest.directory, 0) + 1
            return self._newest

    def adopt(self, base: LocalDatabase | None) -> None:
        """From now on `base` is the newest (None: there is none)."""
        with self._lock:
            old, self._newest = self._newest, base
            unused = old is not None and old is not base and old.directory not in self._held
        if old is not None and unused:
            _remove(old.directory)

    def hand_out(self, base: LocalDatabase) -> None:
        """The JVM is about to open it: it stays until as many calls of `take_back`."""
        with self._lock:
            self._held[base.directory] = self._held.get(base.directory, 0) + 1

    def take_back(self, directory: Path) -> None:
        """The JVM has closed it. A directory that a dead agent handed out is known by its place alone."""
        with self._lock:
            left = self._held.pop(directory, 0) - 1
            if left > 0:
                self._held[directory] = left
            used = left > 0 or (self._newest is not None and self._newest.directory == directory)
        if not used and self._workspace.owns(directory):
            _remove(directory)


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
