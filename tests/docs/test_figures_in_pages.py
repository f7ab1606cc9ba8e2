"""Pages have the figures of the runs that they quote: `make docs` writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.engines import side_by_side
from benchmarks.page import engine_tables
from benchmarks.page.figures_in_pages import FEW, PROCESSOR_GROUPS, SENTENCES, figures, filled, filled_page
from benchmarks.page.page_parts import PROCESSORS
from benchmarks.results import load


@pytest.fixture(scope="module")
def values(checkout: Path) -> dict[str, str]:
    return figures(checkout / "benchmarks/measured")


def test_the_run_of_processors_has_all_cases_and_equal_results(checkout: Path) -> None:
    recorded = json.loads((checkout / "benchmarks/measured/processors.json").read_text(encoding="utf-8"))
    ours = [result for result in recorded["processors"] if result["store"] == "incremental"]
    found = {(result["groups"], result["case"]) for result in ours}
    assert found == {(groups, case) for groups in (PROCESSOR_GROUPS, FEW) for case in PROCESSORS}
    assert all(result["content_equal"] for result in ours)


@pytest.mark.parametrize("page", SENTENCES)
def test_make_docs_changes_no_figure(checkout: Path, values: dict[str, str], page: str) -> None:
    text = (checkout / page).read_text(encoding="utf-8")
    assert filled_page(page, text, values) == text, "run `make docs`"


def test_tables_of_engines_are_those_of_their_runs(checkout: Path) -> None:
    results = load(checkout / "benchmarks/measured")
    text = (checkout / engine_tables.PAGE).read_text(encoding="utf-8")
    assert engine_tables.filled(text, results) == text, "run `make docs`"
    assert side_by_side.are_equal(results.scenarios["engines"]["engines"]["outputs"])


def test_figures_are_replaced_where_lines_break() -> None:
    page = "It takes\n0.1 s, and 1.5\ntimes as long before. It takes a while."
    assert filled(page, "takes {new_s} s, and {times} times", {"new_s": "12", "times": "2.0"}) == (
        "It takes\n12 s, and 2.0\ntimes as long before. It takes a while."
    )


@pytest.mark.parametrize("page", ["It took 1 s.", "It takes 1 s, and takes 2 s."])
def test_a_sentence_has_to_be_there_once(page: str) -> None:
    with pytest.raises(ValueError, match="the sentence is there"):
        filled(page, "takes {new_s} s", {"new_s": "12"})
