"""The contract of checkpoint storage: few operations, all atomic; every backend passes the same tests.

Paths are relative to the store's directory, with `/` between parts. All methods may be called from any
thread. What is visible is whole: a file appears with all its bytes or not at all, and where the backend can
promise it, durably.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from state_store.core.storage.local_disk import blames_local_file, local_disk_error, local_disk_errors
from state_store.errors import ConflictError, StorageError


@dataclass(frozen=True)
class Entry:
    """A file of a listing. `modified_ms` is by the storage's clock, milliseconds since 1970 UTC."""

    name: str
    size_bytes: int
    modified_ms: int


class Storage(ABC):
    """The files of one store. Subclasses say in their own words which parts
    of the contract their service limits.

    Every method raises StorageError when the storage refuses or fails, and UnknownOutcomeError when a write
    may or may not have happened.
    """

    location: str
    """The URI (or local path) of the store's directory, for messages."""

    is_local = False
    """Whether `download` is a hard link or a copy of this machine's, so that parts of a file are not worth
    asking for."""

    @abstractmethod
    def list_files(self, directory: str) -> list[Entry]:
        """The files directly in `directory`, sorted by name; empty when it does
        not exist. Subdirectories are left out.
        """

    @abstractmethod
    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes from `offset`, at most `length` of them (None: to the end). Raises MissingError."""

    @abstractmethod
    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Makes the file with exactly these bytes; directories are made as needed.

        With `overwrite` an existing file is replaced in one step; otherwise it raises ConflictError.
        """

    @abstractmethod
    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        """Like `write`, from the local file, which must never be modified
        again: it may become the stored file.
        """

    @abstractmethod
    def download(self, path: str, local: Path) -> None:
        """Makes the local file `local`, which must not exist, with the bytes of `path`. Raises MissingError.

        `local` may share its bytes with the stored file (a hard link): never modify it in place.
        """

    def download_part(self, path: str, local: Path, offset: int, length: int) -> int:
        """Writes the bytes of `path` from `offset` on, at most `length`, to the same place of the file
        `local`, which must exist; how many there were. Raises MissingError when `path` does not exist,
        StorageError when the local disk fails.
        """
        data = self.read(path, offset, length)
        write_at(local, data, offset)
        return len(data)

    @abstractmethod
    def delete(self, path: str) -> None:
        """Removes the file; a missing one is fine."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether the file exists; not to be asked of a directory."""

    def directories(self, directory: str | None = None) -> list[str]:
        """Names of the directories directly in `directory` (None: in the store's directory), sorted.

        For programs that look for stores. Raises StorageError where the storage cannot tell: through the JVM.
        """
        raise StorageError(f"'{self.location}' cannot be searched for directories", file=self.location)

    def delete_directory(self, directory: str) -> None:
        """Removes a directory with all that is below it; a missing one is fine. Not at once: a reader may see
        a part. Raises StorageError as `directories` does.
        """
        for entry in self.list_files(directory):
            self.delete(f"{directory}/{entry.name}")
        for name in self.directories(directory):
            self.delete_directory(f"{directory}/{name}")

    def close(self) -> None:  # noqa: B027 -- most backends hold nothing
        """Gives back connections; the storage is not used afterwards."""


def check_path(path: str) -> str:
    """`path` itself. Raises StorageError unless it is relative and stays below the store's directory."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise StorageError(f"'{path}' is not a path below a store's directory", file=path)
    return path


@contextmanager
def new_local_file(local: Path) -> Iterator[IO[bytes]]:
    """The new file `local`, open for writing; removed again when the block fails. Raises ConflictError."""
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open(local, "xb"))
        except FileExistsError as error:
            raise ConflictError(f"'{local}' exists already", file=str(local)) from error
        except OSError as error:
            raise local_disk_error(error, local) from error
        try:
            yield file
        except BaseException as error:
            local.unlink(missing_ok=True)
            if isinstance(error, OSError) and blames_local_file(error, local):
                raise local_disk_error(error, local) from error
            raise


def write_at(local: Path, data: bytes, offset: int) -> None:
    """Write the bytes to their place in the existing file `local`.

    Raises:
        LocalDiskError: If the disk is full or fails.
    """
    with local_disk_errors(local), open(local, "r+b", buffering=0) as file:
        view, at = memoryview(data), offset
        while view:
            count = os.pwrite(file.fileno(), view, at)
            view, at = view[count:], at + count
