"""Files through the JVM, by connections that it lends: on each it answers one request after the other.

Requests of several threads run at the same time, as many as connections were lent. Background work (merges,
clean-ups) takes at most a share of them, so that a commit or a restore never waits for it.

A frame is the length of the header (4 bytes), the length of the body (4 bytes), the header as JSON, and the
body. One thread at a time reads or writes a socket.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import socket
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, cast

from state_store import errors
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.hadoop import FileAnswer, FileRequest
from state_store.errors import StorageError, UnknownOutcomeError

MAX_HEADER_BYTES = 16 << 20
MAX_BODY_BYTES = 64 << 20
_LENGTHS = struct.Struct(">II")

LEND_TIMEOUT_S = 60.0
"""Seconds that a request waits for the JVM to lend its first connection."""

_WRITES = ("write", "delete")
_in_background: contextvars.ContextVar[bool] = contextvars.ContextVar("in_background", default=False)


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
