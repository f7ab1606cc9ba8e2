"""What a newcomer can look at in the checkpoint that a demo left."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

# Each is run as it stands by a test.
LOOKS = (
    ("checkpoints", "what can be restored, and from which files"),
    ("files", "every file, and how many checkpoints need it"),
    ("verify", "are all files whole, can the newest checkpoint be restored"),
    ("full", "cut the chain now; then look at `checkpoints` again"),
)


def commands(checkpoint: Path) -> list[list[str]]:
    """Calls of `state-store` for that checkpoint, in an order in which they make sense."""
    program = Path(sys.executable).with_name("state-store")
    return [[_short(program), command, _short(checkpoint)] for command, _ in LOOKS]


def text(checkpoint: Path) -> str:
    """The commands, each with what it shows, for a shell in the current directory."""
    lines = [shlex.join(command) for command in commands(checkpoint)]
    width = max(map(len, lines))
    told = [f"  {line:{width}}  # {what}" for line, (_, what) in zip(lines, LOOKS, strict=True)]
    return "\n".join(["The checkpoint stays until the next run of the demo. To look at it:", *told])


def _short(path: Path) -> str:
    """The path relative to the current directory, if it is below it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
