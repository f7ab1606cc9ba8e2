"""Checkpoint storage whose answers are timed, for the cost model of restores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from state_store.core.planning.request_costs import DOWNLOAD, LIST, PART, READ, RequestTimes
from state_store.core.runtime import Runtime
from state_store.core.storage.contract import Entry, Storage
from state_store.core.storage.forwarding import ForwardingStorage

T = TypeVar("T")


class MeasuredStorage(ForwardingStorage):
    """Storage for one operation that reports the time of each successful request to `times`."""

    def __init__(self, storage: Storage, times: RequestTimes, runtime: Runtime) -> None:
        super().__init__(storage)
        self._times = times
        self._clock_s = runtime.monotonic_s

    def list_files(self, directory: str) -> list[Entry]:
        return self._timed(LIST, lambda: self.inner.list_files(directory), lambda _: 0)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._timed(READ, lambda: self.inner.read(path, offset, length), len)

    def download(self, path: str, local: Path) -> None:
        self._timed(DOWNLOAD, lambda: self.inner.download(path, local), lambda _: local.stat().st_size)

    def download_part(self, path: str, local: Path, offset: int, length: int) -> int:
        return self._timed(PART, lambda: self.inner.download_part(path, local, offset, length), int)

    def _timed(self, kind: str, request: Callable[[], T], size_bytes: Callable[[T], int]) -> T:
        started_s = self._clock_s()
        answer = request()
        ms = (self._clock_s() - started_s) * 1000
        self._times.observe(kind, size_bytes(answer), ms)
        return answer
