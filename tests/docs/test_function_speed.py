"""Pages give the times of one run for the forms of a function: `benchmarks/measured/vectorized.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGES = ("README.md", "docs/benchmarks.md", "docs/functions.md", "docs/vectorized.md")
STOCK, FORMS = "stock", ("vectorized", "per_group", "accelerate")


@pytest.fixture(scope="module")
def flights(checkout: Path) -> dict[str, dict[str, Any]]:
    """Return the figures of the forms on each store, for 44,000 groups."""
    recorded = json.loads((checkout / "benchmarks/measured/vectorized.json").read_text(encoding="utf-8"))
    (found,) = [functions for functions in recorded["functions"] if functions["groups"] == 44_000]
    by_store: dict[str, dict[str, Any]] = {}
    for measured in found["measurements"]:
        by_store.setdefault(measured["store"], {})[measured["form"]] = measured
    return by_store


def ratio(forms: dict[str, Any], form: str, figure: str = "median_ms") -> str:
    """Return how many times as much of a figure Spark's form takes, in two digits."""
    times = forms[STOCK][figure] / forms[form][figure]
    return f"{times:.1f}" if times < 10 else f"{times:.0f}"


def seconds(milliseconds: float) -> str:
    """Return a time in two digits, or in three from ten seconds on."""
    value = milliseconds / 1000
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def expected(flights: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return the texts that each page has to have."""
    ours, hdfs = flights["incremental"], flights["hdfs"]
    time = {form: seconds(ours[form]["median_ms"]) for form in (STOCK, *FORMS)}
    vectorized, per_group, accelerate = (ratio(ours, form) for form in FORMS)
    by_cpu = [ratio(ours, form, "median_cpu_s") for form in FORMS]
    return {
        "README.md": [f"takes {time['vectorized']} s", f"{time[STOCK]} s as Spark calls it ({vectorized}x)"],
        "docs/benchmarks.md": [
            f"| vectorised | {vectorized}x | {by_cpu[0]}x |",
            f"| a call for each group with plain rows | {per_group}x | {by_cpu[1]}x |",
            f"| the function unchanged, accelerated | {accelerate}x | {by_cpu[2]}x |",
        ],
        "docs/functions.md": [
            f"| Spark's form | {time[STOCK]} s |",
            f"`state_store.accelerate` | {time['accelerate']} s |",
            f"| plain rows | {time['per_group']} s |",
            f"| vectorised | {time['vectorized']} s |",
            f"| {vectorized} | {by_cpu[0]} |",
            f"| {per_group} | {by_cpu[1]} |",
            f"| {accelerate} | {by_cpu[2]} |",
        ],
        "docs/vectorized.md": [
            f"| vectorised | {ratio(hdfs, 'vectorized')}x | {vectorized}x |",
            f"| {ratio(hdfs, 'per_group')}x | {per_group}x |",
            f"| {ratio(hdfs, 'accelerate')}x | {accelerate}x |",
            f"batch took {time['vectorized']} s",
            f"plain rows {time['per_group']} s",
            f"operator {time[STOCK]} s",
        ],
    }


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_the_figures_of_the_run(checkout: Path, flights: dict[str, Any], page: str) -> None:
    text = re.sub(r"\s+", " ", (checkout / page).read_text(encoding="utf-8"))
    for words in expected(flights)[page]:
        assert words in text, f"{page} lacks {words!r}"
