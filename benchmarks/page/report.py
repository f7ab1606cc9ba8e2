"""The pages of the benchmarks, made from result files alone.

Prose, order and columns of a page are its template (`results_page.txt`, `goals_page.txt`, `short_page.txt`);
`{name}` stands for a picture or, maybe with arguments, for a part of `page_parts.PARTS`. Two lines of a table
below it are its columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.page import goals, plots
from benchmarks.page.page_parts import PARTS, table
from benchmarks.results import Results

RESULTS_PAGE = "benchmarks/RESULTS.md"
GOALS_PAGE = "benchmarks/GOALS.md"
SHORT_PAGE = "docs/benchmarks.md"
_PART = re.compile(r"\{([\w -]+)\}(?:\n(\|.*\n\|.*))?")


def write(results: Results, root: Path, *, keep_earlier: bool = False) -> Path:
    """Write the pages of the benchmarks and their pictures.

    Args:
        results: the results of scenarios.
        root: gets `docs/benchmarks.md`, `docs/images`, `benchmarks/RESULTS.md` and `benchmarks/GOALS.md`.
        keep_earlier: keep the sections and goals of scenarios without results as the pages have them.

    Returns:
        The path of `docs/benchmarks.md`.
    """
    page, details, aims = (root / name for name in (SHORT_PAGE, RESULTS_PAGE, GOALS_PAGE))
    for file in (page, details):
        file.parent.mkdir(parents=True, exist_ok=True)
    earlier, earlier_goals = (
        path.read_text(encoding="utf-8") if keep_earlier and path.exists() else "" for path in (details, aims)
    )
    drawn = plots.draw_all(results, root / "docs/images")
    pictures = dict.fromkeys(plots.pictures(results), "")
    pictures |= {name: f"![{title}](images/{name}.svg)" for name, title in drawn.items()}
    text = _filled("results_page", results, pictures, _sections(earlier) if earlier else {})
    details.write_text(text.replace("](images/", "](../docs/images/"), encoding="utf-8")
    aims.write_text(_goals(results, earlier + earlier_goals), encoding="utf-8")
    page.write_text(_filled("short_page", results, pictures, {}), encoding="utf-8")
    return page


def _template(name: str) -> str:
    return Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8")


def _sections(page: str) -> dict[str, str]:
    """Return the sections of a page by heading; the one before the first heading has none."""
    sections = re.split(r"(?m)^(?=## )", page)
    return {section.split("\n")[0] if section.startswith("## ") else "": section for section in sections}


def _filled(template: str, results: Results, pictures: Mapping[str, str], earlier: Mapping[str, str]) -> str:
    """Return a page without the sections whose parts are all empty.

    A section of a scenario that was not measured stays as the earlier page has it.
    """

    def part(match: re.Match[str]) -> str:
        name, *arguments = match[1].split()
        if name in pictures:
            return pictures[name]
        made = PARTS[name](results, *arguments)
        return (made if isinstance(made, str) else table(made, match[2] or "")).rstrip("\n")

    page: list[str] = []
    texts: dict[str, str] = {}
    for heading, section in _sections(_template(template)).items():
        names = [match[1] for match in _PART.finditer(section)]
        texts.update({match[1]: part(match) for match in _PART.finditer(section)})
        words = {word for name in names for word in name.split()}
        if earlier and names and not words & {*results.scenarios, "machine", "failures"}:
            page.append(earlier.get(heading, ""))
        elif not names or any(texts[name] for name in names):
            page.append(re.sub(r"\n{3,}", "\n\n", _PART.sub(lambda match: texts[match[1]], section)))
    return "\n".join(section.rstrip("\n") + "\n" for section in page if section)


def _goals(results: Results, earlier: str) -> str:
    """Return the page of goals. One that was not measured stays as it was, if its aim is the same."""
    page, *rows = re.split(r"(?m)^(?=\| )", _template("goals_page"))
    if results.bench == "quick":
        return f"{page}The goals are for states that this extent is too small for.\n"
    cells = re.findall(r"(?m)^\| (.+) \| (.+) \| (.+) \| (.+) \| ((?:met|\*\*missed\*\*).*) \|$", earlier)
    earlier_outcomes = {row[:3]: goals.Outcome(*row) for row in cells}
    outcomes = [
        earlier_outcomes.get(outcome[:3], outcome) if outcome.met is None else outcome
        for outcome in goals.outcomes(results)
    ]
    page += rows[0] + "".join(f"| {' | '.join(outcome)} |\n" for outcome in outcomes)
    missed = {outcome.setting for outcome in outcomes if outcome.met is False}
    texts = "".join(f"- *{setting}*: {text}\n" for setting, text in reasons().items() if setting in missed)
    head = "Why those that are missed are missed, by profiles of this store:"
    return f"{page}\n{head}\n\n{texts}" if texts else page


def reasons() -> dict[str, str]:
    """Return the reasons for missed goals by setting, as profiles of this store gave them."""
    parts = re.findall(r"(?ms)^\*(.+?)\*:\s+(.+?)(?=^\*|\Z)", _template("missed_goals"))
    return {setting: " ".join(reason.split()) for setting, reason in parts}
