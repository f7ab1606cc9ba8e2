"""The agent's log: one JSON object a line on standard error, which the JVM passes on to the executor's
log."""

from __future__ import annotations

import json
import os
import threading
import traceback
from pathlib import Path

LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
_lock = threading.Lock()
_state = {"level": LEVELS["INFO"]}


def set_level(name: str) -> None:
    """Least level that is written, one of LEVELS."""
    _state["level"] = LEVELS[name.upper()]


def end() -> None:
    """Nothing more is written: what calls come to when their directories go is of no interest."""
    _state["level"] = max(LEVELS.values()) + 1


def log(level: str, store: str, message: str) -> None:
    """Writes one record; `store` may be empty. Safe for any thread; never raises."""
    if LEVELS[level] < _state["level"]:
        return
    line = json.dumps({"level": level, "store": store, "message": message}) + "\n"
    try:
        with _lock:
            os.write(2, line.encode("utf-8"))
    except OSError:
        return  # the JVM is gone, and the agent is about to follow


def describe_defect(error: BaseException) -> str:
    """Type, text and the innermost frames of an error that should not happen."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__}: {error} (at {places})"
