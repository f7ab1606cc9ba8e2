"""Each promise of docs/reliability.md names tests that exist, and docs/known-spark-issues.md is complete."""

from __future__ import annotations

import re
from pathlib import Path


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its own two lines."""
    text = page.read_text(encoding="utf-8")
    section = text[text.index(heading) :].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_each_promise_of_the_store_names_tests(checkout: Path) -> None:
    promises = rows(checkout / "docs/reliability.md", "## What is promised\n")
    assert [number.strip() for number, *_ in promises] == [str(n) for n in range(1, 9)]
    for number, _, shown in promises:
        named = re.findall(r"`(tests/[^`]+)`", shown)
        assert named, number
        assert all((checkout / path).exists() for path in named), number


def test_the_page_for_those_who_decide_is_short(checkout: Path) -> None:
    """Tables of clocks and tools are elsewhere, and counts of single runs in the diary of tests/README.md."""
    text = (checkout / "docs/reliability.md").read_text(encoding="utf-8")
    assert len(text.split()) < 1_000
    assert "faults in" not in text


def test_each_promise_of_the_tools_names_tests(checkout: Path) -> None:
    promises = rows(checkout / "docs/state.md", "## What is promised\n")
    assert len(promises) >= 15
    for promise, *shown in promises:
        named = re.findall(r"`(tests/[^`]+)`", " ".join(shown))
        assert named, promise
        assert all((checkout / path).exists() for path in named), promise


def test_each_issue_of_spark_has_a_remedy(checkout: Path) -> None:
    issues = rows(checkout / "docs/known-spark-issues.md", "# Known issues of Spark")
    assert len(issues) >= 15
    for number, happening, remedy in issues:
        assert re.match(r"SPARK-\d+|apache/|\(none\)", number)
        assert len(happening) > 20 and len(remedy) > 10


def test_messages_of_known_issues_are_found_in_operations(checkout: Path) -> None:
    """An issue that the page on operations describes at length is on both pages under the same words."""
    issues = (checkout / "docs/known-spark-issues.md").read_text(encoding="utf-8")
    operations = (checkout / "docs/operations.md").read_text(encoding="utf-8")
    for words in ("CheckpointInfo length: 0, numPartitions: N", "STATE_STORE_CHECKPOINT_IDS_NOT_SUPPORTED"):
        assert words in issues
        assert words in operations
