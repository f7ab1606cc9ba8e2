"""Directories that are to become checkpoints: refused if they cannot, marked until they are whole.

The marker `commits/_incomplete.json` is the first file of a new checkpoint and goes last. `Query.open`, with
which every reader begins, refuses a directory that has it; Spark ignores names in `commits` that are no
numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from state_store.core.storage import Storage, open_storage
from state_store.core.storage.local import LocalStorage
from state_store.data.query.arguments import Location, checked_location
from state_store.data.query.logs import BatchLogs
from state_store.errors import (
    ConflictError,
    Interrupted,
    MissingError,
    OptionError,
    StateStoreError,
    from_json,
)

MARKER = "commits/_incomplete.json"
"""The file that says that a checkpoint is not whole; JSON with `operation` and `source`."""

COPY = "copy"
"""The operation that goes on where it broke off; every other begins anew."""

SCRATCH_PREFIX = ".bootstrap-"


def refuse_incomplete(storage: Storage, location: str) -> None:
    """Raise MissingError if a checkpoint directory has the marker."""
    marker = _marker(storage)
    if marker is not None:
        operation, source = marker
        advice = (
            "the same command goes on where it broke off"
            if operation == COPY
            else "remove the directory and start again"
        )
        raise MissingError(
            f"'{location}' is incomplete: {operation} of '{source}' is still writing it, or broke off. If it "
            f"broke off, {advice}.",
            file=f"{location}/{MARKER}",
        )


def refuse_nested(source: str, target: str, name: str = "target") -> None:
    """Raise OptionError if one of two directories is the other, or inside of it."""
    first, second = _canonical(source), _canonical(target)
    if first == second:
        raise OptionError(f"the {name} '{target}' is the checkpoint itself", option=name)
    if second.startswith(f"{first.rstrip('/')}/"):
        raise OptionError(f"the {name} '{target}' is inside the checkpoint '{source}'", option=name)
    if first.startswith(f"{second.rstrip('/')}/"):
        raise OptionError(f"the checkpoint '{source}' is inside the {name} '{target}'", option=name)


def _canonical(location: str) -> str:
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme or scheme.lower() == "file":
        storage = open_storage(location)
        if isinstance(storage, LocalStorage):
            return os.path.realpath(storage.directory)
    return f"{scheme.lower()}://{'/'.join(part for part in rest.split('/') if part)}"


class Stopped:
    """The newest batches of a query's logs when this is made; `check` compares them with those of later."""

    def __init__(self, logs: BatchLogs, location: str) -> None:
        self._logs = logs
        self._location = location
        self._started, self._committed = logs.newest_begun(), logs.newest_committed()

    def check(self) -> None:
        """Raise ConflictError if the query has begun or committed a batch since."""
        started = self._logs.newest_begun()
        if started != self._started or self._logs.newest_committed() != self._committed:
            raise ConflictError(
                f"the query of {self._location} has gone on meanwhile, to batch {started}: stop it first",
                file=self._location,
            )


@contextmanager
def new_checkpoint(operation: str, source: str | None, target: Location) -> Iterator[tuple[Storage, str]]:
    """Yield the storage and the location of a directory that is a checkpoint when the body has ended.

    If the body fails or is interrupted, the directory is emptied, or a sentence says what is left. A copy
    stays as far as it is, marked, and another copy of the same source goes on with it.

    Args:
        operation: what writes the checkpoint, in one word, for messages.
        source: the checkpoint that it is made of; None: there is none.
        target: the directory; it must be empty, or have a copy of `source` that broke off.

    Raises:
        OptionError: `target` is no name of a directory, or is inside of the source or around it.
        ConflictError: `target` has something.
        Interrupted: the body was interrupted from the keyboard.
    """
    location = checked_location(target, "target")
    if source is not None:
        refuse_nested(source, location)
    storage = open_storage(location)
    try:
        _refuse_used(storage, location, operation, source)
        is_new = not (isinstance(storage, LocalStorage) and storage.directory.exists())
        try:
            storage.write(
                MARKER, json.dumps({"operation": operation, "source": source}).encode(), overwrite=True
            )
            yield storage, location
            storage.delete(MARKER)
        except BaseException as error:
            left = _after_failure(storage, location, operation, is_new=is_new)
            if isinstance(error, StateStoreError) and left:
                message = f"{error.message}. {left}"
                raise from_json({**error.to_json(), "message": message}) from error
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(left or f"nothing is left in '{location}'") from error
            raise
    finally:
        storage.close()


def _after_failure(storage: Storage, location: str, operation: str, *, is_new: bool) -> str | None:
    """Remove what was written, unless it is a copy; return a sentence on what is left, None if nothing is."""
    if operation == COPY:
        return f"'{location}' has a part of the copy: the same command goes on with it"
    try:
        for name in storage.directories():
            if name != "commits":
                storage.delete_directory(name)
        storage.delete("metadata")
        storage.delete_directory("commits")  # the marker goes last
    except (StateStoreError, OSError):
        return f"'{location}' is incomplete: remove it before you try again"
    if is_new and isinstance(storage, LocalStorage):
        with suppress(OSError):
            storage.directory.rmdir()
    return None


def _refuse_used(storage: Storage, location: str, operation: str, source: str | None) -> None:
    """Raise ConflictError if a directory has something but the same copy that broke off."""
    if isinstance(storage, LocalStorage) and storage.directory.is_file():
        raise OptionError(f"the target '{location}' is a file, not a directory", option="target")
    marker = _marker(storage)
    if marker is not None:
        if marker == (COPY, source) and operation == COPY:
            return
        refuse_other = f"what {marker[0]} of '{marker[1]}' has written so far"
        raise ConflictError(
            f"'{location}' is not empty: it has {refuse_other}. If that broke off, remove it",
            file=location,
        )
    names = [name for name in storage.directories() if not name.startswith(SCRATCH_PREFIX)]
    if names or _has_files(storage, location):
        raise ConflictError(f"'{location}' is not empty: it is not written over", file=location)


def _has_files(storage: Storage, location: str) -> bool:
    if isinstance(storage, LocalStorage):
        return storage.directory.exists() and any(path.is_file() for path in storage.directory.iterdir())
    parent, _, name = location.rpartition("/")
    if not parent or parent.endswith("/"):  # the root of a bucket or of a file system
        return storage.exists("metadata")
    above = open_storage(parent)
    try:
        return bool(above.list_files(name))
    finally:
        above.close()


def _marker(storage: Storage) -> tuple[str, str | None] | None:
    """Return the operation and the source of the marker; None without it."""
    try:
        found = json.loads(storage.read(MARKER))
        return str(found["operation"]), found["source"]
    except MissingError:
        return None
    except (KeyError, TypeError, ValueError):
        return "a program", "another directory"
