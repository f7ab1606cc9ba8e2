"""The parts of the tests, run side by side. A part is a process, because a Spark session lives as long as it.

    python tests/parts.py [--tier every|more|change|long] [--lanes N] [--sparks MINOR,...]
        [--draw SEED] [PART ...]

`more` has the programs below, too, and `change` is both: what a change must pass. With a seed, each part
runs a part of the tests of the tier `more`, of packages and of chaos: a case of each test that
docs/reliability.md names or that alone sees a break of tests/mutants, and then others in an order that the
seed draws, until these have taken the part's budget of processor time. The benchmarks run a tenth, and
Spark's suites the contract and another group. The suites run on the first of the older Sparks.

While it runs, it prints a line at least every ten seconds, with the tests done of all that are collected, and
a failure in full when it happens, with the command that repeats it. At the end it lists the failures again,
and prints a line such as `3511 passed, 0 failed, 4 skipped`. The output of each part is in `build/tests`,
with the seconds of each test in a CSV file beside it.

What it takes care of:

- Signals that a shell or `nohup` had it ignore are set back, here and so in all that it starts.
- A part whose test says nothing for much longer than this test may take is killed with all that it started,
  and the test is named. So is a part whose processes together take more memory than the limit.
- Whatever ends this process, nothing that it started is left.
- If a few tests fail, or a program, they run once more, alone: those that pass then are named as unstable.
- A test of the tier `every` that takes much processor time is named; `make test` is for what is cheap.

Exits with 1 if a test fails again, or a part fails in another way.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import run_events

CHECKOUT = Path(__file__).resolve().parents[1]

# ---- what there is ---------------------------------------------------------------------------------------

JVM = ("bridge", "jvm", "conformance")
STORAGE = (
    "core/storage",
    "cli/test_cli_hdfs.py",
    "cli/test_secrets.py",
    "data/dataset/test_remote.py",
    "observe/test_remote_storage.py",
    "benchmarks",
)
SIMULATED = ("simulation", "core/deletion")
WORK = ("agent/lazy", "agent/merges", "agent/restores")
"""The tests of the work that an agent does, beside those of its processes and calls."""

COMMANDS = ("cli", "observe")
APART = ("spark", "functions", "packaging", "chaos", *JVM, *STORAGE, *SIMULATED, "agent", "data", *COMMANDS)

NEWEST = ""
"""The release of Spark in `.venv`."""

OLDER = ("4.2", "4.1", "4.0")

BOUND_S = {"every": 120, "more": 900, "long": 9000}
"""Seconds that a test of each tier may take, unless it has a marker `timeout` of its own."""

CHANGE = "change"
"""The tiers `every` and `more`: what a change must pass."""

LONGEST_S = {"every": 900, "more": 1800, "long": 9000}
"""Seconds that the marker `timeout` of a test may name at most, by its tier."""

GRACE_S = 480
"""Seconds without an event, beyond those that the test that runs may take, after which a part hangs: in a
fixture, or in a test that cannot be ended."""

MEMORY_BYTES = 10 << 30
"""Resident memory of a part with all that it started. The largest takes about a third of that."""

DEAR_S = 1.5
"""Processor seconds that a test of the tier `every` may take without the marker `dear`."""

MAX_DEAR = 10
"""The largest number of such tests that the report names. It never fails for them: other work on the machine,
and a slower one, make processor time longer, too."""

REPEATED = 3
"""The largest number of failed tests that run once more; if more fail, it is not for the machine's load."""

STARVED = "Python worker failed to connect back"
"""Words of Spark in a failure that is always one of the load: it gives a new worker ten seconds, whatever its
options say. Such a test runs once more however many there are."""

LINE_S = 10.0
"""Longest time without a line of output."""

TESTS_FAILED = 1
NO_TESTS = 5
"""Exit codes of pytest."""


@dataclass(frozen=True)
class Part:
    """A run of pytest, or of another program that checks something.

    Args:
        name: what people call it.
        paths: the files and folders below `tests` that it collects.
        ignored: those below the paths that it leaves to other parts.
        spark: the older release of Spark whose environment runs it; empty for the newest.
        program: the arguments of Python, in the place of those of pytest.
        draws: the program takes a seed that draws what it runs.
        drawn_s: processor seconds of the tests that a seed draws beside those that always run.
        may_be_empty: no test of it may be for a release.
        waits: its threads hand over to each other all the time, so that it takes little processor time and
            much of any other. It runs beside those that have a lane, and comes before them when it can go
            on; otherwise it is what the others wait for at the end.
    """

    name: str
    paths: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    spark: str = NEWEST
    program: tuple[str, ...] = ()
    draws: bool = False
    drawn_s: float = 12.0
    may_be_empty: bool = False
    waits: bool = False

    def collects(self, file: str) -> bool:
        """Return True if pytest collects `file`, a path below `tests`."""

        def is_below(path: str) -> bool:
            return file == path or file.startswith(f"{path}/")

        return (not self.paths or any(map(is_below, self.paths))) and not any(map(is_below, self.ignored))

    def command(self, tier: str, tests: Sequence[str] = (), seed: str = "", order: str = "") -> list[str]:
        """Return the command that runs the tests of `tier` in this part, or those `tests` alone.

        `order`, if it is not empty, is the number of a random order of the files and of the tests in each.
        """
        python = CHECKOUT / (f".venv-{self.spark}" if self.spark else ".venv") / "bin/python"
        is_drawn = seed and (tier == "more" or self in OWN)
        drawn = ["--draw", seed] if is_drawn else []
        if self.program:
            return [str(python), *self.program, *(drawn if self.draws else [])]
        drawn += ["--budget", f"{self.drawn_s:g}"] if is_drawn else []
        ordered = ["--random-order", f"--random-order-seed={order}"] if order else []
        given = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "--tier", tier, *drawn, *ordered]
        if tests:
            return [*given, *tests]
        given += [f"--ignore=tests/{path}" for path in self.ignored]
        return [*given, *(f"tests/{path}" for path in self.paths or ("",))]


PARTS = (
    Part("simulation", SIMULATED, waits=True),
    Part("agent", ("agent",), ignored=WORK, drawn_s=6, waits=True),
    Part("agent-work", WORK, drawn_s=6, waits=True),
    Part("spark", ("spark",), drawn_s=30),
    Part("data", ("data",), STORAGE, drawn_s=6),
    Part("core", ignored=APART),
    Part("functions", ("functions",), drawn_s=20),
    Part("commands", COMMANDS, STORAGE, drawn_s=6),
    Part("jvm", JVM),
    Part("storage", STORAGE),
)
"""The parts of every tier on the newest Spark, the longest first.

Each test is in one of them or in `OWN`.
"""

OWN = (Part("packaging", ("packaging",)), Part("chaos", ("chaos",)))
"""Parts that `make test` leaves to `make test-more`, whatever the markers of their tests."""


PROGRAMS = (
    Part("benchmark", program=("-m", "benchmarks", "quick"), draws=True),
    Part(
        "mutants",
        program=("tests/mutants/run.py", "--only", "core/checkpoint/", "--sample", "3", "--jobs", "1"),
    ),
)
"""Programs that a change must pass beside Spark's own suites: the benchmarks in miniature, some mutants."""


def suites_on(spark: str) -> Part:
    """Return the part that runs Spark's own suites of an older release."""
    return Part("suites", program=("tests/suites/published_suites.py", "--spark", spark), draws=True)


def parts_of(tier: str, sparks: Sequence[str] = OLDER) -> Iterator[tuple[Part, str]]:
    """Yield the parts of a tier, each with the tier whose markers it selects, on these older Sparks too."""
    if tier == CHANGE:
        yield from parts_of("every")
        yield from parts_of("more", sparks)
        return
    if tier == "every":
        yield from ((part, "every") for part in PARTS)
        return
    if tier == "more":  # the longest first, so that both cores have work until the end
        simulation, agent, work, spark, data, core, functions, commands, jvm, storage = PARTS
        yield from ((part, "more") for part in (simulation, spark))
        yield from ((suites_on(minor), "more") for minor in sparks[:1])
        yield jvm, "more"
        yield from ((part, "every") for part in OWN)
        yield from ((part, "more") for part in PROGRAMS)
        yield from ((Part(f"spark-{minor}", ("spark",), spark=minor), "more") for minor in sparks)
        yield from ((part, "more") for part in (agent, work, data, core, functions, commands, storage))
        return
    yield from ((part, "long") for part in (*PARTS, *OWN))
    for minor in sparks:
        for part in (
            Part(f"spark-{minor}", ("spark",), spark=minor),
            Part("functions", ("functions",), spark=minor, may_be_empty=True),
        ):
            yield part, "more"
            yield part, "long"


# ---- a part that runs ------------------------------------------------------------------------------------


@dataclass
class Run:
    """A part while it runs, and after it: what its events said.

    Args:
        part: the part.
        tier: the tier whose markers it selects.
        tests: the tests that it runs; empty for all.
        seed: draws some of the cases of its tests; empty for all cases.
        order: the number of a random order of the tests; empty for that of their files.
        again: the tests or the program failed beside other parts, and run once more.
    """

    part: Part
    tier: str
    tests: tuple[str, ...] = ()
    seed: str = ""
    order: str = ""
    again: bool = False
    collected: int | None = None
    left: int | None = None
    done: dict[str, int] = field(default_factory=lambda: {"passed": 0, "failed": 0, "skipped": 0})
    failed: list[str] = field(default_factory=list)
    causes: dict[str, str] = field(default_factory=dict)
    starved: set[str] = field(default_factory=set)
    dear: list[tuple[str, float]] = field(default_factory=list)
    times: list[tuple[str, str, str]] = field(default_factory=list)
    current: str = ""
    bound_s: float | None = None
    cpu_s: float = 0.0
    complaint: str = ""
    was_ended: bool = False
    exit: int | None = None

    @property
    def name(self) -> str:
        """The name in the report."""
        spark = f" on Spark {self.part.spark}" if self.part.spark else ""
        return f"{self.part.name}{spark} ({self.tier}{', once more' if self.again else ''})"

    @property
    def is_well(self) -> bool:
        """True if it ended, and nothing failed."""
        return self.exit in (0, NO_TESTS) and not self.failed and not self.complaint

    @property
    def is_repeatable(self) -> bool:
        """True if nothing but tests failed, or a program that ended by itself, which can run once more."""
        if self.part.program:
            return not self.was_ended and not self.is_well
        return bool(self.failed) and self.exit == TESTS_FAILED and not self.complaint

    @property
    def silence_s(self) -> float:
        """Seconds without an event after which it hangs: more than what runs now may take."""
        return (self.bound_s or BOUND_S[self.tier]) + GRACE_S

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the process; its output goes to a file in `build/tests`."""
        logs = CHECKOUT / "build/tests"
        logs.mkdir(parents=True, exist_ok=True)
        again = "-again" if self.again else ""
        spark = f"-{self.part.spark}" if self.part.spark else ""
        self.log = logs / f"{self.part.name.removesuffix(spark)}{spark}-{self.tier}{again}.log"
        self._room = tempfile.TemporaryDirectory()
        self._events = Path(self._room.name, "events")
        self._events.touch()
        self._read_bytes = self._log_bytes = 0
        with open(self.log, "wb") as log:
            behind = [] if self.part.waits else ["nice", "-n", "1"]
            self._process = subprocess.Popen(
                [*behind, *self.part.command(self.tier, self.tests, self.seed, self.order)],
                cwd=CHECKOUT,
                env={**environment, **self._variables()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._heard_s = self._looked_s = self.began_s = time.monotonic()

    def _variables(self) -> dict[str, str]:
        """Return where events go; a program may start runs of pytest that fail on purpose, and has none."""
        return {} if self.part.program else {run_events.VARIABLE: str(self._events)}

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def look(self) -> bool:
        """Read the events that came, and print failures; return True if the part has ended.

        It is ended here if it hangs or takes too much memory.
        """
        exit_code = self._process.poll()
        self._hear()
        if exit_code is None:
            self._guard()
            return False
        if not self.complaint and exit_code not in (
            (0,) if self.part.program else (0, TESTS_FAILED, NO_TESTS)
        ):
            where = f" in {self.current}" if self.current else ""
            self.complaint = f"it ended with exit code {exit_code}{where}"
        if not self.complaint and not self.part.program:
            self.complaint = self._lack()
        if self.complaint:
            say(f"== FAILED {self.name}: {self.complaint}; the end of {_short(self.log)}:", *self.tail(60))
        self.exit = exit_code
        self._room.cleanup()
        return True

    def _lack(self) -> str:
        """Return what an end that looks well hides: tests that did not run. Empty if all did."""
        ran = sum(self.done.values())
        if self.left is None:  # a test, or what it called, has ended the process
            return f"it ended before its tests had{f', in {self.current}' if self.current else ''}"
        wanted = (self.collected or 0) - self.left
        if ran < wanted:
            return f"it ran {ran} of {wanted} tests{f', up to {self.current}' if self.current else ''}"
        return "" if ran or self.part.may_be_empty else "it ran no test"

    def tail(self, lines: int) -> list[str]:
        """Return the last lines of its output."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]

    def end(self) -> None:
        """Kill the process with all that it started."""
        if self._process.poll() is None:
            try:
                root = psutil.Process(self._process.pid)
                run_events.end_family(root)
            except psutil.Error:
                pass
            self._process.kill()
            self._process.wait(60)

    def _guard(self) -> None:
        now_s = time.monotonic()
        if now_s - self._heard_s > self.silence_s:
            self._end_for(f"it hangs in {self.current or 'its collection'}")
        elif now_s - self._looked_s > 2:
            self._looked_s = now_s
            if self.part.program:
                self.cpu_s = max(self.cpu_s, _family_cpu_s(self._process.pid))
            size_bytes = _family_bytes(self._process.pid)
            if size_bytes > MEMORY_BYTES:
                self._end_for(f"its processes take {size_bytes >> 20} MiB of memory in {self.current}")

    def _end_for(self, complaint: str) -> None:
        self.complaint, self.was_ended = complaint, True
        self.end()

    def _hear(self) -> None:
        size_bytes = self.log.stat().st_size
        if self.part.program and size_bytes > self._log_bytes:
            self._log_bytes, self._heard_s = size_bytes, time.monotonic()
        with open(self._events, "rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        lines = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(lines)
        for line in lines.splitlines():
            self._heard_s = time.monotonic()
            event: dict[str, Any] = json.loads(line)
            getattr(self, f"_{event.pop('event')}")(**event)

    def _collected(self, tests: int) -> None:
        self.collected = tests

    def _begins(self, test: str, bound_s: float | None) -> None:
        self.current, self.bound_s = test, bound_s

    def _failed(self, test: str, text: str, when: str) -> None:
        if test not in self.failed:
            self.failed.append(test)
        cause = next((line[1:].strip() for line in text.splitlines() if line.startswith("E  ")), "")
        self.causes.setdefault(test, cause[:300])
        if STARVED in text:
            self.starved.add(test)
        phase = "" if when == "call" else f" ({when})"
        say(f"== FAILED{phase} {self.name}: {repeat(self.part, test)}", *text.splitlines(), "")

    def _ended(self, test: str, outcome: str, cpu_s: float, wall_s: float, dear: bool) -> None:
        self.done[outcome] += 1
        self.current, self.bound_s = "", None
        self.times.append((test, f"{cpu_s:.3f}", f"{wall_s:.2f}"))
        is_quick = self.tier == "every" and self.part not in OWN
        if is_quick and cpu_s > DEAR_S and not dear:
            self.dear.append((test, cpu_s))

    def _finished(self, cpu_s: float, left: int) -> None:
        self.cpu_s, self.left = cpu_s, left

    def write_times(self) -> None:
        """Write the seconds of each test beside the log, the dearest first."""
        rows = sorted(self.times, key=lambda row: float(row[1]), reverse=True)
        with open(self.log.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("test", "processor seconds", "seconds"), *rows])

    def state(self) -> str:
        """Return a word on how far it is: `core 812/2400, 1 failed`."""
        if self.part.program:
            return self.name
        done, total = sum(self.done.values()), "?" if self.collected is None else self.collected
        return f"{self.name} {done}/{total}" + (f", {len(self.failed)} failed" if self.failed else "")


def repeat(part: Part, test: str) -> str:
    """Return the command that repeats a test."""
    command = "make test" if not part.spark else f"make test-spark SPARK={part.spark}"
    return f"{command} TESTS={shlex.quote(shlex.quote(test) if any(c in test for c in ' |&;()<>') else test)}"


def _short(path: Path) -> str:
    return str(path.relative_to(CHECKOUT)) if path.is_relative_to(CHECKOUT) else str(path)


def _family_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants, shared pages counted once for each."""
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
    except psutil.Error:
        return 0
    return total


def _family_cpu_s(pid: int) -> float:
    """Return the processor seconds of a process, its descendants, and those of them that have ended."""
    total_s = 0.0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            try:
                total_s += sum(process.cpu_times()[:4])
            except psutil.Error:
                continue
    except psutil.Error:
        return 0.0
    return total_s


_said_s = time.monotonic()


def say(*lines: str) -> None:
    """Print lines at once."""
    global _said_s
    _said_s = time.monotonic()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


# ---- all parts -------------------------------------------------------------------------------------------


def run(chosen: Sequence[Run], lanes: int, environment: Mapping[str, str]) -> list[Run]:
    """Run parts side by side, in their order, and print how it goes; nothing is left of them at the end."""
    waiting, running, ended = list(chosen), [], []
    began_s = time.monotonic()
    try:
        while waiting or running:
            while waiting and (
                waiting[0].part.waits or sum(not entry.part.waits for entry in running) < lanes
            ):
                entry = waiting.pop(0)
                entry.start(environment)
                running.append(entry)
            time.sleep(0.2)
            run_events.reap_orphans([entry.pid for entry in running])
            for entry in list(running):
                if entry.look():
                    entry.end()
                    running.remove(entry)
                    ended.append(entry)
                    entry.write_times()
                    took_s = time.monotonic() - entry.began_s
                    say(f"== {entry.state()}: {took_s:.0f} s, {entry.cpu_s:.0f} s of processor time")
            if time.monotonic() - _said_s >= LINE_S and running:
                later = f" | {len(waiting)} parts wait" if waiting else ""
                elapsed_s = time.monotonic() - began_s
                say(f"{elapsed_s:4.0f} s: " + " | ".join(entry.state() for entry in running) + later)
    finally:
        for entry in running:
            entry.end()
    return ended


def report(tier: str, ended: Sequence[Run], again: Sequence[Run], took_s: float) -> int:
    """Print the failures once more, the unstable tests and the sums; return the exit code."""
    cured = {(run.part, run.tier) for run in again if run.is_well}
    failed = [entry for entry in ended if not entry.is_well and (entry.part, entry.tier) not in cured]
    unstable = {
        test: cause
        for entry in ended
        if (entry.part, entry.tier) in cured
        for test, cause in (entry.causes or {entry.part.name: entry.complaint}).items()
    }
    for test, cause in unstable.items():
        say(
            f"unstable: {test} failed beside other tests and passed alone: find out why, and mend it",
            f"    {cause}",
        )
    dear = sorted(((cpu_s, test) for entry in ended for test, cpu_s in entry.dear), reverse=True)
    for cpu_s, test in dear[:MAX_DEAR]:
        say(f"dear: {test} took {cpu_s:.1f} s of processor time; mark it tier('more'), or dear with a reason")
    for entry in failed:
        say(f"FAILED {entry.name}: {entry.complaint}" if entry.complaint else f"FAILED {entry.name}:")
        for test in entry.failed:
            say(f"    {repeat(entry.part, test)}", f"        {entry.causes[test]}")
        if entry.part.program:
            say(*(f"    {line[:160]}" for line in entry.tail(20)))
    totals = {word: sum(entry.done[word] for entry in ended) for word in ("passed", "failed", "skipped")}
    cpu_s = sum(entry.cpu_s for entry in (*ended, *again))
    say(f"tier {tier!r}: {took_s:.0f} s, {cpu_s:.0f} s of processor time")
    cured_tests = sum(len(entry.failed) for entry in ended if (entry.part, entry.tier) in cured)
    passed, missed = totals["passed"] + cured_tests, totals["failed"] - cured_tests
    say(f"{passed} passed, {missed} failed, {totals['skipped']} skipped")
    return 1 if failed else 0


def environment_of_tests() -> dict[str, str]:
    """Return the variables of the parts, with temporary files in memory if it has room for them."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    directory = subprocess.run(
        [CHECKOUT / "scripts/tests-directory"], stdout=subprocess.PIPE, text=True, check=True
    )
    if directory.stdout.strip():
        environment["TMPDIR"] = directory.stdout.strip()
    return environment


def reset_signals() -> None:
    """Take signals as a program in the foreground does, whatever the parent had this one ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ended_by in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(ended_by, signal.SIG_DFL)


def at_least_one(text: str) -> int:
    """Return the number of an option. Raises ArgumentTypeError: with none nothing would run."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that the command line names; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the tests of a tier in parts, side by side.")
    parser.add_argument("parts", nargs="*", help="run these parts alone, by their names")
    parser.add_argument("--tier", choices=("every", "more", CHANGE, "long"), default="every")
    parser.add_argument("--lanes", type=at_least_one, default=4, help="parts at a time (default: 4)")
    parser.add_argument("--sparks", default=",".join(OLDER), help="older Sparks, joined by commas")
    parser.add_argument(
        "--draw", default="", metavar="SEED", help="run some of the cases, drawn by this word"
    )
    parser.add_argument(
        "--order",
        default="",
        metavar="NUMBER",
        help="run the files, and the tests of each, in a random order",
    )
    given = parser.parse_args(arguments)
    sparks = [minor for minor in given.sparks.split(",") if minor]
    chosen = [
        Run(part, tier, seed=given.draw, order=given.order)
        for part, tier in parts_of(given.tier, sparks)
        if not given.parts or part.name in given.parts
    ]
    names = {part.name for part, _ in parts_of(given.tier, sparks)}
    if unknown := [name for name in given.parts if name not in names]:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    reset_signals()
    for ended_by in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(ended_by, lambda number, _: sys.exit(128 + number))
    run_events.adopt_orphans()
    began_s = time.monotonic()
    environment = environment_of_tests()
    ended = run(chosen, given.lanes, environment)
    again: list[Run] = []
    if sum(len(set(entry.failed) - entry.starved) for entry in ended) <= REPEATED:
        repeatable = [
            Run(
                entry.part,
                entry.tier,
                tuple(entry.failed),
                seed=entry.seed if entry.part.program else "",
                again=True,
            )
            for entry in ended
            if entry.is_repeatable
        ]
        again = run(repeatable, 1, environment)
    code = report(given.tier, ended, again, time.monotonic() - began_s)
    run_events.end_family()
    return code


if __name__ == "__main__":
    sys.exit(main())
