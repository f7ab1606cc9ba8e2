"""Break the rooms of the store that decide what is kept, in every way that mutmut knows.

    python tests/mutants/generated.py [ROOM]... [--sample N [--seed S]] [--children N] [--survivors]

Each room is a folder of `state_store/core`, tried by the tests of the folder of the same name below
`tests/core`, in a copy of the checkout; `--sample` draws some of the room's mutants. Prints a line for each
room, and with `--survivors` the changes that no test sees. Exits with 1 if a room falls below its floor in
`FLOORS`, the share that a run has reached.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from parts import at_least_one  # noqa: E402

from mutants.workshop import Workshop  # noqa: E402

FLOORS = {"planning": 0.82, "checkpoint": 0.84, "deletion": 0.88, "snapshots": 0.84}
"""Rooms, and the share of their mutants that tests must see."""

SETTINGS = """
[tool.mutmut]
source_paths = ["state_store/"]
only_mutate = ["state_store/core/{room}/*"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "--tier", "change"]
pytest_add_cli_args_test_selection = ["tests/core/{room}"]
also_copy = ["conf", "docs", "jvm_bridge", "scripts", "README.md"]
mutate_only_covered_lines = true
process_isolation = "forkserver"
timeout_multiplier = 5
"""
"""Settings of mutmut. The tests of a mutant run in a fork of a process that has run no test.

RocksDB has threads as soon as a database was open, and waits in a fork for those that the fork has not.
"""


def seen_share(results: dict[str, str]) -> float:
    """Return the share of the mutants that tests see; a test that does not end sees its mutant."""
    counts = Counter(results.values())
    seen = counts["killed"] + counts["timeout"] + counts["segfault"]
    return seen / max(1, seen + counts["survived"] + counts["no tests"] + counts["suspicious"])


def run(root: Path, room: str, children: int, drawn: tuple[int, int] | None) -> dict[str, str]:
    """Run mutants of a room in the copy of the checkout in `root`.

    Args:
        root: The copy.
        room: The folder below `state_store/core`.
        children: Number of mutants that are tried at a time.
        drawn: Number of the mutants that are drawn by lot, and the seed; None runs all.

    Returns:
        The word of mutmut for each mutant's outcome, by the mutant's name. Those not drawn are "not checked".
    """
    with (root / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write(SETTINGS.format(room=room))
    chosen = []
    if drawn:
        make(root, children)
        names = sorted(outcomes(root))
        chosen = random.Random(drawn[1]).sample(names, min(drawn[0], len(names)))
    mutmut(root, "run", "--max-children", str(children), *chosen)
    return outcomes(root)


def make(root: Path, children: int) -> None:
    """Make the mutants, and note which tests run which of them, without trying any.

    mutmut has no command for this. It ends with an error once it has done so, since no mutant has the name.
    """
    mutmut(root, "run", "--max-children", str(children), "no mutant*", check=False)


def mutmut(root: Path, *arguments: str, check: bool = True) -> None:
    """Run a command of mutmut, which prints to standard error."""
    subprocess.run([sys.executable, "-m", "mutmut", *arguments], cwd=root, check=check, stdout=sys.stderr)


def outcomes(root: Path) -> dict[str, str]:
    """Return the word of mutmut for each mutant's outcome, by the mutant's name."""
    command = [sys.executable, "-m", "mutmut", "results", "--all", "true"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    pairs = (line.strip().rpartition(": ") for line in listed.splitlines() if ": " in line)
    return {name: outcome for name, _, outcome in pairs}


def change(root: Path, name: str) -> str:
    """Return what a mutant changes, as a difference of texts."""
    command = [sys.executable, "-m", "mutmut", "show", name]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.rstrip()


def main() -> None:
    """Run the command line and exit."""
    parser = argparse.ArgumentParser(description="Break rooms in every way that mutmut knows.")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"default: {', '.join(FLOORS)}")
    parser.add_argument("--children", type=at_least_one, default=2, help="mutants that are tried at a time")
    parser.add_argument("--sample", type=at_least_one, help="try as many mutants of each room, drawn by lot")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()) // 86400, help="seed of the sample (default: the day)"
    )
    parser.add_argument(
        "--survivors", action="store_true", help="show the changes that no test sees, or that have no end"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.rooms) - set(FLOORS):
        parser.error(f"unknown rooms: {', '.join(sorted(unknown))}; choose among {', '.join(FLOORS)}")
    fallen = []
    drawn = (arguments.sample, arguments.seed) if arguments.sample else None
    for room in arguments.rooms or FLOORS:
        with tempfile.TemporaryDirectory() as directory:
            root = Workshop(TESTS.parent, Path(directory)).root
            results = run(root, room, arguments.children, drawn)
            share = seen_share(results)
            tried = sum(outcome != "not checked" for outcome in results.values())
            print(f"{room}: tests see {share:.1%} of {tried} mutants, floor {FLOORS[room]:.0%}")
            if drawn:
                print(f"{room}: drawn of {len(results)} by seed {arguments.seed}")
            if arguments.survivors:
                for name, outcome in results.items():
                    if outcome in ("survived", "no tests", "timeout"):
                        print(f"{outcome}: {change(root, name)}", flush=True)
        if share < FLOORS[room]:
            fallen.append(room)
    sys.exit(f"below their floor: {', '.join(fallen)}" if fallen else 0)


if __name__ == "__main__":
    main()
