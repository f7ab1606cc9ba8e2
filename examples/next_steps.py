"""Commands that show the checkpoint of a demo to a newcomer."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

# Each is run as it stands by a test.
LOOKS = (
    ("doctor", "what is wrong, worst first, and what to do"),
    ("checkpoints", "what can be restored, and from which files"),
    ("files", "every file, and how many checkpoints need it"),
    ("verify", "are all files whole, can the newest checkpoint be restored"),
    ("full", "cut the chain now; then look at `checkpoints` again"),
)


def commands(checkpoint: Path) -> list[list[str]]:
    """Return calls of `state-store` for a checkpoint, in a sensible order."""
    program = Path(sys.executable).with_name("state-store")
    return [[_short(program), command, _short(checkpoint)] for command, _ in LOOKS]


def text(checkpoint: Path) -> str:
    """Return the commands with an explanation each, for a shell in the current directory."""
    lines = [shlex.join(command) for command in commands(checkpoint)]
    width = max(map(len, lines))
    explained = [f"  {line:{width}}  # {meaning}" for line, (_, meaning) in zip(lines, LOOKS, strict=True)]
    page = shlex.join([_short(Path(sys.executable).with_name("state-store")), "serve", _short(checkpoint)])
    return "\n".join(
        [
            "The checkpoint stays until the next run of the demo. To look at it:",
            *explained,
            "Its page, at http://127.0.0.1:8190/ until Ctrl-C:",
            f"  {page}",
        ]
    )


def _short(path: Path) -> str:
    """Return the path relative to the current directory if it lies below it, else the path."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
