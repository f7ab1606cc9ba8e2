"""Checkpoint storage on object stores, for programs without a JVM: S3 and Google Cloud Storage, and Azure.

An object appears with all its bytes when its upload is completed, so nothing is renamed.

**S3 and Google Cloud Storage** come through `pyarrow.fs`, with which these services cannot create an object
on condition that the name is free. Without `overwrite` the name is looked up first, and of two concurrent
writers the later wins. Nothing depends on more: a name has an id or a random part if two writers could choose
it, and leases and tombstones may be written twice. A read that meets a replacement of its object begins
again. `pyarrow` reads an object of GCS in the version that it opened, and finds nothing there when that is
replaced; of S3 it takes the bytes of the new one, as many as the old one had. File systems of `pyarrow.fs`
that are not object stores get a temporary name and a rename instead.

**Azure** is reached over its Blob service, with the package `azure-storage-blob`. A small file is one
request. A larger one is uploaded in blocks, which another request makes a blob in one step. Either has the
condition that the name is free, unless a file is to be replaced. A read keeps to the version of the blob that
it began with, and begins again if another one takes its place. `pyarrow`'s client of Azure is not used: it
makes an empty blob before it uploads, in place of the old one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import unquote, urlsplit

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.runtime import SYSTEM
from state_store.core.storage.contract import (
    Entry,
    Failures,
    Storage,
    check_path,
    new_local_file,
    with_remedy,
)
from state_store.core.storage.local_disk import local_disk_error
from state_store.errors import (
    ConflictError,
    MissingError,
    OptionError,
    StorageError,
    UnknownOutcomeError,
    masked,
)

_WHOLE_OBJECTS = frozenset({"s3", "gcs"})

_CHUNK_BYTES = 8 << 20

_HEAD = "during HeadObject operation"

_BUCKETS: set[tuple[str, str]] = set()
"""Buckets that exist, by service and name."""

_VERSIONS = 10
"""Versions of an object that a read begins with, or that come while it is uploaded, before that fails."""

_PUT_BYTES = 8 << 20
"""Bytes of a request at most: of a whole blob, or of a block."""

# About a minute for a service that does not answer.
_TIMEOUTS = {"connection_timeout": 10, "read_timeout": 20, "retry_total": 2, "retry_connect": 2}

_FORM = (
    "give abfss://container@account.dfs.core.windows.net/directory, or the account in AZURE_STORAGE_ACCOUNT "
    "or AZURE_STORAGE_CONNECTION_STRING"
)

T = TypeVar("T")


class _ChangedError(StorageError):
    """An object was replaced while it was read."""


class _DiscardedError(StorageError):
    """The blocks of an upload are gone, since another upload to the same name was completed."""


# ---- S3 and Google Cloud Storage ------------------------------------------------------------------------


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
        for tries_left in reversed(range(_VERSIONS)):
            try:
                with self._translated("read", path):
                    return fetch(self._full(path))
            except _ChangedError:
                if not tries_left:
                    raise
            except ValueError as error:  # a file of GCS is closed if its version is gone
                if not tries_left:
                    raise self._changed(path) from error
            except MissingError:
                if self._filesystem.type_name != "gcs" or not self.exists(path):
                    raise
                if not tries_left:
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


# ---- Azure ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Container:
    """A container, as a URI or the environment names it; `key` and `url` may be None."""

    name: str
    account: str | None
    key: str | None
    url: str | None
    """The URL of the account."""

    directory: str


class AzureStorage(Storage):
    """Blobs below `directory` of the container that `container`, a `ContainerClient`, is for."""

    def __init__(self, container: Any, directory: str, location: str) -> None:
        self._container = container
        self._prefix = f"{directory.strip('/')}/".lstrip("/")
        self.location = location.rstrip("/")

    def list_files(self, directory: str) -> list[Entry]:
        start = len(self._full(directory)) + 1
        entries = [
            Entry(blob.name[start:], blob.size, int(blob.last_modified.timestamp() * 1000))
            for blob in self._children(directory)
            if not _is_directory(blob)
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        from azure.core.exceptions import HttpResponseError

        if length == 0:
            return b""

        def fetch() -> bytes:
            with self._translated("read", path):
                part = {} if not offset and length is None else {"offset": offset, "length": length}
                try:
                    data: bytes = self._blob(path).download_blob(**part).readall()
                except HttpResponseError as error:
                    if _code(error) == "InvalidRange":  # it begins behind the end
                        return b""
                    raise
                return data

        return self._of_a_version(fetch)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._create(path, data, len(data), overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        try:
            with open(local, "rb") as file:
                self._create(path, file, local.stat().st_size, overwrite)
        except OSError as error:
            raise local_disk_error(error, local) from error

    def download(self, path: str, local: Path) -> None:
        with new_local_file(local) as file:

            def fetch() -> None:
                file.seek(0)
                file.truncate()
                with self._translated("read", path):
                    self._blob(path).download_blob().readinto(file)

            self._of_a_version(fetch)

    def delete(self, path: str) -> None:
        self._delete(self._full(path), path)

    def exists(self, path: str) -> bool:
        try:
            with self._translated("look for", path):
                return not _is_directory(self._blob(path).get_blob_properties())
        except MissingError:
            return False

    def directories(self, directory: str | None = None) -> list[str]:
        start = len(self._prefix if directory is None else f"{self._full(directory)}/")
        names = {blob.name[start:].rstrip("/") for blob in self._children(directory) if _is_directory(blob)}
        return sorted(names)

    def delete_directory(self, directory: str) -> None:
        full = self._full(directory)
        with self._translated("list", directory):
            names = [*self._container.list_blob_names(name_starts_with=f"{full}/"), full]
        failures = Failures()
        for name in sorted(names, reverse=True):  # directories, where there are any, after their files
            failures.attempt(self._delete, name, directory)
        failures.check()

    def close(self) -> None:
        self._container.close()

    def _children(self, directory: str | None) -> list[Any]:
        prefix = self._prefix if directory is None else f"{self._full(directory)}/"
        with self._translated("list", directory or ""):
            blobs = self._container.walk_blobs(name_starts_with=prefix, include=["metadata"])
            return [blob for blob in blobs if blob.name != prefix]

    def _create(self, path: str, data: bytes | IO[bytes], length: int, overwrite: bool) -> None:
        for tries_left in reversed(range(_VERSIONS)):
            try:
                with self._translated("write", path, writes=True):
                    self._blob(path).upload_blob(data, length=length, overwrite=overwrite)
                return
            except _DiscardedError as error:
                file = f"{self.location}/{path}"
                if not overwrite and self.exists(path):
                    raise ConflictError(f"'{file}' exists already", file=file) from error
                if not tries_left:
                    raise
                if not isinstance(data, bytes):
                    data.seek(0)

    def _delete(self, full: str, path: str) -> None:
        try:
            with self._translated("delete", path):
                self._container.delete_blob(full, delete_snapshots="include")
        except MissingError:
            return

    def _of_a_version(self, fetch: Callable[[], T]) -> T:
        for _ in range(_VERSIONS - 1):
            try:
                return fetch()
            except _ChangedError:
                continue
        return fetch()

    def _blob(self, path: str) -> Any:
        return self._container.get_blob_client(self._full(path))

    def _full(self, path: str) -> str:
        return f"{self._prefix}{check_path(path)}"

    @contextmanager
    def _translated(self, action: str, path: str, *, writes: bool = False) -> Iterator[None]:
        from azure.core.exceptions import AzureError, HttpResponseError, ServiceResponseError

        file = f"{self.location}/{path}"
        try:
            yield
        except HttpResponseError as error:
            code = _code(error)
            if error.status_code == 404 and code != "ContainerNotFound":
                raise MissingError(f"'{file}' does not exist", file=file) from error
            if code in ("BlobAlreadyExists", "UnauthorizedBlobOverwrite"):
                raise ConflictError(f"'{file}' exists already", file=file) from error
            changed = error.status_code == 412
            why = "it was replaced while it was read" if changed else _text(error, code)
            kind = StorageError
            if changed or code == "InvalidBlockList":
                kind = _ChangedError if changed else _DiscardedError
            raise kind(f"cannot {action} '{file}': {with_remedy(why)}", file=file) from error
        except ServiceResponseError as error:
            if writes:
                raise UnknownOutcomeError(
                    f"the connection failed while '{file}' was written, and it cannot be seen whether it "
                    f"was: {_text(error)}",
                    file=file,
                ) from error
            raise StorageError(f"cannot {action} '{file}': {_text(error)}", file=file) from error
        except AzureError as error:
            raise StorageError(f"cannot {action} '{file}': {with_remedy(_text(error))}", file=file) from error


def open_azure(uri: str, environment: Mapping[str, str] = os.environ) -> AzureStorage:
    """Return the storage of the directory at `uri`; no connection is made.

    The URI is Hadoop's (`abfss://container@account.dfs.core.windows.net/path`), or that of `pyarrow`
    (`abfs://account:key@container/path`). AZURE_STORAGE_CONNECTION_STRING counts before it. The account's
    key comes from the URI or from AZURE_STORAGE_KEY, or there is AZURE_STORAGE_SAS_TOKEN; else
    `azure-identity` finds who this process is.

    Raises:
        OptionError: If the URI names no container or no account.
        StorageError: If a package is not installed.
    """
    location = masked(uri)
    container = container_of(uri, environment)
    with _needed_packages(location):
        from azure.storage.blob import ContainerClient, ExponentialRetry
    options = {
        **_TIMEOUTS,
        "retry_policy": ExponentialRetry(initial_backoff=1, increment_base=2, retry_total=2),
        "max_single_put_size": _PUT_BYTES,
        "max_block_size": _PUT_BYTES,
    }
    text = environment.get("AZURE_STORAGE_CONNECTION_STRING")
    try:
        if text:
            client = ContainerClient.from_connection_string(text, container.name, **options)
        else:
            credential = container.key or environment.get("AZURE_STORAGE_SAS_TOKEN")
            client = ContainerClient(
                container.url, container.name, credential or _identity(location), **options
            )
    except ValueError as error:
        source = "AZURE_STORAGE_CONNECTION_STRING" if text else f"'{location}'"
        raise OptionError(f"{source} cannot be used: {error}", option="checkpointLocation") from error
    return AzureStorage(client, container.directory, location)


def container_of(uri: str, environment: Mapping[str, str]) -> Container:
    """Return the container that a URI names, with the account that the URI or AZURE_STORAGE_ACCOUNT names."""
    parts = urlsplit(uri)
    user, host = unquote(parts.username or ""), parts.hostname or ""
    key = unquote(parts.password or "") or environment.get("AZURE_STORAGE_KEY")
    path = uri.partition("://")[2][len(parts.netloc) :].lstrip("/")
    if "." in host:
        name, account, end = user, *host.split(".", 1)
        if not name:
            name, _, path = path.partition("/")
        url = f"https://{account}.{end.replace('dfs.', 'blob.', 1)}"
    else:
        name, account = host, user or environment.get("AZURE_STORAGE_ACCOUNT", "")
        url = f"https://{account}.blob.core.windows.net"
    if not name:
        raise OptionError(f"'{masked(uri)}' names no container: {_FORM}", file=masked(uri))
    if not account and not environment.get("AZURE_STORAGE_CONNECTION_STRING"):
        raise OptionError(f"'{masked(uri)}' names no account: {_FORM}", file=masked(uri))
    return Container(name, account or None, key, url, path)


def _identity(location: str) -> Any:
    with _needed_packages(location):
        from azure.identity import DefaultAzureCredential
    return DefaultAzureCredential()


@contextmanager
def _needed_packages(location: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise StorageError(
            f"'{location}' needs the Python packages 'azure-storage-blob' and 'azure-identity': "
            "pip install azure-storage-blob azure-identity",
            file=location,
        ) from error


def _is_directory(blob: Any) -> bool:
    """Return True for a prefix, and for the blob by which Hadoop marks a directory."""
    metadata = getattr(blob, "metadata", None) or {}
    is_marked = {name.lower(): value for name, value in metadata.items()}.get("hdi_isfolder") == "true"
    return is_marked or blob.name.endswith("/")


def _code(error: Any) -> str:
    code = getattr(error, "error_code", None) or error.reason or ""
    return str(getattr(code, "value", code))


def _text(error: Exception, code: str = "") -> str:
    text = str(getattr(error, "message", None) or error).partition("\n")[0].rstrip()
    return text if not code or code in text else f"{code}: {text}"
