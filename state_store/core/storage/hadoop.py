"""Checkpoint storage on any URI that Spark's Hadoop configuration can write, through the executor's JVM.

The JVM does the work with Spark's own credentials. Spark's checkpoint file manager makes the files, so they
are as atomic and durable as Spark's checkpoints there. On S3A they are put under their own names, on
condition that the name is free.

1. A frame is the length of the header (4 bytes), the length of the body (4 bytes), the header as JSON, and
   the body. One thread at a time reads or writes a socket. The calls of the JVM have the same frames.
2. A file request of docs/protocol.md is the header of a frame, and so is its answer.
3. The JVM lends connections (`FileConnections`), and answers one request after the other on each. Requests of
   several threads run at the same time, as many as connections were lent. Background work (merges, clean-ups)
   takes at most a share of them, so that a commit or a restore never waits for it.
4. `HadoopStorage` makes requests of the operations of a storage.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import socket
import struct
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict, cast

from state_store import errors
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Entry, Span, Storage, check_path, new_local_file, with_remedy
from state_store.core.storage.local_disk import failed_download
from state_store.errors import ConflictError, MissingError, StateStoreError, StorageError, UnknownOutcomeError

# ---- frames ---------------------------------------------------------------------------------------------

MAX_HEADER_BYTES = 16 << 20
MAX_BODY_BYTES = 64 << 20
_LENGTHS = struct.Struct(">II")


class ProtocolError(Exception):
    """The other side does not speak the protocol: the connection is closed."""


def read_frame(
    connection: socket.socket,
    *,
    max_header_bytes: int = MAX_HEADER_BYTES,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> tuple[dict[str, Any], bytes] | None:
    """Return the next header and body, or None if the other side closed the connection between frames.

    Raises:
        ProtocolError: The bytes are not a frame within these bounds. No memory is taken for them.
    """
    lengths = _read(connection, _LENGTHS.size)
    if lengths is None:
        return None
    header_bytes, body_bytes = _LENGTHS.unpack(lengths)
    if header_bytes > max_header_bytes or body_bytes > max_body_bytes:
        raise ProtocolError(
            f"a frame is too large: its header has {header_bytes} bytes, its body {body_bytes}"
        )
    data = _read(connection, header_bytes + body_bytes)
    if data is None:
        raise ProtocolError("the connection ended within a frame")
    try:
        header = json.loads(data[:header_bytes].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a header that is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ProtocolError("a header that is not a JSON object")
    return header, data[header_bytes:]


def write_frame(connection: socket.socket, header: Mapping[str, object], body: bytes = b"") -> None:
    """Send a frame.

    Raises:
        ProtocolError: It is larger than a frame may be.
    """
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    if len(text) > MAX_HEADER_BYTES or len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"cannot send a header of {len(text)} and a body of {len(body)} bytes")
    connection.sendall(_LENGTHS.pack(len(text), len(body)) + text + body)


def _read(connection: socket.socket, count: int) -> bytes | None:
    """Return exactly `count` bytes, or None if the connection ends before the first."""
    buffer = bytearray(count)
    view = memoryview(buffer)
    filled = 0
    while filled < count:
        received = connection.recv_into(view[filled:])
        if received == 0:
            if filled == 0:
                return None
            raise ProtocolError("the connection ended within a frame")
        filled += received
    return bytes(buffer)


# ---- requests and answers -------------------------------------------------------------------------------


class _Named(TypedDict):
    fs: str
    path: str


_Page = TypedDict("_Page", {"after": "str | None", "most": int}, total=False)  # noqa: UP013 -- a field that no attribute may be named after
"""Page of a listing: the name after which it begins, and its files at most."""


class SpanFields(TypedDict):
    """A span of the request `spans`; `pieces` has offset and length of each piece."""

    path: str
    to: str
    pieces: list[int]


class FileRequest(_Named, _Page, total=False):
    """A request: `fs` is the operation on `path`, a URI; the other fields depend on it.

    `background` tells that nobody waits for the answer, and the JVM may do other requests first.
    """

    store: int
    background: bool
    offset: int
    length: int | None
    overwrite: bool
    upload: str
    to: str
    spans: list[SpanFields]


class ListedFile(TypedDict):
    """A file in the answer to `list`."""

    name: str
    bytes: int
    modified_ms: int


class FileAnswer(TypedDict, total=False):
    """The `ok` object of `list`, `spans` and `exists`. `copied` has the bytes of each span."""

    entries: list[ListedFile]
    more: bool
    copied: list[int]
    exists: bool


class FileSystemCalls(Protocol):
    """The JVM as it answers file requests. Safe for any thread."""

    def fs(self, operation: FileRequest, body: bytes) -> tuple[FileAnswer, bytes]:
        """Return the `ok` object of the answer, and a body.

        Raises:
            StateStoreError: The error of the answer.
        """


# ---- connections ----------------------------------------------------------------------------------------

LEND_TIMEOUT_S = 60.0
"""Seconds that a request waits for the JVM to lend its first connection."""

_WRITES = ("write", "delete")
_in_background: contextvars.ContextVar[bool] = contextvars.ContextVar("in_background", default=False)


@contextlib.contextmanager
def background() -> Iterator[None]:
    """Count the file requests of the body, and of threads that copy its context, as background work."""
    token = _in_background.set(True)
    try:
        yield
    finally:
        _in_background.reset(token)


class FileConnections:
    """The connections that the JVM has lent to this agent. Safe for any thread."""

    def __init__(self, *, lend_timeout_s: float = LEND_TIMEOUT_S, runtime: Runtime = SYSTEM) -> None:
        self._lend_timeout_s = lend_timeout_s
        self._clock_s = runtime.monotonic_s
        self._changed = runtime.condition()
        self._idle: list[socket.socket] = []
        self._lent = 0
        self._in_background = 0
        self._background_limit = 1
        self._requests: deque[object] = deque()
        self._background_requests: deque[object] = deque()

    @property
    def lent(self) -> int:
        """Number of connections, idle or not."""
        return self._lent

    def allow_background(self, connections: int) -> None:
        """Allow background work this many connections at once; the largest number of any store counts."""
        with self._changed:
            self._background_limit = max(self._background_limit, connections)
            self._changed.notify_all()

    def lend(self, channel: socket.socket) -> None:
        """Take over a connection whose handshake is done. It is closed here when it breaks."""
        with self._changed:
            self._idle.append(channel)
            self._lent += 1
            self._changed.notify_all()

    def ask(self, request: FileRequest, body: bytes) -> tuple[FileAnswer, bytes]:
        """Send a request, and return the `ok` object and the body of the answer.

        Raises:
            StateStoreError: The JVM answers with it.
            UnknownOutcomeError: The connection broke while a file was written or deleted.
            StorageError: The connection broke during another request, or the JVM has lent none.
        """
        in_background = _in_background.get()
        if in_background:
            request = {**request, "background": True}
        channel = self._borrow(in_background)
        usable = False
        try:
            answer, data = _exchange(channel, request, body)
            usable = True
        except (OSError, ProtocolError) as error:
            kind = UnknownOutcomeError if request["fs"] in _WRITES else StorageError
            raise kind(f"the connection to the JVM broke: {error}", file=request.get("path")) from error
        finally:
            self._give_back(channel, in_background, usable)
        if "error" in answer:
            raise errors.from_json(cast(errors.ErrorFields, answer["error"]))
        return cast(FileAnswer, answer.get("ok", {})), data

    def _borrow(self, in_background: bool) -> socket.socket:
        """Take an idle connection. Requests take turns in their order, background work after the others."""
        end_s = self._clock_s() + self._lend_timeout_s
        ticket, queue = object(), self._background_requests if in_background else self._requests
        with self._changed:
            queue.append(ticket)
            try:
                while not self._is_next(ticket, in_background):
                    if self._lent == 0 and self._clock_s() >= end_s:
                        raise StorageError("the JVM has lent no connection for file requests")
                    self._changed.wait(1.0)
                self._in_background += in_background
                return self._idle.pop()
            finally:
                queue.remove(ticket)
                self._changed.notify_all()

    def _is_next(self, ticket: object, in_background: bool) -> bool:
        """Return True if a waiting request may take a connection.

        It is the first of its queue. Work in the background also waits until no other request does, and for
        its share of the connections.
        """
        if not self._idle:
            return False
        if not in_background:
            return self._requests[0] is ticket
        has_room = not self._requests and self._in_background < self._background_limit
        return has_room and self._background_requests[0] is ticket

    def _give_back(self, channel: socket.socket, in_background: bool, usable: bool) -> None:
        with self._changed:
            self._in_background -= in_background
            if usable:
                self._idle.append(channel)
            else:
                self._lent -= 1
            self._changed.notify_all()
        if not usable:
            channel.close()


class StoreFiles:
    """File requests of one store (`FileSystemCalls`), for which the JVM uses its configuration."""

    def __init__(self, connections: FileConnections, store: int) -> None:
        self._connections = connections
        self._store = store

    def fs(self, operation: FileRequest, body: bytes) -> tuple[FileAnswer, bytes]:
        return self._connections.ask({**operation, "store": self._store}, body)


def _exchange(channel: socket.socket, request: FileRequest, body: bytes) -> tuple[dict[str, object], bytes]:
    write_frame(channel, request, body)
    frame = read_frame(channel)
    if frame is None:
        raise ProtocolError("the JVM closed the connection before it answered")
    return frame


# ---- the storage ----------------------------------------------------------------------------------------

CHUNK_BYTES = 32 << 20
"""Bytes of a frame at most; the protocol's limit is 64 MiB."""

PAGE_ENTRIES = 20_000
"""Files in an answer to `list` at most; with names of 100 characters, about 3.5 MB."""

_FIRST_WRITE_BYTES = 8 << 10


class HadoopStorage(Storage):
    """Files below the directory at `location`, a URI in Hadoop's form (not percent-encoded)."""

    takes_spans_together = True

    def __init__(self, location: str, jvm: FileSystemCalls, *, runtime: Runtime = SYSTEM) -> None:
        self.location = location.rstrip("/")
        self._jvm = jvm
        self._made: set[str] = set()
        self._lock = runtime.lock()

    def list_files(self, directory: str) -> list[Entry]:
        """Return the files of a directory, in pages by name; one that changes meanwhile may be missing."""
        entries: list[Entry] = []
        more = True
        while more:
            after = entries[-1].name if entries else None
            answer, _ = self._call({"fs": "list", "path": directory, "after": after, "most": PAGE_ENTRIES})
            entries += [Entry(file["name"], file["bytes"], file["modified_ms"]) for file in answer["entries"]]
            more = answer["more"]
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        parts: list[bytes] = []
        remaining = length
        while remaining is None or remaining > 0:
            request = CHUNK_BYTES if remaining is None else min(remaining, CHUNK_BYTES)
            _, part = self._call({"fs": "read", "path": path, "offset": offset, "length": request})
            parts.append(part)
            offset += len(part)
            remaining = None if remaining is None else remaining - len(part)
            if len(part) < request:
                break
        return b"".join(parts)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        if len(data) > CHUNK_BYTES:
            with tempfile.NamedTemporaryFile(prefix="upload-") as file:
                file.write(data)
                file.flush()
                self.upload(Path(file.name), path, overwrite=overwrite)
            return
        self._make_parent(path)
        self._call({"fs": "write", "path": path, "overwrite": overwrite}, data)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        if not local.is_file():
            raise StorageError(f"cannot upload '{local}': it is not a file", file=str(local))
        self._make_parent(path)
        self._call({"fs": "write", "path": path, "upload": str(local), "overwrite": overwrite})

    def download(self, path: str, local: Path) -> None:
        with new_local_file(local):
            self._call({"fs": "download", "path": path, "to": str(local)})

    def download_spans(self, spans: Sequence[Span]) -> list[int]:
        if not spans:
            return []
        request: list[SpanFields] = [
            {
                "path": f"{self.location}/{check_path(span.path)}",
                "to": str(span.local),
                "pieces": [number for piece in span.pieces for number in piece],
            }
            for span in spans
        ]
        answer, _ = self._call({"fs": "spans", "path": spans[0].path, "spans": request})
        return answer["copied"]

    def delete(self, path: str) -> None:
        self._call({"fs": "delete", "path": path})

    def exists(self, path: str) -> bool:
        answer, _ = self._call({"fs": "exists", "path": path})
        return bool(answer["exists"])

    def _make_parent(self, path: str) -> None:
        """Make the directory of `path`, unless this object has made it before."""
        parent = check_path(path).rpartition("/")[0]
        with self._lock:
            if parent in self._made:
                return
        self._call({"fs": "mkdirs", "path": parent})
        with self._lock:
            self._made.add(parent)

    def _call(self, request: FileRequest, body: bytes = b"") -> tuple[FileAnswer, bytes]:
        """Send a request, whose `path` is below this storage's location."""
        operation, uri = request["fs"], f"{self.location}/{check_path(request['path'])}"
        try:
            return self._jvm.fs({**request, "path": uri}, body)
        except MissingError as error:
            uri = _failed(request, error) or uri
            raise MissingError(f"'{uri}' does not exist ({error.message})", file=uri) from error
        except ConflictError as error:
            if operation != "write":
                raise StorageError(f"cannot {_verb(operation)} '{uri}': {error.message}", file=uri) from error
            raise ConflictError(f"'{uri}' exists already ({error.message})", file=uri) from error
        except StorageError as error:
            uri = _failed(request, error) or uri
            local, size_bytes = _written(request, uri)
            failure = failed_download(error.message, local, size_bytes) if local else None
            if failure is not None:
                raise failure from error
            why = with_remedy(error.message)
            raise StorageError(f"cannot {_verb(operation)} '{uri}': {why}", file=uri) from error


def _verb(operation: str) -> str:
    """Return the word for what an operation does to a file, for a message."""
    return {"spans": "read", "mkdirs": "make", "exists": "look for"}.get(operation, operation)


def _failed(request: FileRequest, error: StateStoreError) -> str | None:
    """Return the file of a request for spans that failed; None: the request is for a single file."""
    return error.file if any(span["path"] == error.file for span in request.get("spans", ())) else None


def _written(request: FileRequest, uri: str) -> tuple[str | None, int]:
    """Return the local file that the JVM writes of `uri`, and the bytes of all, or of the first write."""
    spans = request.get("spans")
    if spans:
        local = next((span["to"] for span in spans if span["path"] == uri), spans[0]["to"])
        return local, sum(sum(span["pieces"][1::2]) for span in spans)
    return request.get("to"), _FIRST_WRITE_BYTES
