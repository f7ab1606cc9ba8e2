"""Calls of libraries that do not notice a signal, and the files that are removed if a process ends at once.

Python raises an interrupt when the main thread runs Python code again. A library that computes, or waits for
a service, holds the thread meanwhile. So such calls are made in another thread, for which the main one waits.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from state_store.core.runtime import SYSTEM, Runtime
from state_store.errors import StorageError

FIRST_ANSWER_S = 60.0
"""Seconds in which a service has to answer the first request."""

_AGAIN_S = 0.1
"""Seconds after which a call that goes on is interrupted again: it may not have begun to compute before."""

R = TypeVar("R")
Remove = Callable[[], object]
_removals: dict[int, Remove] = {}
_left_behind: list[_Call[Any]] = []
_interrupts: list[bool] = []


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


def note(*, interrupted: bool) -> None:
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


@contextmanager
def removed_at_end(remove: Remove) -> Iterator[None]:
    """Note what `remove_all` has to remove if the process ends at once while the body runs."""
    key = id(remove)
    _removals[key] = remove
    try:
        yield
    finally:
        _removals.pop(key, None)


def remove_all() -> None:
    """Remove what the process has half written, the newest first; what cannot be removed stays."""
    for remove in reversed(list(_removals.values())):
        with contextlib.suppress(Exception):
            remove()


class ScratchDirectory(tempfile.TemporaryDirectory[str]):
    """A temporary directory that `remove_all` removes, too."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix=prefix)
        self._noted = contextlib.ExitStack()
        self._noted.enter_context(removed_at_end(partial(shutil.rmtree, self.name, ignore_errors=True)))

    def cleanup(self) -> None:
        """Remove the directory."""
        super().cleanup()
        self._noted.close()
