"""The life of a group of queries: run in a child process, stopped, killed in mid-batch, restarted, to the end."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from queries import records
from queries.records import Record
from queries.running import Room
from queries.scenario import Scenario
from queries.settings import python_path

_PERIOD_S = 0.01
_CHILD_LIMIT_S = 240
_STREAM_SEEDS = {"events": 11, "answers": 12}


@dataclass
class History:
    """What happens to the ``scenarios`` is drawn from ``seed``: how long each child lives, and how it ends.

    ``ends`` says how each child but the last ends: ``stop`` (queries stopped, process ends by itself),
    ``kill`` (SIGKILL for the whole process group in mid-batch), ``kill-jvm`` (SIGKILL for the JVM alone) or
    ``kill-executor`` (one executor of a local cluster is killed, the driver lives on).
    """

    room: Room
    scenarios: list[Scenario]
    options: dict[str, str]
    seed: int
    ends: list[str]
    batches: int = 18
    master: str = "local[2]"
    killed_in_mid_batch: int = 0
    log: list[str] = field(default_factory=list)

    def play(self) -> None:
        """Runs the whole history. Raises AssertionError with the child's last words when a query fails."""
        rng = random.Random(self.seed)
        for stream in _STREAM_SEEDS:
            records.write(self.room.input(stream), self.records(stream))
        for number, end in enumerate(self.ends):
            if self._done():
                break
            self._life(number, end, rng)
        if not self._done():
            self._life(len(self.ends), "finish", rng)
        assert self._done(), self._last_words(len(self.ends))

    def records(self, stream: str) -> list[list[Record]]:
        """The records of each file of ``events`` or ``answers``."""
        return records.batches(self.seed * 100 + _STREAM_SEEDS[stream], self.batches)

    def _done(self) -> bool:
        return (self.room.path / "done").exists()

    def _life(self, number: int, end: str, rng: random.Random) -> None:
        for leftover in ("ready", "stop"):
            (self.room.path / leftover).unlink(missing_ok=True)
        child = self._spawn(number)
        try:
            self._await_ready(child, number)
            if end != "finish":
                self._end(child, number, end, rng)
            self._await_end(child, number, end)
        finally:
            kill_group(child)

    def _spawn(self, number: int) -> subprocess.Popen:
        plan = self.room.path / f"plan-{number}.json"
        plan.write_text(
            json.dumps(
                {
                    "room": str(self.room.path),
                    "scenarios": [scenario.name for scenario in self.scenarios],
                    "options": self.options,
                    "master": self.master,
                }
            )
        )
        environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
        with open(self._log_path(number), "w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "queries.child", str(plan)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self, child: subprocess.Popen, number: int, end: str, rng: random.Random) -> None:
        watched = rng.choice(
            [scenario for scenario in self.scenarios if not scenario.until_state_is_empty]
        ).name
        target = self._newest_batch(watched) + rng.randint(2, 4)
        delay_s = rng.uniform(0, 0.25)
        if not self._await_batch(child, watched, target):
            return
        time.sleep(delay_s)
        if end == "stop":
            (self.room.path / "stop").touch()
        elif end == "kill":
            kill_group(child)
        else:
            jvm = int((self.room.path / "ready").read_text())
            os.kill(jvm if end == "kill-jvm" else executor_of(child.pid, rng), signal.SIGKILL)
        caught = {s.name: self.room.in_mid_batch(s.name) for s in self.scenarios}
        caught = {name: batch for name, batch in caught.items() if batch is not None}
        self.log.append(
            f"{end} after {delay_s * 1000:.0f} ms of batch {target} of {watched}; in mid-batch: {caught}"
        )
        if end.startswith("kill"):
            self.killed_in_mid_batch += len(caught)

    def _newest_batch(self, name: str) -> int:
        offsets = self.room.checkpoint(name) / "offsets"
        return max((int(path.name) for path in offsets.glob("*") if path.name.isdigit()), default=-1)

    def _await_batch(self, child: subprocess.Popen, name: str, batch: int) -> bool:
        """Waits until the batch has begun; False when the child ended before."""
        while child.poll() is None:
            if self._newest_batch(name) >= batch:
                return True
            time.sleep(_PERIOD_S)
        return False

    def _await_ready(self, child: subprocess.Popen, number: int) -> None:
        deadline = time.monotonic() + _CHILD_LIMIT_S
        ready = self.room.path / "ready"
        while not (ready.exists() and ready.read_text()):
            assert child.poll() is None and time.monotonic() < deadline, self._last_words(number)
            time.sleep(_PERIOD_S)

    def _await_end(self, child: subprocess.Popen, number: int, end: str) -> None:
        try:
            code = child.wait(timeout=_CHILD_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {_CHILD_LIMIT_S} s: {self._last_words(number)}") from None
        if end not in ("kill", "kill-jvm"):
            assert code == 0, self._last_words(number)

    def _log_path(self, number: int) -> Path:
        return self.room.path / f"child-{number}.log"

    def _last_words(self, number: int) -> str:
        path = self._log_path(number)
        text = path.read_text(errors="replace") if path.exists() else "no log"
        return "\n".join([*self.log, f"child {number} said:", text[-6000:]])


def kill_group(child: subprocess.Popen) -> None:
    """Ends the child and everything it started (the session is its own)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def executor_of(pid: int, rng: random.Random) -> int:
    """The process id of one executor JVM among the descendants of ``pid``."""
    listing = subprocess.run(
        ["ps", "-eo", "pid=,sid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    mine = [int(row[0]) for row in rows if int(row[1]) == pid and "CoarseGrainedExecutorBackend" in row[2]]
    java = [p for p in mine if Path(f"/proc/{p}/exe").readlink().name == "java"]
    return rng.choice(java)
