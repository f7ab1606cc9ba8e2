"""Runtimes for tests. Use: `from runtimes import AdjustedRuntime`."""

from __future__ import annotations

from collections.abc import Callable

from state_store.core.runtime import SystemRuntime


class AdjustedRuntime(SystemRuntime):
    """The system's runtime with other clocks, on a machine of its own, or on that with the start `boot`."""

    def __init__(
        self,
        *,
        wall_ms: Callable[[], float] | None = None,
        uptime_ms: Callable[[], float] | None = None,
        boot: str | None = None,
    ) -> None:
        self._boot = boot
        self._wall_ms = wall_ms or super().wall_ms
        self._uptime_ms = uptime_ms or super().uptime_ms

    def wall_ms(self) -> int:
        return int(self._wall_ms())

    def boot(self) -> str | None:
        return self._boot

    def uptime_ms(self) -> float:
        return self._uptime_ms()
