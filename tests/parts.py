"""The parts of the tests. Each is a process, because a Spark session lives as long as its process.

    python tests/parts.py [--tier every|more|long] [--lanes N] [PART ...]

Runs the parts of a tier side by side, the longest first, and prints the output of each when it ends. If a few
tests fail, they run once more, alone: the report at the end names those that pass then. Exits with 1 if a
test fails again, or a part fails in another way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]

JVM = ("bridge", "jvm", "conformance")
STORAGE = (
    "core/storage",
    "cli/test_cli_hdfs.py",
    "data/dataset/test_remote.py",
    "observe/test_remote_storage.py",
    "benchmarks",
)
SIMULATED = ("simulation", "core/deletion", "agent")
STATE = ("spark/state", "spark/migration")
APART = ("spark", "functions", "packaging", "chaos", *JVM, *STORAGE, *SIMULATED)

NEWEST = ""
"""The release of Spark in `.venv`."""

OLDER = ("4.2", "4.1", "4.0")

REPEATED = 3
"""The largest number of failed tests that run once more; if more fail, it is not for the machine's load."""

TESTS_FAILED = 1
NO_TESTS = 5
"""Exit codes of pytest."""


@dataclass(frozen=True)
class Part:
    """A run of pytest.

    Args:
        name: what people call it.
        paths: the files and folders below `tests` that it collects.
        ignored: those below the paths that it leaves to other parts.
        spark: the older release of Spark whose environment runs it; empty for the newest.
    """

    name: str
    paths: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    spark: str = NEWEST

    def collects(self, file: str) -> bool:
        """Return True if pytest collects `file`, a path below `tests`."""

        def is_below(path: str) -> bool:
            return file == path or file.startswith(f"{path}/")

        return (not self.paths or any(map(is_below, self.paths))) and not any(map(is_below, self.ignored))

    def command(self, tier: str, tests: Sequence[str] = ()) -> list[str]:
        """Return the command that runs the tests of `tier` in this part, or those `tests` alone."""
        python = CHECKOUT / (f".venv-{self.spark}" if self.spark else ".venv") / "bin/python"
        given = [str(python), "-m", "pytest", "--tier", tier, "--durations=8", "--durations-min=5"]
        if tier == "long":  # a soak takes longer than a test that hangs may
            given += ["-o", "faulthandler_timeout=9000"]
        if tests:
            return [*given, *tests]
        given += [f"--ignore=tests/{path}" for path in self.ignored]
        return [*given, *(f"tests/{path}" for path in self.paths or ("",))]


PARTS = (
    Part("spark", ("spark",), STATE),
    Part("core", ignored=APART),
    Part("functions", ("functions",)),
    Part("simulation", SIMULATED),
    Part("jvm", JVM),
    Part("state", STATE),
    Part("storage", STORAGE),
)
"""The parts of every tier on the newest Spark, the longest first. Each test is in one of them or in `OWN`."""

OWN = (Part("packaging", ("packaging",)), Part("chaos", ("chaos",)))
"""Parts that `make test` leaves to `make test-more`, whatever the markers of their tests."""


def parts_of(tier: str) -> Iterator[tuple[Part, str]]:
    """Yield the parts of a tier, each with the tier whose markers it selects."""
    if tier == "every":
        yield from ((part, "every") for part in PARTS)
        return
    if tier == "more":
        yield Part("functions", ("functions",)), "more"
        yield Part("spark-4.0", ("spark",), spark="4.0"), "more"
        yield OWN[0], "every"
        yield Part("jvm", (*JVM, *STORAGE)), "more"
        yield from ((Part(f"spark-{minor}", ("spark",), spark=minor), "more") for minor in ("4.2", "4.1"))
        yield OWN[1], "every"
        return
    yield from ((part, "long") for part in (*PARTS, *OWN))
    for minor in OLDER:
        for part in (
            Part(f"spark-{minor}", ("spark",), spark=minor),
            Part("functions", ("functions",), spark=minor),
        ):
            yield part, "more"
            yield part, "long"


@dataclass(frozen=True)
class Outcome:
    """The end of a run of a part.

    Args:
        part: the part.
        tier: the tier whose markers it selected.
        failed: the tests that failed.
        repeatable: True if nothing but tests failed, which can run once more.
    """

    part: Part
    tier: str
    failed: tuple[str, ...]
    repeatable: bool

    @property
    def name(self) -> str:
        """The name in the report."""
        spark = f" on Spark {self.part.spark}" if self.part.spark else ""
        return f"{self.part.name}{spark} ({self.tier})"


def run_part(
    part: Part, tier: str, environment: Mapping[str, str], tests: Sequence[str] = ()
) -> Outcome | None:
    """Run a part, or some tests of it, and print the output; return None if all is well."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [*part.command(tier, tests), "-o", f"cache_dir={cache}"],
            cwd=CHECKOUT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        listed = Path(cache, "v/cache/lastfailed")
        failed = tuple(json.loads(listed.read_text(encoding="utf-8"))) if listed.exists() else ()
    outcome = Outcome(part, tier, failed, done.returncode == TESTS_FAILED and bool(failed))
    shown = done.stdout.decode("utf-8", "replace")
    took = f"{time.monotonic() - began:.0f} s, exit {done.returncode}"
    again = " once more" if tests else ""
    sys.stdout.write(
        f"\n== tests of {outcome.name}{again}\n{shown}== tests of {outcome.name}{again}: {took}\n"
    )
    sys.stdout.flush()
    return None if done.returncode in (0, NO_TESTS) else outcome


def run(
    chosen: Sequence[tuple[Part, str]], lanes: int, environment: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Run parts side by side, and tests that failed once more, alone.

    Args:
        chosen: parts with the tier that each selects, the longest first.
        lanes: how many run at a time.
        environment: the variables of the processes.

    Returns:
        The names of the parts that failed, and the tests that passed when they ran alone.
    """
    with ThreadPoolExecutor(lanes) as pool:
        ended = [end for end in pool.map(lambda pair: run_part(*pair, environment), chosen) if end]
    if sum(len(end.failed) for end in ended) > REPEATED:
        return [end.name for end in ended], []
    failed, unstable = [], []
    for end in ended:
        if end.repeatable and run_part(end.part, end.tier, environment, end.failed) is None:
            unstable += end.failed
        else:
            failed.append(end.name)
    return failed, unstable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that the command line names; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the tests of a tier in parts, side by side.")
    parser.add_argument("parts", nargs="*", help="run these parts alone, by their names")
    parser.add_argument("--tier", choices=("every", "more", "long"), default="every")
    parser.add_argument("--lanes", type=int, default=3, help="parts at a time (default: 3)")
    given = parser.parse_args(arguments)
    chosen = [pair for pair in parts_of(given.tier) if not given.parts or pair[0].name in given.parts]
    if not chosen:
        parser.error(
            f"no part is called so: {', '.join(sorted({part.name for part, _ in parts_of(given.tier)}))}"
        )
    environment = dict(os.environ)
    directory = subprocess.run(
        [CHECKOUT / "scripts/tests-directory"], stdout=subprocess.PIPE, text=True, check=True
    )
    if directory.stdout.strip():
        environment["TMPDIR"] = directory.stdout.strip()
    failed, unstable = run(chosen, given.lanes, environment)
    for test in unstable:
        print(f"\nunstable: {test} failed beside other tests and passed alone: find out why, and mend it")
    print(f"\nfailed: {', '.join(failed)}" if failed else f"\nall parts of the tier {given.tier!r} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
