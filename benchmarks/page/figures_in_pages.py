"""Write the figures of functions and processors into the sentences of the pages that quote them.

    python -m benchmarks.page.figures_in_pages

The figures are those of one run each: `vectorized.json` and `processors.json` of `benchmarks/measured`. A
sentence is a text with names in braces; in a page it has numbers there, which are replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.page.sections import PROCESSORS

CHECKOUT = Path(__file__).resolve().parents[2]
GROUPS = 44_000
PROCESSOR_GROUPS, FEW = 20_000, 100

_ROW = (
    "| TITLE | {CASE_stock_s} s, {CASE_stock_cpu_s} s | {CASE_batched_s} s, {CASE_batched_cpu_s} s "
    "| {CASE_times} | {CASE_cpu_times} |"
)
_VECTORISED = (
    "| vectorised | {vectorized_s} s | {vectorized_cpu_s} s | {vectorized_times} | {vectorized_cpu_times} |"
)
_FEW = (
    "With 100 groups a batch took {few_stock_least} to {few_stock_most} ms in Spark's worker and "
    "{few_batched_least} to {few_batched_most} ms in batches: {few_times_least} to {few_times_most} "
    "times as quick"
)
_IN_README = "takes {vectorized_s} s [vectorised](docs/vectorized.md) and {stock_s} s as Spark calls it"
_BATCHES = (
    "a vectorised batch took {vectorized_s} s, one with plain rows {per_group_s} s, one with "
    "`state_store.accelerate` {accelerate_s} s, and one of Spark's operator {stock_s} s;"
)

SENTENCES = {
    "README.md": (_IN_README, "as Spark calls it ({vectorized_times}x)"),
    "docs/functions.md": (
        "| Spark's form | {stock_s} s | {stock_cpu_s} s |",
        "`state_store.accelerate` | {accelerate_s} s | {accelerate_cpu_s} s |",
        "s | {accelerate_times} | {accelerate_cpu_times} |\n| plain rows |",
        "| plain rows | {per_group_s} s | {per_group_cpu_s} s | {per_group_times} | {per_group_cpu_times} |",
        _VECTORISED,
        *(_ROW.replace("TITLE", title).replace("CASE", f"of_{case}") for case, title in PROCESSORS.items()),
        _FEW,
    ),
    "docs/vectorized.md": (
        "| vectorised | {hdfs_vectorized_times}x | {vectorized_times}x |",
        "| plain rows, [`per_group`](functions.md) | {hdfs_per_group_times}x | {per_group_times}x |",
        "| accelerated, the function unchanged | {hdfs_accelerate_times}x | {accelerate_times}x |",
        _BATCHES,
    ),
}
"""The sentences of each page. `docs/benchmarks.md` is generated as a whole (`report.py`)."""

_NAME = re.compile(r"\{(\w+)\}")


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
    values = {}
    for (store, name), form in forms.items():
        stock, prefix = forms[store, "stock"], {"incremental": "", "hdfs": "hdfs_"}[store] + name
        values[f"{prefix}_s"] = _seconds(form["median_ms"] / 1000)
        values[f"{prefix}_cpu_s"] = f"{form['median_cpu_s']:.1f}"
        values[f"{prefix}_times"] = _times(stock["median_ms"] / form["median_ms"])
        values[f"{prefix}_cpu_times"] = _times(stock["median_cpu_s"] / form["median_cpu_s"])
    ours = [result for result in processors if result["store"] == "incremental"]
    for result in ours:
        if result["groups"] == PROCESSOR_GROUPS:
            name = f"of_{result['case']}"
            for form in ("stock", "batched"):
                values[f"{name}_{form}_s"] = _seconds(result[form]["median_ms"] / 1000)
                values[f"{name}_{form}_cpu_s"] = _seconds(result[form]["median_cpu_s"])
            values[f"{name}_times"] = _times(result["times_stock"])
            values[f"{name}_cpu_times"] = _times(result["times_stock_cpu"])
    few = [result for result in ours if result["groups"] == FEW]
    ranges = {
        f"{form}_{{}} .0f": [result[form]["median_ms"] for result in few] for form in ("stock", "batched")
    }
    ranges["times_{} .1f"] = [result["times_stock"] for result in few]
    for pattern, numbers in ranges.items():
        name, digits = pattern.split()
        for end, number in (("least", min(numbers)), ("most", max(numbers))):
            values[f"few_{name.format(end)}"] = f"{number:{digits}}"
    return values


def _seconds(value: float) -> str:
    """Return a time in two digits, or in three from ten seconds on."""
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def _times(value: float) -> str:
    """Return a ratio in two digits."""
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def filled(text: str, sentence: str, values: Mapping[str, str]) -> str:
    """Return a page with the figures of a sentence, wherever its lines break.

    Raises:
        ValueError: the page does not have the sentence, or has it more than once.
    """
    parts = _NAME.split(sentence)
    words = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in parts[::2]]
    pattern = re.compile(r"[\d.]+".join(f"({part})" for part in words))
    places = list(pattern.finditer(text))
    if len(places) != 1:
        raise ValueError(f"the sentence is there {len(places)} times: {sentence}")
    new = [*(values[name] for name in parts[1::2]), ""]
    sentence_now = "".join(a + b for a, b in zip(places[0].groups(), new, strict=True))
    return text[: places[0].start()] + sentence_now + text[places[0].end() :]


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


if __name__ == "__main__":
    main()
