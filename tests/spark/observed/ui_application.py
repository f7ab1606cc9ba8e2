"""Application in its own process, whose UI is asked by HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import quick_java
from queries import session_settings

HERE = Path(__file__).resolve().parent
PATIENCE_S = 600
T = TypeVar("T")

SETTINGS = {"maxDeltas": "3", "minPauseBetweenMerges": "0s", "fullAfterMerges": "3", "memoryBudget": "64m"}
OPTIONS = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.minBatchesToRetain": "10",
}


@dataclass(frozen=True)
class Answer:
    """An answer by HTTP."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(url: str, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
    """Return the answer to a request; `body` is sent as JSON, or unchanged if it is bytes."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    sent = dict(headers or {})
    if data is not None:
        sent.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(url, data=data, method=method, headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return Answer(answer.status, answer.read().decode(), dict(answer.headers))
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read().decode(), dict(error.headers))


def awaited(look: Callable[[], T | None], description: str, patience_s: float = PATIENCE_S) -> T:
    """Return the first answer of `look` that is neither None nor False."""
    end_s = time.monotonic() + patience_s
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < end_s, f"not within {patience_s} s: {description}"
        time.sleep(0.1)


class Running:
    """A context manager that runs the application, whose log is `room`/log.

    `headers` go with the requests that wait until a batch is shown.
    """

    def __init__(
        self,
        room: Path,
        master: str = "local[2]",
        settings_: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        **options: str,
    ) -> None:
        room.mkdir(parents=True, exist_ok=True)
        self._ids: dict[str, str] = {}
        self._headers = headers
        self.room = room
        self.log = room / "log"
        java = quick_java.spark_options()
        asked = {
            "master": master,
            "settings": {**SETTINGS, **(settings_ or {})},
            "options": {
                **OPTIONS,
                **quick_java.CHECKPOINT_FILES,
                "spark.driver.extraJavaOptions": java,
                "spark.executor.extraJavaOptions": java,
                "spark.executorEnv.PYTHONPATH": session_settings.python_path(),
                "spark.local.dir": str(room / "local"),
                **options,
            },
        }
        own = {"PYTHONPATH": session_settings.python_path(), "PYSPARK_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "application.py"), json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            cwd=room,
            env={**os.environ, **(environment or {}), **own},
            text=True,
        )

    @property
    def pid(self) -> int:
        """Process id of the application."""
        return self._process.pid

    def __enter__(self) -> Running:
        first = self._read()
        self.ui, self.application = first["ui"], first["application"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Let the application execute a command; see `application.py`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def start(self, name: str, query: str = "totals", **how: Any) -> dict[str, Any]:
        """Start a query, in a directory of its name."""
        started = self.do(
            "start", **{"name": name, "directory": str(self.room / name), "query": query, **how}
        )
        self._ids[name] = started["id"]
        return started

    def feed(self, name: str, batches: int = 1, shown: bool = True, **how: Any) -> dict[str, Any]:
        """Give a query batches, and wait until the API shows the last of them if `shown` and there is a UI.

        The stores, the history and the listing of queries are up to date then.
        """
        fed = self.do("feed", name=name, batches=batches, **how)
        if shown and self.ui is not None:
            awaited(lambda: self._shows(name, fed["batch"]), f"batch {fed['batch']} of {name} is shown")
        return fed

    def _shows(self, name: str, batch: int) -> bool:
        # The history comes last: its entries are events of Spark, which wait for their turn.
        answer = self.get(f"queries/{self._ids[name]}/checkpoints?limit=1", headers=self._headers)
        history = answer.json["history"] if answer.status == 200 else []
        return bool(history) and history[0]["version"] > batch

    def get(self, path: str, **how: Any) -> Answer:
        """Ask the API, or any other address of the UI if the path begins with a slash."""
        return ask(self.ui + path if path.startswith("/") else f"{self.ui}/checkpoints/api/v1/{path}", **how)

    def end(self) -> None:
        """End the application."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write('{"do": "end"}\n')
                self._process.stdin.close()
                self._process.wait(timeout=PATIENCE_S)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the application ended: {self.log.read_text()[-4000:]}"
        return json.loads(line)


def version(app: Running, query: str) -> int | None:
    """Return the version that the API shows of a query."""
    answer = app.get(f"queries/{query}/stores")
    return answer.json["version"] if answer.status == 200 else None


def request_full(app: Running, query: str, **body: Any) -> str:
    """Request full checkpoints, and return the request's id."""
    answer = app.get(f"queries/{query}/checkpoints", method="POST", body=body)
    assert answer.status == 202, answer.text
    return str(answer.json["request-id"])


def outcome(app: Running, query: str, request: str) -> dict[str, Any]:
    """Return the operation when it has ended."""
    path = f"queries/{query}/checkpoints/triggers/{request}"

    def ended() -> dict[str, Any] | None:
        operation: dict[str, Any] = app.get(path).json
        return operation if operation["status"]["id"] == "COMPLETED" else None

    return awaited(ended, f"{path} has ended")
