"""The page that leads through a commit names files and functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DATA_PLANE = "jvm_bridge/scala/org/apache/spark/sql/execution/streaming/state/incremental"
ROOTS = {"data": DATA_PLANE, "control": "state_store"}
_ROW = re.compile(r"(?m)^\| (data|control) \| `([^`]+)` \| `(\w+)` \|")


def steps(checkout: Path) -> list[tuple[str, str, str]]:
    """Return plane, file and place of each step."""
    page = (checkout / "docs/architecture.md").read_text(encoding="utf-8")
    _, heading, section = page.partition("## A commit, file by file")
    assert heading
    return _ROW.findall(section.partition("\n## ")[0])


def is_defined(name: str, source: str) -> bool:
    return re.search(rf"\b(def|class|object) {name}\b", source) is not None


def test_each_step_is_in_its_file(checkout: Path) -> None:
    for plane, file, name in steps(checkout):
        source = (checkout / ROOTS[plane] / file).read_text(encoding="utf-8")
        assert is_defined(name, source), f"{file} has no {name}"


def test_a_commit_passes_through_few_files(checkout: Path) -> None:
    """A newcomer has to read them all: one more is one that has to be worth it."""
    assert 10 < len({(plane, file) for plane, file, _ in steps(checkout)}) <= 16


@pytest.mark.parametrize(("name", "expected"), [("commit", True), ("comm", False), ("DeltaName", True)])
def test_a_name_is_found_as_a_whole(name: str, expected: bool) -> None:
    assert is_defined(name, "class DeltaName:\n    def commit(self): ...\n") is expected
