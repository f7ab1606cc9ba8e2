"""The pages of the benchmarks and their pictures, made from result files alone.

    python -m benchmarks.page.report

Prose, order and columns of a page are its template (`results_page.txt`, `goals_page.txt`, `short_page.txt`).
Pages that people write have figures, too, between `<!-- figures: NAME -->` and `<!-- end of figures -->`. The
template `quoted_figures.txt` says what is there; run as a program, this module writes it from the last runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.page import goals
from benchmarks.page.pictures import draw_all
from benchmarks.page.rendering import TEMPLATES, rendered
from benchmarks.results import Results, load

RESULTS_PAGE, GOALS_PAGE, SHORT_PAGE = "benchmarks/RESULTS.md", "benchmarks/GOALS.md", "docs/benchmarks.md"
QUOTING_PAGES = ("README.md", "docs/functions.md", "docs/vectorized.md", "docs/compare.md")
CHECKOUT = Path(__file__).resolve().parents[2]
_FIGURES = re.compile(r"(?m)^(\||!\[)")
"""The first characters of a table or a picture."""
_QUOTED = re.compile(r"(?s)<!-- figures: (\w+) -->\n.*?<!-- end of figures -->")


def write(results: Results, root: Path, *, keep_earlier: bool = False) -> Path:
    """Write the pages of the benchmarks and their pictures.

    Args:
        results: the results of scenarios.
        root: gets `docs/benchmarks.md`, `docs/images`, `benchmarks/RESULTS.md` and `benchmarks/GOALS.md`.
        keep_earlier: keep the sections and goals of scenarios without results as the pages have them.

    Returns:
        The path of `docs/benchmarks.md`.
    """

    def earlier(name: str) -> str:
        return (root / name).read_text(encoding="utf-8") if keep_earlier and (root / name).exists() else ""

    titles = draw_all(results, root / "docs/images")
    pictures = {name: title and f"![{title}](images/{name}.svg)" for name, title in titles.items()}
    details = _page("results_page", results, pictures, earlier(RESULTS_PAGE))
    texts = {
        RESULTS_PAGE: details.replace("](images/", "](../docs/images/"),
        GOALS_PAGE: goals.page(results, earlier(GOALS_PAGE)),
        SHORT_PAGE: _page("short_page", results, pictures, ""),
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root / SHORT_PAGE


def _page(template: str, results: Results, pictures: Mapping[str, str], earlier: str) -> str:
    """Return a page. A section without any figure stays as the earlier page has it, or is left out."""
    source = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
    sources, sections, old = map(_sections, (source, rendered(template, results, pictures=pictures), earlier))
    texts = [
        section if _FIGURES.search(section) or "{" not in sources.get(heading, "") else old.get(heading, "")
        for heading, section in sections.items()
    ]
    return "\n".join(text.rstrip("\n") + "\n" for text in texts if text)


def _sections(page: str) -> dict[str, str]:
    """Return the sections of a page by heading."""
    return {section.partition("\n")[0]: section for section in re.split(r"(?m)^(?=## )", page)}


def with_figures(page: str, results: Results) -> str:
    """Return a page with the figures that it quotes, as these results have them."""
    quoted = {match[1]: match[0] for match in _QUOTED.finditer(rendered("quoted_figures", results))}
    return _QUOTED.sub(lambda match: quoted[match[1]], page)


if __name__ == "__main__":
    last_results = load(CHECKOUT / "benchmarks/measured")
    for file in (CHECKOUT / name for name in QUOTING_PAGES):
        file.write_text(with_figures(file.read_text(encoding="utf-8"), last_results), encoding="utf-8")
