"""The connection of a worker to the state of its task."""

from __future__ import annotations

import io
import pickle
import socket
import struct
from typing import Any

DONE, REFUSED = 0, 1


class StateCallError(Exception):
    """A call on state failed in the JVM; the text says why."""


class Channel:
    """Channel to the JVM's `StateServer`, which sends one message after the other. Used by one thread."""

    def __init__(self, address: str, secret: str) -> None:
        """Connect to `address`, the path of a Unix socket or `host:port`.

        Args:
            address: where the JVM listens for the worker of this task.
            secret: the text by which the JVM knows that worker.
        """
        if address.startswith("/"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(address)
        else:
            host, _, port = address.rpartition(":")
            self._socket = socket.create_connection((host, int(port)))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", 1 << 16)
        self._send(secret)

    def call(self, *message: Any) -> Any:
        """Send a message and return the result of its answer.

        Raises:
            StateCallError: the JVM refused the call or failed in it.
        """
        try:
            self._send(message)
            (length,) = struct.unpack("!i", self._read(4))
            status, result = pickle.loads(self._read(length))
        except (OSError, EOFError) as error:
            raise StateCallError(f"the connection to the state of this task is closed ({error})") from error
        if status != DONE:
            raise StateCallError(result)
        return result

    def close(self) -> None:
        """Close the connection; the JVM's server ends."""
        self._file.close()
        self._socket.close()

    def _send(self, message: Any) -> None:
        buffer = io.BytesIO()
        buffer.write(b"\0\0\0\0")
        pickler = pickle.Pickler(buffer, 4)
        pickler.fast = True  # messages hold plain values alone: no object comes twice by reference
        pickler.dump(message)
        data = buffer.getbuffer()
        struct.pack_into("!i", data, 0, len(data) - 4)
        self._socket.sendall(data)

    def _read(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) < length:
            raise EOFError("the JVM has closed it")
        return data
