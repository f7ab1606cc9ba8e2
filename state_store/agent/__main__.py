"""`python -m state_store.agent`: start, life and end of the agent (docs/protocol.md).

It lives as long as its standard input is open. At the end of it the process leaves at once, whatever its
threads are doing, and removes its directories, unless another agent has taken them over.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

PROTOCOL = 3
_STARTUP_FAILED = 3

SIGNAL_GRACE_S = 5.0
"""Time after SIGTERM in which the JVM, which gets it too, ends in order."""


def main() -> int:
    """Serve the JVM until its end of standard input. Returns an exit code only if the start fails."""
    from state_store.core.runtime import SYSTEM

    line = sys.stdin.buffer.readline()
    try:
        start = json.loads(line)
        server, calls = _start(start)
    except Exception as error:
        _say({"ready": False, "error": _error(error)})
        return _STARTUP_FAILED
    leave = partial(_leave, Path(start["socket"]), calls)
    SYSTEM.start(partial(_leave_with_jvm, leave), name="end of the JVM")
    signal.signal(signal.SIGTERM, lambda *_: SYSTEM.start(partial(_leave_later, leave), name="end"))
    _say_ready()
    server.serve()
    return 0


def _start(start: dict[str, Any]) -> tuple[Any, Any]:
    from state_store.core.engine import require
    from state_store.errors import InternalError

    if start.get("protocol") != PROTOCOL:
        raise InternalError(
            f"the JVM speaks bridge protocol {start.get('protocol')!r}, this agent {PROTOCOL}: "
            "use the jar and the Python package of one release"
        )
    require()
    from state_store.agent import supervision
    from state_store.agent.calls import Calls, Server
    from state_store.core.storage.hadoop import FileConnections

    supervision.start_log(start.get("log_level", "INFO"))
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    _raise_descriptor_limit()
    files = FileConnections()
    directories = start.get("directories") or [start["directory"]]
    calls = Calls([Path(directory) for directory in directories], files)
    return Server(start["socket"], start["token"], calls, files), calls


def _raise_descriptor_limit() -> None:
    """Allow as many descriptors as the system does: each open database and each connection takes some."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _leave_with_jvm(leave: Callable[[], object]) -> None:
    """Wait for the end of standard input, and leave."""
    try:
        while os.read(0, 4096):
            pass
    finally:
        leave()


def _leave_later(leave: Callable[[], object]) -> None:
    """Leave after a signal that the JVM gets, too: it comes first, and closes its end of standard input."""
    time.sleep(SIGNAL_GRACE_S)
    leave()


def _leave(socket: Path, calls: Any) -> None:
    from state_store.agent import supervision

    try:
        supervision.end_log()
        for _ in range(2):  # a thread may make a file while the first round removes its directory
            for directory in calls.stores.owned_directories():
                shutil.rmtree(directory, ignore_errors=True)
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()  # unless another agent has its socket there
    except OSError:
        pass
    finally:
        os._exit(0)


def _say_ready() -> None:
    from state_store import __version__
    from state_store.core.engine import ROCKSDB_VERSION

    _say({"ready": True, "pid": os.getpid(), "version": __version__, "rocksdb_version": ROCKSDB_VERSION})


def _error(error: Exception) -> dict[str, str]:
    to_json = getattr(error, "to_json", None)
    return to_json() if to_json else {"kind": "internal", "message": f"{type(error).__name__}: {error}"}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
