"""Storage around another storage, which passes calls on while there is time.

`ForwardingStorage` is the base: it passes each call on. `BoundedStorage` stops at the deadline of an
operation, between files, never in the middle of a file. `AnsweringStorage` gives up if a service does not
answer the first request, so that nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from state_store.core.runtime import FIRST_ANSWER_S, SYSTEM, Runtime, answered
from state_store.core.storage.contract import Entry, Span, Storage
from state_store.errors import BusyError, StateStoreError

_ANY_FILE = "metadata"

R = TypeVar("R")


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


class Deadline:
    """The end of an operation, which may be cancelled before. Safe for any thread.

    Time in which the machine sleeps counts.

    Args:
        subject: The operation, for the message.
        limit_ms: The time that it may take; None: any time.
        option: The option that allows more, for the message.
        runtime: The clock.
    """

    def __init__(
        self,
        subject: str,
        limit_ms: float | None,
        *,
        option: str | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._subject = subject
        self._limit_ms = limit_ms
        self._option = option
        self._clock_ms = runtime.uptime_ms
        self._end_ms = None if limit_ms is None else runtime.uptime_ms() + limit_ms
        self._cancelled: str | None = None
        self._lock = runtime.lock()

    @property
    def passed(self) -> bool:
        """True if the operation has to end now."""
        late = self._end_ms is not None and self._clock_ms() >= self._end_ms
        return late or self._cancelled is not None

    @property
    def cancelled(self) -> bool:
        """True if `cancel` was called."""
        return self._cancelled is not None

    def left_s(self) -> float | None:
        """Return the seconds until the end, 0 after it; None if there is no end."""
        return None if self._end_ms is None else max(0.0, (self._end_ms - self._clock_ms()) / 1000)

    def cancel(self, why: str) -> None:
        """End the operation at its next step. The first reason stays."""
        with self._lock:
            self._cancelled = self._cancelled or why

    def check(self) -> None:
        """Raise BusyError if the operation has to end now."""
        if self._cancelled is not None:
            raise BusyError(f"{self._subject} was cancelled: {self._cancelled}")
        if self.passed:
            option = f" ({self._option})" if self._option else ""
            raise BusyError(
                f"{self._subject} took longer than {self._limit_ms:.0f} ms{option} and was given up",
                option=self._option,
            )


NEVER = Deadline("nothing", None)
"""Deadline without an end. It is shared, and never cancelled."""


class BoundedStorage(ForwardingStorage):
    """Storage that passes calls on to `inner` until the `deadline`; then each raises BusyError.

    Another deadline may be set for the next operation. Deletions are bounded only with `bound_deletions`:
    an operation that is given up deletes the files that it wrote.
    """

    def __init__(self, inner: Storage, deadline: Deadline, *, bound_deletions: bool = False) -> None:
        super().__init__(inner)
        self.deadline = deadline
        self._bound_deletions = bound_deletions

    def _before(self, *, is_deletion: bool) -> None:
        if self._bound_deletions or not is_deletion:
            self.deadline.check()


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
