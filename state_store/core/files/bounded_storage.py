"""Checkpoint storage for operations that have to end in time."""

from __future__ import annotations

import builtins
from pathlib import Path

from state_store.core.files.deadline import Deadline
from state_store.core.storage.contract import Entry, Storage


class BoundedStorage(Storage):
    """`storage` until the `deadline`: each call checks it first and raises BusyError once it has passed.

    Another deadline may be set for the next operation. A deletion is checked where `bound_deletions` says so;
    else it goes on, since an operation that is given up takes back what it wrote. Closing it does nothing.
    """

    def __init__(self, storage: Storage, deadline: Deadline, *, bound_deletions: bool = False) -> None:
        self.location = storage.location
        self.is_local = storage.is_local
        self._storage = storage
        self.deadline = deadline
        self._bound_deletions = bound_deletions

    def list_files(self, directory: str) -> list[Entry]:
        self.deadline.check()
        return self._storage.list_files(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.deadline.check()
        return self._storage.read(path, offset, length)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self.deadline.check()
        self._storage.write(path, data, overwrite=overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self.deadline.check()
        self._storage.upload(local, path, overwrite=overwrite)

    def download(self, path: str, local: Path) -> None:
        self.deadline.check()
        self._storage.download(path, local)

    def download_part(self, path: str, local: Path, offset: int, length: int) -> int:
        self.deadline.check()
        return self._storage.download_part(path, local, offset, length)

    def delete(self, path: str) -> None:
        if self._bound_deletions:
            self.deadline.check()
        self._storage.delete(path)

    def exists(self, path: str) -> bool:
        self.deadline.check()
        return self._storage.exists(path)

    def directories(self, directory: str | None = None) -> builtins.list[str]:
        self.deadline.check()
        return self._storage.directories(directory)

    def delete_directory(self, directory: str) -> None:
        if self._bound_deletions:
            self.deadline.check()
        self._storage.delete_directory(directory)
