"""The pictures of the benchmarks; the title of each states the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from benchmarks.page import goals, page_rows
from benchmarks.page.rendering import UNITS
from benchmarks.results import NAMES, Results

_COLOURS = {  # Okabe and Ito's, which readers with any colour vision can tell apart
    NAMES["hdfs"]: "#E69F00",
    NAMES["rocksdb-changelog"]: "#0072B2",
    NAMES["incremental"]: "#009E73",
    NAMES["incremental-full"]: "#009E73",
    NAMES["incremental-no-full"]: "#CC79A7",
}
_STYLE = {
    "font.size": 12,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "1",
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}


def draw_all(results: Results, directory: Path) -> dict[str, str]:
    """Draw the pictures that the results have figures for, in place of the SVG files of the directory.

    Returns:
        The titles of all pictures by name; empty for those that were not drawn.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.svg"):
        old.unlink()
    titles = {}
    for name, title, points, *labels in _pictures(results):
        titles[name] = "" if points.empty else title
        if titles[name]:
            plot(points, title, *labels, directory / f"{name}.svg")
    return titles


def _pictures(results: Results) -> Iterator[tuple[str, str, pd.DataFrame, str, str]]:
    """Yield the name of each picture, its title, its points, and the labels of both axes."""
    ratios = [(setting, peer, ratio.value) for setting, peer, ratio in goals.speeds(results)]
    speeds = pd.DataFrame(ratios, columns=["setting", "peer", "times"])
    bars = speeds.pivot(index="setting", columns="peer", values="times").reindex(speeds["setting"].unique())
    faster = f"Faster in {sum(speeds['times'] > 1)} of {len(speeds)} comparisons"
    times = "times as long as this store takes (1 = equal; medians of one run)"
    yield "speed", f"{faster}, up to {speeds['times'].max():.1f} times", bars, times, ""

    ages = "batches since the start of the query (constant live state)"
    restores = _over_age(results, "restore", "total_ms")
    title = "Restore time over the age of the query"
    for age, last in restores.tail(1).iterrows():
        own = last.index.str.startswith("incremental")
        title = f"After {age} batches: {last[own].min():.0f} ms to restore, "
        title += f"the others {last[~own].min():.0f} ms and more"
    yield "restore-over-age", title, restores, ages, "restore on a new machine, ms"

    stored = _over_age(results, "storage", "bytes") / UNITS["MB"]
    title = "Bytes in checkpoint storage over the age of the query"
    yield "storage-over-age", title, stored, ages, "in checkpoint storage, MB"


def _over_age(results: Results, kind: str, figure: str) -> pd.DataFrame:
    """Return the medians of a figure by the age of the query, a column for each store."""
    points: dict[str, dict[int, float]] = {}
    for row in page_rows.steps(results, "age", kind):
        age = int(row["label"].rpartition(" ")[2])
        points.setdefault(row["store"], {})[age] = row[kind][figure]["median"]
    return pd.DataFrame({name: points[name] for name in NAMES.values() if name in points}).sort_index()


@plt.rc_context(_STYLE)
def plot(points: pd.DataFrame, title: str, x_label: str, y_label: str, file: Path) -> None:
    """Draw a column for each store into an SVG file: lines over numbers, or bars with ratios beside texts."""
    if points.index.dtype == object:
        size = (10, 1.2 + 0.75 * len(points))
        axes = points.iloc[::-1, ::-1].plot.barh(color=_COLOURS, width=0.76, logx=True, figsize=size)
        for bars in axes.containers:
            axes.bar_label(bars, fmt="%.1fx", padding=3, fontsize=11)
        axes.axvline(1, color="black", linewidth=1)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.12)
        axes.legend(reverse=True)
    else:
        axes = points.plot(color=_COLOURS, marker="o", linewidth=2, figsize=(10, 5.5))
        axes.set_ylim(bottom=0)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.figure.suptitle(title)
    axes.figure.savefig(file, metadata={"Date": None})
    plt.close(axes.figure)
