"""The agent's log: one JSON object a line on standard error, which the JVM passes on to the executor's log.

`store_log` gives a store's logger, `AGENT` is that of everything else. DEBUG explains each decision of
merging and retention.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from state_store.core.runtime import SYSTEM

_logger = logging.getLogger("state_store.agent")


class _JsonLines(logging.Handler):
    """Writes each record whole, in one system call, straight to the file descriptor of standard error."""

    def __init__(self) -> None:
        super().__init__()
        self._writing = SYSTEM.lock()

    def emit(self, record: logging.LogRecord) -> None:
        fields = {
            "level": record.levelname,
            "store": getattr(record, "store", ""),
            "message": record.getMessage(),
        }
        line = json.dumps(fields) + "\n"
        try:
            with self._writing:
                os.write(2, line.encode("utf-8"))
        except OSError:
            return  # the JVM is gone, and the agent is about to follow


def start(level: str) -> None:
    """Writes records from `level` (DEBUG, INFO, WARNING or ERROR) on. Before that nothing is written."""
    _logger.handlers[:] = [_JsonLines()]
    _logger.setLevel(level.upper())


def end() -> None:
    """Nothing more is written: what calls come to when their directories go is of no interest."""
    _logger.setLevel(logging.CRITICAL + 1)


def store_log(label: str) -> logging.LoggerAdapter[Any]:
    """The logger of the store with that label."""
    return logging.LoggerAdapter(_logger, {"store": label})


AGENT = store_log("")
"""For what concerns no single store."""

_logger.addHandler(logging.NullHandler())
