"""Choice of the storage for the URI of a store's directory, and URIs without their secrets.

A URI such as `s3://key:secret@bucket/directory` has a secret. `without_secret` is for every location that
comes from outside. It keeps the secret in the memory of this process, where `open_storage` finds it again, so
that nothing else has one that it could print or store.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from state_store.core.runtime import FIRST_ANSWER_S
from state_store.core.storage.contract import AnsweringStorage, Storage
from state_store.core.storage.hadoop import FileSystemCalls, HadoopStorage
from state_store.core.storage.local import LocalStorage, warn_of_cached_attributes
from state_store.errors import MASK, OptionError, StorageError, masked

_KNOWN: dict[str, str] = {}
"""Beginnings of URIs, up to the `@`, by what is left of them without the secret."""

_SLASHES = re.compile(r"(s3[an]?|gs|abfss?)://[^/:@]*:(?!\d+/)[^/@]*/[^@]*@", re.IGNORECASE)

_ARROW_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}

_AZURE_SCHEMES = ("abfs", "abfss")

SCHEMES = ("file", "hdfs", "webhdfs", "swebhdfs", *_ARROW_SCHEMES, *_AZURE_SCHEMES)
"""Schemes of URIs that `open_storage` knows without a JVM."""

_FIRST_ANSWER_S = 30
"""Seconds in which the client of GCS repeats a request that nobody answers; its own limit is 15 minutes."""

_SUPPORTED = "a path, file:, hdfs:, webhdfs:, swebhdfs:, s3:, s3a:, gs:, abfs: and abfss:"


# ---- URIs without their secrets -------------------------------------------------------------------------


def without_secret(location: str) -> str:
    """Return a path or URI with `***` in place of a secret, which this process keeps.

    Raises:
        OptionError: If the secret has a slash, so that it ends the name of the bucket.
    """
    start, at, rest = location.partition("@")
    location_text = masked(f"{start}@")[:-1]
    if not at or location_text == start:
        return location
    if _SLASHES.match(location):
        raise OptionError(
            f"the secret in '{location_text}@{rest}' has a slash, which ends the name of a host: write %2F, "
            "or give the secret by the environment",
            option="checkpointLocation",
        )
    if not start.endswith(f":{MASK}"):
        _KNOWN[location_text] = start
    return f"{location_text}@{rest}"


def with_secret(location: str) -> str:
    """Return the URI that `without_secret` was given.

    Raises:
        OptionError: If another process was given it.
    """
    start, at, rest = location.partition("@")
    if not at or not start.endswith(f":{MASK}"):
        return location
    if start not in _KNOWN:
        raise OptionError(
            f"'{location}' has {MASK} in place of a secret that this process does not know: give the secret, "
            "or better a profile or variables of the environment",
            option="checkpointLocation",
        )
    return f"{_KNOWN[start]}@{rest}"


NO_FILE_NAME = "is not a path or URI: it contains a NUL or an unpaired surrogate"
"""Predicate of a message about a text that is not `is_file_name`."""


def is_file_name(text: str) -> bool:
    """Return True if the operating system can have a file with this path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


# ---- the choice -----------------------------------------------------------------------------------------


def open_storage(uri: str, *, jvm: FileSystemCalls | None = None) -> Storage:
    """Return the storage of the directory at `uri`.

    A local path or `file:` URI is used directly, any other through the JVM if there is one, else by a client
    of this process, whose service has to answer the first request in a minute.

    Args:
        uri: a path or a URI in Hadoop's form, which is not percent-decoded.
        jvm: the JVM of an executor.

    Raises:
        OptionError: If the scheme is unknown, or no file can have such a name.
        StorageError: If the package of the client is not installed, or the service does not answer.
    """
    if not is_file_name(uri):
        raise OptionError(f"{without_secret(uri)!a} {NO_FILE_NAME}", option="checkpointLocation")
    location, uri = without_secret(uri), with_secret(uri)
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", uri)
    scheme = match[1].lower() if match else "file"
    if scheme == "file":
        local = LocalStorage(_local_path(uri, has_scheme=match is not None))
        warn_of_cached_attributes(local.directory)
        return local
    if jvm is not None:
        return HadoopStorage(uri, jvm)
    if scheme in ("webhdfs", "swebhdfs", "hdfs"):
        return AnsweringStorage(location, partial(_web_hdfs, scheme, uri), limit_s=FIRST_ANSWER_S)
    if scheme in _AZURE_SCHEMES:
        from state_store.core.storage.objects import open_azure

        return AnsweringStorage(location, partial(open_azure, uri), limit_s=FIRST_ANSWER_S)
    if scheme in _ARROW_SCHEMES:
        return AnsweringStorage(location, partial(_arrow, scheme, uri), limit_s=FIRST_ANSWER_S)
    raise OptionError(
        f"'{uri}' has the scheme '{scheme}', which is not supported outside Spark; "
        f"supported are {_SUPPORTED}",
        file=uri,
        option="checkpointLocation",
    )


def _local_path(uri: str, *, has_scheme: bool) -> str:
    path = uri[len("file:") :] if has_scheme else uri
    if has_scheme and not path.startswith("/"):
        raise OptionError(
            f"'{uri}' is a URI without the root of its path: give file:///path, or a path without file:",
            file=uri,
        )
    if not path.startswith("//"):
        return path
    host, slash, rest = path[2:].partition("/")
    if has_scheme and host not in ("", "localhost"):
        raise OptionError(f"'{uri}' names the host '{host}'; a file URI has none: file:///path", file=uri)
    return slash + rest if has_scheme else path


def _web_hdfs(scheme: str, uri: str) -> Storage:
    from state_store.core.storage.webhdfs import WebHdfsStorage, webhdfs_endpoints

    authority, slash, path = uri.partition("://")[2].partition("/")
    if scheme == "hdfs":
        endpoints = webhdfs_endpoints(authority)
    else:
        endpoints = [f"{'https' if scheme == 'swebhdfs' else 'http'}://{authority}"]
    return WebHdfsStorage(endpoints, slash + path)


def _arrow(scheme: str, uri: str) -> Storage:
    from state_store.core.storage.objects import ArrowStorage

    try:
        import pyarrow.fs  # noqa: F401 -- to see whether it is there
    except ImportError as error:
        raise StorageError(
            f"'{uri}' needs the Python package 'pyarrow', which this Python lacks: pip install pyarrow",
            file=uri,
        ) from error
    location = without_secret(uri)
    netloc, path = uri.partition("://")[2].partition("/")[::2]
    if not netloc:
        raise OptionError(f"'{location}' names no bucket: give {scheme}://bucket/directory", file=location)
    root = f"{_ARROW_SCHEMES[scheme]}://{netloc}"
    try:
        filesystem, bucket = _file_system(root)
    except (ValueError, OSError) as error:
        raise StorageError(f"cannot open '{root}' for '{location}': {error}", file=location) from error
    return ArrowStorage(filesystem, f"{bucket.rstrip('/')}/{path}", location)


def _file_system(root: str) -> tuple[Any, str]:
    """Return the client and the bucket of `scheme://[user[:secret]@]bucket`."""
    from pyarrow.fs import FileSystem

    if root.startswith("gs:"):
        opened: tuple[Any, str] = FileSystem.from_uri(f"{root}?retry_limit_seconds={_FIRST_ANSWER_S}")
        return opened
    proxy = _proxy_of_s3()
    if proxy is not None:
        return _through_proxy(root, proxy)
    try:
        # A small file is one request then, and leaves no unfinished upload behind. From pyarrow 19 on.
        opened = FileSystem.from_uri(f"{root}?allow_delayed_open=true")
    except ValueError:
        opened = FileSystem.from_uri(root)
    return opened


def _proxy_of_s3() -> str | None:
    """Return the proxy that the environment names for S3, with HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    from urllib.request import getproxies_environment, proxy_bypass  # of much weight, and no agent needs it

    service = urlsplit(_s3_endpoint() or "https://s3.amazonaws.com")
    if proxy_bypass(service.hostname or ""):
        return None
    return getproxies_environment().get(service.scheme)


def _through_proxy(root: str, proxy: str) -> tuple[Any, str]:
    from pyarrow.fs import S3FileSystem

    parts = urlsplit(root)
    keys = {"access_key": parts.username, "secret_key": parts.password}
    credentials = {name: unquote(key) for name, key in keys.items() if key}
    filesystem = S3FileSystem(
        **credentials, endpoint_override=_s3_endpoint(), proxy_options=proxy, allow_delayed_open=True
    )
    return filesystem, parts.netloc.rpartition("@")[2]


def _s3_endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
