"""Arguments of public functions: checked before anything is read or written."""

from __future__ import annotations

import os
from typing import Union

from state_store.errors import OptionError

Location = Union[str, "os.PathLike[str]"]
"""A directory: a path, or a URI that `open_storage` knows."""


def checked_location(location: Location, argument: str = "checkpoint") -> str:
    """Return a directory as text, without a slash at its end.

    Args:
        location: a path or a URI.
        argument: the argument that it is, for messages.

    Raises:
        OptionError: it is empty, blank, the root of a file system, or of another type than a path.
    """
    if not isinstance(location, (str, os.PathLike)):
        raise OptionError(f"{argument} is a path or a URI, not {location!r}", option=argument)
    text = os.fspath(location)
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"{argument} is empty: give a path or a URI", option=argument)
    trimmed = text.rstrip("/")
    if not trimmed or trimmed.endswith(":"):
        raise OptionError(
            f"{argument} is {text!r}, the root of a file system, and no directory for one query",
            option=argument,
        )
    return trimmed


def check_number(name: str, value: object) -> None:
    """Raise OptionError, which names the argument, for what is no whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} is a whole number, not {value!r}", option=name)
