"""The pictures of the short page, each from the result files alone; their titles state the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.page import goals
from benchmarks.results import CHANGELOG, HDFS, OURS, Results

# Okabe and Ito's colours, which readers with any colour vision can tell apart.
COLOURS = {
    "hdfs": "#E69F00",
    "rocksdb": "#999999",
    "rocksdb-changelog": "#0072B2",
    "rocksdb-cache": "#56B4E9",
    "rocksdb-bounded": "#999999",
    "rocksdb-changelog-bounded": "#0072B2",
    "incremental": "#009E73",
    "incremental-full": "#009E73",
    "incremental-no-full": "#CC79A7",
}
NAMES = {
    "hdfs": "HDFS-backed",
    "rocksdb": "RocksDB",
    "rocksdb-changelog": "RocksDB + changelog",
    "rocksdb-cache": "RocksDB + changelog, larger cache",
    "rocksdb-bounded": "RocksDB, bounded memory",
    "rocksdb-changelog-bounded": "RocksDB + changelog, bounded memory",
    "incremental": "incremental",
    "incremental-1g": "incremental, 1 GB",
    "incremental-lazy": "incremental, lazy",
    "incremental-full": "incremental, full every 200 batches",
    "incremental-no-full": "incremental, never full",
    "incremental-unmerged": "incremental, never merged",
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
Drawn = tuple[Figure, str] | None


def draw_all(results: Results, directory: Path) -> dict[str, str]:
    """Draw the pictures that the results have figures for, and delete the other SVG files of the directory.

    Args:
        results: the results of scenarios.
        directory: gets a file `NAME.svg` for each picture.

    Returns:
        The titles of the pictures by name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    titles = {}
    with plt.rc_context(_STYLE):
        for name, draw in PICTURES.items():
            if (drawn := draw(results)) is not None:
                figure, titles[name] = drawn
                figure.suptitle(titles[name])
                figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
                plt.close(figure)
    for old in directory.glob("*.svg"):
        if old.stem not in titles:
            old.unlink()
    return titles


def _speed(results: Results) -> Drawn:
    """Draw the ratios against both peers: the first picture of the README."""
    rows = []
    for setting, where, kind, *_, ours in goals.SPEEDS:
        pair = [results.ratio(where, peers, kind, ours) for peers in ((HDFS,), CHANGELOG)]
        if any(pair):
            rows.append((setting, [ratio.value if ratio else 0 for ratio in pair]))
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(10, 1.2 + 0.75 * len(rows)))
    for offset, (peer, name) in enumerate(((HDFS, "HDFS-backed"), (CHANGELOG[0], "RocksDB + changelog"))):
        positions = [position + 0.2 - 0.4 * offset for position in range(len(rows))][::-1]
        bars = axes.barh(
            positions, [values[offset] for _, values in rows], 0.38, color=COLOURS[peer], label=name
        )
        axes.bar_label(bars, fmt=lambda value: f"{value:.1f}x" if value else "", padding=3, fontsize=11)
    axes.set_yticks(range(len(rows)), [setting for setting, _ in rows][::-1])
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axes.margins(x=0.12)
    axes.set_xlabel("times as long as this store takes (1 = equal; medians of one run)")
    figure.legend(loc="outside lower center", ncols=2)
    values = [value for _, pair in rows for value in pair if value]
    wins = sum(value > 1 for value in values)
    return figure, f"Faster in {wins} of {len(values)} comparisons, up to {max(values):.1f} times"


def _restore_over_age(results: Results) -> Drawn:
    lines = _ages(results, "restore at ", "restore", "total_ms")
    own = lines.get("incremental-full")
    others = [line[-1][1] for subject, line in lines.items() if not subject.startswith(OURS)]
    title = "Restore time over the age of the query"
    if own and others:
        age, last = own[-1]
        title = f"After {age} batches: {last:.0f} ms to restore, the others {min(others):.0f} ms and more"
    return _over_age(lines, title, "restore on a new machine, ms")


def _storage_over_age(results: Results) -> Drawn:
    lines = _ages(results, "storage at ", "storage", "bytes", unit=1 << 20)
    title = "Bytes in checkpoint storage over the age of the query"
    return _over_age(lines, title, "in checkpoint storage, MB")


def _ages(
    results: Results, prefix: str, kind: str, figure: str, unit: int = 1
) -> dict[str, list[tuple[int, float]]]:
    """Return for each store the medians of a figure by the age of the query."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for label, subjects in results.scenarios.get("age", {}).get("cases", {}).get("age", {}).items():
        if label.startswith(prefix):
            for subject, stats in subjects.items():
                if kind in stats:
                    point = int(label.removeprefix(prefix)), stats[kind][figure]["median"] / unit
                    lines.setdefault(subject, []).append(point)
    return {subject: sorted(lines[subject]) for subject in NAMES if subject in lines}


def _over_age(lines: Mapping[str, Sequence[tuple[int, float]]], title: str, label: str) -> Drawn:
    if not lines:
        return None
    figure, axes = plt.subplots(figsize=(10, 5.5))
    for subject, line in lines.items():
        ages, values = zip(*line, strict=True)
        axes.plot(ages, values, marker="o", color=COLOURS[subject], label=NAMES[subject], linewidth=2)
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.set_xlabel("batches since the start of the query (constant live state)")
    axes.set_ylabel(label)
    return figure, title


PICTURES: Mapping[str, Callable[[Results], Drawn]] = {
    "speed": _speed,
    "restore-over-age": _restore_over_age,
    "storage-over-age": _storage_over_age,
}
"""The pictures that the short page shows and the repository keeps."""
