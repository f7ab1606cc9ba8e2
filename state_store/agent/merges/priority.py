"""Work that gives way to the tasks of the executor."""

from __future__ import annotations

import contextlib
import os
import threading

NICENESS = 10


def lower_priority() -> None:
    """Lowers the priority of this thread, and of threads that it makes later (RocksDB's too), for good: what
    is given up is not had back without a privilege.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
