"""Write the figures of functions and processors into the sentences of the pages that quote them.

    python -m benchmarks.page.figures_in_pages

The figures are those of one run each: `vectorized.json` and `processors.json` of `benchmarks/measured`. A
sentence of `quoted_figures.txt` has names in braces; in a page it has numbers there, which are replaced. The
tables of engines in `docs/compare.md` are made of `engines.json` (`engine_tables`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.page import engine_tables
from benchmarks.page.page_parts import PROCESSORS, functions, processors
from benchmarks.results import OURS, load

CHECKOUT = Path(__file__).resolve().parents[2]
GROUPS = 44_000
PROCESSOR_GROUPS, FEW = 20_000, 100
_QUOTED = Path(__file__).with_name("quoted_figures.txt").read_text("utf-8")
SENTENCES = {
    page: [
        sentence.replace("TITLE", title).replace("CASE", case)
        for sentence in sentences.strip().split("\n\n")
        for case, title in (PROCESSORS.items() if "CASE" in sentence else [("", "")])
    ]
    for page, sentences in re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", _QUOTED)
}
"""The sentences of each page, one with `CASE` for each processor. `report.py` makes `docs/benchmarks.md`."""


def figures(measured: Path) -> dict[str, str]:
    """Return all figures by name, as pages have them.

    Args:
        measured: the directory of the results.
    """
    results = load(measured)
    forms = {(row["store"], row["form"]): row for row in functions(results) if row["groups"] == GROUPS}
    compared = {
        form if store == OURS else f"{store}_{form}": (row, forms[store, "stock"])
        for (store, form), row in forms.items()
    }
    values = {}
    for row in processors(results):
        if row["groups"] == PROCESSOR_GROUPS and row["store"] == OURS:
            compared |= {f"{row['case']}_{form}": (row[form], row["stock"]) for form in ("stock", "batched")}
    for name, (own, stock) in compared.items():
        for kind, figure, unit in (("", "median_ms", 1000), ("cpu_", "median_cpu_s", 1)):
            seconds = own[figure] / unit
            values[f"{name}_{kind}s"] = f"{seconds:.2f}" if seconds < 1 else f"{seconds:.1f}"
            values[f"{name}_{kind}times"] = _times(round(stock[figure] / own[figure], 2))
    few = [row for row in processors(results) if row["groups"] == FEW and row["store"] == OURS]
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
