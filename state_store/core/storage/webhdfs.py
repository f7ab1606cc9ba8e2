"""Checkpoint storage on HDFS over WebHDFS, for programs without a JVM; needs the package `hdfs`.

A URI names a NameNode or a name service. `webhdfs_endpoints` reads from the configuration at HADOOP_CONF_DIR,
in the property names of Hadoop's `hdfs-default.xml`, where their WebHDFS listens. `connect` makes a client by
the first of these credentials that is there:

1. A delegation token for the NameNode in the file that HADOOP_TOKEN_FILE_LOCATION names, as YARN gives it to
   containers and `hdfs fetchdt` writes it. Such a file begins with `HDTS` and the number of its format. In
   format 0 a number of tokens follows, each with its alias, identifier, password, kind and service, the
   lengths in Hadoop's variable-length numbers.
2. Kerberos, if `hadoop.security.authentication` at HADOOP_CONF_DIR says so, or if the NameNode asks for it
   and the package `requests-kerberos` is there. The ticket is the one that `kinit` left, or is obtained from
   the keytab that KRB5_CLIENT_KTNAME names. HADOOP_PROXY_USER acts for another user.
3. Hadoop's simple authentication: a user name.

A `WebHdfsStorage` then uses that client. A file is written under a temporary name, and the NameNode renames
it in one step (`renameoptions`: none, or `OVERWRITE`), under a lock that look-ups of names take, too: they
find the old file or the new one. HttpFS gateways do not know that option: with them, replacing a file is
refused. The bytes are as durable as the cluster's `dfs.datanode.synconclose` makes closed files.
"""

from __future__ import annotations

import base64
import getpass
import io
import os
import shutil
import socket
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.runtime import SYSTEM
from state_store.core.storage.contract import Entry, Storage, check_path, new_local_file, with_remedy
from state_store.errors import (
    ConflictError,
    MissingError,
    OptionError,
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

TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"

PROXY_USER = "HADOOP_PROXY_USER"

INSTALL_KERBEROS = "pip install requests-kerberos (the extra `kerberos`)"

_KINDS = ("HDFS_DELEGATION_TOKEN", "WEBHDFS delegation", "SWEBHDFS delegation")

_MAGIC = b"HDTS"

_JAVA_FORMAT = 0

_ASKS_FOR_KERBEROS = "authentication failure"
"""Words of the package `hdfs` for the HTTP status 401."""

_NOT_WEBHDFS = "the answer is not one of WebHDFS (does a gateway answer, or another service at that port?)"

_SHOWN_BYTES = 200

_WITHOUT_FIELDS = (KeyError, TypeError, AttributeError)
"""Errors by which the package `hdfs` fails when JSON is not that of WebHDFS."""

_DEFAULT_PORTS = {"http": 9870, "https": 9871}

T = TypeVar("T")


class _DataNodeError(StorageError):
    """The connection to a DataNode failed."""


# ---- the NameNodes of a URI -----------------------------------------------------------------------------


def webhdfs_endpoints(authority: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return `http(s)://host:port` of each NameNode behind `authority`.

    Without a configuration that is port 9870 of the host.

    Args:
        authority: `host[:port]`, a name service, or empty: that of `fs.defaultFS`.
        environment: has HADOOP_CONF_DIR.

    Raises:
        OptionError: If the configuration cannot be read or names observers, or if there is no authority.
    """
    properties = read_properties(environment)
    scheme = "https" if properties.get("dfs.http.policy", "").upper() == "HTTPS_ONLY" else "http"
    if not authority:
        authority = properties.get("fs.defaultFS", "").removeprefix("hdfs://").rstrip("/")
    if not authority:
        raise OptionError(
            "an hdfs URI without a host needs fs.defaultFS in HADOOP_CONF_DIR", option="HADOOP_CONF_DIR"
        )
    if "ObserverRead" in properties.get(f"dfs.client.failover.proxy.provider.{authority}", ""):
        raise OptionError(
            f"'{authority}' is read from observers, whose answers may be old: name the active one, as in "
            "webhdfs://host:9870/path",
            option="HADOOP_CONF_DIR",
        )
    nodes = properties.get(f"dfs.ha.namenodes.{authority}")
    key = f"dfs.namenode.{scheme}-address"
    if nodes:
        endpoints = [properties.get(f"{key}.{authority}.{node.strip()}") for node in nodes.split(",")]
        addresses = [address for address in endpoints if address]
    else:
        configured = properties.get(f"{key}.{authority}") or properties.get(key)
        addresses = [configured] if configured else []
    return [f"{scheme}://{_reachable(address, authority)}" for address in addresses] or [
        f"{scheme}://{authority.partition(':')[0]}:{_DEFAULT_PORTS[scheme]}"
    ]


def read_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of `core-site.xml` and `hdfs-site.xml` in HADOOP_CONF_DIR, if that is set."""
    directory = environment.get("HADOOP_CONF_DIR")
    properties: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml"):
        path = Path(directory, name) if directory else None
        if path is not None and path.is_file():
            properties.update(_parse_properties(path))
    return properties


def _parse_properties(path: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise OptionError(
            f"cannot read '{path}': {error}", file=str(path), option="HADOOP_CONF_DIR"
        ) from error
    pairs = ((item.findtext("name"), item.findtext("value")) for item in root.iter("property"))
    return {name.strip(): (value or "").strip() for name, value in pairs if name}


def _reachable(address: str, authority: str) -> str:
    """Return the address, with the URI's host in place of a wildcard."""
    host, _, port = address.rpartition(":")
    return f"{authority.partition(':')[0]}:{port}" if host in ("0.0.0.0", "") else address


# ---- clients and their credentials ----------------------------------------------------------------------


def connect(
    endpoints: list[str], user: str, timeout_s: float, environment: Mapping[str, str] = os.environ
) -> Any:
    """Return a client of the package `hdfs` for the NameNodes at `endpoints`, for one thread at a time.

    Args:
        endpoints: `http(s)://host:port` of each NameNode.
        user: the user name of simple authentication.
        timeout_s: seconds that a request may take.
        environment: names the files of credentials.

    Raises:
        ImportError: The package `hdfs` is not installed.
        OptionError: The file with tokens cannot be read.
        StorageError: The configuration asks for Kerberos, and its package is not installed.
    """
    from hdfs import InsecureClient, TokenClient
    from hdfs.util import HdfsError

    url = ";".join(endpoints)
    token = delegation_token(endpoints, environment)
    if token is not None:
        return TokenClient(url, token, timeout=timeout_s)
    if read_properties(environment).get("hadoop.security.authentication", "").lower() == "kerberos":
        return _kerberos_client(url, timeout_s, environment)
    client = InsecureClient(url, user=user, timeout=timeout_s)
    if _speaks_kerberos():
        try:
            client.status("/")
        except HdfsError as error:
            if _ASKS_FOR_KERBEROS in str(error).lower():
                return _kerberos_client(url, timeout_s, environment)
    return client


def _speaks_kerberos() -> bool:
    try:
        import requests_kerberos  # noqa: F401 -- to see whether it is there
    except ImportError:
        return False
    return True


def _kerberos_client(url: str, timeout_s: float, environment: Mapping[str, str]) -> Any:
    if not _speaks_kerberos():
        raise StorageError(
            f"HADOOP_CONF_DIR says that the cluster asks for Kerberos, which this Python does not speak: "
            f"{INSTALL_KERBEROS}, and run kinit; or set {TOKEN_FILE} to a file with a delegation token"
        )
    from hdfs.ext.kerberos import KerberosClient

    return KerberosClient(url, proxy=environment.get(PROXY_USER), timeout=timeout_s)


def delegation_token(endpoints: list[str], environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token for these NameNodes, as WebHDFS takes it, or None if no file has tokens for HDFS.

    Raises:
        OptionError: The file cannot be read, or has several tokens and none is for these NameNodes.
    """
    path = environment.get(TOKEN_FILE)
    if not path:
        return None
    try:
        tokens = [token for token in parse_tokens(Path(path).read_bytes()) if token.kind in _KINDS]
    except (OSError, ValueError) as error:
        raise OptionError(
            f"the delegation tokens in '{path}' cannot be read: {error}", file=path, option=TOKEN_FILE
        ) from error
    if not tokens:
        return None
    for token in tokens:
        if _is_for(token.service, endpoints, environment):
            return token.to_parameter()
    raise OptionError(
        f"'{path}' has delegation tokens for {', '.join(sorted(token.service for token in tokens))}, and "
        f"none for {', '.join(endpoints)}: fetch one from there with `hdfs fetchdt`. The NameNodes of a name "
        "service are known from HADOOP_CONF_DIR",
        file=path,
        option=TOKEN_FILE,
    )


def _is_for(service: str, endpoints: list[str], environment: Mapping[str, str]) -> bool:
    """Return True if a token of the service may be sent to these NameNodes: who has it acts for its user."""
    kind, colon, name = service.partition(":")
    if colon and kind == "ha-hdfs":
        return not set(endpoints).isdisjoint(webhdfs_endpoints(name, environment))
    hosts = {address for endpoint in endpoints for address in _addresses(urlsplit(endpoint).hostname or "")}
    return not hosts.isdisjoint(_addresses(service.rpartition(":")[0]))


def _addresses(host: str) -> set[str]:
    """Return the host and its addresses."""
    try:
        return {host, *(str(info[4][0]) for info in socket.getaddrinfo(host, None))}
    except OSError:
        return {host}


@dataclass(frozen=True)
class Token:
    """A delegation token. `service` is `host:port` of the NameNode, or `ha-hdfs:` and a name service."""

    identifier: bytes
    password: bytes
    kind: str
    service: str

    def to_parameter(self) -> str:
        """Return the text that WebHDFS takes as the parameter `delegation`."""
        fields = [self.identifier, self.password, self.kind.encode("utf-8"), self.service.encode("utf-8")]
        packed = b"".join(_variable_length(len(field)) + field for field in fields)
        return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")


def parse_tokens(content: bytes) -> list[Token]:
    """Return the tokens in a file of Hadoop's.

    Raises:
        ValueError: The content is cut short, or of another format.
    """
    if content[:4] != _MAGIC:
        raise ValueError("it does not begin as Hadoop's files of tokens do")
    if content[4:5] != bytes([_JAVA_FORMAT]):
        raise ValueError("it is not in Hadoop's Java format: write it with `hdfs dtutil -format java`")
    reader = io.BytesIO(content[5:])
    tokens = []
    for _ in range(_read_number(reader)):
        _read_field(reader)  # the alias
        identifier, password, kind, service = (_read_field(reader) for _ in range(4))
        tokens.append(Token(identifier, password, kind.decode("utf-8"), service.decode("utf-8")))
    return tokens


def _read_field(reader: io.BytesIO) -> bytes:
    length = _read_number(reader)
    field = reader.read(length)
    if len(field) != length:
        raise ValueError("it is cut short")
    return field


def _read_number(reader: io.BytesIO) -> int:
    """Read a number as `WritableUtils.readVInt` does; lengths are never negative."""
    first = reader.read(1)
    if not first:
        raise ValueError("it is cut short")
    value = int.from_bytes(first, "big", signed=True)
    if value >= -112:
        length = 0
    else:
        length = -112 - value
        value = int.from_bytes(reader.read(length), "big")
    if value < 0 or length > 4:
        raise ValueError("it has a length that is not one")
    return value


def _variable_length(number: int) -> bytes:
    """Return a length as `WritableUtils.writeVInt` writes it."""
    if number <= 127:
        return bytes([number])
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return (-112 - len(digits)).to_bytes(1, "big", signed=True) + digits


# ---- the storage ----------------------------------------------------------------------------------------


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
        try:
            status = self._ask("look for", path, self._client_status)  # not strict, every error is an absence
        except MissingError:
            return False
        return bool(status["type"] == "FILE")

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
        for tries_left in reversed(range(_VERSIONS)):
            before = self._version(path)
            read = partial(self._ask, "read", path, partial(fetch, size_bytes=before[1]))
            try:
                return _at_any_datanode(read)
            except (StorageError, MissingError):
                if not tries_left or self._version(path) == before:
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
                is_refused = bool(answer.content) and answer.json()["boolean"] is False
        except (StorageError, MissingError, ConflictError) as error:
            self._resolve_rename(temporary, path, error)
            return
        if is_refused:
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
        from requests.exceptions import JSONDecodeError, RequestException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except HdfsError as error:
            if error.exception == "FileNotFoundException":
                raise MissingError(f"'{self._uri(path)}' does not exist", file=self._uri(path)) from error
            if error.exception == "FileAlreadyExistsException":
                raise ConflictError(f"'{self._uri(path)}' exists already", file=self._uri(path)) from error
            raise self._failed(action, path, _reason(error.message)) from error
        except (JSONDecodeError, *_WITHOUT_FIELDS) as error:
            raise self._failed(action, path, _NOT_WEBHDFS) from error
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


def _reason(message: str | bytes) -> str:
    """Return why a request failed. Bytes are an answer that is not in the form of WebHDFS."""
    if isinstance(message, str):
        return message
    text = " ".join(message[:_SHOWN_BYTES].decode("utf-8", "replace").split())
    return f"{_NOT_WEBHDFS}: {text}" if text else _NOT_WEBHDFS
