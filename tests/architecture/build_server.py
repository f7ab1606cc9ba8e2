"""sbt as a build server, driven as Metals and IntelliJ drive it: by the Build Server Protocol."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pinned_jars

PATIENCE_S = 900
_ROOTS = ("jvm_bridge", "benchmarks", "tests")


class RefusedError(Exception):
    """The build server answered a request with an error."""


class BuildServer:
    """Connection to the build server of the project in `root`. One thread."""

    def __init__(self, connection: socket.socket, root: Path) -> None:
        self._stream = connection.makefile("rwb")
        self._numbers = itertools.count(1)
        self.diagnostics: dict[str, list[dict[str, Any]]] = {}
        """Problems that compilations found, by the URI of their file."""
        client = {"displayName": "tests", "version": "1", "bspVersion": "2.1.0", "rootUri": root.as_uri()}
        self.call("build/initialize", {**client, "capabilities": {"languageIds": ["scala"]}})
        self._send({"method": "build/initialized", "params": {}})

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Return the result of a request. Raises RefusedError if the server answers with an error."""
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params or {}})
        while True:
            message = self._receive()
            if message.get("method") == "build/publishDiagnostics":
                found = message["params"]
                self.diagnostics.setdefault(found["textDocument"]["uri"], []).extend(found["diagnostics"])
            if str(message.get("id")) == str(number) and "method" not in message:
                if "error" in message:
                    raise RefusedError(message["error"])
                return message["result"]

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._stream.flush()

    def _receive(self) -> dict[str, Any]:
        length = 0
        while line := self._stream.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, "the build server has closed the connection"
        message: dict[str, Any] = json.loads(self._stream.read(length))
        return message


def project(checkout: Path, spark_jars: Path, directory: Path) -> Path:
    """Copy what an IDE needs of a checkout into `directory`, with links to Spark's jars, and return it."""
    for name in ("build.sbt", "project/build.properties"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(checkout / name, directory / name)
    for root in _ROOTS:
        for path in (checkout / root).rglob("*.scala"):
            copy = directory / path.relative_to(checkout)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    links = directory / ".venv" / "lib" / "jars"
    links.mkdir(parents=True)
    for jar in spark_jars.glob("*.jar"):
        (links / jar.name).symlink_to(jar)
    return directory


@contextlib.contextmanager
def running(root: Path) -> Iterator[BuildServer]:
    """Run sbt in a project, and end it and its connection at the end."""
    (launcher,) = pinned_jars.jars(pinned_jars.SBT)
    with (root / "sbt.log").open("wb") as log:
        command = ["java", "-Xmx3g", "-Xss8m", "-Dsbt.color=false", "-Dsbt.supershell=false"]
        sbt = subprocess.Popen(
            [*command, "-jar", str(launcher), "shell"],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(_address(root, sbt))
            yield BuildServer(connection, root)
    finally:
        sbt.kill()
        sbt.wait()


def _address(root: Path, sbt: subprocess.Popen[bytes]) -> str:
    """Wait until sbt has written the path of its socket, and return the path."""
    active = root / "project" / "target" / "active.json"
    deadline = time.monotonic() + PATIENCE_S
    while not active.is_file():
        log = (root / "sbt.log").read_text(encoding="utf-8", errors="replace")
        assert sbt.poll() is None, log
        assert time.monotonic() < deadline, log
        time.sleep(0.2)
    uri: str = json.loads(active.read_text(encoding="utf-8"))["uri"]
    return uri.removeprefix("local://")
