"""Checkpoint storage on S3, Google Cloud Storage or Azure through `pyarrow.fs`, for programs without a JVM.

An object appears with all its bytes when its upload is completed, so nothing is renamed. Through `pyarrow.fs`
these services cannot create an object on condition that the name is free. Without `overwrite` the name is
looked up first, and of two concurrent writers the later wins. Nothing depends on more: a name has an id or a
random part if two writers could choose it, and leases and tombstones may be written twice.

File systems of `pyarrow.fs` that are not object stores get a temporary name and a rename instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.runtime import SYSTEM
from state_store.core.storage.contract import Entry, Storage, check_path, new_local_file
from state_store.core.storage.local_disk import local_disk_error
from state_store.core.storage.remedies import with_remedy
from state_store.errors import ConflictError, MissingError, StorageError

_WHOLE_OBJECTS = frozenset({"s3", "gcs", "abfs"})
_CHUNK_BYTES = 8 << 20


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
        with self._translated("read", path), self._filesystem.open_input_file(self._full(path)) as file:
            size_bytes = file.size()
            end = size_bytes if length is None else min(size_bytes, offset + length)
            data: bytes = file.read_at(end - offset, offset) if end > offset else b""
            return data

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
        with (
            self._translated("read", path),
            self._filesystem.open_input_stream(self._full(path)) as source,
            new_local_file(local) as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK_BYTES)

    def delete(self, path: str) -> None:
        try:
            with self._translated("delete", path):
                self._filesystem.delete_file(self._full(path))
        except MissingError:
            return

    def exists(self, path: str) -> bool:
        from pyarrow.fs import FileType

        with self._translated("look for", path):
            return bool(self._filesystem.get_file_info(self._full(path)).type == FileType.File)

    def directories(self, directory: str | None = None) -> list[str]:
        from pyarrow.fs import FileType

        return sorted(info.base_name for info in self._infos(directory) if info.type == FileType.Directory)

    def delete_directory(self, directory: str) -> None:
        try:
            with self._translated("delete", directory):
                self._filesystem.delete_dir(self._full(directory))
        except MissingError:
            return

    def _infos(self, directory: str | None) -> list[Any]:
        from pyarrow.fs import FileSelector

        full = self._directory if directory is None else self._full(directory)
        with self._translated("list", directory or ""):
            infos: list[Any] = self._filesystem.get_file_info(FileSelector(full, allow_not_found=True))
            return infos

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
        # In a single write: the close must not complete a stream that failed half-way.
        with self._filesystem.open_output_stream(full) as stream:
            stream.write(data)

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
        file = self._uri(path)
        try:
            yield
        except FileNotFoundError as error:
            raise MissingError(f"'{file}' does not exist", file=file) from error
        except OSError as error:
            raise StorageError(f"cannot {action} '{file}': {with_remedy(str(error))}", file=file) from error
