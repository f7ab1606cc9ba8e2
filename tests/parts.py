"""The parts of the tests. Each is a process, because a Spark session lives as long as its process.

    python tests/parts.py [--tier every|more|long] [--lanes N] [PART ...]

Runs the parts of a tier side by side, the longest first, and prints the output of each when it ends. Exits
with 1 if a part fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
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

    def command(self, tier: str) -> list[str]:
        """Return the command that runs the tests of `tier` in this part."""
        python = CHECKOUT / (f".venv-{self.spark}" if self.spark else ".venv") / "bin/python"
        given = [str(python), "-m", "pytest", "--tier", tier, "--durations=8", "--durations-min=5"]
        if tier == "long":  # a soak takes longer than a test that hangs may
            given += ["-o", "faulthandler_timeout=9000"]
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


def run(chosen: Sequence[tuple[Part, str]], lanes: int, environment: Mapping[str, str]) -> list[str]:
    """Run parts side by side.

    Args:
        chosen: parts with the tier that each selects, the longest first.
        lanes: how many run at a time.
        environment: the variables of the processes.

    Returns:
        The names of the parts that failed.
    """

    def run_part(pair: tuple[Part, str]) -> str | None:
        part, tier = pair
        began = time.monotonic()
        done = subprocess.run(
            part.command(tier),
            cwd=CHECKOUT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        # Pytest exits with 5 if it collects no test of the tier.
        failed = done.returncode not in (0, 5)
        shown = done.stdout.decode("utf-8", "replace")
        name = (
            f"{part.name} ({tier})" if part.spark == NEWEST else f"{part.name} on Spark {part.spark} ({tier})"
        )
        took = f"{time.monotonic() - began:.0f} s, exit {done.returncode}"
        sys.stdout.write(f"\n== tests of {name}\n{shown}== tests of {name}: {took}\n")
        sys.stdout.flush()
        return name if failed else None

    with ThreadPoolExecutor(lanes) as pool:
        return [name for name in pool.map(run_part, chosen) if name]


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
    failed = run(chosen, given.lanes, environment)
    print(f"\nfailed: {', '.join(failed)}" if failed else f"\nall parts of the tier {given.tier!r} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
