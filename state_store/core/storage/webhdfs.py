"""Checkpoint storage on HDFS over its REST interface, for programs without a JVM; needs the package `hdfs`.

A file is written under a temporary name, and the NameNode renames it in one step (`renameoptions`: none, or
`OVERWRITE`). HttpFS gateways do not know that option: with them, replacing a file is refused. The bytes are
as durable as the cluster's `dfs.datanode.synconclose` makes closed files. `hadoop_credentials.py` says how it
authenticates.
"""

from __future__ import annotations

import getpass
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.runtime import SYSTEM
from state_store.core.storage.contract import Entry, Storage, check_path, new_local_file
from state_store.core.storage.hadoop_credentials import connect
from state_store.core.storage.remedies import with_remedy
from state_store.errors import (
    ConflictError,
    MissingError,
    StateStoreError,
    StorageError,
    UnknownOutcomeError,
)

TIMEOUT_S = 60.0
_CHUNK_BYTES = 1 << 20
_DATANODE_ATTEMPTS = 4
"""Attempts at a request. A NameNode may send clients to a dead DataNode at first; the next attempt is likely
to be sent to another one."""
_VERSIONS = 10
"""Versions of a file that a read begins with, before it fails."""

T = TypeVar("T")


class _DataNodeError(StorageError):
    """The connection to a DataNode failed."""


class WebHdfsStorage(Storage):
    """Files below `directory`.

    Args:
        endpoints: `http://host:port` of the NameNodes, also of standby ones.
        directory: the path on HDFS.
        user: the user name; None: HADOOP_USER_NAME, else that of the process.
    """

    def __init__(self, endpoints: list[str], directory: str, *, user: str | None = None) -> None:
        self._endpoints = endpoints
        self._directory = directory.rstrip("/")
        self._user = user or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._local = threading.local()
        protocol, _, authority = endpoints[0].partition("://")
        scheme = "swebhdfs" if protocol == "https" else "webhdfs"
        self.location = f"{scheme}://{authority}{self._directory}"

    def list_files(self, directory: str) -> list[Entry]:
        entries = [
            Entry(name, status["length"], status["modificationTime"])
            for name, status in self._statuses(directory)
            if status["type"] == "FILE"
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        def fetch(full: str, size_bytes: int) -> bytes:
            end = size_bytes if length is None else min(size_bytes, offset + length)
            if end <= offset:
                return b""
            part = None if length is None else end - offset  # to the end of the version that is read
            with self._client.read(full, offset=offset, length=part) as reader:
                data: bytes = reader.read()
            if len(data) != end - offset:
                raise self._failed("read", path, f"got {len(data)} of {end - offset} bytes")
            return data

        return self._of_a_version(path, fetch)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._create(path, lambda: data, len(data), overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        try:
            file = open(local, "rb")  # noqa: SIM115 -- opened apart from its use, so that its error is
        except OSError as error:
            raise StorageError(f"cannot upload '{local}': {error.strerror}", file=str(local)) from error
        with file:

            def from_the_start() -> IO[bytes]:
                file.seek(0)
                return file

            self._create(path, from_the_start, local.stat().st_size, overwrite)

    def download(self, path: str, local: Path) -> None:
        def fetch(full: str, size_bytes: int) -> None:
            with self._client.read(full) as reader, new_local_file(local) as file:
                shutil.copyfileobj(reader, file, _CHUNK_BYTES)
                if file.tell() != size_bytes:
                    raise self._failed("read", path, f"got {file.tell()} of {size_bytes} bytes")

        self._of_a_version(path, fetch)

    def delete(self, path: str) -> None:
        self._ask("delete", path, self._client_delete)

    def exists(self, path: str) -> bool:
        status = self._ask("look for", path, lambda full: self._client.status(full, strict=False))
        return status is not None and status["type"] == "FILE"

    def directories(self, directory: str | None = None) -> list[str]:
        return sorted(name for name, status in self._statuses(directory) if status["type"] == "DIRECTORY")

    def delete_directory(self, directory: str) -> None:
        self._ask("delete", directory, lambda full: self._client.delete(full, recursive=True))

    def _of_a_version(self, path: str, fetch: Callable[..., T]) -> T:
        """Return the answer of `fetch`, which is asked again if the file is replaced meanwhile.

        Args:
            path: the file.
            fetch: gets its full path and its size, and fails if that is not the size of what it reads.
        """
        for left in reversed(range(_VERSIONS)):
            before = self._version(path)
            read = partial(self._ask, "read", path, partial(fetch, size_bytes=before[1]))
            try:
                return _at_any_datanode(read)
            except (StorageError, MissingError):
                if not left or self._version(path) == before:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _version(self, path: str) -> tuple[Any, int, int]:
        """Return what tells a file from another one under the same name: its inode, size and time."""
        status = self._ask("read", path, self._client_status)
        return status.get("fileId"), status["length"], status["modificationTime"]

    def _client_status(self, full: str) -> dict[str, Any]:
        status: dict[str, Any] = self._client.status(full)
        return status

    def _statuses(self, directory: str | None) -> list[tuple[str, dict[str, Any]]]:
        full = self._directory if directory is None else self._full(directory)
        try:
            with self._translated("list", directory or ""):
                statuses: list[tuple[str, dict[str, Any]]] = self._client.list(full or "/", status=True)
                return statuses
        except MissingError:
            return []

    @property
    def _client(self) -> Any:
        """The client of this thread: its sessions are not safe for several threads."""
        if not hasattr(self._local, "client"):
            try:
                self._local.client = connect(self._endpoints, self._user, TIMEOUT_S)
            except ImportError as error:
                raise StorageError(
                    f"'{self.location}' needs the Python package 'hdfs', which this Python lacks: "
                    "pip install hdfs"
                ) from error
        return self._local.client

    def _client_delete(self, full: str) -> None:
        self._client.delete(full)

    def _create(self, path: str, data: Callable[[], bytes | IO[bytes]], length: int, overwrite: bool) -> None:
        _at_any_datanode(lambda: self._create_once(path, data(), length, overwrite))

    def _create_once(self, path: str, data: bytes | IO[bytes], length: int, overwrite: bool) -> None:
        temporary = f"{check_path(path)}.{SYSTEM.unique(4)}{TEMPORARY_SUFFIX}"
        try:
            self._ask("write", temporary, lambda full: self._client.write(full, data=data))
            written = self._ask("write", temporary, lambda full: self._client.status(full)["length"])
            if written != length:
                raise self._failed("write", path, f"{written} of {length} bytes arrived")
            self._rename(temporary, path, overwrite)
        except UnknownOutcomeError:
            raise
        except BaseException:
            self._discard(temporary)
            raise

    def _rename(self, temporary: str, path: str, overwrite: bool) -> None:
        source, target = self._full(temporary), self._full(path)
        options = "OVERWRITE" if overwrite else "NONE"
        try:
            with self._translated("write", path):
                answer = self._client._rename(source, destination=target, renameoptions=options)
        except (StorageError, MissingError, ConflictError) as error:
            self._resolve_rename(temporary, path, error)
            return
        if answer.content and answer.json().get("boolean") is False:
            if not overwrite and self.exists(path):
                raise ConflictError(f"'{self._uri(path)}' exists already", file=self._uri(path))
            raise self._failed("write", path, "the rename was refused; a gateway cannot replace files")

    def _resolve_rename(self, temporary: str, path: str, error: StateStoreError) -> None:
        """Find out whether a rename happened whose answer did not come, or came from a repetition.

        The temporary name exists if and only if it did not happen.

        Raises:
            StateStoreError: `error`, if it did not happen.
            UnknownOutcomeError: If that cannot be found out.
        """
        try:
            happened = not self.exists(temporary) and self.exists(path)
        except StorageError:
            raise UnknownOutcomeError(
                f"the connection failed while '{self._uri(path)}' was written, and it cannot be seen "
                f"whether it was: {error.message}",
                file=self._uri(path),
            ) from error
        if not happened:
            raise error

    def _discard(self, temporary: str) -> None:
        try:
            self.delete(temporary)
        except StorageError:
            return  # retention sweeps it

    def _full(self, path: str) -> str:
        return f"{self._directory}/{check_path(path)}"

    def _uri(self, path: str) -> str:
        return f"{self.location}/{path}"

    def _failed(self, action: str, path: str, why: str) -> StorageError:
        return StorageError(f"cannot {action} '{self._uri(path)}': {with_remedy(why)}", file=self._uri(path))

    def _ask(self, action: str, path: str, question: Callable[[str], T]) -> T:
        with self._translated(action, path):
            return question(self._full(path))

    @contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        from hdfs.util import HdfsError
        from requests.exceptions import RequestException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except HdfsError as error:
            if error.exception == "FileNotFoundException" or "does not exist" in error.message:
                raise MissingError(f"'{self._uri(path)}' does not exist", file=self._uri(path)) from error
            if error.exception == "FileAlreadyExistsException":
                raise ConflictError(f"'{self._uri(path)}' exists already", file=self._uri(path)) from error
            raise self._failed(action, path, _text(error.message)) from error
        except (RequestException, HTTPError, OSError) as error:
            failed = self._failed(action, path, str(error))
            # A body that ends early comes from a DataNode; such an error names no request.
            if isinstance(error, HTTPError) or self._was_sent_on(error):
                raise _DataNodeError(failed.message, file=failed.file) from error
            raise failed from error

    def _was_sent_on(self, error: Exception) -> bool:
        """Return True if the request that failed went to a DataNode."""
        request = getattr(error, "request", None)
        return request is not None and not request.url.startswith(
            tuple(f"{endpoint}/" for endpoint in self._endpoints)
        )


def _at_any_datanode(action: Callable[[], T]) -> T:
    for _ in range(_DATANODE_ATTEMPTS - 1):
        with suppress(_DataNodeError):
            return action()
    return action()


def _text(message: str | bytes) -> str:
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else message
