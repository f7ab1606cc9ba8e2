"""Storage of a service that has to answer the first request in time, so that nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from state_store.core.interruption import FIRST_ANSWER_S, answered
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Entry, Storage
from state_store.core.storage.forwarding import ForwardingStorage
from state_store.errors import StateStoreError

_ANY_FILE = "metadata"
R = TypeVar("R")


class AnsweringStorage(ForwardingStorage):
    """Storage that gives up its first request if the service does not answer it.

    Clients of services repeat a request for many minutes, and no signal interrupts them. From the first
    answer on, calls are passed on directly.
    """

    def __init__(
        self,
        location: str,
        open_inner: Callable[[], Storage],
        *,
        limit_s: float = FIRST_ANSWER_S,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Open the storage, which may ask the service.

        Args:
            location: the URI, for the message.
            open_inner: opens it.
            limit_s: seconds in which the first answer has to come.
            runtime: threads.

        Raises:
            StorageError: the service did not answer in time.
        """
        self._first = partial(answered, location, limit_s=limit_s, runtime=runtime)
        self._has_answered = False
        super().__init__(self._first(open_inner))

    def list_files(self, directory: str) -> list[Entry]:
        return self._asked(lambda: self.inner.list_files(directory))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._asked(lambda: self.inner.read(path, offset, length))

    def exists(self, path: str) -> bool:
        return self._asked(lambda: self.inner.exists(path))

    def directories(self, directory: str | None = None) -> list[str]:
        return self._asked(lambda: self.inner.directories(directory))

    def close(self) -> None:
        self.inner.close()

    def _before(self, *, is_deletion: bool) -> None:
        """Look for a file before a first request that changes something: nobody would know if it did."""
        if not self._has_answered:
            self.exists(_ANY_FILE)

    def _asked(self, call: Callable[[], R]) -> R:
        if self._has_answered:
            return call()
        try:
            answer = self._first(call)
        except StateStoreError as error:
            self._has_answered = error.kind != "storage"
            raise
        self._has_answered = True
        return answer
