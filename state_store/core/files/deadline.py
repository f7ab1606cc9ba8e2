"""Deadlines of operations, which their steps check between files, never in the middle of a file."""

from __future__ import annotations

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Storage
from state_store.core.storage.forwarding import ForwardingStorage
from state_store.errors import BusyError


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
