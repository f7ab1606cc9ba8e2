"""The program of `state-store serve`: watched queries behind an HTTP server with bounds."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from state_store.core.storage.open import without_secret
from state_store.errors import ConflictError, OptionError, StorageError
from state_store.observe.look import Watched
from state_store.observe.operations import Operations
from state_store.observe.service import Answers
from state_store.observe.web import application, guard_for

MAX_CONNECTIONS = 200
"""Connections at a time; further ones get 503."""

REQUEST_TIMEOUT_S = 10.0
"""Seconds in which the head of a request must have come."""

KEEP_ALIVE_S = 5
LOCAL_EVERY_S, REMOTE_EVERY_S = 5.0, 30.0
"""Seconds between two looks by default, at local storage and at other storage, whose requests cost money."""

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})=(.+)", re.DOTALL)


@dataclass(frozen=True)
class Settings:
    """Settings of the program.

    Attributes:
        host: address to listen on.
        port: port to listen on; 0: a free one.
        every_s: least seconds between two looks at a query; None: by the kind of storage.
        objective_ms: the queries' restoreObjective, milliseconds; 0: none; None: what each query has.
        token: token that requests need; None: none.
        allowed_hosts: further names of hosts that requests may be for.
        certificate: file of the TLS certificate; None: no TLS.
        key: file of its key.
        read_only: full checkpoints cannot be requested.
        stores: stores of which full checkpoints are made at a time.
        documentation: address of the documentation; None: links are texts.
    """

    host: str = "127.0.0.1"
    port: int = 8190
    every_s: float | None = None
    objective_ms: int | None = None
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    read_only: bool = False
    stores: int = 2
    documentation: str | None = None


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request has no complete head after `REQUEST_TIMEOUT_S`."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; wait no more once its head is there."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        else:
            self._arm()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """End waiting."""
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(REQUEST_TIMEOUT_S, self._give_up)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class Server(uvicorn.Server):
    """Server that tells when it listens and a signal can end it.

    Attributes:
        ended_by: the signal that has ended it; None: no signal.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready: Callable[[], object] = lambda: None
        self.ended_by: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self.ready()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End; after a second signal, without waiting for requests."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.ended_by = sig


def token_from(path: Path) -> str:
    """Return the token in a file: its first line.

    Raises:
        OptionError: the file cannot be read, is empty, or others may read it.
    """
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the token cannot be read from '{path}': {error}", option="--token-file") from None
    if mode & 0o077:
        raise OptionError(
            f"others may read '{path}' (mode {mode & 0o777:04o}): run `chmod 600` on it",
            option="--token-file",
        )
    if not lines or not lines[0].strip():
        raise OptionError(f"'{path}' is empty: write a token into it", option="--token-file")
    return lines[0].strip()


def named(locations: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names of queries in addresses and their directories.

    Args:
        locations: `DIR` or `NAME=DIR` each. Without a name, it is the last part of the directory.

    Raises:
        OptionError: two queries were given the same name, or the same directory.
    """
    locations_by_name: dict[str, str] = {}
    for text in locations:
        match = _NAMED.fullmatch(text)
        location = without_secret(match[2] if match else text)
        if match is not None:
            name = match[1]
            if name in locations_by_name:
                raise OptionError(f"two queries have the name '{name}'", option="DIR")
        else:
            base = (
                re.sub(r"[^A-Za-z0-9._-]", "_", location.rstrip("/").rpartition("/")[2])[:64].strip(".")
                or "query"
            )
            name, number = base, 1
            while name in locations_by_name:
                number += 1
                name = f"{base}-{number}"
        if location.rstrip("/") in {other.rstrip("/") for other in locations_by_name.values()}:
            raise OptionError(f"'{location}' is given twice", option="DIR")
        locations_by_name[name] = location
    return list(locations_by_name.items())


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConflictError: another program has the port.
        OptionError: the address is not one of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise OptionError(f"cannot listen on {host}: {error}", option="--host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ConflictError(
                f"another program listens on {host}:{port}: end it, or choose another port", option="--port"
            ) from None
        if error.errno == errno.EACCES:
            raise OptionError(f"this user may not listen on port {port}", option="--port") from None
        raise OptionError(f"cannot listen on {host}:{port}: {error}", option="--host") from None
    return listening


class Program:
    """The running service.

    Args:
        locations: the queries, as `named` takes them.
        settings: the settings.

    Raises:
        OptionError: a setting is wrong.
        ConflictError: another program has the port.
    """

    def __init__(self, locations: Sequence[str], settings: Settings) -> None:
        guard = guard_for(settings.host, token=settings.token, allowed=settings.allowed_hosts)
        if (settings.certificate is None) != (settings.key is None):
            raise OptionError("give both --tls-certificate and --tls-key, or neither", option="--tls-key")
        self.watched = [
            Watched(
                name,
                location,
                every_s=settings.every_s or (REMOTE_EVERY_S if _is_remote(location) else LOCAL_EVERY_S),
                grows=settings.every_s is None and _is_remote(location),
                objective_ms=settings.objective_ms,
            )
            for name, location in named(locations)
        ]
        self.operations = Operations(settings.stores)
        answers = Answers(
            self.watched, self.operations, read_only=settings.read_only, documentation=settings.documentation
        )
        config = uvicorn.Config(
            application(answers, guard),
            http=ImpatientProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_level=logging.WARNING,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=5,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise OptionError(
                f"the TLS certificate or key cannot be used: {error}", option="--tls-certificate"
            ) from None
        self._server = Server(config)
        self._socket = bound_socket(settings.host, settings.port)
        scheme = "https" if settings.certificate else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"{scheme}://{host}:{self._socket.getsockname()[1]}/"

    def run(self, ready: Callable[[], object] | None = None) -> None:
        """Serve until the process is interrupted, or `stop` is called.

        A signal that ends the service gets to the handler that it had before, when the service has ended.

        Args:
            ready: called when requests are answered, and signals end the service.
        """
        self._server.ready = ready or self._server.ready
        for watched in self.watched:
            watched.start()
        try:
            self._server.run(sockets=[self._socket])
        except OSError as error:
            raise StorageError(f"the service failed: {error}") from error
        finally:
            for watched in self.watched:
                watched.stop()
            self.operations.stop()
            self._socket.close()
        _pass_on(self._server.ended_by)

    def stop(self) -> None:
        """Let `run` return. Any thread may call it."""
        self._server.should_exit = True


def _pass_on(number: int | None) -> None:
    """Call the handler of a signal, which is not sent again: it would count as a second one."""
    if number is None:
        return
    handler = signal.getsignal(number)
    if callable(handler):
        handler(number, None)
    elif handler is signal.SIG_DFL:
        signal.raise_signal(number)


def _is_remote(location: str) -> bool:
    return ":/" in location and not location.startswith("file:")
