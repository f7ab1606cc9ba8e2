"""Wait for what has to come, and look at directories in which others work.

No test judges by the time that passes, and none waits for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

PATIENCE_S = 600.0
"""Seconds after which a wait fails. Far more than anything takes: nothing is judged by it."""

_PAUSE_S = 0.02
T = TypeVar("T")


def awaited(look: Callable[[], T], goal: str) -> T:
    """Look again and again until the answer is true, and return it.

    Args:
        look: called without arguments.
        goal: what has to come, for the failure.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < end_s, goal
        time.sleep(_PAUSE_S)
    return found


def paths_below(directory: Path, pattern: str = "*") -> list[Path]:
    """Return the paths below a directory whose last part is like `pattern`.

    Others may remove directories meanwhile, at which `Path.rglob` fails: these are left out.
    """
    return [
        Path(parent, name)
        for parent, directories, files in os.walk(directory)
        for name in (*directories, *files)
        if fnmatchcase(name, pattern)
    ]
