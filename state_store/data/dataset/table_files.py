"""Files and directories of tables on any storage: a path, or a URI that `open_storage` knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from state_store.core.interruption import ScratchDirectory, removed_at_end
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.local import LocalStorage
from state_store.core.storage.open import SCHEMES
from state_store.data.query.arguments import Location, checked_location
from state_store.errors import ConflictError, MissingError, StateStoreError, StorageError

T = TypeVar("T")


def local_path(location: Location) -> Path | None:
    """Return the path of a location on this machine; None if it is in another storage.

    Raises:
        OptionError: the location is empty or the root, or its scheme is unknown.
        StorageError: as `open_storage` raises it.
    """
    text = checked_location(location, "location")
    scheme = text.partition(":")[0].lower()
    if isinstance(location, os.PathLike) or (":/" not in text and scheme not in SCHEMES):
        return Path(text)
    storage = open_storage(text)
    return storage.directory if isinstance(storage, LocalStorage) else None


SUCCESS = "_SUCCESS"
"""The file that is written last into a directory of tables."""


@contextmanager
def writing_file(path: Path) -> Iterator[Callable[[Iterable[T]], Iterator[T]]]:
    """Let failures of the operating system in the body name the path, if they name none themselves.

    Yields:
        A function that passes on what the body reads meanwhile: failures of reading stay as they are.

    Raises:
        StorageError: in place of an OSError without a file name, such as PyArrow's.
    """
    failed: list[OSError] = []

    def reading(source: Iterable[T]) -> Iterator[T]:
        try:
            yield from source
        except OSError as error:
            failed.append(error)
            raise

    try:
        yield reading
    except OSError as error:
        if error.filename is not None or error in failed:
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(f"cannot write '{path}': {reason}", file=str(path)) from error


@contextmanager
def new_directory(location: str, names: Iterable[str]) -> Iterator[NewDirectory]:
    """Yield a new directory in another storage. If the body fails, its files are removed.

    Args:
        location: the directory.
        names: the names of the files that it is going to have.

    Raises:
        ConflictError: the directory has files already.
    """
    storage, name = _parted(location)
    try:
        found = [entry.name for entry in storage.list_files(name)]
        if found and SUCCESS not in found:
            raise ConflictError(
                f"'{location}' has files of a write that was interrupted, or still goes on: it has no "
                f"'{SUCCESS}'. If it was interrupted, remove the directory, or give another one",
                file=location,
            )
        if found:
            raise ConflictError(f"'{location}' exists already; it is not replaced", file=location)
        directory = NewDirectory(storage, name, names)
        try:
            with removed_at_end(directory.remove):
                yield directory
        except BaseException:
            directory.remove()
            raise
    finally:
        storage.close()


class NewDirectory:
    """A directory to which `store_in_directory` adds files; `finish` says that it is whole."""

    def __init__(self, storage: Storage, name: str, names: Iterable[str]) -> None:
        self._storage = storage
        self._name = name
        self._paths = [f"{name}/{file}" for file in (*names, SUCCESS)]

    def finish(self, success: bytes) -> None:
        """Write the file that comes last."""
        self._storage.write(f"{self._name}/{SUCCESS}", success)

    def remove(self) -> None:
        """Remove the files that are there."""
        for path in self._paths:
            with suppress(StateStoreError):
                self._storage.delete(path)


def store_in_directory(location: str, local: Path) -> None:
    """Move a local file into a directory of another storage, in the place of one of the same name."""
    storage, name = _parted(location)
    try:
        storage.upload(local, f"{name}/{local.name}", overwrite=True)
        local.unlink(missing_ok=True)
    finally:
        storage.close()


@contextmanager
def new_file(location: str) -> Iterator[Path]:
    """Yield a local path; its bytes become a file in another storage when the body ends.

    Raises:
        ConflictError: the file exists.
    """
    storage, name = _parted(location)
    try:
        if storage.exists(name):
            raise ConflictError(f"'{location}' exists already; it is not replaced", file=location)
        with ScratchDirectory("state-store-") as scratch:
            local = Path(scratch) / name
            yield local
            storage.upload(local, name)
    finally:
        storage.close()


def listed_names(location: str) -> list[str]:
    """Return the names of the files directly in a directory of another storage; none if it is a file.

    Raises:
        MissingError: neither a directory nor a file has the name.
    """
    storage, name = _parted(location)
    try:
        try:
            names = [entry.name for entry in storage.list_files(name)]
        except StorageError:  # HDFS refuses to list a file
            names = []
        if not names and not storage.exists(name):
            raise MissingError(f"there is no '{location}'", file=location)
        return names
    finally:
        storage.close()


def fetched_files(location: str, names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield files of a directory in another storage, each with a local copy until the next is requested.

    Args:
        location: the directory, or, without names, one file.
        names: names in the directory; if empty, the location is a file, which is yielded with an empty name.
    """
    storage, name = _parted(location)
    try:
        for file in names or [""]:
            with ScratchDirectory("state-store-") as scratch:
                local = Path(scratch) / "file"
                storage.download(f"{name}/{file}" if file else name, local)
                yield file, local
    finally:
        storage.close()


def _parted(location: str) -> tuple[Storage, str]:
    """Return the storage of the directory that a location is in, and its name there."""
    parent, _, name = location.rstrip("/").rpartition("/")
    return open_storage(parent), name
