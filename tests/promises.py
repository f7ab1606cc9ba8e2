"""The tests behind the promises of docs/reliability.md: what they guard, where they run, and what they take.

    python tests/promises.py [--folders]

Prints a table in Markdown, with a line for each file or folder that the page names. A test of the tier
`every` runs with `make test`. Of a test of the tier `more`, a case runs with each change (`.ci/run`), and all
of its cases with `make check`. The seconds are processor time of the last runs here, as far as
`build/tests` has them. With `--folders` it prints what `make test` took there, folder by folder.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import pytest  # noqa: E402
import tiers_and_draws  # noqa: E402


class Collected:
    """A plugin of pytest that keeps all tests, before those of other tiers are left out."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests."""
        self.items = list(items)


def guarded(page: str) -> dict[str, list[str]]:
    """Return what each file or folder that a page names stands for.

    These are the promises in whose lines of a table it is, in short and with their numbers, if they have one,
    or the headings of the paragraphs that name it.
    """
    guards: dict[str, list[str]] = {}
    heading = ""
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        subject = heading
        if line.startswith("|"):
            number, *cells = (cell.strip() for cell in line.strip("| ").split(" | "))
            subject = f"{number}: {_in_short(cells[0])}" if number.isdigit() else _in_short(number)
        for path in re.findall(tiers_and_draws.PROMISED_PATH, line):
            if subject not in guards.setdefault(path, []):
                guards[path].append(subject)
    return guards


def _in_short(promise: str) -> str:
    """Return the bold words of a promise, or its first sentence."""
    bold = re.match(r"\*\*(.+?)\.?\*\*", promise)
    return bold[1] if bold else re.split(r"[:;.] ", promise)[0]


def print_folders() -> None:
    """Print the seconds of each folder in the last run of the quick tests here."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for test, taken_s in seconds_by_test("*-every.csv").items():
        folder = test.split("/")[1]
        seconds[folder] += taken_s
        tests[folder] += 1
    print("| folder | tests | CPU seconds |\n|---|---|---|")
    for folder, taken_s in seconds.most_common():
        print(f"| `{folder}` | {tests[folder]} | {taken_s:.0f} |")


def seconds_by_test(files: str = "*.csv") -> dict[str, float]:
    """Return the processor seconds of each test that was measured here, by its id."""
    seconds: dict[str, float] = {}
    for path in sorted((TESTS.parent / "build/tests").glob(files)):
        with path.open(encoding="utf-8", newline="") as file:
            seconds.update((line["test"], float(line["processor seconds"])) for line in csv.DictReader(file))
    return seconds


def main() -> None:
    if "--folders" in sys.argv[1:]:
        print_folders()
        return
    collected = Collected()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = pytest.main(["--collect-only", "-qq", str(TESTS)], plugins=[collected])
    if status:
        sys.exit(f"the tests cannot be collected:\n{printed.getvalue()}")
    seconds, guards = seconds_by_test(), guarded(tiers_and_draws.page_of_promises())
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item in collected.items:
        tier = tiers_and_draws.tier_of(item, tiers_and_draws.NEWEST_SPARK)
        name, _, _ = item.nodeid.partition("[")
        file = name.partition("::")[0]
        for path in guards:
            if tier is not None and (file == path or file.startswith(f"{path}/")):
                of_path = counts[path]
                of_path[tier] += 1
                of_path["s"] += seconds.get(item.nodeid, 0.0)
                of_path[f"functions of {tier}"] += not of_path[f"{tier} {name}"]
                of_path[f"{tier} {name}"] = 1
    print("| tests | guard | with `make test` | with each change, of all | long | seconds here |")
    print("|---|---|---|---|---|---|")
    for path, of_path in counts.items():
        changes = f"{of_path['functions of more']} of {of_path['more']}"
        cells = (f"`{path}`", "; ".join(guards[path]), of_path["every"], changes, of_path["long"])
        print(f"| {' | '.join(map(str, cells))} | {of_path['s']:.0f} |")


if __name__ == "__main__":
    main()
