"""Files and directories of tables, wherever they are: a path, or a URI that `open_storage` knows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state_store.core.storage import Entry, Storage, open_storage
from state_store.core.storage.local import LocalStorage
from state_store.errors import ConflictError, MissingError, StorageError


def local_path(location: str | Path) -> Path | None:
    """The path where that is on this machine; None where it is in another storage. Raises OptionError for a
    scheme that is not known, StorageError as `open_storage`.
    """
    if isinstance(location, Path) or ":/" not in location:
        return Path(location)
    storage = open_storage(location)
    return storage.directory if isinstance(storage, LocalStorage) else None


@contextmanager
def new_directory(location: str) -> Iterator[NewDirectory]:
    """A directory in another storage, for new files. Raises ConflictError where it has files already."""
    storage, name = _parted(location)
    try:
        if storage.list_files(name):
            raise ConflictError(f"'{location}' exists already; it is not replaced", file=location)
        with tempfile.TemporaryDirectory(prefix="state-store-") as scratch:
            yield NewDirectory(storage, name, Path(scratch))
    finally:
        storage.close()


class NewDirectory:
    """Files are made in `scratch`, a local directory, and moved from there."""

    def __init__(self, storage: Storage, name: str, scratch: Path) -> None:
        self.scratch = scratch
        self._storage = storage
        self._name = name

    def move(self, local: Path) -> None:
        """Stores a file of `scratch` under its own name."""
        self._storage.upload(local, f"{self._name}/{local.name}")
        local.unlink(missing_ok=True)


@contextmanager
def new_file(location: str) -> Iterator[Path]:
    """A local path for the bytes of a file in another storage, which is there at the end. Raises
    ConflictError where it exists.
    """
    storage, name = _parted(location)
    try:
        if storage.exists(name):
            raise ConflictError(f"'{location}' exists already; it is not replaced", file=location)
        with tempfile.TemporaryDirectory(prefix="state-store-") as scratch:
            local = Path(scratch) / name
            yield local
            storage.upload(local, name)
    finally:
        storage.close()


def brought_files(location: str, suffix: str) -> Iterator[Path]:
    """The files of a directory in another storage that end so, or the one file, each as a local one that goes
    when the next comes. Raises MissingError where there is none.
    """
    storage, name = _parted(location)
    try:
        inside = [f"{name}/{one.name}" for one in _listed(storage, name) if one.name.endswith(suffix)]
        if not inside and not storage.exists(name):
            raise MissingError(f"there is no '{location}'", file=location)
        for path in inside or [name]:
            with tempfile.TemporaryDirectory(prefix="state-store-") as scratch:
                local = Path(scratch) / "file"
                storage.download(path, local)
                yield local
    finally:
        storage.close()


def _listed(storage: Storage, name: str) -> list[Entry]:
    """The files of a directory; none where it is a file, which HDFS refuses to list."""
    try:
        return list(storage.list_files(name))
    except StorageError:
        if storage.exists(name):
            return []
        raise


def _parted(location: str) -> tuple[Storage, str]:
    """The storage of the directory that it is in, and its name there."""
    parent, _, name = location.rstrip("/").rpartition("/")
    return open_storage(parent), name
