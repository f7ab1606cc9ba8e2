"""Each promise of docs/reliability.md names tests that exist, and docs/known-spark-issues.md is complete."""

from __future__ import annotations

import re
from pathlib import Path

import promises
import tiers_and_draws


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its own two lines."""
    text = page.read_text(encoding="utf-8")
    section = text[text.index(heading) :].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_each_promise_of_the_store_names_tests(checkout: Path) -> None:
    table = rows(checkout / "docs/reliability.md", "## What is promised\n")
    assert [number.strip() for number, *_ in table] == [str(n) for n in range(1, 9)]
    for number, _, shown in table:
        named = re.findall(r"`(tests/[^`]+)`", shown)
        assert named, number
        assert all((checkout / path).exists() for path in named), number


def test_the_list_of_promised_tests_says_what_each_guards() -> None:
    page = tiers_and_draws.page_of_promises()
    guards = promises.guarded(page)
    assert list(guards) == list(dict.fromkeys(tiers_and_draws.promised_paths()))
    assert all(guards.values())
    assert guards["tests/core/storage"] == ["2: A commit is durable"]
    assert guards["tests/core/deletion/test_wrong_clocks.py"] == ["Clocks"]
    numbers = {
        int(number) for texts in guards.values() for number in re.findall(r"^(\d+): ", "\n".join(texts), re.M)
    }
    assert numbers == set(range(1, 9))


def test_the_page_for_those_who_decide_is_short(checkout: Path) -> None:
    """Tables of clocks and tools are elsewhere, and counts of single runs in the diary of tests/README.md."""
    text = (checkout / "docs/reliability.md").read_text(encoding="utf-8")
    assert len(text.split()) < 1_000
    assert "faults in" not in text


def test_each_promise_of_the_tools_names_tests(checkout: Path) -> None:
    table = rows(checkout / "docs/state.md", "## What is promised\n")
    assert len(table) >= 15
    for promise, *shown in table:
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
