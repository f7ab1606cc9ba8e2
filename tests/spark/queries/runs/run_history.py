"""The life of a group of queries: run in a child process, stopped, killed in mid-batch, restarted."""

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

from queries.runs import session_processes
from queries.runs.running import Room
from queries.scenarios import records
from queries.scenarios.records import Record
from queries.scenarios.scenario import Scenario
from queries.session_settings import python_path

_PERIOD_S = 0.01
_LIMIT_S = 1200
_FAREWELL_S = 120
_STREAM_SEEDS = {"events": 11, "answers": 12}


@dataclass
class History:
    """The life of the `scenarios`; the times of the acts are drawn from `seed`.

    `acts`: `restart` (the queries are stopped and started in the same session), `stop` (they are stopped and
    the process ends by itself), `kill` (SIGKILL for all processes at once) or `kill-jvm` (SIGKILL for the
    driver's JVM alone).
    """

    room: Room
    scenarios: list[Scenario]
    options: dict[str, str]
    seed: int
    acts: list[str]
    batches: int
    master: str = "local[2]"
    killed_in_mid_batch: int = 0
    survivors: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _child: subprocess.Popen | None = None
    _lives: int = 0

    def play(self) -> None:
        """Run the complete history. Raises AssertionError with the child's last output if the child fails."""
        rng = random.Random(self.seed)
        for stream in _STREAM_SEEDS:
            records.write(self.room.input(stream), self.records(stream))
        try:
            for act in self.acts:
                self._live()
                if self._await_moment(rng):
                    self._act(act)
            self._live()
            self._await_end()
            assert (self.room.path / "done").exists(), self._last_words()
        finally:
            if self._child:
                _kill_group(self._child)

    def records(self, stream: str) -> list[list[Record]]:
        """Return the records of each file of `events` or `answers`."""
        return records.batches(self.seed * 100 + _STREAM_SEEDS[stream], self.batches)

    def _live(self) -> None:
        """Start a child, unless there is one, and check that its queries run."""
        if (self._child and self._child.poll() is None) or (self.room.path / "done").exists():
            return
        for leftover in ("ready", "stop", "restart"):
            (self.room.path / leftover).unlink(missing_ok=True)
        self._lives += 1
        self._child = self._spawn()
        ready = self.room.path / "ready"
        self._await(lambda: ready.exists() and ready.read_text(), "is not ready")

    def _spawn(self) -> subprocess.Popen:
        names = [scenario.name for scenario in self.scenarios]
        plan = {
            "room": str(self.room.path),
            "scenarios": names,
            "options": self.options,
            "master": self.master,
        }
        path = self.room.path / "plan.json"
        path.write_text(json.dumps(plan))
        environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, "-m", "queries.runs.child", str(path)]
        with open(self._log_path(), "w") as log:
            return subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _await_moment(self, rng: random.Random) -> bool:
        """Wait until a random query has run a few batches, and a little longer; return False if all ended."""
        watched = rng.choice(
            [scenario for scenario in self.scenarios if not scenario.until_state_is_empty]
        ).name
        target = self._newest_batch(watched) + rng.randint(2, 3)
        delay_s = rng.uniform(0, 0.25)
        while self._newest_batch(watched) < target and not self.room.error(watched).exists():
            if self._child.poll() is not None:
                return False
            time.sleep(_PERIOD_S)
        time.sleep(delay_s)
        return True

    def _act(self, act: str) -> None:
        if act in ("stop", "restart"):
            (self.room.path / act).touch()
        elif act == "kill":
            _kill_group(self._child)
        else:
            os.kill(int((self.room.path / "ready").read_text()), signal.SIGKILL)
        caught = {scenario.name: self.room.in_mid_batch(scenario.name) for scenario in self.scenarios}
        caught = {name: batch for name, batch in caught.items() if batch is not None}
        self.log.append(f"{act} in mid-batch of {caught}")
        self._await_effect(act, caught)

    def _await_effect(self, act: str, caught: dict[str, int]) -> None:
        if act.startswith("kill"):
            self.killed_in_mid_batch += len(caught)
        if act == "restart":
            self._await(lambda: not (self.room.path / "restart").exists(), "does not restart")
        elif act == "stop":
            self._await_end()
        elif act == "kill-jvm":
            self.survivors += session_processes.outliving(self._child.pid, _FAREWELL_S)
            _kill_group(self._child)

    def _newest_batch(self, name: str) -> int:
        offsets = self.room.checkpoint(name) / "offsets"
        return max((int(path.name) for path in offsets.glob("*") if path.name.isdigit()), default=-1)

    def _await(self, condition, complaint: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            assert self._child.poll() is None and time.monotonic() < deadline, (
                f"{complaint}: {self._last_words()}"
            )
            time.sleep(_PERIOD_S)

    def _await_end(self) -> None:
        try:
            code = self._child.wait(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {_LIMIT_S} s: {self._last_words()}") from None
        assert code == 0, self._last_words()

    def _log_path(self) -> Path:
        return self.room.path / f"child-{self._lives}.log"

    def _last_words(self) -> str:
        text = self._log_path().read_text(errors="replace")
        return "\n".join([*self.log, f"child {self._lives} said:", text[-6000:]])


def _kill_group(child: subprocess.Popen) -> None:
    """Kill the child and all its descendants, which have their own session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
