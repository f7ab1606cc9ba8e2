"""One connection of the JVM: its calls one after the other, each with nested file system calls to the JVM."""

from __future__ import annotations

import contextvars
import socket
import threading
from typing import Any

from state_store import errors
from state_store.agent.frames import ProtocolError, read_frame, write_frame

_current: contextvars.ContextVar[Connection] = contextvars.ContextVar("connection")


class Connection:
    """Frames to and from the JVM; nested calls of several threads of one call take turns."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()

    def receive(self) -> dict[str, Any] | None:
        """The next request; None at the end of the connection."""
        frame = read_frame(self._channel)
        return None if frame is None else frame[0]

    def send(self, answer: dict[str, Any]) -> None:
        write_frame(self._channel, answer)

    def nested(self, operation: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Asks the JVM; raises the StateStoreError that it answers with."""
        with self._lock:
            write_frame(self._channel, operation, body)
            frame = read_frame(self._channel)
        if frame is None:
            raise ProtocolError("the connection ended within a call")
        answer, data = frame
        if "error" in answer:
            raise errors.from_json(answer["error"])
        return answer.get("ok", {}), data

    def make_current(self) -> None:
        """Nested calls of this thread, and of threads that copy its context, go through this connection."""
        _current.set(self)


class CurrentJvm:
    """The file system calls of whatever connection the current thread serves (storage.FileSystemCalls)."""

    def fs(self, operation: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        return _current.get().nested(operation, body)
