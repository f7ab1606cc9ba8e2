"""The life of one set of queries: fed, tormented as a plan says, run to the end of its input."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos import stream
from chaos.cluster import Cluster
from chaos.options import session_options
from chaos.plan import Fault, Plan
from chaos.processes import Process

_PERIOD_S = 0.05
_READY_S = 600
_PROGRESS_S = 600
_VICTIM_S = 600
_END_S = 1200
_AHEAD = 3
"""Files that the input is ahead of the query that has read most."""

_FAULTS_WITHOUT_PROGRESS = 3
_AWAKE_S = 6
"""How long a driver that was resumed lives on beside its successor."""


class Stuck(AssertionError):
    """The queries did not go on in time."""


@dataclass
class Stopped:
    """Processes that sleep, the time at which they are to be resumed, and a driver's to be killed."""

    processes: list[Process]
    resume_at: float
    driver: subprocess.Popen | None = None


@dataclass
class Life:
    """Plays `plan` with the named questions on the cluster; its files are below `room`.

    After `play`: `faults` by kind, `files` of each stream, `generations` of drivers, `seen` (every executor
    and agent there was), `log` (what was done, line by line).
    """

    cluster: Cluster
    plan: Plan
    questions: Sequence[str]
    room: Path
    jars: Sequence[Path]
    say: Callable[[str], None] = print
    faults: Counter[str] = field(default_factory=Counter)
    files: int = 0
    generations: int = 0
    seen: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    _driver: subprocess.Popen | None = None
    _stopped: list[Stopped] = field(default_factory=list)
    _awake: list[tuple[float, subprocess.Popen]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    @property
    def journal(self) -> Path:
        """What chaos.TaskJournal wrote."""
        return self.room / "tasks.tsv"

    def checkpoint(self, question: str) -> Path:
        return self.room / "checkpoint" / question

    def play(self) -> None:
        """Raises Stuck, with what the drivers said last, if the queries do not go on."""
        self.room.mkdir(parents=True)
        for name in stream.STREAMS:
            stream.write(self.room / "input" / name, self.plan.seed, name, 0)
        self.files = 1
        over = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(over,), daemon=True)
        try:
            self._spawn()
            feeder.start()
            self._await_ready()
            progress = [self._committed()]
            for fault in self.plan.faults:
                self._sleep(fault.after_s)
                self._do(fault)
                progress = [*progress, self._committed()][-_FAULTS_WITHOUT_PROGRESS:]
                self._await(
                    lambda past=progress[0]: self._committed() != past, _PROGRESS_S, "no query committed"
                )
            self._resume_all()
            over.set()
            feeder.join()
            (self.room / "complete").touch()
            self._await((self.room / "done").exists, _END_S, "the queries do not come to the end")
        finally:
            over.set()
            self._end()

    # ---- input and drivers -------------------------------------------------------------------------------

    def _feed(self, over: threading.Event) -> None:
        """Keeps the input ahead of the query that has read most."""
        while not over.wait(_PERIOD_S):
            while self.files < max(self._newest("offsets")) + _AHEAD:
                for name in stream.STREAMS:
                    stream.write(self.room / "input" / name, self.plan.seed, name, self.files)
                self.files += 1

    def _newest(self, log: str) -> list[int]:
        return [newest_batch(self.checkpoint(question) / log) for question in self.questions]

    def _committed(self) -> list[int]:
        return self._newest("commits")

    def _spawn(self) -> None:
        self.generations += 1
        generation = self.room / ".generation"
        generation.write_text(str(self.generations))
        generation.replace(self.room / "generation")
        plan = {
            "room": str(self.room),
            "questions": list(self.questions),
            "options": session_options(self.plan, self.cluster, self.journal, self.jars),
            "generation": self.generations,
        }
        path = self.room / f"plan-{self.generations}.json"
        path.write_text(json.dumps(plan))
        with self._driver_log().open("w") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "chaos.driver", str(path)],
                env=self.cluster.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.room,
                start_new_session=True,
            )

    def _driver_log(self) -> Path:
        return self.room / f"driver-{self.generations}.log"

    def _await_ready(self) -> None:
        def ready() -> bool:
            return (self.room / f"ready-{self.generations}").exists()

        self._await(ready, _READY_S, "no driver is ready")

    # ---- faults ------------------------------------------------------------------------------------------

    def _do(self, fault: Fault) -> None:
        if fault.target == "machine":
            self._resume_all(lambda one: one.driver is None)
        victims: list[list[Process]] = []

        def found() -> bool:
            victims[:] = self._victims(fault)
            return bool(victims)

        self._await(found, _VICTIM_S, f"there is no {fault.target} for {fault}")
        victim = victims[min(int(fault.choice * len(victims)), len(victims) - 1)]
        in_batch = sum(
            begun > done for begun, done in zip(self._newest("offsets"), self._committed(), strict=True)
        )
        if not self._hit(fault, victim):
            self._do(fault)  # it ended by itself, just before
            return
        self.faults[fault.kind] += 1
        at_s = time.monotonic() - self._began
        self.say(f"  {at_s:7.1f} s  {fault} ({victim[0].pid}), {in_batch} queries in mid-batch")
        if fault.target == "driver":
            self._replace_driver(fault, victim)
        elif fault.stops:
            self._stopped.append(Stopped(victim, time.monotonic() + fault.for_s))

    def _victims(self, fault: Fault) -> list[list[Process]]:
        """What the fault may be done to, in the order in which it was started."""
        if fault.target == "machine":
            return [machine for machine in self.cluster.machines() if not machine[0].stopped]
        alive = self._look()
        if fault.target == "driver":
            assert self._driver is not None
            session = self._driver.pid
            drivers = [one for one in alive if one.pid == session or one.parent == session]
            return [drivers] if any(one.java for one in drivers) else []
        found = [one for one in alive if one.role == fault.target and not one.stopped]
        return [[one] for one in sorted(found, key=lambda one: one.since)]

    def _hit(self, fault: Fault, victim: list[Process]) -> bool:
        if fault.stops:
            hits = [one.stop() for one in victim]
        elif fault.kind == "decommission-executor":
            hits = [one.send(signal.SIGPWR) for one in victim]
        else:
            hits = [one.kill() for one in victim]
        return hits[0]

    def _replace_driver(self, fault: Fault, victim: list[Process]) -> None:
        old = self._driver
        assert old is not None
        if fault.stops:
            self._stopped.append(Stopped(victim, time.monotonic() + fault.for_s, old))
        else:
            _end_session(old)
        self._spawn()
        self._await_ready()

    def _resume_all(self, which: Callable[[Stopped], bool] = lambda one: True) -> None:
        for one in [one for one in self._stopped if which(one)]:
            self._resume(one)
        if self._awake and not self._stopped:
            self._sleep(_AWAKE_S)

    def _resume(self, stopped: Stopped) -> None:
        self._stopped.remove(stopped)
        for process in stopped.processes:
            process.resume()
        if stopped.driver is not None:
            self._awake.append((time.monotonic() + _AWAKE_S, stopped.driver))

    def _tend(self) -> None:
        """What is due: sleepers are woken, drivers that outlived their successors killed, drivers and workers
        that ended replaced."""
        now = time.monotonic()
        self.cluster.replace_workers()
        for one in [one for one in self._stopped if one.resume_at <= now]:
            self._resume(one)
        for due in [due for due in self._awake if due[0] <= now]:
            self._awake.remove(due)
            _end_session(due[1])
        assert self._driver is not None
        if self._driver.poll() is not None and not (self.room / "done").exists():
            self.say(f"  driver {self.generations} ended by itself, exit code {self._driver.returncode}")
            _end_session(self._driver)
            self._spawn()
        self._look()

    def _look(self) -> list[Process]:
        alive = self.cluster.processes()
        for process in alive:
            if process.role in ("executor", "agent"):
                self.seen.setdefault(process.role, set()).add((process.pid, process.since))
        return alive

    # ---- waiting -----------------------------------------------------------------------------------------

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._tend()
            time.sleep(min(left, _PERIOD_S))

    def _await(self, condition: Callable[[], bool], within_s: float, complaint: str) -> None:
        until = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > until:
                raise Stuck(f"{complaint} within {within_s} s\n{self._last_words()}")
            self._tend()
            time.sleep(_PERIOD_S)

    def _last_words(self) -> str:
        return self._driver_log().read_text(errors="replace")[-4000:]

    def _end(self) -> None:
        """Ends the drivers; the cluster goes on."""
        for one in self._stopped:
            for process in one.processes:
                process.resume()
        drivers = [self._driver, *(one.driver for one in self._stopped), *(one for _, one in self._awake)]
        for driver in drivers:
            if driver is not None:
                _end_session(driver)
        self._stopped, self._awake = [], []


def _end_session(driver: subprocess.Popen) -> None:
    """Kills the driver and everything in its session, and waits."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def newest_batch(log: Path) -> int:
    """The newest batch in one of Spark's logs; -1 if there is none."""
    return max((int(name) for name in _names(log) if name.isdigit()), default=-1)


def _names(directory: Path) -> Iterable[str]:
    with contextlib.suppress(FileNotFoundError):
        return [path.name for path in directory.iterdir()]
    return ()


def draw_questions(rng: random.Random, count: int, names: Iterable[str]) -> list[str]:
    """So many of the names."""
    return sorted(rng.sample(sorted(names), count))
