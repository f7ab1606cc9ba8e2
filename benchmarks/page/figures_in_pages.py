"""Write the figures of functions and processors into the sentences of the pages that quote them.

    python -m benchmarks.page.figures_in_pages

The figures are those of one run each: `vectorized.json` and `processors.json` of `benchmarks/measured`. A
sentence of `quoted_figures.txt` has names in braces; in a page it has numbers there, which are replaced. The
tables of engines in `docs/compare.md` are made of `engines.json` (`engine_tables`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.page import engine_tables
from benchmarks.results import load

CHECKOUT = Path(__file__).resolve().parents[2]
GROUPS = 44_000
PROCESSOR_GROUPS, FEW = 20_000, 100
SENTENCES = {
    page: sentences.strip().split("\n\n")
    for page, sentences in re.findall(
        r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", Path(__file__).with_name("quoted_figures.txt").read_text("utf-8")
    )
}
"""The sentences of each page. `docs/benchmarks.md` is generated as a whole (`report.py`)."""


def figures(measured: Path) -> dict[str, str]:
    """Return all figures by name, as pages have them.

    Args:
        measured: the directory of the results.
    """
    functions, processors = (
        json.loads((measured / f"{name}.json").read_text(encoding="utf-8"))[key]
        for name, key in (("vectorized", "functions"), ("processors", "processors"))
    )
    (run,) = [sizes for sizes in functions if sizes["groups"] == GROUPS]
    forms = {(form["store"], form["form"]): form for form in run["measurements"]}
    many, few = (
        [row for row in processors if row["store"] == "incremental" and row["groups"] == groups]
        for groups in (PROCESSOR_GROUPS, FEW)
    )
    compared = {
        ("" if store == "incremental" else f"{store}_") + name: (form, forms[store, "stock"])
        for (store, name), form in forms.items()
    }
    compared |= {
        f"{row['case']}_{form}": (row[form], row["stock"]) for row in many for form in ("stock", "batched")
    }
    values = {}
    for name, (own, stock) in compared.items():
        seconds = {"s": own["median_ms"] / 1000, "cpu_s": own["median_cpu_s"]}
        values |= {
            f"{name}_{unit}": f"{time:.2f}" if time < 1 else f"{time:.1f}" for unit, time in seconds.items()
        }
        values[f"{name}_times"] = _times(stock["median_ms"] / own["median_ms"])
        values[f"{name}_cpu_times"] = _times(stock["median_cpu_s"] / own["median_cpu_s"])
    for row in many:
        values[f"{row['case']}_batched_times"] = _times(row["times_stock"])
        values[f"{row['case']}_batched_cpu_times"] = _times(row["times_stock_cpu"])
    for word, end in (("least", min), ("most", max)):
        for form in ("stock", "batched"):
            values[f"few_{form}_{word}"] = f"{end(row[form]['median_ms'] for row in few):.0f}"
        values[f"few_times_{word}"] = f"{end(row['times_stock'] for row in few):.1f}"
    return values


def _times(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def filled(text: str, sentence: str, values: Mapping[str, str]) -> str:
    """Return a page with the figures of a sentence, wherever its lines break.

    Raises:
        ValueError: the page does not have the sentence, or has it more than once.
    """
    parts = re.split(r"\{(\w+)\}", sentence)
    words = (r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in parts[::2])
    pattern = re.compile(r"[\d.]+".join(f"({part})" for part in words))
    if (count := len(pattern.findall(text))) != 1:
        raise ValueError(f"the sentence is there {count} times: {sentence}")
    new = [*(values[name] for name in parts[1::2]), ""]
    return pattern.sub(lambda match: "".join(map("".join, zip(match.groups(), new, strict=True))), text)


def filled_page(page: str, text: str, values: Mapping[str, str]) -> str:
    """Return the text of a page with all its figures."""
    for sentence in SENTENCES[page]:
        text = filled(text, sentence, values)
    return text


def main() -> None:
    """Write the pages."""
    values = figures(CHECKOUT / "benchmarks/measured")
    for page in SENTENCES:
        path = CHECKOUT / page
        path.write_text(filled_page(page, path.read_text(encoding="utf-8"), values), encoding="utf-8")
    compared = CHECKOUT / engine_tables.PAGE
    results = load(CHECKOUT / "benchmarks/measured")
    compared.write_text(engine_tables.filled(compared.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
