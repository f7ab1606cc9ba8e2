"""Clients of WebHDFS by the credentials of this process: delegation tokens, a Kerberos ticket, a user name.

The first of these that is there is taken:

1. A delegation token for the NameNode in the file that HADOOP_TOKEN_FILE_LOCATION names, as YARN gives it to
   containers and `hdfs fetchdt` writes it. Such a file begins with `HDTS` and the number of its format. In
   format 0 a number of tokens follows, each with its alias, identifier, password, kind and service, the
   lengths in Hadoop's variable-length numbers.
2. Kerberos, if `hadoop.security.authentication` at HADOOP_CONF_DIR says so, or if the NameNode asks for it
   and the package `requests-kerberos` is there. The ticket is the one that `kinit` left, or is obtained from
   the keytab that KRB5_CLIENT_KTNAME names. HADOOP_PROXY_USER acts for another user.
3. Hadoop's simple authentication: a user name.
"""

from __future__ import annotations

import base64
import io
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from state_store.core.storage.hadoop_conf import read_properties, webhdfs_endpoints
from state_store.errors import OptionError, StorageError

TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"
PROXY_USER = "HADOOP_PROXY_USER"
INSTALL_KERBEROS = "pip install requests-kerberos (the extra `kerberos`)"
_KINDS = ("HDFS_DELEGATION_TOKEN", "WEBHDFS delegation", "SWEBHDFS delegation")
_MAGIC = b"HDTS"
_JAVA_FORMAT = 0
_ASKS_FOR_KERBEROS = "authentication failure"
"""Words of the package `hdfs` for the HTTP status 401."""


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


def _addresses(host: str) -> set[str]:
    """Return the host and its addresses."""
    try:
        return {host, *(str(info[4][0]) for info in socket.getaddrinfo(host, None))}
    except OSError:
        return {host}
