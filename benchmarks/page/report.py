"""The pages of the benchmarks and their pictures, made from result files alone.

Prose, order and columns of a page are its template (`results_page.txt`, `goals_page.txt`, `short_page.txt`);
`{name}` stands for a picture or, maybe with arguments, for a part of `page_parts.PARTS`. Two lines of a table
below it are its columns. The title of a picture states the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from benchmarks.page import goals
from benchmarks.page.page_parts import PARTS, table
from benchmarks.results import NAMES, Results

RESULTS_PAGE, GOALS_PAGE, SHORT_PAGE = "benchmarks/RESULTS.md", "benchmarks/GOALS.md", "docs/benchmarks.md"
IMAGES = "docs/images"
_PART = re.compile(r"\{([\w -]+)\}(?:\n(\|.*\n\|.*))?")
_COLOURS = {  # Okabe and Ito's, which readers with any colour vision can tell apart
    "hdfs": "#E69F00",
    "rocksdb-changelog": "#0072B2",
    "incremental": "#009E73",
    "incremental-full": "#009E73",
    "incremental-no-full": "#CC79A7",
}
_STYLE = {
    "font.size": 12,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "1",
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}


def write(results: Results, root: Path, *, keep_earlier: bool = False) -> Path:
    """Write the pages of the benchmarks and their pictures.

    Args:
        results: the results of scenarios.
        root: gets `docs/benchmarks.md`, `docs/images`, `benchmarks/RESULTS.md` and `benchmarks/GOALS.md`.
        keep_earlier: keep the sections and goals of scenarios without results as the pages have them.

    Returns:
        The path of `docs/benchmarks.md`.
    """
    paths = {name: root / name for name in (RESULTS_PAGE, GOALS_PAGE, SHORT_PAGE)}
    earlier = {
        name: path.read_text(encoding="utf-8") if keep_earlier and path.exists() else ""
        for name, path in paths.items()
    }
    titles = draw_all(results, root / IMAGES)
    links = {name: title and f"![{title}](images/{name}.svg)" for name, title in titles.items()}
    details = _filled("results_page", results, links, _sections(earlier[RESULTS_PAGE]))
    texts = {
        RESULTS_PAGE: details.replace("](images/", "](../docs/images/"),
        GOALS_PAGE: goals.page(results, earlier[RESULTS_PAGE] + earlier[GOALS_PAGE]),
        SHORT_PAGE: _filled("short_page", results, links, {}),
    }
    for name, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[name], encoding="utf-8")
    return paths[SHORT_PAGE]


def _sections(page: str) -> dict[str, str]:
    """Return the sections of a page by heading; the one before the first heading has none."""
    sections = re.split(r"(?m)^(?=## )", page) if page else []
    return {section.split("\n")[0] if section.startswith("## ") else "": section for section in sections}


def _filled(template: str, results: Results, links: Mapping[str, str], earlier: Mapping[str, str]) -> str:
    """Return a page without the sections whose parts are all empty.

    A section of a scenario that was not measured stays as the earlier page has it.
    """
    texts: dict[str, str] = {}

    def filled(match: re.Match[str]) -> str:
        name, *arguments = match[1].split()
        content = links[name] if name in links else PARTS[name](results, *arguments)
        text = content if isinstance(content, str) else table(content, match[2] or "")
        return texts.setdefault(match[1], text.rstrip("\n"))

    page: list[str] = []
    for heading, section in _sections(Path(__file__).with_name(f"{template}.txt").read_text("utf-8")).items():
        texts.clear()
        text = _PART.sub(filled, section)
        words = {word for name in texts for word in name.split()}
        if earlier and texts and not words & {*results.scenarios, "machine", "failures"}:
            page.append(earlier.get(heading, ""))
        elif not texts or any(texts.values()):
            page.append(re.sub(r"\n{3,}", "\n\n", text))
    return "\n".join(section.rstrip("\n") + "\n" for section in page if section)


# ---- pictures ----------------------------------------------------------------------------------------------


class Picture(NamedTuple):
    """Points of stores by name: lines over numbers, or bars beside texts, which get a ratio each."""

    title: str
    points: Mapping[str, Sequence[tuple[Any, float]]]
    x_label: str
    y_label: str = ""


def draw_all(results: Results, directory: Path) -> dict[str, str]:
    """Draw the pictures that the results have figures for, and delete the other SVG files of the directory.

    Returns:
        The titles of all pictures by name; empty for those that were not drawn.
    """
    directory.mkdir(parents=True, exist_ok=True)
    titles = {}
    for name, picture in _pictures(results).items():
        titles[name] = picture.title if picture.points else ""
        if picture.points:
            plot(picture, directory / f"{name}.svg")
    for old in directory.glob("*.svg"):
        if not titles.get(old.stem):
            old.unlink()
    return titles


def _pictures(results: Results) -> dict[str, Picture]:
    speeds = [(peer, setting, ratio.value if ratio else 0) for setting, peer, ratio in goals.speeds(results)]
    peers = {peer: [speed[1:] for speed in speeds if speed[0] == peer] for peer, *_ in speeds}
    values = [value for *_, value in speeds if value]
    restores, stored = _over_age(results, "restore", "total_ms"), _over_age(results, "storage", "bytes")
    restore_title = "Restore time over the age of the query"
    others = [points[-1][1] for name, points in restores.items() if not name.startswith("incremental")]
    if others and "incremental-full" in restores:
        age, last_ms = restores["incremental-full"][-1]
        least_ms = min(others)
        restore_title = (
            f"After {age} batches: {last_ms:.0f} ms to restore, the others {least_ms:.0f} ms and more"
        )
    ages = "batches since the start of the query (constant live state)"
    return {
        "speed": Picture(
            f"Faster in {sum(value > 1 for value in values)} of {len(values)} comparisons, "
            f"up to {max(values, default=0):.1f} times",
            peers if values else {},
            "times as long as this store takes (1 = equal; medians of one run)",
        ),
        "restore-over-age": Picture(restore_title, restores, ages, "restore on a new machine, ms"),
        "storage-over-age": Picture(
            "Bytes in checkpoint storage over the age of the query", stored, ages, "in checkpoint storage, MB"
        ),
    }


def _over_age(results: Results, kind: str, figure: str) -> dict[str, list[tuple[int, float]]]:
    """Return the medians of a figure by the age of the query, for each store; bytes are in MB."""
    unit, prefix = goals.UNITS["MB"] if figure == "bytes" else 1, f"{kind} at "
    lines: dict[str, list[tuple[int, float]]] = {}
    for label, subjects in results.cases("age").get("age", {}).items():
        for name in NAMES if label.startswith(prefix) else ():
            if kind in subjects.get(name, {}):
                point = int(label.removeprefix(prefix)), subjects[name][kind][figure]["median"] / unit
                lines.setdefault(name, []).append(point)
    return {name: sorted(lines[name]) for name in NAMES if name in lines}


@plt.rc_context(_STYLE)
def plot(picture: Picture, file: Path) -> None:
    """Draw a picture into an SVG file."""
    texts = [x for x, _ in next(iter(picture.points.values())) if isinstance(x, str)]
    figure, axes = plt.subplots(figsize=(10, 1.2 + 0.75 * len(texts) if texts else 5.5))
    for number, (store, points) in enumerate(picture.points.items()):
        style, values = {"color": _COLOURS[store], "label": NAMES[store]}, [value for _, value in points]
        if texts:
            places = [place + 0.2 - 0.4 * number for place in range(len(texts))][::-1]
            bars = axes.barh(places, values, 0.38, **style)
            axes.bar_label(bars, fmt=lambda ratio: f"{ratio:.1f}x" if ratio else "", padding=3, fontsize=11)
        else:
            axes.plot([x for x, _ in points], values, marker="o", linewidth=2, **style)
    if texts:
        axes.set_yticks(range(len(texts)), texts[::-1])
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        axes.margins(x=0.12)
        figure.legend(loc="outside lower center", ncols=2)
    else:
        axes.set_ylim(bottom=0)
        axes.legend()
    axes.set(xlabel=picture.x_label, ylabel=picture.y_label)
    figure.suptitle(picture.title)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
