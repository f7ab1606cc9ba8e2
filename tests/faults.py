"""A storage that fails, or waits, at named points. Use: `from faults import FaultyStorage`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from state_store.errors import StorageError
from state_store.storage.contract import Entry, Storage

Fault = Callable[[str, str], object]


class FaultyStorage(Storage):
    """Calls `fault(operation, path)` before each operation; what that raises is what the caller sees.

    `calls` lists the operations in order, for tests that count them.
    """

    def __init__(self, inner: Storage, fault: Fault | None = None) -> None:
        self.inner = inner
        self.location = inner.location
        self.fault: Fault = fault or (lambda operation, path: None)
        self.calls: list[tuple[str, str]] = []

    def list_files(self, directory: str) -> list[Entry]:
        self._note("list", directory)
        return self.inner.list_files(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._note("read", path)
        return self.inner.read(path, offset, length)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._note("write", path)
        self.inner.write(path, data, overwrite=overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self._note("upload", path)
        self.inner.upload(local, path, overwrite=overwrite)

    def download(self, path: str, local: Path) -> None:
        self._note("download", path)
        self.inner.download(path, local)

    def delete(self, path: str) -> None:
        self._note("delete", path)
        self.inner.delete(path)

    def exists(self, path: str) -> bool:
        self._note("exists", path)
        return self.inner.exists(path)

    def _note(self, operation: str, path: str) -> None:
        self.calls.append((operation, path))
        self.fault(operation, path)


def fail_at(operation: str, prefix: str, *, nth: int = 1, message: str = "injected") -> Fault:
    """Fails the `nth` operation of that kind on a path that begins with `prefix`, and those after it."""
    seen = 0

    def fault(what: str, path: str) -> None:
        nonlocal seen
        if what == operation and path.startswith(prefix):
            seen += 1
            if seen >= nth:
                raise StorageError(f"cannot {operation} '{path}': {message}", file=path)

    return fault
