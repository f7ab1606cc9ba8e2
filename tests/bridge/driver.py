"""JVM with state store providers, driven from a test: see scala/ProviderDriver.scala for the commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import quick_java

from state_store.session.jar import OPENED

_HERE = Path(__file__).resolve().parent
PREFIX = "spark.sql.streaming.stateStore.incremental."


class DriverError(Exception):
    """Failure of a command in the JVM, with the messages of the exception and its causes."""


class Jvm:
    """JVM that runs a command at a time; `log` is its log so far.

    With `spark_user` it is this user, as an executor is, who has no credentials until the command `tokens`.
    """

    def __init__(
        self,
        class_path: str,
        room: Path,
        *,
        python: str = sys.executable,
        heap: Sequence[str] = ("-Xmx512m",),
        spark_user: str | None = None,
        **environment: str,
    ) -> None:
        self.room = room
        self._users: dict[str, str | None] = {}
        self.python = python
        self.tmp = Path(tempfile.mkdtemp(prefix="bridge-"))
        self._log = (room / f"jvm-{time.monotonic_ns()}.log").open("w+b")
        command = ["java", *heap, *quick_java.probe_options(), "-XX:+IgnoreUnrecognizedVMOptions"]
        command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        command += [
            "-DincrementalStateStore.checkMemory=true",
            f"-Djava.io.tmpdir={self.tmp}",
            f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
        ]
        command += ["-cp", class_path]
        command += ["org.apache.spark.sql.execution.streaming.state.incremental.probe.ProviderDriver"]
        if spark_user is not None:
            command.append("as-spark-user")
            environment["SPARK_USER"] = spark_user
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=room,
            env={**os.environ, "PYSPARK_PYTHON": python, **environment},
        )
        self._lock = threading.Lock()

    def __call__(self, cmd: str, **arguments: Any) -> Any:
        """Run the command and return its result. Raises DriverError with the JVM's message."""
        with self._lock:
            assert self.process.stdin is not None and self.process.stdout is not None
            self.process.stdin.write(json.dumps({"cmd": cmd, **arguments}).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        if not line:
            raise DriverError(f"the JVM ended during {cmd}:\n{self.log[-4000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise DriverError(answer["error"]["text"])
        return answer.get("ok", answer)

    @property
    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def provider(self, name: str, location: Path | str, user: str | None = None, **options: str) -> None:
        """Make a provider of format 2 at that location, with options below the state store's prefix.

        `batch` and `rows` begin as this user, instead of the user of the JVM.
        """
        self._users[name] = user
        conf = {PREFIX + key: value for key, value in options.items()}
        conf.setdefault("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
        self("provider", provider=name, location=str(location), conf=conf, user=user)

    def batch(self, provider: str, version: int, id: str | None = None, **rows: str) -> tuple[int, str]:
        """Put the rows on top of that version and commit; return the new version and its id."""
        store = f"{provider}-{version}-{time.monotonic_ns()}"
        user = self._users.get(provider)
        self("begin", provider=provider, store=store, version=version, id=id, user=user)
        self("put", store=store, rows=rows)
        committed = self("commit", store=store)
        return committed["version"], committed["id"]

    def rows(self, provider: str, version: int, id: str | None = None) -> dict[str, str]:
        """Return all rows of that version."""
        store = f"{provider}-{version}-{time.monotonic_ns()}"
        user = self._users.get(provider)
        self("begin", provider=provider, store=store, version=version, id=id, read=True, user=user)
        rows = self("scan", store=store)
        self("release", store=store)
        return rows

    def take_tokens(self, path: Path, user: str | None = None) -> None:
        """Hand over the delegation tokens of a file in another thread, as Spark does it in executors."""
        self("tokens", path=str(path), user=user, thread="dispatcher")
        self("await", thread="dispatcher")

    def agent(self) -> int | None:
        return self("agent")

    def end(self) -> None:
        """End the JVM in order, as a driver or executor does."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=600)
        finally:
            self.process.kill()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=120)


def gone(condition: Any, *, within_s: float = 120.0) -> bool:
    """Return True if the condition becomes false in time."""
    until = time.monotonic() + within_s
    while condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    """Return True if the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
