"""The agent's log, and the threads that do one job after the other, with the errors that end up in them.

The log has one JSON object a line on standard error, which the JVM passes on to the executor's log.
`store_log` gives a store's logger, `AGENT` is that of everything else. DEBUG explains each decision of
merging and retention.

`WorkerThreads` own their threads: they count them, guard them against every error, and start them again. A
job is owned from the moment it is taken: `end` gives back what it took, whatever happened, exactly once. So
no error that nobody foresaw leaves a count, a queue item or a flag behind.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from state_store.core.runtime import SYSTEM, Condition, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.storage.hadoop import background
from state_store.core.storage.local_disk import local_disk_error
from state_store.errors import BusyError, InternalError, LocalDiskError, StateStoreError, StorageError

_logger = logging.getLogger("state_store.agent")
_logger.addHandler(logging.NullHandler())

FAILURES = (Exception, KeyboardInterrupt)
"""Errors after which a thread goes on. Others end the process, or come from a test that ends it."""

RESTART_PAUSE_S = 1.0
"""Pause of a thread after an error of its own, so that an error that lasts does not take a core."""

_END_TRIES = 3

_FULL = (errno.ENOSPC, errno.EDQUOT)


# ---- the log --------------------------------------------------------------------------------------------


class _JsonLines(logging.Handler):
    """Handler that writes each record in one system call to the file descriptor of standard error."""

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        super().__init__()
        self._writing = runtime.lock()

    def emit(self, record: logging.LogRecord) -> None:
        fields = {
            "level": record.levelname,
            "store": getattr(record, "store", ""),
            "message": record.getMessage(),
        }
        line = json.dumps(fields) + "\n"
        try:
            with self._writing:
                os.write(2, line.encode("utf-8"))
        except OSError:
            return  # the JVM is gone, and the agent is about to follow


def start_log(level: str) -> None:
    """Write records from `level` (DEBUG, INFO, WARNING or ERROR) on. Before this call nothing is written."""
    _logger.handlers[:] = [_JsonLines()]
    _logger.setLevel(level.upper())


def end_log() -> None:
    """Write nothing more: the errors of calls whose directories are removed interest nobody."""
    _logger.setLevel(logging.CRITICAL + 1)


def store_log(label: str) -> logging.LoggerAdapter[Any]:
    """Return the logger of the store with that label."""
    return logging.LoggerAdapter(_logger, {"store": label})


AGENT = store_log("")
"""Logger for messages that concern no single store."""


# ---- threads that do jobs -------------------------------------------------------------------------------


class Job(Protocol):
    """A piece of work that a thread has taken."""

    def run(self) -> object:
        """Do the work. Whatever it raises is handed to `end`."""

    def end(self, failure: BaseException | None) -> float:
        """Give back what the job took, called once, without a lock.

        Returns:
            The seconds that the thread pauses before it takes another job.
        """


class BackgroundJob:
    """Background work that ends in steps, each of which succeeds once, even if `end` is called again.

    Args:
        work: Does it.
        ends: Are called one after the other when the work has ended, with its failure or None: the first
            gives back what the job took, the second reports.
    """

    def __init__(self, work: Callable[[], object], *ends: Callable[[BaseException | None], object]) -> None:
        self._work = work
        self._ends = deque(ends)

    def run(self) -> None:
        """Do the work; its file requests are those of background work."""
        with background():
            self._work()

    def end(self, failure: BaseException | None) -> float:
        """Go on with the steps that have not succeeded yet."""
        while self._ends:
            self._ends[0](failure)
            self._ends.popleft()
        return 0.0


class WorkerThreads:
    """Threads that take jobs until there are none. Safe for any thread.

    `take` is called under the lock of `changed`. It returns a job, waits on `changed` for one, or returns
    None: then the thread leaves, and is counted no more, before anybody else gets the lock.
    """

    def __init__(
        self, runtime: Runtime, changed: Condition, name: str, take: Callable[[], Job | None]
    ) -> None:
        self._runtime = runtime
        self._changed = changed
        self._name = name
        self._take = take
        self._count = 0

    @property
    def count(self) -> int:
        """Number of threads; they may be starting."""
        return self._count

    def ensure(self, count: int) -> bool:
        """Start threads until there are `count`.

        Returns:
            False if a thread could not be started: a later call tries again, and the others go on.
        """
        with self._changed:
            while self._count < count:
                self._count += 1
                try:
                    self._runtime.start(self._run, name=self._name)
                except FAILURES as error:
                    self._count -= 1
                    with contextlib.suppress(Exception):
                        AGENT.warning(
                            f"no thread '{self._name}' can be started ({error}); {self._count} of them go "
                            "on. Raise the limit of processes or threads of this container or user"
                        )
                    return False
                except BaseException:
                    self._count -= 1
                    raise
        return True

    def _run(self) -> None:
        is_counted = True
        try:
            while True:
                pause_s = RESTART_PAUSE_S
                try:
                    with self._changed:
                        job = self._take()
                        if job is None:
                            self._count -= 1
                            is_counted = False
                            return
                    pause_s = self._do(job)
                except FAILURES as error:
                    _log_unexpected(self._name, error)
                if pause_s:
                    with self._changed:
                        self._changed.wait(pause_s)
        finally:
            if is_counted:
                with self._changed:
                    self._count -= 1

    def _do(self, job: Job) -> float:
        """Run a job and end it. Returns the seconds to pause."""
        failure: BaseException | None = None
        try:
            job.run()
        except FAILURES as error:
            failure = error
        except BaseException as error:
            job.end(error)
            raise
        return end_safely(job, failure)


def end_safely(job: Job, failure: BaseException | None) -> float:
    """End a job, and again if that fails itself: nothing that it took stays behind."""
    for attempt in range(_END_TRIES):
        try:
            return job.end(failure)
        except FAILURES as error:
            if attempt == _END_TRIES - 1:
                raise
            failure = failure or error
    raise AssertionError("unreachable")


# ---- errors as the JVM is told them ---------------------------------------------------------------------


def as_state_store_error(error: BaseException) -> StateStoreError:
    """Return the error that the JVM is told for any exception.

    Returns:
        The error itself if it is one of ours; StorageError for a local disk that is full or fails;
        InternalError, a defect of this program, for everything else.
    """
    if isinstance(error, LocalDiskError):
        return _of_local_disk(error)
    if isinstance(error, StateStoreError):
        return error
    if isinstance(error, OSError):
        return _of_the_machine(error)
    if isinstance(error, MemoryError):
        return BusyError(f"the agent has no memory left ({_places(error)}): give the executor more of it")
    return InternalError(f"{type(error).__name__}: {error} (at {_places(error)})")


def _of_the_machine(error: OSError) -> StateStoreError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return BusyError(
            f"the agent has no file descriptor left ({_places(error)}): raise the limit 'ulimit -n'"
        )
    if error.errno == errno.ENOMEM:
        return BusyError(f"the machine has no memory left ({_places(error)}): give the executor more of it")
    if error.filename is not None or error.errno in _FULL:
        return _of_local_disk(local_disk_error(error))
    return StorageError(f"the operating system refused: {error.strerror or error} ({_places(error)})")


def _of_local_disk(error: LocalDiskError) -> LocalDiskError:
    """Name the option, so that the JVM does not advise to check the checkpoint's storage."""
    error.option = error.option or PREFIX + "localDir"
    return error


def _places(error: BaseException) -> str:
    """Return the innermost frames."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))


def _log_unexpected(name: str, error: BaseException) -> None:
    with contextlib.suppress(Exception):
        AGENT.warning(f"the thread '{name}' met an error and goes on: {as_state_store_error(error)}")


def try_to_start(runtime: Runtime, work: Callable[[], object], *, name: str) -> bool:
    """Start `work`, which raises nothing, in a thread of its own.

    Returns:
        False if no thread could be started; nothing was done then.
    """
    try:
        runtime.start(work, name=name)
    except (RuntimeError, MemoryError, OSError) as error:
        with contextlib.suppress(Exception):
            AGENT.warning(f"no thread '{name}' can be started: {error}")
        return False
    return True
