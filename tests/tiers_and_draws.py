"""The tier of a test, and the draw of dear tests by a word."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import parts
import pytest

from state_store.session import releases

TIERS = tuple(parts.BOUND_S)
"""Tiers of tests, which run with `make test`, with `make test-more`, or with `make test-long`."""

DRAWN = 5
"""A draw takes a fifth."""

NEWEST_SPARK = next(release.minor for release in reversed(releases.RELEASES) if release.runs_here())
"""The release whose tests have no marker."""


def is_apart(item: pytest.Item) -> bool:
    """Return True if `make test` never runs the test, whatever its tier."""
    return any(item.nodeid.startswith(f"tests/{path}/") for part in parts.OWN for path in part.paths)


def promised_paths() -> tuple[str, ...]:
    """Return the files and folders that the page of promises names as their proof."""
    page = (parts.CHECKOUT / "docs/reliability.md").read_text(encoding="utf-8")
    return tuple(re.findall(r"`(tests/[\w./-]+)`", page))


def not_drawn(items: list[pytest.Item], seed: str, promised: Sequence[str]) -> set[int]:
    """Return the ids of the tests that a draw leaves out.

    Of each test below the paths `promised` it keeps a fifth of the cases, one at least. Of the other files
    below a folder of `tests` it keeps a fifth, whole, since what the tests of a file share is often the
    dearest; one at least.
    """
    alike: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        if any(file == path or file.startswith(f"{path}/") for path in promised):
            group, unit = item.nodeid.split("[")[0], item.nodeid
        else:
            group, unit = "/".join(file.split("/")[:2]), file
        alike.setdefault(group, {}).setdefault(unit, []).append(item)
    left_out = set()
    for units in alike.values():
        names = sorted(units, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
        for name in names[-(-len(names) // DRAWN) :]:
            left_out |= set(map(id, units[name]))
    return left_out


def tier_of(item: pytest.Item, spark: str) -> str | None:
    """Return the tier of a test on a release of Spark; None if the test is not for that release.

    A test with a marker `release` is for the releases that it names alone. On the newest release the tier is
    the rarest that a marker `tier` names, or `every` if the test stands for others of its kind (`dear`). On
    an older one, a marker `older` must name it, and its tier counts unless the test's own is rarer.
    """
    own = max((TIERS.index(marker.args[0]) for marker in item.iter_markers("tier")), default=0)
    if "hdfs_cluster" in getattr(item, "fixturenames", ()):  # its start alone is dear
        own = max(own, TIERS.index("more"))
    if spark == NEWEST_SPARK and item.get_closest_marker("dear") is not None:
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
