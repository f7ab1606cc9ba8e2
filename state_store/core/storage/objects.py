"""Checkpoint storage on S3 or Google Cloud Storage through `pyarrow.fs`, for programs without a JVM.

An object appears with all its bytes when its upload is completed, so nothing is renamed. Through `pyarrow.fs`
these services cannot create an object on condition that the name is free. Without `overwrite` the name is
looked up first, and of two concurrent writers the later wins. Nothing depends on more: a name has an id or a
random part if two writers could choose it, and leases and tombstones may be written twice.

A read that meets a replacement of its object begins again. `pyarrow` reads an object of GCS in the version
that it opened, and finds nothing there when that is replaced; of S3 it takes the bytes of the new one, as
many as the old one had.

File systems of `pyarrow.fs` that are not object stores get a temporary name and a rename instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.runtime import SYSTEM
from state_store.core.storage.contract import Entry, Storage, check_path, new_local_file, with_remedy
from state_store.core.storage.local_disk import local_disk_error
from state_store.errors import ConflictError, MissingError, StorageError

_WHOLE_OBJECTS = frozenset({"s3", "gcs"})
_CHUNK_BYTES = 8 << 20
_HEAD = "during HeadObject operation"
_BUCKETS: set[tuple[str, str]] = set()
"""Buckets that exist, by service and name."""

_VERSIONS = 10
"""Versions of an object that a read begins with, before it fails."""

T = TypeVar("T")


class _ChangedError(StorageError):
    """An object was replaced while it was read."""


class ArrowStorage(Storage):
    """Files below `directory` (bucket and key, no scheme) of a `pyarrow.fs.FileSystem`."""

    def __init__(self, filesystem: Any, directory: str, location: str | None = None) -> None:
        self._filesystem = filesystem
        self._directory = directory.rstrip("/")
        self.location = (location or directory).rstrip("/")

    def list_files(self, directory: str) -> list[Entry]:
        from pyarrow.fs import FileType

        entries = [
            Entry(info.base_name, info.size, (info.mtime_ns or 0) // 1_000_000)
            for info in self._infos(directory)
            if info.type == FileType.File
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        def fetch(full: str) -> bytes:
            with self._filesystem.open_input_file(full) as file:
                size_bytes = file.size()
                end = size_bytes if length is None else min(size_bytes, offset + length)
                data: bytes = file.read_at(end - offset, offset) if end > offset else b""
                if length is None:
                    self._check_unchanged(path, file)
                return data

        return self._of_a_version(path, fetch)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._create(path, data, overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        import pyarrow

        try:
            size_bytes = local.stat().st_size
            with pyarrow.memory_map(str(local)) if size_bytes else pyarrow.BufferReader(b"") as source:
                self._create(path, source.read_buffer(), overwrite)
        except OSError as error:
            raise local_disk_error(error, local) from error

    def download(self, path: str, local: Path) -> None:
        with new_local_file(local) as target:

            def fetch(full: str) -> None:
                target.seek(0)
                target.truncate()
                with self._filesystem.open_input_stream(full) as source:
                    shutil.copyfileobj(source, target, _CHUNK_BYTES)
                    self._check_unchanged(path, source)

            self._of_a_version(path, fetch)

    def delete(self, path: str) -> None:
        try:
            with self._translated("delete", path):
                self._filesystem.delete_file(self._full(path))
        except MissingError:
            return

    def exists(self, path: str) -> bool:
        from pyarrow.fs import FileType

        with self._translated("look for", path):
            kind = self._filesystem.get_file_info(self._full(path)).type
        if kind == FileType.NotFound:
            self._check_bucket("look for", self._uri(path))
        return bool(kind == FileType.File)

    def directories(self, directory: str | None = None) -> list[str]:
        from pyarrow.fs import FileType

        # GCS lists a directory only if somebody made an object for it.
        if self._filesystem.type_name == "gcs":
            start = len(self._directory if directory is None else self._full(directory)) + 1
            below = [info.path[start:] for info in self._infos(directory, recursive=True)]
            return sorted({path.partition("/")[0] for path in below if "/" in path})
        return sorted(info.base_name for info in self._infos(directory) if info.type == FileType.Directory)

    def delete_directory(self, directory: str) -> None:
        if not self._infos(directory, recursive=True):
            return  # an error on GCS
        try:
            with self._translated("delete", directory):
                self._filesystem.delete_dir(self._full(directory))
        except MissingError:
            return

    def _infos(self, directory: str | None, *, recursive: bool = False) -> list[Any]:
        from pyarrow.fs import FileSelector

        full = self._directory if directory is None else self._full(directory)
        with self._translated("list", directory or ""):
            selector = FileSelector(full, allow_not_found=True, recursive=recursive)
            infos: list[Any] = self._filesystem.get_file_info(selector)
        if not infos:
            self._check_bucket("list", self._uri(directory or ""))
        return infos

    def _of_a_version(self, path: str, fetch: Callable[[str], T]) -> T:
        """Return the answer of `fetch`, which is asked again if the object is replaced meanwhile.

        Raises:
            MissingError: If the object does not exist.
            StorageError: If it is replaced each time, or cannot be read.
        """
        for left in reversed(range(_VERSIONS)):
            try:
                with self._translated("read", path):
                    return fetch(self._full(path))
            except _ChangedError:
                if not left:
                    raise
            except ValueError as error:  # a file of GCS is closed if its version is gone
                if not left:
                    raise self._changed(path) from error
            except MissingError:
                if self._filesystem.type_name != "gcs" or not self.exists(path):
                    raise
                if not left:
                    raise self._changed(path) from None
        raise AssertionError("the last attempt returns or raises")

    def _check_unchanged(self, path: str, file: Any) -> None:
        """Raise _ChangedError if an object of S3 is not the one that `file` was opened for."""
        if self._filesystem.type_name != "s3":
            return
        with self._filesystem.open_input_file(self._full(path)) as now:
            if now.metadata() != file.metadata():  # ETag, time and size
                raise self._changed(path)

    def _changed(self, path: str) -> _ChangedError:
        file = self._uri(path)
        return _ChangedError(f"cannot read '{file}': it was replaced while it was read", file=file)

    def _create(self, path: str, data: Any, overwrite: bool) -> None:
        if not overwrite and self.exists(path):
            raise ConflictError(f"'{self._uri(path)}' exists already", file=self._uri(path))
        with self._translated("write", path):
            if self._filesystem.type_name in _WHOLE_OBJECTS:
                self._put(self._full(path), data)
            else:
                self._put_and_rename(self._full(path), data)

    def _put_and_rename(self, full: str, data: Any) -> None:
        self._filesystem.create_dir(full.rpartition("/")[0], recursive=True)
        temporary = f"{full}.{SYSTEM.unique(4)}{TEMPORARY_SUFFIX}"
        try:
            self._put(temporary, data)
            self._filesystem.move(temporary, full)
        except BaseException:
            self._discard(temporary)
            raise

    def _put(self, full: str, data: Any) -> None:
        """Make an object, in a thread that no signal interrupts.

        A stream that is opened and closed without its bytes makes an empty object, in place of the old one.
        In a single write: the close must not complete a stream that failed half-way.
        """
        failures: list[BaseException] = []

        def put() -> None:
            try:
                with self._filesystem.open_output_stream(full) as stream:
                    stream.write(data)
            except BaseException as error:
                failures.append(error)

        SYSTEM.start(put, name="upload").join()
        if failures:
            raise failures[0]

    def _discard(self, temporary: str) -> None:
        try:
            self._filesystem.delete_file(temporary)
        except OSError:
            return  # never made, or swept by retention

    def _full(self, path: str) -> str:
        return f"{self._directory}/{check_path(path)}"

    def _uri(self, path: str) -> str:
        return f"{self.location}/{path}"

    @contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        from pyarrow import ArrowException

        file = self._uri(path)
        try:
            yield
        except FileNotFoundError as error:
            self._check_bucket(action, file)
            raise MissingError(f"'{file}' does not exist", file=file) from error
        except (OSError, ValueError, ArrowException) as error:
            if isinstance(error, ValueError) and action == "read" and self._filesystem.type_name == "gcs":
                raise
            why = with_remedy(self._cause(str(error)))
            raise StorageError(f"cannot {action} '{file}': {why}", file=file) from error

    def _cause(self, why: str) -> str:
        """Return why the service refused a request; it does not say so in its answer to a HEAD."""
        from pyarrow.fs import FileSelector

        if self._filesystem.type_name != "s3" or _HEAD not in why:
            return why
        try:
            self._filesystem.get_file_info(FileSelector(self._directory, allow_not_found=True))
        except OSError as error:
            return str(error)
        return why

    def _check_bucket(self, action: str, file: str) -> None:
        """Raise StorageError if nothing was found because there is no bucket; that is asked once."""
        from pyarrow.fs import FileType

        bucket = (self._filesystem.type_name, self._directory.partition("/")[0])
        if bucket[0] not in _WHOLE_OBJECTS or bucket in _BUCKETS:
            return
        try:
            is_there = self._filesystem.get_file_info(bucket[1]).type != FileType.NotFound
        except OSError:
            return  # this user may not ask
        if not is_there:
            why = with_remedy(f"NoSuchBucket: there is no bucket '{bucket[1]}'")
            raise StorageError(f"cannot {action} '{file}': {why}", file=file)
        _BUCKETS.add(bucket)
