"""The page on functions gives the times of one run for processors: `benchmarks/measured/processors.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page.query_sections import PROCESSORS

PAGE = "docs/functions.md"
GROUPS, FEW = 20_000, 100


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
    assert set(found) == {(groups, case) for groups in (GROUPS, FEW) for case in PROCESSORS}
    assert all(result["content_equal"] for result in found.values())


@pytest.mark.parametrize("case", PROCESSORS)
def test_the_page_has_the_row_of_the_run(
    page: str, found: dict[tuple[int, str], dict[str, Any]], case: str
) -> None:
    assert row(PROCESSORS[case], found[GROUPS, case]) in page


def test_the_page_has_the_times_with_few_groups(
    page: str, found: dict[tuple[int, str], dict[str, Any]]
) -> None:
    few = [found[FEW, case] for case in PROCESSORS]
    stock, batched = ([result[form]["median_ms"] for result in few] for form in ("stock", "batched"))
    ratios = [result["times_stock"] for result in few]
    assert (
        f"{min(stock):.0f} to {max(stock):.0f} ms in Spark's worker and {min(batched):.0f} to "
        f"{max(batched):.0f} ms in batches: {min(ratios):.1f} to {max(ratios):.1f} times as quick"
    ) in page
