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
    """Handler that writes each record in one system call to the file descriptor of standard error."""

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
    """Write records from `level` (DEBUG, INFO, WARNING or ERROR) on. Before this call nothing is written."""
    _logger.handlers[:] = [_JsonLines()]
    _logger.setLevel(level.upper())


def end() -> None:
    """Write nothing more: the errors of calls whose directories are removed interest nobody."""
    _logger.setLevel(logging.CRITICAL + 1)


def store_log(label: str) -> logging.LoggerAdapter[Any]:
    """Return the logger of the store with that label."""
    return logging.LoggerAdapter(_logger, {"store": label})


AGENT = store_log("")
"""Logger for messages that concern no single store."""

_logger.addHandler(logging.NullHandler())
