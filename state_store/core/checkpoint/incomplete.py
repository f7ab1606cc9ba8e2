"""The mark of a checkpoint directory that is not whole: `commits/_incomplete.json`.

It is the first file of a directory that is to become a checkpoint, and goes last. Every reader refuses a
directory that has it. Spark ignores names in `commits` that are no numbers.
"""

from __future__ import annotations

import json

from state_store.core.storage.contract import Storage
from state_store.errors import MissingError

MARKER = "commits/_incomplete.json"
"""The file that says that a checkpoint is not whole; JSON with `operation` and `source`."""

COPY = "copy"
"""The operation that continues after an interruption; every other begins anew."""


def marker_of(storage: Storage) -> tuple[str, str | None] | None:
    """Return the operation and the source of the marker of a checkpoint directory; None without it."""
    try:
        found = json.loads(storage.read(MARKER))
        return str(found["operation"]), found["source"]
    except MissingError:
        return None
    except (KeyError, TypeError, ValueError):
        return "a program", "another directory"


def in_words(marker: tuple[str, str | None]) -> str:
    """Return an operation and its source, if there is one, as part of a message."""
    operation, source = marker
    return operation if source is None else f"{operation} of '{source}'"


def refuse_incomplete(storage: Storage, location: str) -> None:
    """Raise MissingError if a checkpoint directory has the marker.

    Args:
        storage: the directory.
        location: its path or URI, for the message.
    """
    marker = marker_of(storage)
    if marker is not None:
        advice = (
            "the same command continues it" if marker[0] == COPY else "remove the directory and start again"
        )
        raise MissingError(
            f"'{location}' is incomplete: {in_words(marker)} is still writing it, or was "
            f"interrupted. If it was interrupted, {advice}.",
            file=f"{location}/{MARKER}",
        )
