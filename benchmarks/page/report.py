"""The pages of the benchmarks, made from result files alone.

Prose and order of a page are its template (`results_page.txt`, `goals_page.txt`, `short_page.txt`); `{name}`
stands for a table of `sections.TABLES`, for a picture, or for a part that is made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.page import goals, plots
from benchmarks.page.goals import Outcome
from benchmarks.page.sections import TABLES, table
from benchmarks.results import Results, errors

RESULTS_PAGE = "benchmarks/RESULTS.md"
GOALS_PAGE = "benchmarks/GOALS.md"
SHORT_PAGE = "docs/benchmarks.md"
TEMPLATES = Path(__file__).resolve().parent
_NAME = re.compile(r"\{([\w-]+)\}")


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
    known, known_goals = (
        path.read_text(encoding="utf-8") if keep_earlier and path.exists() else "" for path in (details, aims)
    )
    titles = plots.draw_all(results, root / "docs/images")
    outcomes = [] if results.bench == "quick" else _outcomes(results, known + known_goals)
    texts = {
        name: f"![{titles[name]}](images/{name}.svg)" if name in titles else "" for name in plots.PICTURES
    }
    texts |= {"machine": _machine(results), "failures": _failures(results), "goals": _goals(outcomes)}
    texts |= {name: made(results) for name, made in TABLES.items()}
    text = _filled("results_page", texts, _sections(known), results)
    details.write_text(text.replace("](images/", "](../docs/images/"), encoding="utf-8")
    aims.write_text(_filled("goals_page", texts) + _reasons(outcomes), encoding="utf-8")
    page.write_text(_filled("short_page", texts), encoding="utf-8")
    return page


def _filled(
    template: str,
    texts: Mapping[str, str],
    earlier: Mapping[str, str] | None = None,
    results: Results | None = None,
) -> str:
    """Return a page without the sections whose last part is empty.

    A section of a scenario that was not measured stays as the earlier page has it.
    """
    page = []
    for heading, section in _sections((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).items():
        names = _NAME.findall(section)
        if results and earlier and names and names[-1] not in {*results.scenarios, "machine", "failures"}:
            page.append(earlier.get(heading, ""))
        elif not names or texts[names[-1]]:
            filled = _NAME.sub(lambda match: texts[match[1]].rstrip("\n"), section)
            page.append(re.sub(r"\n{3,}", "\n\n", filled))
    return "\n".join(part.rstrip("\n") + "\n" for part in page if part)


def _sections(page: str) -> dict[str, str]:
    """Return the parts of a page by heading; the part before the first one has none."""
    return {
        part.split("\n", 1)[0] if part.startswith("## ") else "": part
        for part in re.split(r"(?m)^(?=## )", page)
    }


def _outcomes(results: Results, earlier: str) -> list[Outcome]:
    """Return the goals; one without a new measurement keeps the earlier one, if its aim is the same."""
    rows = re.findall(r"(?m)^\| (.+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", earlier)
    known = {row[:3]: Outcome(*row) for row in rows if row[4].startswith(("met", goals.MISSED))}
    return [
        known.get(outcome[:3], outcome) if outcome.met is None else outcome
        for outcome in goals.outcomes(results)
    ]


def _goals(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "The goals are for states that this extent is too small for."
    rows = [outcome._asdict() for outcome in outcomes]
    return table(rows, "setting: setting; against: against; aim: aim; measured: measured; : verdict")


def reasons() -> dict[str, str]:
    """Return the reasons for missed goals by setting, as profiles of this store gave them."""
    text = (TEMPLATES / "missed_goals.txt").read_text(encoding="utf-8")
    parts = re.findall(r"(?ms)^\*(.+?)\*:\s+(.+?)(?=^\*|\Z)", text)
    return {setting: " ".join(reason.split()) for setting, reason in parts}


def _reasons(outcomes: Sequence[Outcome]) -> str:
    missed = {outcome.setting for outcome in outcomes if outcome.met is False}
    listed = "".join(f"- *{setting}*: {text}\n" for setting, text in reasons().items() if setting in missed)
    head = "Why those that are missed are missed, by profiles of this store:"
    return f"\n{head}\n\n{listed}" if listed else ""


def _machine(results: Results) -> str:
    """Return a row for each scenario, and for each part that was measured later, and the options."""
    if not results.scenarios:
        return "There are no results yet."
    rows = list(_measurements(results))
    facts = table(
        rows,
        ": name; extent: bench; processor: machine.processor; cores: machine.cores",
        "GiB: machine.memory_bytes .0f GiB; disk: machine.file_system; Linux: machine.kernel",
        "source: machine.commit; began: machine.time; load: machine.load_average .1f; seconds: seconds .0f",
        *(f"{name} ms: machine.fsync_ms.{name}" for name in ("write", "file", "link", "directory")),
    )
    versions = "".join(f"- {text}\n" for text in dict.fromkeys(_versions(row["machine"]) for row in rows))
    options: dict[str, str] = {}
    for result in results.scenarios.values():
        for case in result.get("specs", {}).values():
            for subject in case["subjects"]:
                conf = subject["conf"].items()
                short = (f"`{key.removeprefix('spark.sql.streaming.')}={value}`" for key, value in conf)
                text = ", ".join(sorted(short))
                options.setdefault(subject["title"], text)
    listed = "".join(f"- {title}: {text}\n" for title, text in options.items())
    return f"{facts}\nVersions:\n\n{versions}\nOptions that differ from Spark's defaults:\n\n{listed}"


def _measurements(results: Results) -> Iterator[Mapping[str, Any]]:
    for name, result in results.scenarios.items():
        yield {**result, "name": name}
        for part in result.get("parts", []):
            for case, stores in part["stores"].items():
                yield {**part, "bench": result["bench"], "name": f"{name}: {case} ({', '.join(stores)})"}


def _versions(facts: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items() if version)
    return f"{packages}; {', '.join(facts['jars'])}; Python {facts['python']}; {facts['java']}"


def _failures(results: Results) -> str:
    lines = []
    for name, result in results.scenarios.items():
        if "failed" in result:
            lines.append(f"- {name} did not finish: {result['failed'].splitlines()[0]}")
        lines += [f"- {name}: {problem}" for problem in errors(result)]
    return "\n".join(lines)
