"""Arguments of public functions, checked before anything is read or written, and words of their answers.

Among them are the packages that tables of state need and executors do not have.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from state_store.core.storage.open import without_secret
from state_store.errors import OptionError

Location = str | os.PathLike[str]
"""A directory: a path, or a URI that `open_storage` knows."""

_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]*):")
"""The scheme of a URI, as `open_storage` finds it."""

MAX_SHOWN_LENGTH = 80
"""Characters of a wrong value that a message shows."""


def checked_location(location: Location, argument: str = "checkpoint") -> str:
    """Return a directory as text, without a slash at its end, and without a secret in its URI.

    Args:
        location: a path or a URI.
        argument: the argument that it is, for messages.

    Raises:
        OptionError: it is empty, blank, the root of a file system, begins with `~/`, or is of another type
            than a path.
    """
    if not isinstance(location, (str, os.PathLike)):
        raise OptionError(f"{argument} is a path or a URI, not {shown(location)}", option=argument)
    text = os.fspath(location)
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"{argument} is empty: give a path or a URI", option=argument)
    text = without_secret(text)
    trimmed = text.rstrip("/")
    if trimmed == "~" or text.startswith("~/"):
        raise OptionError(
            f"{argument} is {text!r}: a shell alone knows what ~ is; write the path in full", option=argument
        )
    if not trimmed or trimmed.endswith(":"):
        raise OptionError(
            f"{argument} is {text!r}, the root of a file system, and no directory for one query",
            option=argument,
        )
    return trimmed


def scheme_of(location: str) -> str | None:
    """Return the scheme of a URI in small letters; None for a path."""
    match = _SCHEME.match(location)
    return match[1].lower() if match else None


def absolute(location: str) -> str:
    """Return a directory by a name that means the same to processes with other working directories."""
    return str(Path(location).absolute()) if scheme_of(location) is None else location


def whole_uri(location: str) -> str:
    """Return a directory as a URI that means the same wherever it is read: a path becomes `file:///...`.

    It is in Hadoop's form, without percent-encoding, as every command and function takes it.
    """
    return f"file://{absolute(location)}" if scheme_of(location) is None else location


def check_number(
    name: str,
    value: object,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    optional: bool = False,
) -> None:
    """Check that an argument is a whole number.

    Args:
        name: the argument.
        value: its value.
        minimum: the smallest number that is allowed; None: there is none.
        maximum: the largest number that is allowed; None: there is none.
        optional: None is allowed, too.

    Raises:
        OptionError: the value is of another type, or out of these bounds.
    """
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} is a whole number, not {shown(value)}", option=name)
    if minimum is not None and value < minimum:
        raise OptionError(f"{name} is {minimum} or more, not {value}", option=name)
    if maximum is not None and value > maximum:
        raise OptionError(f"{name} is at most {maximum}, not {value}", option=name)


def check_name(name: str, value: object) -> None:
    """Raise OptionError, which names the argument, if a value is neither a text nor None."""
    if value is not None and not isinstance(value, str):
        raise OptionError(f"{name} is a name, not {shown(value)}", option=name)


def check_names(name: str, values: object) -> None:
    """Raise OptionError, which names the argument, if a value is not a sequence of texts."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise OptionError(f"{name} are names such as ['a', 'b'], not {shown(values)}", option=name)
    for value in values:
        check_text(name, value, "'a'")


def check_text(name: str, value: object, example: str) -> str:
    """Return a text. Raise OptionError, with an example, if a value is not a text that UTF-8 has."""
    if not isinstance(value, str):
        raise OptionError(f"{name} is a text such as {example}, not {shown(value)}", option=name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{name} is {value!a}: it contains an unpaired surrogate", option=name) from None
    return value


def check_flag(name: str, value: object) -> None:
    """Raise OptionError, which names the argument, if a value is neither True nor False."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} is True or False, not {shown(value)}", option=name)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural: `1 file`, `2 files`."""
    return f"{number} {noun}" if abs(number) == 1 else f"{number} {noun}s"


def shown(value: object) -> str:
    """Return a wrong value as a message shows it, cut if it is long."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[: MAX_SHOWN_LENGTH - 3]}..."


def require_arrow() -> None:
    """Raise OptionError with the command that installs it if pyarrow or numpy is missing."""
    for package in ("pyarrow", "numpy"):
        _require(package, "rows of state need", "arrow")


def require_pandas() -> None:
    """Raise OptionError with the command that installs it if pandas is missing."""
    _require("pandas", "frames of state need", "arrow")


def require_duckdb() -> None:
    """Raise OptionError with the command that installs it if DuckDB, pyarrow or numpy is missing."""
    require_arrow()
    _require("duckdb", "conditions and queries in SQL need", "cli")


def _require(package: str, need: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise OptionError(
            f"{need} the Python package '{package}', which {sys.executable} lacks: "
            f"pip install {package} (the extra '{extra}' of incremental-state-store has it)"
        )
