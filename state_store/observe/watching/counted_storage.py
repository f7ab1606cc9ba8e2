"""Storage that can only be read, and counts its requests."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from state_store.core.storage import Entry, Storage
from state_store.errors import StorageError

LIST, READ = "list", "read"
"""Kinds of requests."""


class Requests:
    """Numbers of requests by kind. Safe for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter({LIST: 0, READ: 0})

    def add(self, kind: str) -> None:
        """Count one request."""
        with self._lock:
            self._counts[kind] += 1

    def counts(self) -> dict[str, int]:
        """Return the numbers so far."""
        with self._lock:
            return dict(self._counts)


class CountedStorage(Storage):
    """A storage whose listings and reads are counted, and which refuses every write.

    Attributes:
        storage: the storage behind it.
        requests: where requests are counted.
    """

    def __init__(self, storage: Storage, requests: Requests) -> None:
        self.location = storage.location
        self.is_local = storage.is_local
        self.storage = storage
        self.requests = requests

    def list_files(self, directory: str) -> list[Entry]:
        """List the files of a directory."""
        self.requests.add(LIST)
        return self.storage.list_files(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        self.requests.add(READ)
        return self.storage.read(path, offset, length)

    def exists(self, path: str) -> bool:
        """Return True if a file exists."""
        self.requests.add(LIST)
        return self.storage.exists(path)

    def download(self, path: str, local: Path) -> None:
        """Refuse: nothing is downloaded in order to look."""
        raise self._refused(path)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Refuse."""
        raise self._refused(path)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        """Refuse."""
        raise self._refused(path)

    def delete(self, path: str) -> None:
        """Refuse."""
        raise self._refused(path)

    def close(self) -> None:
        """Close the storage behind it."""
        self.storage.close()

    def _refused(self, path: str) -> StorageError:
        return StorageError(
            f"'{self.location}/{path}' is not written by a program that only looks", file=path
        )
