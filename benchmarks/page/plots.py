"""The pictures of the short page, each from the result files alone; their titles state the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.page.goals import MB, SPEEDS
from benchmarks.results import CHANGELOG, HDFS, NAMES, OURS, Results

# Okabe and Ito's colours, which readers with any colour vision can tell apart.
COLOURS = {
    "hdfs": "#E69F00",
    "rocksdb-changelog": "#0072B2",
    "incremental": "#009E73",
    "incremental-full": "#009E73",
    "incremental-no-full": "#CC79A7",
}
_STYLE = {
    "font.size": 12,
    "axes.titlesize": 14,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "1",
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class Picture:
    """Points of stores by name: lines over numbers, or bars beside texts, which get a ratio each."""

    title: str
    points: Mapping[str, Sequence[tuple[Any, float]]]
    x_label: str
    y_label: str = ""


def draw_all(results: Results, directory: Path) -> dict[str, str]:
    """Draw the pictures that the results have figures for, and delete the other SVG files of the directory.

    Args:
        results: the results of scenarios.
        directory: gets a file `NAME.svg` for each picture.

    Returns:
        The titles of the pictures by name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    pictures = {name: picture for name, made in PICTURES.items() if (picture := made(results)).points}
    with plt.rc_context(_STYLE):
        for name, picture in pictures.items():
            figure = _drawn(picture)
            figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)
    for old in directory.glob("*.svg"):
        if old.stem not in pictures:
            old.unlink()
    return {name: picture.title for name, picture in pictures.items()}


def _drawn(picture: Picture) -> Figure:
    texts = [x for x, _ in next(iter(picture.points.values())) if isinstance(x, str)]
    figure, axes = plt.subplots(figsize=(10, 1.2 + 0.75 * len(texts) if texts else 5.5))
    for number, (store, points) in enumerate(picture.points.items()):
        values = [value for _, value in points]
        if texts:
            places = [place + 0.2 - 0.4 * number for place in range(len(texts))][::-1]
            bars = axes.barh(places, values, 0.38, color=COLOURS[store], label=NAMES[store])
            axes.bar_label(bars, fmt=lambda ratio: f"{ratio:.1f}x" if ratio else "", padding=3, fontsize=11)
        else:
            style = {"marker": "o", "color": COLOURS[store], "label": NAMES[store], "linewidth": 2}
            axes.plot([x for x, _ in points], values, **style)
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
    axes.set_xlabel(picture.x_label)
    axes.set_ylabel(picture.y_label)
    figure.suptitle(picture.title)
    return figure


def _speed(results: Results) -> Picture:
    """Return the ratios against both peers: the first picture of the README."""
    points: dict[str, list[tuple[str, float]]] = {HDFS: [], CHANGELOG[0]: []}
    for setting, where, kind, *_, ours in SPEEDS:
        ratios = [results.ratio(where, peers, kind, ours) for peers in ((HDFS,), CHANGELOG)]
        if any(ratios):
            for store, ratio in zip(points, ratios, strict=True):
                points[store].append((setting, ratio.value if ratio else 0))
    values = [value for of_store in points.values() for _, value in of_store if value]
    wins, highest = sum(value > 1 for value in values), max(values, default=0)
    return Picture(
        f"Faster in {wins} of {len(values)} comparisons, up to {highest:.1f} times",
        points if values else {},
        "times as long as this store takes (1 = equal; medians of one run)",
    )


def _over_age(kind: str, figure: str, title: str, label: str, unit: int) -> Callable[[Results], Picture]:
    """Return the function that draws the medians of a figure by the age of the query, for each store."""

    def picture(results: Results) -> Picture:
        lines: dict[str, list[tuple[int, float]]] = {}
        for step, subjects in results.scenarios.get("age", {}).get("cases", {}).get("age", {}).items():
            for subject, stats in subjects.items():
                if step.startswith(f"{kind} at ") and kind in stats:
                    point = int(step.removeprefix(f"{kind} at ")), stats[kind][figure]["median"] / unit
                    lines.setdefault(subject, []).append(point)
        lines = {subject: sorted(lines[subject]) for subject in NAMES if subject in lines}
        others, result = (
            [line[-1][1] for subject, line in lines.items() if not subject.startswith(OURS)],
            title,
        )
        if kind == "restore" and others and "incremental-full" in lines:
            age, last = lines["incremental-full"][-1]
            result = (
                f"After {age} batches: {last:.0f} ms to restore, the others {min(others):.0f} ms and more"
            )
        return Picture(result, lines, "batches since the start of the query (constant live state)", label)

    return picture


_RESTORE = ("total_ms", "Restore time over the age of the query", "restore on a new machine, ms", 1)
_STORAGE = ("bytes", "Bytes in checkpoint storage over the age of the query", "in checkpoint storage, MB", MB)

PICTURES: Mapping[str, Callable[[Results], Picture]] = {
    "speed": _speed,
    "restore-over-age": _over_age("restore", *_RESTORE),
    "storage-over-age": _over_age("storage", *_STORAGE),
}
"""The pictures that the short page shows and the repository keeps."""
