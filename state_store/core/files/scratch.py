"""The directory for temporary files of a task of Spark's.

Spark ends a task that it has given up by killing its Python process, which removes nothing: a copy of a slow
task, a task of a job that was cancelled. So a task has one directory for all of its temporary files, and has
locked it for as long as its process lives. A task that begins on the machine removes those that are not
locked. On a file system without locks they stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "state-store-task-"


@contextlib.contextmanager
def task_directory() -> Iterator[None]:
    """Let this process make its temporary files in a directory that is removed after the body.

    Directories of tasks that were killed are removed before the body. For one thread of a process at a time.

    Raises:
        OSError: the directory cannot be made.
    """
    parent = tempfile.gettempdir()
    _remove_abandoned(Path(parent))
    directory, descriptor = _locked_directory(parent)
    tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = parent
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def _locked_directory(parent: str) -> tuple[Path, int]:
    """Make a directory; return it and the descriptor that locks it until it is closed."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # another task took it for abandoned before it was locked
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_own = directory.exists()
        except BlockingIOError:
            is_own = False
        except OSError:  # there are no locks, so nobody removes it
            is_own = True
        if is_own:
            return directory, descriptor
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)
