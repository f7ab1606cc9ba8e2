"""The processes of a session, as `ps` shows them."""

from __future__ import annotations

import subprocess
import time
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    session: int
    state: str
    arguments: str


def of_session(session: int) -> list[Process]:
    """Return the living processes of a session."""
    listing = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,sid=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 3) for line in listing.stdout.splitlines()]
    found = [
        Process(int(pid), int(sid), state, args) for pid, sid, state, args in rows if int(sid) == session
    ]
    return [process for process in found if not process.state.startswith("Z")]


def outliving(session: int, patience_s: float) -> list[str]:
    """Return the processes of the session that live after `patience_s` seconds; empty if all ended before."""
    deadline = time.monotonic() + patience_s
    while (living := of_session(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [process.arguments for process in living]
