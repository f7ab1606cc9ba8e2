"""Directories that are to become checkpoints: refused if they cannot, marked until they are whole."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from state_store.core.checkpoint.names import DELTA_DIRECTORY
from state_store.core.checkpoint.stored_documents import MARKER, Marker, in_words, marker_of
from state_store.core.files.transfer import parallel
from state_store.core.runtime import SYSTEM, removed_at_end
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.contract import Entry, Failures
from state_store.core.storage.local import LocalStorage
from state_store.data.query.arguments import Location, absolute, checked_location, scheme_of
from state_store.data.query.logs import BatchLogs
from state_store.data.query.operators import StoreKey
from state_store.data.query.query import root_files
from state_store.errors import (
    ConflictError,
    Interrupted,
    MissingError,
    OptionError,
    StateStoreError,
    from_json,
)

SCRATCH_PREFIX = ".bootstrap-"

RECEIPTS = "_written"
"""The directory, below a new checkpoint, in which tasks say which stores they have written."""

_OWNER = f"{RECEIPTS}/owner"

_SAME_STORAGE = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "swebhdfs": "webhdfs"}
"""Schemes by which the same directory has another name."""

_RECENT_S = 3600
_LISTED_AT_ONCE = 16


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
    scheme = scheme_of(location)
    if scheme in (None, "file"):
        storage = open_storage(location)
        if isinstance(storage, LocalStorage):
            return os.path.realpath(storage.directory)
    rest = location.partition(":")[2]
    name = _SAME_STORAGE.get(str(scheme), scheme)
    return f"{name}://{'/'.join(part for part in rest.split('/') if part)}"


class LivingQuery(Protocol):
    """A query of which signs of life are looked for."""

    location: str
    logs: BatchLogs

    def stores(self) -> list[StoreKey]:
        """Return its stores."""

    def list_files(self, directory: str) -> list[Entry]:
        """Return the files in a directory below its checkpoint directory."""


class Stopped:
    """The signs of life of a query when this is made; `check` compares them with those of later.

    They are the newest batches of Spark's logs, and the deltas and changelogs of versions that Spark has not
    committed: a batch that began before and commits after the work shows by the files that its tasks write.
    Snapshots and files of older versions come from maintenance, which goes on after a query has stopped. A
    query that waits for data writes nothing, and cannot be told from one that is stopped.
    """

    def __init__(self, query: LivingQuery) -> None:
        self._query = query
        self._started, self._committed = query.logs.newest_begun(), query.logs.newest_committed()
        self._files = self._version_files()

    @contextmanager
    def during(self) -> Iterator[None]:
        """Check when the body has ended, and when it fails: a query that runs removes old versions.

        Raises:
            ConflictError: as `check`, in place of the error of the body.
        """
        try:
            yield
        except StateStoreError:
            self.check()
            raise
        self.check()

    def check(self) -> None:
        """Raise ConflictError if the query has begun or committed a batch, or written files, since."""
        location = self._query.location
        started = self._query.logs.newest_begun()
        if started != self._started or self._query.logs.newest_committed() != self._committed:
            raise ConflictError(
                f"the query of {location} has gone on meanwhile, to batch {started}: stop it first",
                file=location,
            )
        new = sorted(self._version_files() - self._files)
        if new:
            raise ConflictError(
                f"the query of {location} is running: it has written '{new[0]}' meanwhile. Stop it first",
                file=f"{location}/{new[0]}",
            )

    def _version_files(self) -> frozenset[str]:
        """Return the deltas and changelogs of versions that Spark has not committed, of any store."""
        newest = 0 if self._committed is None else self._committed + 1

        def listed(directory: str) -> list[str]:
            names = (entry.name for entry in self._query.list_files(directory))
            numbers = ((name, re.match(r"\d+", name)) for name in names)
            return [
                f"{directory}/{name}"
                for name, number in numbers
                if number and int(number[0]) > newest and name.endswith((".sst", ".delta", ".changelog"))
            ]

        directories = [
            directory
            for key in self._query.stores()
            for directory in (key.path, f"{key.path}/{DELTA_DIRECTORY}")
        ]
        files_by_directory = parallel(_LISTED_AT_ONCE, listed, directories)
        return frozenset(file for files in files_by_directory for file in files)


def unfinished_batch(query: LivingQuery, now_ms: float) -> str | None:
    """Return a sentence if a batch has begun within the last hour and has not ended; None otherwise.

    Either the query runs, or it was stopped or killed in the middle of the batch.
    """
    started, committed = query.logs.newest_begun(), query.logs.newest_committed()
    if started is None or started == committed:
        return None
    age_s = (now_ms - (query.logs.batch_ms(started) or 0)) / 1000
    if age_s > _RECENT_S:
        return None
    age_s = max(0.0, age_s)  # the driver's clock may be ahead of this one
    return (
        f"batch {started} began {age_s:.0f} s ago and has not ended. If the query runs, stop it first; "
        "if it was stopped, it makes that batch again"
    )


class Owner:
    """The process that works on a directory; a value, which tasks may have.

    Nobody can tell a process that was killed from one that is slow. So of those that go on with an operation
    the last that was started owns the directory, and those before stop at their next `check`.
    """

    def __init__(self) -> None:
        self._run = SYSTEM.unique(8)

    @property
    def run(self) -> str:
        """The name of this process among those that write the directory."""
        return self._run

    def take(self, storage: Storage, location: str) -> None:
        """Own the directory from now on.

        Raises:
            ConflictError: another process has completed it meanwhile.
        """
        storage.write(_OWNER, self._run.encode(), overwrite=True)
        try:
            self.check(storage, location)
        except ConflictError:
            if marker_of(storage) is None:
                storage.delete_directory(RECEIPTS)
            raise

    def is_last(self, storage: Storage) -> bool:
        """Return False if another process owns the directory now."""
        try:
            return storage.read(_OWNER) == self._run.encode()
        except MissingError:
            return True  # it is completed, or of a release before

    def check(self, storage: Storage, location: str) -> None:
        """Raise ConflictError if another process owns the directory now, or has completed it."""
        if not self.is_last(storage):
            raise ConflictError(f"'{location}' is not written by this process any more", file=location)
        if marker_of(storage) is None:
            raise ConflictError(f"'{location}' was completed meanwhile, by another process", file=location)

    def check_at(self, location: str) -> None:
        """Do as `check`, in a task."""
        with closing(open_storage(location)) as storage:
            self.check(storage, location)


@contextmanager
def new_checkpoint(
    operation: str,
    source: str | None,
    target: Location,
    *,
    goes_on: bool = False,
    ends: bool = True,
    owner: Owner | None = None,
) -> Iterator[tuple[Storage, str]]:
    """Yield the storage and the location of a directory that is a checkpoint when the body has ended.

    The location is absolute: executors have working directories of their own.

    If the body fails or is interrupted, the directory is emptied, or a sentence says what is left. If the
    operation goes on, the directory stays as far as it is, marked, and the same operation goes on with it.
    The receipts of its stores are removed after the marker: a process that is killed before that must find
    which files Spark's logs name, if it has written them.

    Of processes that begin at the same time all but one are refused. If the operation goes on, one that is
    started later takes it over (`Owner`), and the end fails in those before.

    Args:
        operation: what writes the checkpoint, in words, for messages.
        source: the checkpoint that it is made of; None: there is none.
        target: the directory; it must be empty, or have what the same operation was interrupted at.
        goes_on: the same operation goes on after a failure.
        ends: False: the directory stays marked after the body, too, for the call that ends the operation.
        owner: this process, for a body that checks between its steps that it still owns the directory.

    Raises:
        OptionError: `target` is not a name of a directory, or is inside of the source or around it.
        ConflictError: `target` has something, or another process has taken it over.
        Interrupted: the body was interrupted from the keyboard.
    """
    location = checked_location(target, "target")
    if source is not None:
        refuse_nested(source, location)
    place, source = absolute(location), None if source is None else absolute(source)
    storage, owner = open_storage(place), owner or Owner()
    try:
        own = Marker(operation, source, goes_on, None if source is None else _query_id(source))
        is_begun = _is_begun(storage, location, own)
        is_new = not (isinstance(storage, LocalStorage) and storage.directory.exists())
        if not is_begun:
            _mark(storage, location, own, owner, is_new)
        try:
            if goes_on:
                owner.take(storage, location)
            with removed_at_end(partial(_after_failure, storage, location, owner, goes_on, is_new)):
                yield storage, place
            if not ends:
                return
            if goes_on:
                owner.check(storage, location)
            storage.delete(MARKER)
        except BaseException as error:
            rest_sentence = _after_failure(storage, location, owner, goes_on, is_new)
            if isinstance(error, StateStoreError) and rest_sentence:
                message = f"{error.message}. {rest_sentence}"
                raise from_json({**error.to_json(), "message": message}) from error
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(rest_sentence or f"nothing is left in '{location}'") from error
            raise
        with suppress(StateStoreError):  # nothing reads them any more
            storage.delete_directory(RECEIPTS)
    finally:
        storage.close()


def _mark(storage: Storage, location: str, own: Marker, owner: Owner, is_new: bool) -> None:
    """Write the marker into an empty directory.

    Raises:
        ConflictError: another process has begun to write there, or has written a checkpoint meanwhile.
    """
    text = json.dumps({**own._asdict(), "run": owner.run}).encode()
    try:
        storage.write(MARKER, text)
    except ConflictError:
        with suppress(MissingError):
            if storage.read(MARKER) == text:  # the answer to our own request was lost
                return
        raise ConflictError(
            f"'{location}' is not empty: another process has just begun to write it", file=location
        ) from None
    except BaseException:
        if isinstance(storage, LocalStorage):
            with suppress(OSError):  # an empty directory would be in the way of the next start
                (storage.directory / MARKER).parent.rmdir()
                if is_new:
                    storage.directory.rmdir()
        raise
    if storage.exists("metadata"):
        storage.delete(MARKER)
        raise ConflictError(f"'{location}' is not empty: it is not written over", file=location)


def _after_failure(storage: Storage, location: str, owner: Owner, stays: bool, is_new: bool) -> str | None:
    """Remove what was written, unless it stays; return a sentence on what is left, None if nothing is."""
    if stays:
        with suppress(StateStoreError, OSError):
            if marker_of(storage) is None:
                return None  # it has written nothing, or everything
            if not owner.is_last(storage):
                return f"Another process, which was started later, goes on with '{location}'"
        return f"'{location}' has a part of it: the same command goes on with it"
    try:
        failures = Failures()
        for name in storage.directories():
            if name != "commits":
                failures.attempt(storage.delete_directory, name)
        failures.attempt(storage.delete, "metadata")
        failures.check()
        storage.delete_directory("commits")  # the marker goes last
    except (StateStoreError, OSError):
        return f"'{location}' is incomplete: remove it before you try again"
    if is_new and isinstance(storage, LocalStorage):
        with suppress(OSError):
            storage.directory.rmdir()
    return None


def _query_id(checkpoint: str) -> str | None:
    """Return Spark's id of the query of a checkpoint directory; None if it cannot be read."""
    with (
        suppress(StateStoreError, KeyError, TypeError, ValueError),
        closing(open_storage(checkpoint)) as storage,
    ):
        return str(json.loads(storage.read("metadata"))["id"])
    return None


def refuse_no_directory(path: Path) -> None:
    """Raise OptionError if a path cannot be a directory: a file or a dead link is in its place or above."""
    for place in (path, *path.parents):
        if not os.path.lexists(place):
            continue
        if not place.is_dir():
            obstacle = "a file" if place.exists() else "a symbolic link that leads nowhere"
            is_there = "it is" if place == path else f"'{place}' is"
            raise OptionError(f"the target '{path}' cannot be made: {is_there} {obstacle}", option="target")
        return


def _is_begun(storage: Storage, location: str, own: Marker) -> bool:
    """Return True if a directory has a part of the operation, which goes on; False if it is empty.

    Raises:
        ConflictError: it has something else.
    """
    if isinstance(storage, LocalStorage):
        refuse_no_directory(storage.directory)
    marker = marker_of(storage)
    if marker is not None:
        if marker.call == own.call and own.goes_on:
            if None in (marker.query, own.query) or marker.query == own.query:
                return True
            raise ConflictError(
                f"'{location}' has what {in_words(marker)} has written so far, which was the checkpoint of "
                f"another query then, {marker.query}: remove '{location}'",
                file=location,
            )
        raise ConflictError(
            f"'{location}' is not empty: it has what {in_words(marker)} has written so far. "
            "If that was interrupted, remove it",
            file=location,
        )
    names = [name for name in storage.directories() if not name.startswith(SCRATCH_PREFIX)]
    if names or root_files(storage, location):
        raise ConflictError(f"'{location}' is not empty: it is not written over", file=location)
    return False
