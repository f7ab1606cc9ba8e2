"""Runtimes for tests. Use: `from runtimes import AdjustedRuntime`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from state_store.core.runtime import SystemRuntime


class AdjustedRuntime(SystemRuntime):
    """The system's runtime with other clocks, on a machine of its own, or on that with the start `boot`.

    The clock that never jumps is `ahead_s` seconds ahead of the system's. `waiting` are the threads that wait
    now on a condition or for a lock, by their numbers.
    """

    def __init__(
        self,
        *,
        wall_ms: Callable[[], float] | None = None,
        uptime_ms: Callable[[], float] | None = None,
        boot: str | None = None,
    ) -> None:
        self.ahead_s = 0.0
        self.waiting: set[int] = set()
        self._boot = boot
        self._wall_ms = wall_ms or super().wall_ms
        self._uptime_ms = uptime_ms or super().uptime_ms

    def wall_ms(self) -> int:
        return int(self._wall_ms())

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s

    def lock(self) -> _WatchedLock:
        return _WatchedLock(self.waiting)

    def condition(self) -> _WatchedCondition:
        return _WatchedCondition(self.waiting)

    def boot(self) -> str | None:
        return self._boot

    def uptime_ms(self) -> float:
        return self._uptime_ms()


class _WatchedCondition(threading.Condition):
    """A condition that keeps the numbers of the threads that wait on it in a set."""

    def __init__(self, waiting: set[int]) -> None:
        super().__init__()
        self._now_waiting = waiting

    def wait(self, *timeout: Any, **named: Any) -> bool:
        self._now_waiting.add(threading.get_ident())
        try:
            return super().wait(*timeout, **named)
        finally:
            self._now_waiting.discard(threading.get_ident())


class _WatchedLock:
    """A lock that its holder can take again, and that keeps the numbers of the threads that wait for it."""

    def __init__(self, waiting: set[int]) -> None:
        self._lock = threading.RLock()
        self._now_waiting = waiting

    def __enter__(self) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        self._now_waiting.add(threading.get_ident())
        try:
            return self._lock.acquire()
        finally:
            self._now_waiting.discard(threading.get_ident())

    def __exit__(self, *failure: object) -> None:
        self._lock.release()
