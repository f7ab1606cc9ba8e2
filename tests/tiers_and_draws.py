"""The tier of a test, and the draw of dear tests by a word, within a budget of processor time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import parts
import pytest
import run_events
from mutants import control_plane, data_plane

from state_store.session import releases

TIERS = tuple(parts.BOUND_S)
"""Tiers of tests, which run with `make test`, with `make test-more`, or with `make test-long`."""

NEWEST_SPARK = next(release.minor for release in reversed(releases.RELEASES) if release.runs_here())
"""The release whose tests have no marker."""


def is_apart(item: pytest.Item) -> bool:
    """Return True if `make test` never runs the test, whatever its tier."""
    return any(item.nodeid.startswith(f"tests/{path}/") for part in parts.OWN for path in part.paths)


def bound_s(item: pytest.Item, tier: str | None) -> int:
    """Return the seconds that a test of a tier may take; None is the tier of a test of another release.

    Tests that `make test` never runs are beside dear ones, whatever their tier.
    """
    return parts.BOUND_S[_bounding(item, tier)]


def excess_of(item: pytest.Item, tier: str | None) -> str:
    """Return a sentence if the marker `timeout` of a test names more than its tier allows; else ""."""
    marker = item.get_closest_marker("timeout")
    longest_s = parts.LONGEST_S[_bounding(item, tier)]
    if marker is None or marker.args[0] <= longest_s:
        return ""
    return (
        f"{item.nodeid} may take {marker.args[0]} s, and a test of its tier at most {longest_s} s: "
        "divide it into cases, or mark it for a longer tier"
    )


def _bounding(item: pytest.Item, tier: str | None) -> str:
    """Return the tier whose bounds count for a test."""
    return "more" if tier == "every" and is_apart(item) else tier or TIERS[-1]


PROMISES = (
    ("reliability.md", "# Reliability\n"),
    ("operations.md", "## Clocks\n"),
    ("state.md", "## What is promised\n"),
)
"""Pages with promises, each with the heading below which they are."""

PROMISED_PATH = re.compile(r"`(tests/[\w./-]+)`")
"""A file or folder of tests, as a page of promises names it."""


def page_of_promises() -> str:
    """Return the promises of all pages, as one text."""
    sections: list[str] = []
    for page, heading in PROMISES:
        text = (parts.CHECKOUT / "docs" / page).read_text(encoding="utf-8")
        section = text[text.index(heading) :]
        if heading.startswith("## "):
            section = section.split("\n## ")[0]
        sections.append(section)
    return "\n".join(sections)


def promised_paths() -> tuple[str, ...]:
    """Return the files and folders that the pages of promises name as their proof."""
    return tuple(PROMISED_PATH.findall(page_of_promises()))


def guards(tiers: Mapping[str, str | None]) -> set[str]:
    """Return what must run so that each break of `tests/mutants` is seen with each change.

    These are the tests of a mutant, as it names them, if none of them runs with `make test`.

    Args:
        tiers: the tier of each test, by its id.
    """
    quick = {part for test, tier in tiers.items() if tier == "every" for part in _parts_of_id(test)}
    mutants = (*control_plane.MUTANTS, *data_plane.MUTANTS)
    return {test for mutant in mutants if quick.isdisjoint(mutant.tests) for test in mutant.tests}


def _parts_of_id(test: str) -> list[str]:
    """Return the id of a test, and those of its function, its class, its file and the folders around it."""
    function = test.partition("[")[0]
    ends = [match.start() for match in re.finditer("::|/", function)]
    return [test, function, *(function[:end] for end in ends)]


def drawn_order(
    items: Sequence[pytest.Item], seed: str, promised: Sequence[str]
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests of a draw: those that always run, and the others in the order of the draw.

    Of each test that `promised` names, by its id, file or folder, a case that the seed draws always runs; if
    it names a case, that one. The others come file by file, because what the tests of a file share is often
    the dearest, in an order of files and within them that the seed draws.
    """
    named = frozenset(promised)

    def drawn(name: str) -> bytes:
        return hashlib.sha256(f"{seed} {name}".encode()).digest()

    def file_of(item: pytest.Item) -> str:
        return item.nodeid.partition("::")[0]

    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not named.isdisjoint(_parts_of_id(item.nodeid)):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    drawn_cases = (min(alike, key=lambda item: drawn(item.nodeid)) for alike in cases.values())
    kept = {item.nodeid for item in drawn_cases} | {item.nodeid for item in items if item.nodeid in named}
    first = sorted((item for item in items if item.nodeid in kept), key=file_of)
    others = [item for item in items if item.nodeid not in kept]
    return first, sorted(others, key=lambda item: (drawn(file_of(item)), drawn(item.nodeid)))


class Draw:
    """A plugin of pytest that runs drawn tests until they have taken a budget of processor time.

    The budget begins with the first of these tests: the tests that always run come before them, and would
    use it up in each draw. A test that begins within the budget runs to its end.

    Args:
        others: the ids of the tests that the budget bounds.
        budget_s: processor seconds of these tests, of this process and of what it starts.
    """

    def __init__(self, others: Sequence[str], budget_s: float) -> None:
        self._others = frozenset(others)
        self._budget_s = budget_s
        self._began_s: float | None = None
        self.left = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Pass a test over if the budget is used up."""
        if item.nodeid not in self._others:
            return None
        now_s = run_events.family_cpu_s()
        if self._began_s is None:
            self._began_s = now_s
        if now_s - self._began_s < self._budget_s:
            return None
        self.left += 1
        return True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many tests the draw has left."""
        terminalreporter.write_line(f"{self.left} tests are left to other draws")


def tier_of(item: pytest.Item, spark: str) -> str | None:
    """Return the tier of a test on a release of Spark; None if the test is not for that release.

    A test with a marker `release` is for the releases that it names alone. On the newest release the tier is
    the rarest that a marker `tier` names, or `every` if the test stands for others of its kind (`dear`): that
    overrules the tier of the module or the class, and not one of the test itself or of a case of it. On an
    older one, a marker `older` must name it, and its tier counts unless the test's own is rarer.
    """
    own = max((TIERS.index(marker.args[0]) for marker in item.iter_markers("tier")), default=0)
    if "hdfs_cluster" in getattr(item, "fixturenames", ()):  # its start alone is dear
        own = max(own, TIERS.index("more"))
    is_dear = item.get_closest_marker("dear") is not None
    if spark == NEWEST_SPARK and is_dear and all(marker.name != "tier" for marker in item.own_markers):
        own = 0
    only = [minor for marker in item.iter_markers("release") for minor in marker.args]
    if only:
        return TIERS[own] if spark in only else None
    if spark == NEWEST_SPARK:
        return TIERS[own]
    named = [
        TIERS.index(tier)
        for marker in item.iter_markers("older")
        for tier, releases_named in marker.kwargs.items()
        if spark in releases_named
    ]
    return TIERS[max(own, min(named))] if named else None
