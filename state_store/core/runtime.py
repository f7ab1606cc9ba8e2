"""Runtime of a process: the clocks, random names, threads and locks that its machine gives it.

Everything in the control plane gets its runtime passed in. So a test can run whole processes on a runtime of
its own, in which a seed decides how time passes and threads take turns. `SYSTEM` is the real one.
"""

from __future__ import annotations

import contextvars
import os
import secrets
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

Lock = AbstractContextManager[Any]


class Condition(Protocol):
    """A lock on which threads wait for each other, such as `threading.Condition`."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *failure: Any) -> Any: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool: ...

    def notify_all(self) -> None: ...


class Running(Protocol):
    """A thread that was started."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, at most `timeout` seconds (None: for ever)."""


class Runtime(ABC):
    """Clocks, randomness and threads of one process. Safe for any thread."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Return the milliseconds since 1970 UTC by the clock of this machine, which may jump."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Return the seconds of a clock that never jumps, and may stand still while the machine sleeps."""

    @abstractmethod
    def uptime_ms(self) -> float:
        """Return the milliseconds of a clock that neither jumps nor stops while the machine sleeps."""

    @abstractmethod
    def random_bytes(self, count: int) -> bytes:
        """Return bytes that nobody can guess."""

    @abstractmethod
    def process_id(self) -> int:
        """Return the number of this process on its machine."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Let other threads run for that long."""

    @abstractmethod
    def lock(self) -> Lock:
        """Return a lock, which the thread that holds it can take again."""

    @abstractmethod
    def condition(self) -> Condition:
        """Return a condition with a lock of its own, which the thread that holds it can take again."""

    @abstractmethod
    def start(self, work: Callable[[], object], *, name: str) -> Running:
        """Run `work`, which raises nothing, in another thread, with the context variables of the caller.

        The end of the process does not wait for the thread.

        Raises:
            RuntimeError: The machine has no thread left.
            MemoryError: Memory does not suffice for a thread.
        """

    def unique(self, count: int = 8) -> str:
        """Return `count` random bytes in hexadecimal, for names that nobody else takes."""
        return self.random_bytes(count).hex()

    def random_32(self) -> int:
        """Return a random number of 32 bits."""
        return int.from_bytes(self.random_bytes(4), "big")

    def uuid(self) -> str:
        """Return a random UUID (version 4)."""
        return str(uuid.UUID(bytes=self.random_bytes(16), version=4))


class SystemRuntime(Runtime):
    """The clocks, the randomness and the threads of the operating system."""

    def __repr__(self) -> str:
        return "SYSTEM"  # the signatures of functions show it

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def uptime_ms(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000

    def random_bytes(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    def process_id(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def lock(self) -> Lock:
        return threading.RLock()

    def condition(self) -> Condition:
        return threading.Condition()

    def start(self, work: Callable[[], object], *, name: str) -> Running:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name=name, daemon=True)
        thread.start()
        return thread


SYSTEM = SystemRuntime()
