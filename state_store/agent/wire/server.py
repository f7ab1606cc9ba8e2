"""The agent's socket: accepts connections of the JVM alone, and serves each by its purpose.

The first frame of a connection has the purpose: `calls` of the JVM, answered one after the other in a thread
of its own, or `files`, lent to the agent for its own requests (docs/protocol.md).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from state_store.agent.jvm_connections import FileConnections
from state_store.agent.log import AGENT
from state_store.agent.supervision import as_state_store_error, try_to_start
from state_store.agent.wire.answers import Answer
from state_store.agent.wire.frames import ProtocolError, read_frame, write_frame
from state_store.core.runtime import SYSTEM, Runtime
from state_store.errors import InternalError, StateStoreError

CALLS = "calls"
FILES = "files"
_ACCEPT_PAUSE_S = 0.1
_MOST_GREETING_BYTES = 4096
_GREETING_TIMEOUT_S = 60.0


class Operations(Protocol):
    """Operations that serve the calls (`agent.calls.Calls`)."""

    def handle(self, request: dict[str, Any]) -> Answer: ...

    def undelivered(self, request: dict[str, Any], answer: Answer) -> None: ...


class Server:
    """A socket that listens at `path` from construction on. `serve` answers calls with `calls` for ever."""

    def __init__(
        self, path: str, token: str, calls: Operations, files: FileConnections, *, runtime: Runtime = SYSTEM
    ) -> None:
        self._path = Path(path)
        self._token = token
        self._calls = calls
        self._files = files
        self._runtime = runtime
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        Path(path).chmod(0o600)
        self._socket.listen(128)

    def serve(self) -> None:
        """Accept connections for ever. If no descriptor is free, those that were accepted go on."""
        while True:
            try:
                channel, _ = self._socket.accept()
            except OSError as error:
                AGENT.warning(f"a connection of the JVM cannot be accepted: {error}")
                self._runtime.sleep(_ACCEPT_PAUSE_S)
                continue
            if not try_to_start(self._runtime, partial(self._serve, channel), name="connection"):
                channel.close()

    def _serve(self, channel: socket.socket) -> None:
        lent = False
        try:
            purpose = self._admit(channel)
            if purpose == FILES:
                self._files.lend(channel)
                lent = True
            elif purpose == CALLS:
                self._answer_all(channel)
        except (ProtocolError, OSError, MemoryError) as error:
            AGENT.debug(f"a connection ended: {error}")
        finally:
            if not lent:
                channel.close()

    def _admit(self, channel: socket.socket) -> str | None:
        """Return the purpose of a connection, or None if it is refused.

        The other side has to be a process of this user that knows the token. Nothing is read from a process
        of another user.
        """
        credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        if user != os.getuid() or not self._knows_token(greeting := self._greeting(channel)):
            AGENT.warning(f"a connection of user {user} was refused: wrong user or token")
            _refuse(channel, "the agent does not know this token, or this user")
            return None
        purpose = greeting.get("for", CALLS)
        if purpose not in (CALLS, FILES):
            _refuse(channel, f"a connection is for {CALLS} or {FILES}, not for {purpose!r}")
            return None
        write_frame(channel, {"ok": {}})
        return str(purpose)

    def _greeting(self, channel: socket.socket) -> dict[str, Any]:
        """Return the header of the first frame; refuse one that is large, or does not come soon."""
        channel.settimeout(_GREETING_TIMEOUT_S)
        frame = read_frame(channel, most_header_bytes=_MOST_GREETING_BYTES, most_body_bytes=0)
        channel.settimeout(None)
        return frame[0] if frame else {}

    def _knows_token(self, greeting: dict[str, Any]) -> bool:
        given = greeting.get("token")
        return isinstance(given, str) and hmac.compare_digest(
            given.encode("utf-8", "replace"), self._token.encode("utf-8")
        )

    def _answer_all(self, channel: socket.socket) -> None:
        while (frame := read_frame(channel)) is not None:
            request = frame[0]
            answer = self._answer(request)
            if isinstance(answer, StateStoreError):
                write_frame(channel, {"error": answer.to_json()})
                continue
            try:
                write_frame(channel, {"ok": answer.to_json()})
            except BaseException:
                self._calls.undelivered(request, answer)
                raise

    def _answer(self, request: dict[str, Any]) -> Answer | StateStoreError:
        if request.get("op") == "events":
            self._touch()
        try:
            return self._calls.handle(request)
        except Exception as error:
            failure = as_state_store_error(error)
            if failure is not error:
                AGENT.error(f"call {request.get('op')!r} failed: {failure}")
            return failure

    def _touch(self) -> None:
        """Show cleaners of temporary files that the socket is in use."""
        for path in (self._path, self._path.parent):
            with contextlib.suppress(OSError):
                os.utime(path)


def _refuse(channel: socket.socket, why: str) -> None:
    write_frame(channel, {"error": InternalError(why).to_json()})
