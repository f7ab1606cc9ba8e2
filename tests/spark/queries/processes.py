"""The processes of a session, as `ps` shows them."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    session: int
    state: str
    arguments: str


def of_session(session: int) -> list[Process]:
    """The living processes of a session."""
    listing = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,sid=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 3) for line in listing.stdout.splitlines()]
    found = [
        Process(int(pid), int(sid), state, args) for pid, sid, state, args in rows if int(sid) == session
    ]
    return [process for process in found if not process.state.startswith("Z")]


def outliving(session: int, patience_s: float) -> list[str]:
    """What is left of the session after `patience_s` seconds at most; empty when all has ended before."""
    deadline = time.monotonic() + patience_s
    while (left := of_session(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [process.arguments for process in left]


def executor(session: int, rng: random.Random) -> int:
    """The process id of one executor JVM of the session."""
    found = [
        process.pid for process in of_session(session) if "CoarseGrainedExecutorBackend" in process.arguments
    ]
    return rng.choice([pid for pid in found if Path(f"/proc/{pid}/exe").readlink().name == "java"])
