"""The mark of a checkpoint directory that is not whole: `commits/_incomplete.json`.

It is the first file of a directory that is to become a checkpoint, and goes last. Every reader refuses a
directory that has it. Spark ignores names in `commits` that are no numbers.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from state_store.core.storage.contract import Storage
from state_store.errors import MissingError

MARKER = "commits/_incomplete.json"
"""The file that says that a checkpoint is not whole; JSON with `operation` and `source`."""

COPY = "copy"
"""The operation that copies a checkpoint as it is."""


class Marker(NamedTuple):
    """The contents of the file.

    Attributes:
        operation: what writes the directory, in words.
        source: the checkpoint that it is made of; None: there is none.
        goes_on: True if the same call goes on after an interruption; every other begins anew.
    """

    operation: str
    source: str | None
    goes_on: bool


def marker_of(storage: Storage) -> Marker | None:
    """Return the marker of a checkpoint directory; None without it."""
    try:
        found = json.loads(storage.read(MARKER))
        operation = str(found["operation"])
        return Marker(operation, found["source"], bool(found.get("goes_on", operation == COPY)))
    except MissingError:
        return None
    except (AttributeError, KeyError, TypeError, ValueError):
        return Marker("a program", "another directory", False)


def in_words(marker: Marker) -> str:
    """Return an operation and its source, if there is one, as part of a message."""
    return marker.operation if marker.source is None else f"{marker.operation} of '{marker.source}'"


def refuse_incomplete(storage: Storage, location: str) -> None:
    """Raise MissingError if a checkpoint directory has the marker.

    Args:
        storage: the directory.
        location: its path or URI, for the message.
    """
    marker = marker_of(storage)
    if marker is not None:
        advice = "the same command continues it" if marker.goes_on else "remove the directory and start again"
        raise MissingError(
            f"'{location}' is incomplete: {in_words(marker)} is still writing it, or was "
            f"interrupted. If it was interrupted, {advice}.",
            file=f"{location}/{MARKER}",
        )
