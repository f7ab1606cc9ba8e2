"""Pages have the figures of the runs that they quote: `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.comparisons.processor_forms import CASES
from benchmarks.engines import side_by_side
from benchmarks.page import report
from benchmarks.results import Results, load


@pytest.fixture(scope="module")
def last_results(checkout: Path) -> Results:
    return load(checkout / "benchmarks/measured")


@pytest.mark.parametrize("page", report.QUOTING_PAGES)
def test_make_docs_changes_no_figure(checkout: Path, last_results: Results, page: str) -> None:
    text = (checkout / page).read_text(encoding="utf-8")
    assert "<!-- figures: " in text
    assert report.with_figures(text, last_results) == text, "run `make docs`"


def test_figures_between_the_lines_are_replaced_and_nothing_else(last_results: Results) -> None:
    page = "Before.\n\n<!-- figures: forms -->\n\nold\n\n<!-- end of figures -->\n\nAfter.\n"
    new = report.with_figures(page, last_results)
    assert new.startswith("Before.\n\n<!-- figures: forms -->\n\n|  | the batch takes | CPU time |")
    assert new.endswith(" |\n\n<!-- end of figures -->\n\nAfter.\n") and "old" not in new


def test_the_run_of_processors_has_all_cases_and_equal_results(last_results: Results) -> None:
    runs = [
        run for run in last_results.scenarios["processors"]["processors"] if run["store"] == "incremental"
    ]
    cases = {(run["groups"], run["case"]) for run in runs}
    assert cases == {(groups, case) for groups in (20_000, 100) for case in CASES}
    assert all(run["content_equal"] for run in runs)


def test_engines_had_equal_outputs(last_results: Results) -> None:
    assert side_by_side.are_equal(last_results.scenarios["engines"]["engines"]["outputs"])
