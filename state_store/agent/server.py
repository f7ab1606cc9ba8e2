"""The agent's socket: accepts the JVM's connections, checks who it is, and serves each in a thread of its
own."""

from __future__ import annotations

import hmac
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any

from state_store.agent.connection import Connection
from state_store.agent.frames import ProtocolError
from state_store.agent.log import describe_defect, log
from state_store.errors import InternalError, StateStoreError


class Server:
    """Listens at `path` from construction on; `serve` answers calls with `calls.handle(request)` for ever."""

    def __init__(self, path: str, token: str, calls: Any) -> None:
        self._token = token
        self._calls = calls
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        Path(path).chmod(0o600)
        self._socket.listen(128)

    def serve(self) -> None:
        while True:
            channel, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(channel,), daemon=True).start()

    def _serve(self, channel: socket.socket) -> None:
        try:
            with channel:
                connection = Connection(channel)
                if self._admits(channel, connection):
                    self._answer_all(connection)
        except (ProtocolError, OSError) as error:
            log("DEBUG", "", f"a connection ended: {error}")

    def _admits(self, channel: socket.socket, connection: Connection) -> bool:
        """Whether the other side is a process of this user that knows the token."""
        credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        request = connection.receive() or {}
        known = hmac.compare_digest(str(request.get("token", "")), self._token)
        if user != os.getuid() or not known:
            log("WARNING", "", f"a connection of user {user} was refused: wrong user or token")
            connection.send(
                {"error": InternalError("the agent does not know this token, or this user").to_json()}
            )
            return False
        connection.send({"ok": {}})
        return True

    def _answer_all(self, connection: Connection) -> None:
        connection.make_current()
        while (request := connection.receive()) is not None:
            connection.send(self._answer(request))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": self._calls.handle(request)}
        except StateStoreError as error:
            return {"error": error.to_json()}
        except ProtocolError:
            raise
        except Exception as error:
            text = describe_defect(error)
            log("ERROR", "", f"call {request.get('op')!r} failed: {text}")
            return {"error": InternalError(text).to_json()}
