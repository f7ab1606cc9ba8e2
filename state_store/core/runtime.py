"""Runtime of a process: the clocks, random names, threads and locks that its machine gives it.

Everything in the control plane gets its runtime passed in. So a test can run whole processes on a runtime of
its own, in which a seed decides how time passes and threads take turns. `SYSTEM` is the real one.

The second half is about the end of a process. Python raises an interrupt when the main thread runs Python
code again. A library that computes, or waits for a service, holds the thread meanwhile. So such calls are
made in another thread, for which the main one waits (`interruptible`, `answered`). `removed_at_end` names
what is removed if a process ends at once.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import secrets
import shutil
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from state_store.errors import StorageError

Lock = contextlib.AbstractContextManager[Any]

FIRST_ANSWER_S = 60.0
"""Seconds in which a service has to answer the first request."""

_NICENESS = 10

_AGAIN_S = 0.1
"""Seconds after which a call that goes on is interrupted again: it may not have begun to compute before."""

R = TypeVar("R")

Remove = Callable[[], object]

_removals: dict[int, Remove] = {}

_left_behind: list[_Call[Any]] = []

_interrupts: list[bool] = []


# ---- clocks, randomness and threads ---------------------------------------------------------------------


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

    def boot(self) -> str | None:
        """Return a name of that clock, which all processes of a machine have until its next start.

        None: it is not known which other processes have it.
        """
        return None

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

    @abstractmethod
    def lower_priority(self) -> None:
        """Lower the priority of this thread, until it ends, so that the tasks of the executor go first.

        Threads that it makes later, RocksDB's included, get the lower priority, too. A process needs a
        privilege to raise it again.
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

    def boot(self) -> str | None:
        return _boot()

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

    def lower_priority(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


@lru_cache(maxsize=1)
def _boot() -> str | None:
    """Return the name of this start of the machine; a container may have a clock with a start of its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        namespace = Path("/proc/self/ns/time")
        return f"{boot} {namespace.readlink()}" if namespace.is_symlink() else boot
    except OSError:
        return None


SYSTEM = SystemRuntime()


# ---- calls that can be interrupted ----------------------------------------------------------------------


def interruptible(call: Callable[[], R], interrupt: Remove, *, runtime: Runtime = SYSTEM) -> R:
    """Return the result of a call. An interrupt of the main thread ends the call at once.

    In another thread, which no signal interrupts, the call is made directly. After an interrupt that a
    library has swallowed, no call is made.

    Args:
        call: the call; it may raise anything.
        interrupt: makes the call return soon. It is called again until the call has returned.
        runtime: threads.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    if _interrupts:
        raise KeyboardInterrupt
    running_call = _Call(call, runtime)
    try:
        running_call.start()
        running_call.wait()
    except BaseException:
        running_call.end(interrupt)
        raise
    return running_call.result()


def answered(
    location: str, call: Callable[[], R], *, limit_s: float = FIRST_ANSWER_S, runtime: Runtime = SYSTEM
) -> R:
    """Return the result of a call that asks a service for the first time.

    A call without an answer, or whose caller is interrupted, is left behind in its thread.

    Raises:
        StorageError: the service did not answer in time.
    """
    running_call = _Call(call, runtime)
    try:
        running_call.start()
        if running_call.wait(limit_s):
            return running_call.result()
    finally:
        if not running_call.has_ended:
            _left_behind.append(running_call)
    raise StorageError(
        f"'{location}' did not answer within {limit_s:g} s: see if its service can be reached from this "
        "machine (address, name service, firewall, proxy), and if this process has credentials for it",
        file=location,
    )


def note_interrupt(*, interrupted: bool) -> None:
    """Note that the main thread is interrupted, or that this is over."""
    _interrupts[:] = [True] if interrupted else []


def has_left_calls_behind() -> bool:
    """Return True if a call still waits for its service: the end of the process may wait for it, too."""
    return any(not call.has_ended for call in _left_behind)


class _Call(Generic[R]):
    """A call that another thread makes."""

    def __init__(self, call: Callable[[], R], runtime: Runtime) -> None:
        self._call = call
        self._runtime = runtime
        self._changed = runtime.condition()
        self._results: list[R] = []
        self._failures: list[BaseException] = []
        self._is_running = self._is_given_up = False
        self.has_ended = False

    def start(self) -> None:
        """Begin."""
        self._runtime.start(self._run, name="call")

    def wait(self, limit_s: float | None = None) -> bool:
        """Wait for the end, at most `limit_s` seconds; return False if it has not come."""
        with self._changed:
            return self._changed.wait_for(lambda: self.has_ended, limit_s)

    def result(self) -> R:
        """Return the result, or raise the failure."""
        if self._failures:
            raise self._failures[0]
        return self._results[0]

    def end(self, interrupt: Remove) -> None:
        """Interrupt the call until it has ended; if it has not begun, it never does."""
        with self._changed:
            self._is_given_up = True
            while self._is_running:
                interrupt()
                self._changed.wait(_AGAIN_S)

    def _run(self) -> None:
        with self._changed:
            if self._is_given_up:
                return
            self._is_running = True
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._failures.append(error)
        with self._changed:
            self._is_running, self.has_ended = False, True
            self._changed.notify_all()


# ---- what is removed at the end -------------------------------------------------------------------------


@contextlib.contextmanager
def removed_at_end(remove: Remove) -> Iterator[None]:
    """Note what `remove_unfinished` has to remove if the process ends at once while the body runs."""
    key = id(remove)
    _removals[key] = remove
    try:
        yield
    finally:
        _removals.pop(key, None)


def remove_unfinished() -> None:
    """Remove what the process has half written, the newest first; what cannot be removed stays."""
    for remove in reversed(list(_removals.values())):
        with contextlib.suppress(Exception):
            remove()


class Closing(ABC):
    """A resource that a `with` block closes."""

    def __enter__(self: R) -> R:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Give the resource back."""


class ScratchDirectory(tempfile.TemporaryDirectory[str]):
    """A temporary directory that `remove_unfinished` removes, too."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix=prefix)
        self._noted = contextlib.ExitStack()
        self._noted.enter_context(removed_at_end(partial(shutil.rmtree, self.name, ignore_errors=True)))

    def cleanup(self) -> None:
        """Remove the directory."""
        super().cleanup()
        self._noted.close()
