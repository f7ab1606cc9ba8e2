"""Frames of docs/protocol.md.

A frame is the length of the header (4 bytes), the length of the body (4 bytes), the header as JSON, and the
body. One thread at a time reads or writes a socket.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

MAX_HEADER_BYTES = 16 << 20
MAX_BODY_BYTES = 64 << 20
_LENGTHS = struct.Struct(">II")


class ProtocolError(Exception):
    """The other side does not speak the protocol: the connection is closed."""


def read_frame(
    connection: socket.socket,
    *,
    most_header_bytes: int = MAX_HEADER_BYTES,
    most_body_bytes: int = MAX_BODY_BYTES,
) -> tuple[dict[str, Any], bytes] | None:
    """Return the next header and body, or None if the other side closed the connection between frames.

    Raises:
        ProtocolError: The bytes are not a frame within these bounds. No memory is taken for them.
    """
    lengths = _read(connection, _LENGTHS.size)
    if lengths is None:
        return None
    header_bytes, body_bytes = _LENGTHS.unpack(lengths)
    if header_bytes > most_header_bytes or body_bytes > most_body_bytes:
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
