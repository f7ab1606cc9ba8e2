"""Work that gives way to the tasks of the executor."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
NICENESS = 10


def run_at_low_priority(work: Callable[[], T]) -> T:
    """`work()` in a thread of its own with low priority, which threads that it makes inherit (RocksDB's too).

    A thread of its own because a priority once given up is not had back without a privilege. What `work`
    raises is raised here.
    """
    result: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        try:
            result.set_result(context.run(work))
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, name="merge", daemon=True)
    thread.start()
    thread.join()
    return result.result()
