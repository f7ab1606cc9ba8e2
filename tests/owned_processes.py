"""Processes that a test owns: they end with the test, whatever happens in it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from waiting import awaited

ENDED_S = 600.0
"""Seconds in which a process has to end. Far more than any takes: nothing is judged by it."""


@contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process in a group of its own, and kill the group after the body.

    Args:
        command: the program and its arguments.
        options: as `subprocess.Popen` takes them.
    """
    process = subprocess.Popen([str(word) for word in command], start_new_session=True, **options)
    with ended(process):
        yield process


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill a process that was started with `start_new_session`, and its children, after the body."""
    try:
        yield
    finally:
        end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process that was started with `start_new_session`, its children, too, and close its pipes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for the time of the body, which begins when none of its threads runs any more.

    The signal comes to one thread, and until that is given the processor the others go on, and answer.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        awaited(lambda: _thread_states(pid) <= {"T"}, f"process {pid} stands still")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _thread_states(pid: int) -> set[str]:
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states


def line_of(pipe: IO[str], words: str) -> str:
    """Return the first line of a process's output that has these words; fail if it ends without one."""
    lines = []
    for line in pipe:
        if words in line:
            return line
        lines.append(line)
    raise AssertionError(f"the process has ended without {words!r}: {''.join(lines)}")
