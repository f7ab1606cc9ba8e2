"""Break the rooms of the store that decide what is kept, in every way that mutmut knows.

    python tests/mutants/generated.py [ROOM]... [--children N] [--survivors]

Each room is a folder of `state_store/core`, tried by the tests of the folder of the same name below
`tests/core`, in a copy of the checkout. Prints a line for each room, and with `--survivors` the names of the
mutants that no test sees. Exits with 1 if a room falls below its floor in `FLOORS`, the share that a run has
reached.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from mutants.workshop import Workshop  # noqa: E402

FLOORS = {"planning": 0.82, "checkpoint": 0.84, "deletion": 0.0, "snapshots": 0.0}
"""Rooms, and the share of their mutants that tests must see; 0: no share is known.

mutmut forks a process for each mutant. In tests of snapshots RocksDB waits there for threads that the fork
has not: the mutants time out, seen or not.
"""

SETTINGS = """
[tool.mutmut]
source_paths = ["state_store/"]
only_mutate = ["state_store/core/{room}/*"]
pytest_add_cli_args = ["-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = ["tests/core/{room}"]
also_copy = ["conf", "docs", "jvm_bridge", "scripts", "README.md"]
mutate_only_covered_lines = true
"""


def seen_share(statistics: dict[str, int]) -> float:
    """Return the share of the mutants that tests see; a test that does not end sees its mutant."""
    seen = statistics["killed"] + statistics["timeout"] + statistics["segfault"]
    return seen / max(1, seen + statistics["survived"] + statistics["no_tests"] + statistics["suspicious"])


def run(room: str, directory: Path, children: int) -> dict[str, int]:
    """Run all mutants of a room in a copy of the checkout in `directory`, and return mutmut's counts."""
    root = Workshop(TESTS.parent, directory).root
    with (root / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write(SETTINGS.format(room=room))
    mutmut = [sys.executable, "-m", "mutmut"]
    subprocess.run([*mutmut, "run", "--max-children", str(children)], cwd=root, check=True, stdout=sys.stderr)
    subprocess.run([*mutmut, "export-cicd-stats"], cwd=root, check=True, stdout=sys.stderr)
    counts: dict[str, int] = json.loads((root / "mutants/mutmut-cicd-stats.json").read_text("utf-8"))
    return counts


def survivors(root: Path) -> str:
    """Return mutmut's list of the mutants that no test saw, of the room that ran in `root`."""
    listed = subprocess.run(
        [sys.executable, "-m", "mutmut", "results"], cwd=root, check=True, capture_output=True, text=True
    )
    return listed.stdout.rstrip()


def main() -> None:
    """Run the command line and exit."""
    parser = argparse.ArgumentParser(description="Break rooms in every way that mutmut knows.")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"default: {', '.join(FLOORS)}")
    parser.add_argument("--children", type=int, default=2, help="mutants that are tried at a time")
    parser.add_argument("--survivors", action="store_true", help="list the mutants that no test sees")
    arguments = parser.parse_args()
    if unknown := set(arguments.rooms) - set(FLOORS):
        parser.error(f"unknown rooms: {', '.join(sorted(unknown))}; choose among {', '.join(FLOORS)}")
    fallen = []
    for room in arguments.rooms or FLOORS:
        with tempfile.TemporaryDirectory() as directory:
            counts = run(room, Path(directory), arguments.children)
            share = seen_share(counts)
            print(f"{room}: tests see {share:.1%} of {counts['total']} mutants, floor {FLOORS[room]:.0%}")
            if arguments.survivors:
                print(survivors(Path(directory)))
        if share < FLOORS[room]:
            fallen.append(room)
    sys.exit(f"below their floor: {', '.join(fallen)}" if fallen else 0)


if __name__ == "__main__":
    main()
