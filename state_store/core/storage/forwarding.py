"""Storage that passes each call on to another one: the base of those that add something to some calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from state_store.core.storage.contract import Entry, Span, Storage


class ForwardingStorage(Storage):
    """Storage that passes each call on to `inner`, and is as safe for threads as `inner`.

    A subclass overrides the methods that it changes, or `_before`. Closing it does nothing: `inner` belongs
    to somebody else.
    """

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.location = inner.location
        self.is_local = inner.is_local
        self.takes_spans_together = inner.takes_spans_together

    def _before(self, *, is_deletion: bool) -> None:
        """Run before each call that this class passes on."""

    def list_files(self, directory: str) -> list[Entry]:
        self._before(is_deletion=False)
        return self.inner.list_files(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._before(is_deletion=False)
        return self.inner.read(path, offset, length)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._before(is_deletion=False)
        self.inner.write(path, data, overwrite=overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self._before(is_deletion=False)
        self.inner.upload(local, path, overwrite=overwrite)

    def download(self, path: str, local: Path) -> None:
        self._before(is_deletion=False)
        self.inner.download(path, local)

    def download_part(self, path: str, local: Path, offset: int, length: int) -> int:
        self._before(is_deletion=False)
        return self.inner.download_part(path, local, offset, length)

    def download_spans(self, spans: Sequence[Span]) -> list[int]:
        self._before(is_deletion=False)
        return self.inner.download_spans(spans)

    def delete(self, path: str) -> None:
        self._before(is_deletion=True)
        self.inner.delete(path)

    def exists(self, path: str) -> bool:
        self._before(is_deletion=False)
        return self.inner.exists(path)

    def directories(self, directory: str | None = None) -> list[str]:
        self._before(is_deletion=False)
        return self.inner.directories(directory)

    def delete_directory(self, directory: str) -> None:
        self._before(is_deletion=True)
        self.inner.delete_directory(directory)
