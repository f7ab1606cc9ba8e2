"""The tests behind the promises of docs/reliability.md: how many, what they take, and where they run.

    python tests/promises.py

Prints a table in Markdown, with a line for each file or folder that the page names. A test of the tier
`every` runs with `make test`. Of a test of the tier `more`, a case runs with each change (`.ci/run`), and all
of its cases with `make check`. The seconds are processor time of the last runs here, as far as
`build/tests` has them.
"""

from __future__ import annotations

import contextlib
import csv
import io
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


def seconds_by_test() -> dict[str, float]:
    """Return the processor seconds of each test that was measured here, by its id."""
    seconds: dict[str, float] = {}
    for path in sorted((TESTS.parent / "build/tests").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            seconds.update((line["test"], float(line["processor seconds"])) for line in csv.DictReader(file))
    return seconds


def main() -> None:
    collected = Collected()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = pytest.main(["--collect-only", "-qq", str(TESTS)], plugins=[collected])
    if status:
        sys.exit(f"the tests cannot be collected:\n{printed.getvalue()}")
    seconds, promised = seconds_by_test(), tiers_and_draws.promised_paths()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item in collected.items:
        tier = tiers_and_draws.tier_of(item, tiers_and_draws.NEWEST_SPARK)
        name, _, _ = item.nodeid.partition("[")
        file = name.partition("::")[0]
        for path in dict.fromkeys(promised):
            if tier is not None and (file == path or file.startswith(f"{path}/")):
                of_path = counts[path]
                of_path[tier] += 1
                of_path["s"] += seconds.get(item.nodeid, 0.0)
                of_path[f"functions of {tier}"] += not of_path[f"{tier} {name}"]
                of_path[f"{tier} {name}"] = 1
    print(
        "| tests | with `make test` | with each change, of all | long | seconds here |\n|---|---|---|---|---|"
    )
    for path, of_path in counts.items():
        print(
            f"| `{path}` | {of_path['every']} | {of_path['functions of more']} of {of_path['more']} "
            f"| {of_path['long']} | {of_path['s']:.0f} |"
        )


if __name__ == "__main__":
    main()
