"""The life of one set of queries: fed, tormented as a plan says, run to the end of its input."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from waiting import paths_below

from chaos.cluster import Cluster
from chaos.feed import Feeder, newest_batch
from chaos.life_places import Checkpoints, checkpoint_of
from chaos.plan import Fault, Plan
from chaos.processes import Process
from chaos.questions import WITH_PYTHON
from chaos.session_options import session_options
from state_store.agent.lazy.local_file import USES_SUFFIX
from state_store.core.storage import open_storage

_PERIOD_S = 0.05
_READY_S = 600
_PROGRESS_S = 600
_VICTIM_S = 600
_END_S = 1200
_FAULTS_WITHOUT_PROGRESS = 3
_AWAKE_S = 6
"""Seconds that a resumed driver lives on beside its successor."""


class Stuck(AssertionError):
    """The queries did not go on in time."""


@dataclass
class Stopped:
    """Processes that sleep, the time at which they are to be resumed, and a driver's to be killed; or an
    outage of the storage, which ends then.
    """

    processes: list[Process]
    resume_at: float
    driver: subprocess.Popen | None = None
    outage: contextlib.ExitStack | None = None


@dataclass
class Life:
    """Plays `plan` with the named questions on the cluster; its files are below `room`, and `checkpoints`.

    After `play`: `faults` by kind, `files` of each stream, `generations` of drivers, `seen` (every executor
    and agent there was), `cached` (seconds in which an executor had a base that was cached by pages).
    """

    cluster: Cluster
    plan: Plan
    checkpoints: Checkpoints
    questions: Sequence[str]
    room: Path
    jars: Sequence[Path]
    say: Callable[[str], None] = print
    faults: Counter[str] = field(default_factory=Counter)
    generations: int = 0
    cached: int = 0
    seen: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    _feeder: Feeder | None = None
    _driver: subprocess.Popen | None = None
    _stopped: list[Stopped] = field(default_factory=list)
    _awake: list[tuple[float, subprocess.Popen]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _looks_at: float = 0.0

    @property
    def journal(self) -> Path:
        """Return the lines that chaos.TaskJournal wrote."""
        return self.room / "tasks.tsv"

    @property
    def files(self) -> int:
        """Number of files of each stream."""
        return self.feeder.files

    @property
    def feeder(self) -> Feeder:
        assert self._feeder is not None
        return self._feeder

    def checkpoint(self, question: str) -> str:
        """Its URI, for a program without a JVM."""
        return checkpoint_of(self.checkpoints.own_uri, question)

    def committed(self, question: str) -> int:
        """Return the newest batch that Spark has committed; -1 if there is none."""
        return newest_batch(open_storage(self.checkpoint(question)), "commits")

    def play(self) -> None:
        """Raise Stuck, with what the drivers said last, if the queries do not go on."""
        self.room.mkdir(parents=True)
        checkpoints = [self.checkpoint(question) for question in self.questions]
        feeder = self._feeder = Feeder(self.room / "input", self.plan.seed, checkpoints)
        try:
            self._spawn()
            feeder.start()
            self._await_ready()
            progress = [[*feeder.commits]]
            for fault in self.plan.faults:
                self._sleep(fault.after_s)
                self._do(fault)
                progress = [*progress, [*feeder.commits]][-_FAULTS_WITHOUT_PROGRESS:]
                self._await(
                    lambda past=progress[0]: feeder.commits != past, _PROGRESS_S, "no query committed"
                )
            self._resume_all()
            feeder.end()
            (self.room / "complete").touch()
            self._await((self.room / "done").exists, _END_S, "the queries do not come to the end")
        finally:
            self._end()
            feeder.end()

    # ---- drivers -------------------------------------------------------------------------------

    def _spawn(self) -> None:
        self.generations += 1
        generation = self.room / ".generation"
        generation.write_text(str(self.generations))
        generation.replace(self.room / "generation")
        plan = {
            "room": str(self.room),
            "uri": self.checkpoints.uri,
            "own_uri": self.checkpoints.own_uri,
            "questions": list(self.questions),
            "options": session_options(self.plan, self.cluster, self.checkpoints, self.journal, self.jars),
            "generation": self.generations,
        }
        path = self.room / f"plan-{self.generations}.json"
        path.write_text(json.dumps(plan))
        with self._driver_log().open("w") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "chaos.query_process", str(path)],
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
        if fault.kind in self.checkpoints.outages:
            self._break_storage(fault)
            return
        if fault.target == "machine":
            self._resume_all(lambda stopped: stopped.driver is None)
        victims: list[list[Process]] = []

        def found() -> bool:
            victims[:] = self._victims(fault)
            return bool(victims)

        self._await(found, _VICTIM_S, f"there is no {fault.target} for {fault}")
        victim = victims[min(int(fault.choice * len(victims)), len(victims) - 1)]
        if not self._hit(fault, victim):
            self._do(fault)  # it ended by itself, just before
            return
        self._count(fault, f"{fault} ({victim[0].pid})")
        if fault.target == "driver":
            self._replace_driver(fault, victim)
        elif fault.lasts:
            self._stopped.append(Stopped(victim, time.monotonic() + fault.for_s))

    def _break_storage(self, fault: Fault) -> None:
        self._resume_all(lambda stopped: stopped.outage is not None)
        outage = contextlib.ExitStack()
        outage.enter_context(self.checkpoints.outages[fault.kind]())
        self._stopped.append(Stopped([], time.monotonic() + fault.for_s, outage=outage))
        self._count(fault, str(fault))

    def _count(self, fault: Fault, hit: str) -> None:
        self.faults[fault.kind] += 1
        at_s, feeder = time.monotonic() - self._began, self.feeder
        in_batch = sum(started > done for started, done in zip(feeder.offsets, feeder.commits, strict=True))
        self.say(f"  {at_s:7.1f} s  {hit}, {in_batch} queries in mid-batch")

    def _victims(self, fault: Fault) -> list[list[Process]]:
        """Return the possible victims of a fault, in the order of their starts."""
        if fault.target == "machine":
            return [machine for machine in self.cluster.machines() if not machine[0].stopped]
        alive = self._look()
        if fault.target == "driver":
            assert self._driver is not None
            session = self._driver.pid
            drivers = [process for process in alive if process.pid == session or process.parent == session]
            return [drivers] if any(process.java for process in drivers) else []
        found = [process for process in alive if process.role == fault.target and not process.stopped]
        return [[process] for process in sorted(found, key=lambda process: process.since)]

    def _hit(self, fault: Fault, victim: list[Process]) -> bool:
        if fault.kind.startswith("stop-"):
            hits = [process.stop() for process in victim]
        elif fault.kind.startswith("starve-"):
            hits = [process.starve() for process in victim]
        elif fault.kind.startswith("clean-"):
            hits = [process.clean() for process in victim]
        elif fault.kind == "decommission-executor":
            hits = [process.send(signal.SIGPWR) for process in victim]
        else:
            hits = [process.kill() for process in victim]
        return hits[0]

    def _replace_driver(self, fault: Fault, victim: list[Process]) -> None:
        old = self._driver
        assert old is not None
        if fault.lasts:
            self._stopped.append(Stopped(victim, time.monotonic() + fault.for_s, old))
        else:
            _end_session(old)
        self._spawn()
        self._await_ready()

    def _resume_all(self, which: Callable[[Stopped], bool] = lambda stopped: True) -> None:
        for stopped in [stopped for stopped in self._stopped if which(stopped)]:
            self._resume(stopped)
        if self._awake and not self._stopped:
            self._sleep(_AWAKE_S)

    def _resume(self, stopped: Stopped) -> None:
        self._stopped.remove(stopped)
        for process in stopped.processes:
            process.resume()
        if stopped.outage is not None:
            stopped.outage.close()
        if stopped.driver is not None:
            self._awake.append((time.monotonic() + _AWAKE_S, stopped.driver))

    def _tend(self) -> None:
        """Do everything that is due.

        Sleepers are resumed, drivers that outlived their successors killed, drivers and workers that ended
        replaced.
        """
        now = time.monotonic()
        self.cluster.replace_workers()
        for stopped in [stopped for stopped in self._stopped if stopped.resume_at <= now]:
            self._resume(stopped)
        for due in [due for due in self._awake if due[0] <= now]:
            self._awake.remove(due)
            _end_session(due[1])
        assert self._driver is not None
        if self._driver.poll() is not None and not (self.room / "done").exists():
            self.say(f"  driver {self.generations} ended by itself, exit code {self._driver.returncode}")
            _end_session(self._driver)
            self._spawn()
        self._look()
        if now >= self._looks_at:
            self._looks_at = now + 1
            places = self.cluster.room.glob("local-*")
            self.cached += any(paths_below(place, f"*{USES_SUFFIX}") for place in places)

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
        """End the drivers; the cluster and the storage go on."""
        while self._stopped:
            self._resume(self._stopped[0])
        for driver in [self._driver, *(driver for _, driver in self._awake)]:
            if driver is not None:
                _end_session(driver)
        self._awake = []


def _end_session(driver: subprocess.Popen) -> None:
    """Kills the driver and everything in its session, and waits."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def draw_questions(rng: random.Random, count: int, names: Iterable[str]) -> list[str]:
    """This many of the names, with one of the queries among them whose Python workers can be hit."""
    while True:
        drawn = sorted(rng.sample(sorted(names), count))
        if not WITH_PYTHON.isdisjoint(drawn):
            return drawn
