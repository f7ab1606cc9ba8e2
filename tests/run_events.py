"""Events of a run of pytest, for the runner of the parts, and the processor time of each test.

`parts.py` names a file in STATE_STORE_TEST_EVENTS. Each event is a line of JSON that is appended to it:

    {"event": "collected", "tests": 812}
    {"event": "begins", "test": "tests/cli/test_show.py::test_rows", "bound_s": 120}
    {"event": "ended", "test": ..., "outcome": "passed", "cpu_s": 0.4, "wall_s": 0.5, "dear": false}
    {"event": "failed", "test": ..., "text": "the traceback and what was printed"}
    {"event": "finished", "cpu_s": 363.2, "left": 0}

`left` are tests that a draw has passed over.

The processor time of a test is that of this process and of all that it started, its fixtures' included; what
a fixture of the whole session takes, such as the start of Spark, counts for no test. Of a short test it is
that of this process alone: what its other processes took counts for the next longer test. A process that
outlives its parent is adopted by this one, so that it is counted, and ended with the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

VARIABLE = "STATE_STORE_TEST_EVENTS"

DRAW = "draw"
"""Name of the plugin that passes tests over, and counts them as `left`."""

LOOK_S = 0.25
"""Seconds up to which a test is short: a look at all processes would take a good part of it."""

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent ends first; Linux alone can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(own: Collection[int]) -> None:
    """Take the exit codes of adopted processes that have ended; `own` are children that others wait for."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if child.pid not in own and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


def family_cpu_s(root: psutil.Process | None = None) -> float:
    """Return the processor seconds that a process and its descendants took, those that ended included."""
    root = root or psutil.Process()
    total_s = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it ended meanwhile
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


def end_family(root: psutil.Process | None = None) -> list[str]:
    """Kill all descendants of a process, and return their commands."""
    ended = []
    for process in reversed((root or psutil.Process()).children(recursive=True)):
        try:
            ended.append(" ".join(process.cmdline())[:200])
            process.kill()
            process.wait(10)
        except psutil.Error:
            continue
    return ended


class Progress:
    """A plugin of pytest that writes the events."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 -- until the run ends
        self._cpu_s = self._own_s = self._wall_s = 0.0
        self._shared_s = self._told_s = 0.0
        self._outcome = "passed"
        self._dear = False

    def _tell(self, event: str, **facts: Any) -> None:
        self._file.write(json.dumps({"event": event, **facts}) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._tell("collected", tests=len(session.items))
        self._cpu_s, self._own_s, self._wall_s = family_cpu_s(), time.process_time(), time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Leave what a fixture of the session takes out of the time of the test that asks for it first."""
        if fixturedef.scope != "session":
            return (yield)
        before_s, inner_s, self._shared_s = family_cpu_s(), self._shared_s, 0.0
        try:
            return (yield)
        finally:
            # Fixtures that this one asked for are part of its time.
            self._shared_s = inner_s + family_cpu_s() - before_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._outcome = "passed"
        self._dear = item.get_closest_marker("dear") is not None
        bound = item.get_closest_marker("timeout")
        self._tell("begins", test=item.nodeid, bound_s=bound and bound.args[0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcome = "failed"
            sections = "".join(f"\n--- {name}\n{text}" for name, text in report.sections)
            self._tell(
                "failed", test=report.nodeid, text=f"{report.longreprtext}{sections}", when=report.when
            )
        elif report.skipped and self._outcome == "passed":
            self._outcome = "skipped"
        if report.when != "teardown":
            return
        now_s = time.monotonic()
        wall_s = now_s - self._wall_s
        if wall_s > LOOK_S or self._shared_s:
            total_s = family_cpu_s()
            cpu_s = max(0.0, total_s - self._cpu_s - self._shared_s - self._told_s)
            self._cpu_s, self._shared_s, self._told_s = total_s, 0.0, 0.0
        else:
            cpu_s = time.process_time() - self._own_s
            self._told_s += cpu_s
        self._wall_s, self._own_s = now_s, time.process_time()
        self._tell(
            "ended",
            test=report.nodeid,
            outcome=self._outcome,
            cpu_s=round(cpu_s, 3),
            wall_s=round(wall_s, 2),
            dear=self._dear,
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell("failed", test=report.nodeid, text=report.longreprtext, when="collect")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        draw: Any = config.pluginmanager.get_plugin(DRAW)
        self._tell("finished", cpu_s=round(family_cpu_s(), 1), left=draw.left if draw else 0)
        self._file.close()


def plugin() -> Progress | None:
    """Return the plugin if a runner asked for events, for this process alone."""
    path = os.environ.pop(VARIABLE, None)
    return None if path is None else Progress(Path(path))
