"""How long an operation may take: checked by its steps, between files, never in the middle of one."""

from __future__ import annotations

from state_store.core.runtime import SYSTEM, Runtime
from state_store.errors import BusyError


class Deadline:
    """The end of one operation, which may also be cancelled before. Time in which the machine sleeps counts.
    Safe for any thread.

    `what` and `option` are for the message: who took too long, and which option allows more.
    """

    def __init__(
        self,
        what: str,
        limit_ms: float | None,
        *,
        option: str | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._what = what
        self._limit_ms = limit_ms
        self._option = option
        self._clock_ms = runtime.uptime_ms
        self._end_ms = None if limit_ms is None else runtime.uptime_ms() + limit_ms
        self._cancelled: str | None = None
        self._lock = runtime.lock()

    @property
    def passed(self) -> bool:
        """Whether the operation has to end now."""
        late = self._end_ms is not None and self._clock_ms() >= self._end_ms
        return late or self._cancelled is not None

    @property
    def cancelled(self) -> bool:
        return self._cancelled is not None

    def left_s(self) -> float | None:
        """Seconds until the end, 0 after it; None where there is none."""
        return None if self._end_ms is None else max(0.0, (self._end_ms - self._clock_ms()) / 1000)

    def cancel(self, why: str) -> None:
        """Ends the operation at its next step. The first reason stays."""
        with self._lock:
            self._cancelled = self._cancelled or why

    def check(self) -> None:
        """Raises BusyError when the operation has to end now."""
        if self._cancelled is not None:
            raise BusyError(f"{self._what} was cancelled: {self._cancelled}")
        if self.passed:
            option = f" ({self._option})" if self._option else ""
            raise BusyError(
                f"{self._what} took longer than {self._limit_ms:.0f} ms{option} and was given up",
                option=self._option,
            )


NEVER = Deadline("nothing", None)
"""No end. Never cancelled: it is shared."""
