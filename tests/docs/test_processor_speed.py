"""The page on functions gives the times of one run for processors: `benchmarks/measured/processors.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page.query_sections import PROCESSORS

PAGE = "docs/functions.md"
GROUPS = 20_000
CASES = [case for case in PROCESSORS if case != "vectorized"]
"""The cases of the run: all but processors of many groups."""


@pytest.fixture(scope="module")
def found(checkout: Path) -> dict[tuple[int, str], dict[str, Any]]:
    """Return the figures on this store by number of groups and case."""
    recorded = json.loads((checkout / "benchmarks/measured/processors.json").read_text(encoding="utf-8"))
    ours = [result for result in recorded["processors"] if result["store"] == "incremental"]
    return {(result["groups"], result["case"]): result for result in ours}


def digits(value: float) -> str:
    """Return a number in two digits, or in three from ten seconds on."""
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def times(value: float) -> str:
    """Return a ratio in two digits."""
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def row(title: str, result: dict[str, Any]) -> str:
    """Return the row of a case in the page's table."""
    forms = " | ".join(
        f"{digits(result[form]['median_ms'] / 1000)} s, {digits(result[form]['median_cpu_s'])} s"
        for form in ("stock", "batched")
    )
    return f"| {title} | {forms} | {times(result['times_stock'])} | {times(result['times_stock_cpu'])} |"


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return re.sub(r"\s+", " ", (checkout / PAGE).read_text(encoding="utf-8"))


def test_the_run_has_all_cases_and_equal_results(found: dict[tuple[int, str], dict[str, Any]]) -> None:
    assert set(found) == {(GROUPS, case) for case in CASES}
    assert all(result["content_equal"] for result in found.values())


@pytest.mark.parametrize("case", CASES)
def test_the_page_has_the_row_of_the_run(
    page: str, found: dict[tuple[int, str], dict[str, Any]], case: str
) -> None:
    assert row(PROCESSORS[case], found[GROUPS, case]) in page
