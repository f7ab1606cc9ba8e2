"""A command on a terminal of its own, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path


def on_terminal(
    *words: str | Path,
    columns: int = 80,
    environment: dict[str, str] | None = None,
    errors: bool = False,
) -> tuple[int, str]:
    """Run `state-store` with standard output, or `errors`, on a terminal; return its code and the text."""
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    printed: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(leader, 1 << 16)
            except OSError:
                return
            if not data:
                return
            printed.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "state_store.cli", *map(str, words)],
        stdout=subprocess.PIPE if errors else follower,
        stderr=follower if errors else subprocess.PIPE,
        env={**variables, "TERM": "xterm-256color", **(environment or {})},
        timeout=240,
    )
    os.close(follower)
    reader.join(240)
    os.close(leader)
    return done.returncode, b"".join(printed).decode().replace("\r\n", "\n")
