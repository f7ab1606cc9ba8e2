"""The pictures of the short page, each from the result files alone; their titles state the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from benchmarks.page import goals
from benchmarks.results import NAMES, OURS, Results

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


class Picture(NamedTuple):
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
    drawn = {name: picture for name, picture in pictures(results).items() if picture.points}
    for name, picture in drawn.items():
        with plt.rc_context(_STYLE):
            _plot(picture, directory / f"{name}.svg")
    for old in directory.glob("*.svg"):
        if old.stem not in drawn:
            old.unlink()
    return {name: picture.title for name, picture in drawn.items()}


def pictures(results: Results) -> dict[str, Picture]:
    """Return the pictures by name; those that the results have no figures for have no points."""
    ratios: dict[str, list[tuple[str, float]]] = {}
    for setting, peer, ratio in goals.speeds(results):
        ratios.setdefault(peer, []).append((setting, ratio.value if ratio else 0))
    values = [value for points in ratios.values() for _, value in points if value]
    restores, stored = (
        _over_age(results, "restore", "total_ms"),
        _over_age(results, "storage", "bytes", goals.UNITS["MB"]),
    )
    restore_title = "Restore time over the age of the query"
    others = [points[-1][1] for name, points in restores.items() if not name.startswith(OURS)]
    if others and "incremental-full" in restores:
        age, last_ms = restores["incremental-full"][-1]
        restore_title = (
            f"After {age} batches: {last_ms:.0f} ms to restore, the others {min(others):.0f} ms and more"
        )
    ages = "batches since the start of the query (constant live state)"
    return {
        "speed": Picture(
            f"Faster in {sum(value > 1 for value in values)} of {len(values)} comparisons, "
            f"up to {max(values, default=0):.1f} times",
            ratios if values else {},
            "times as long as this store takes (1 = equal; medians of one run)",
        ),
        "restore-over-age": Picture(restore_title, restores, ages, "restore on a new machine, ms"),
        "storage-over-age": Picture(
            "Bytes in checkpoint storage over the age of the query", stored, ages, "in checkpoint storage, MB"
        ),
    }


def _over_age(
    results: Results, kind: str, figure: str, unit: float = 1
) -> dict[str, list[tuple[int, float]]]:
    """Return the medians of a figure by the age of the query, for each store."""
    steps = results.scenarios.get("age", {}).get("cases", {}).get("age", {})
    lines = {
        name: sorted(
            (int(step.removeprefix(f"{kind} at ")), subjects[name][kind][figure]["median"] / unit)
            for step, subjects in steps.items()
            if step.startswith(f"{kind} at ") and kind in subjects.get(name, {})
        )
        for name in NAMES
    }
    return {name: points for name, points in lines.items() if points}


def _plot(picture: Picture, file: Path) -> None:
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
