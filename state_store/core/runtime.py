"""What a process has from its machine besides files: clocks, random names, threads and what they wait on.

Everything of the control plane gets its runtime passed in, so that a test can run whole processes on one of
its own, where time passes and threads take turns as a seed says. `SYSTEM` is the real one.
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
    """A lock on which threads wait for each other, as `threading.Condition` is one."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *failure: Any) -> Any: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool: ...

    def notify_all(self) -> None: ...


class Running(Protocol):
    """A thread that was started."""

    def join(self, timeout: float | None = None) -> None:
        """Waits until it has ended, at most `timeout` seconds (None: for ever)."""


class Runtime(ABC):
    """Clocks, randomness and threads of one process. Safe for any thread."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, as this machine believes; may jump."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Seconds on a clock that never jumps; it may stand still while the machine sleeps."""

    @abstractmethod
    def uptime_ms(self) -> float:
        """Milliseconds on a clock that neither jumps nor stops while the machine sleeps."""

    @abstractmethod
    def random_bytes(self, count: int) -> bytes:
        """Bytes that nobody can guess."""

    @abstractmethod
    def process_id(self) -> int:
        """The number of this process on its machine."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Lets other threads run for that long."""

    @abstractmethod
    def lock(self) -> Lock:
        """A lock, which the thread that has it can take again."""

    @abstractmethod
    def condition(self) -> Condition:
        """A condition with a lock of its own, which a thread that has it can take again."""

    @abstractmethod
    def start(self, work: Callable[[], object], *, name: str) -> Running:
        """Runs `work`, which raises nothing, in another thread; the end of the process does not wait for it.
        Context variables are those of the caller.
        """

    def unique(self, count: int = 8) -> str:
        """`count` random bytes in hexadecimal, for names that nobody else takes."""
        return self.random_bytes(count).hex()

    def random_32(self) -> int:
        """A random number of 32 bits."""
        return int.from_bytes(self.random_bytes(4), "big")

    def uuid(self) -> str:
        """A random UUID (version 4)."""
        return str(uuid.UUID(bytes=self.random_bytes(16), version=4))


class SystemRuntime(Runtime):
    """The clocks, the randomness and the threads of the operating system."""

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
