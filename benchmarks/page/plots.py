"""The plots of the pages, each from the result files alone; their titles state the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
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
    "incremental-1g": "#00523B",
    "incremental-full": "#009E73",
    "incremental-no-full": "#CC79A7",
    "incremental-unmerged": "#CC79A7",
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
_PHASES = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
_MB = 1 << 20


def draw_all(results: Results, directory: Path, chosen: Collection[str] | None = None) -> dict[str, str]:
    """Draw every plot that the results have figures for, and delete the other SVG files of the directory.

    Args:
        results: the results of scenarios.
        directory: gets a file `NAME.svg` for each plot.
        chosen: the names of the plots to draw; None stands for all.

    Returns:
        The titles of the plots by name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "font.size": 12,
        "axes.titlesize": 14,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "svg.hashsalt": "1",
    }
    titles = {}
    with plt.rc_context({**settings, "axes.axisbelow": True, "figure.constrained_layout.use": True}):
        for name, draw in _PLOTS.items():
            drawn = draw(results) if chosen is None or name in chosen else None
            if drawn is None:
                continue
            figure, title = drawn
            figure.suptitle(title)
            figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)
            titles[name] = title
    for old in directory.glob("*.svg"):
        if old.stem not in titles:
            old.unlink()
    return titles


Drawn = tuple[Figure, str] | None


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


def _ages(results: Results, prefix: str, kind: str, name: str) -> dict[str, tuple[list[int], list[float]]]:
    lines: dict[str, tuple[list[int], list[float]]] = {}
    steps = results.scenarios.get("age", {}).get("cases", {}).get("age", {})
    for label, subjects in steps.items():
        if label.startswith(prefix):
            for subject, stats in subjects.items():
                if kind in stats:
                    ages, values = lines.setdefault(subject, ([], []))
                    ages.append(int(label.removeprefix(prefix)))
                    values.append(stats[kind][name]["median"])
    return {subject: _sorted(ages, values) for subject, (ages, values) in lines.items()}


def _sorted(xs: list[Any], ys: list[float]) -> tuple[list[Any], list[float]]:
    """Return points from left to right, whatever the order of the file."""
    order = sorted(range(len(xs)), key=lambda i: xs[i])
    return [xs[i] for i in order], [ys[i] for i in order]


def _lines(axes: Axes, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    for subject, (xs, ys) in sorted(lines.items(), key=lambda line: list(NAMES).index(line[0])):
        axes.plot(xs, ys, marker="o", color=COLOURS[subject], label=NAMES[subject], linewidth=2)
    axes.set_ylim(bottom=0)
    axes.legend()


def _over_age(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str) -> Figure:
    figure, axes = plt.subplots(figsize=(10, 5.5))
    _lines(axes, lines)
    axes.set_xlabel("batches since the start of the query (constant live state)")
    axes.set_ylabel(label)
    return figure


def _restore_over_age(results: Results) -> Drawn:
    """Draw the second picture of the page."""
    lines = _ages(results, "restore at ", "restore", "total_ms")
    if not lines:
        return None
    figure = _over_age(lines, "restore on a new machine, ms")
    own = lines.get("incremental-full")
    last = own[1][-1] if own else 0
    if not own:
        return figure, "Restore time over the age of the query"
    others = [ys[-1] for subject, (_, ys) in lines.items() if not subject.startswith(OURS)]
    return (
        figure,
        f"After {own[0][-1]} batches: {last:.0f} ms to restore, the others {min(others):.0f} ms and more",
    )


def _batch_over_age(results: Results) -> Drawn:
    lines = _ages(results, "batches to ", "batch", "wall_ms")
    if not lines:
        return None
    figure = _over_age(lines, "a batch (open, get and put, commit), ms")
    return figure, "Cost of a batch over the age of the query"


def _storage_over_age(results: Results) -> Drawn:
    lines = _ages(results, "storage at ", "storage", "bytes")
    if not lines:
        return None
    megabytes = {subject: (xs, [y / _MB for y in ys]) for subject, (xs, ys) in lines.items()}
    figure = _over_age(megabytes, "in checkpoint storage, MB")
    return figure, "Bytes in checkpoint storage over the age of the query"


def _growth(results: Results) -> Drawn:
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for case in ("growth", "growth, 1 GB", "growth beyond"):
        for label, subjects in results.scenarios.get("growth", {}).get("cases", {}).get(case, {}).items():
            if label.endswith(" keys") and not label.startswith("load"):
                for subject, stats in subjects.items():
                    known = case == "growth, 1 GB" and subject in lines
                    if "batch" in stats and not known:
                        xs, ys = lines.setdefault(subject, ([], []))
                        xs.append(_number(label.split()[0]))
                        ys.append(stats["batch"]["wall_ms"]["median"])
    if not lines:
        return None
    lines = {subject: _sorted(xs, ys) for subject, (xs, ys) in lines.items()}
    figure, axes = plt.subplots(figsize=(10, 5.5))
    _lines(axes, lines)
    axes.set_xscale("log")
    axes.set_yscale("log")
    heights = [y for _, ys in lines.values() for y in ys]
    axes.set_ylim(min(heights) / 1.5, max(heights) * 1.5)
    axes.set_xlabel("keys in the store")
    axes.set_ylabel("a batch of constant size, ms")
    own = lines.get(OURS)
    if not own:
        return figure, "Cost of a batch of constant size while the state grows"
    grown, dearer = own[0][-1] / own[0][0], own[1][-1] / own[1][0]
    return figure, f"State grown {grown:.0f} times: a batch costs {dearer:.1f} times as much"


def _phases(results: Results) -> Drawn:
    """Draw the phases of a batch, with this store's commit by its own metrics beside."""
    labels = [
        label for label in ("uniform 20k", "uniform 1k", "uniform 2k") if results.step("store", "base", label)
    ]
    if not labels:
        return None
    figure, all_axes = plt.subplots(1, len(labels), figsize=(6 * len(labels), 5.5), squeeze=False)
    for axes, label in zip(all_axes[0], labels, strict=True):
        step = results.step("store", "base", label)
        subjects = {name: step[name] for name in NAMES if "batch" in step.get(name, {})}
        _stack(axes, subjects, (("open", "open_ms"), ("get and put", "rows_ms"), ("commit", "commit_ms")))
        axes.set_title(f"batch: {label}")
        axes.set_ylabel("ms a batch")
    return figure, "Where the time of a batch goes"


def _stack(axes: Axes, subjects: Mapping[str, Any], parts: Sequence[tuple[str, str]]) -> None:
    names = list(subjects)
    bottoms = [0.0] * len(names)
    for (title, field), colour in zip(parts, _PHASES, strict=False):
        heights = [subjects[name]["batch"][field]["median"] for name in names]
        axes.bar(range(len(names)), heights, bottom=bottoms, color=colour, label=title)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_xticks(
        range(len(names)), [NAMES[name].replace(" + ", "\n+ ").replace(", ", ",\n") for name in names]
    )
    axes.tick_params(axis="x", labelsize=9)
    axes.legend()


def own_phases(results: Results, label: str) -> dict[str, float]:
    """Return milliseconds of this store's batch by phase: the driver's, with commits split by metrics."""
    stats = results.step("store", "base", label).get(OURS, {})
    if "batch" not in stats or "segments" not in stats:
        return {}
    custom, medians = (
        stats["segments"]["custom"],
        {name: stats["batch"][name]["median"] for name in _MEASURED},
    )
    write, keep = (custom.get(f"incrementalCommit{part}Ms", 0.0) for part in ("Write", "Store"))
    return {
        "open": medians["open_ms"],
        "get and put": medians["rows_ms"],
        "commit: sort and write the delta": write,
        "commit: delta into checkpoint storage": keep,
        "commit: the rest": max(0.0, medians["commit_ms"] - write - keep),
        "merges in the background": custom.get("incrementalMergeMs", 0.0),
    }


_MEASURED = ("open_ms", "rows_ms", "commit_ms")
_OWN_LABELS = (
    "uniform 100k",
    "uniform 20k",
    "zipf 20k",
    "append 20k",
    "sliding 20k",
    "uniform 2k",
    "uniform 1k",
    "uniform 100",
)


def _own(results: Results) -> Drawn:
    phases = {label: found for label in _OWN_LABELS if (found := own_phases(results, label))}
    if not phases:
        return None
    figure, axes = plt.subplots(figsize=(10, 5.5))
    bottoms = [0.0] * len(phases)
    for name, colour in zip(next(iter(phases.values())), _PHASES, strict=False):
        heights = [milliseconds[name] for milliseconds in phases.values()]
        axes.bar(range(len(phases)), heights, bottom=bottoms, color=colour, label=name)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_xticks(range(len(phases)), [label.replace(" ", "\n") for label in phases])
    axes.set_ylabel("ms a batch")
    axes.legend()
    totals = {
        name: sum(milliseconds[name] for milliseconds in phases.values())
        for name in next(iter(phases.values()))
    }
    largest = max(totals, key=lambda name: totals[name])
    return (
        figure,
        f"This store: the largest part is {largest} ({totals[largest] / sum(totals.values()):.0%} over all)",
    )


def _restore(results: Results) -> Drawn:
    steps = results.scenarios.get("restore", {}).get("cases", {}).get("restore", {})
    labels = [label for label in steps if "local files absent" in label]
    if not labels:
        return None
    bars = [(NAMES[name], COLOURS[name], name, "absent") for name in NAMES if name in steps[labels[0]]]
    if OURS in steps[labels[0]]:
        bars.append(("incremental, local files", "#00523B", OURS, "present"))
    figure, axes = plt.subplots(figsize=(10, 5.5))
    width = 0.8 / len(bars)
    for number, (title, colour, subject, local) in enumerate(bars):
        shown = [steps[label.replace("absent", local)].get(subject, {}).get("restore") for label in labels]
        heights = [stats["total_ms"]["median"] if stats else 0 for stats in shown]
        axes.bar(
            [position + number * width for position in range(len(labels))],
            heights,
            width,
            color=colour,
            label=title,
        )
    copied = [next(iter(steps[label].values()))["restore"]["copy_ms"]["median"] for label in labels]
    middles = [position + 0.4 - width / 2 for position in range(len(labels))]
    axes.hlines(
        copied,
        [middle - 0.4 for middle in middles],
        [middle + 0.4 for middle in middles],
        "black",
        label="copy of the live bytes",
    )
    axes.set_yscale("log")
    axes.set_xticks(middles, [label.split(",")[0] for label in labels])
    axes.set_ylabel("task start to first row, ms")
    figure.legend(loc="outside lower center", ncols=3, fontsize=10)
    return figure, "Restore on a new machine, by the number of deltas"


def _queries(results: Results) -> Drawn:
    queries = results.scenarios.get("queries", {}).get("queries", {})
    if not queries:
        return None
    figure, all_axes = plt.subplots(1, len(queries), figsize=(3.6 * len(queries), 5.5))
    for axes, (query, subjects) in zip(all_axes, queries.items(), strict=True):
        good = {name: stats for name, stats in subjects.items() if "durations_ms" in stats}
        bottoms = [0.0] * len(good)
        for number, phase in enumerate(
            ("addBatch", "queryPlanning", "walCommit", "commitOffsets", "latestOffset")
        ):
            heights = [stats["durations_ms"].get(phase, {"median": 0.0})["median"] for stats in good.values()]
            axes.bar(range(len(good)), heights, bottom=bottoms, color=_PHASES[number], label=phase)
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
        commits = [stats["operators"]["commitTimeMs"]["median"] / 2 for stats in good.values()]
        axes.plot(
            range(len(good)), commits, "k_", markersize=22, markeredgewidth=3, label="state store commit"
        )
        axes.set_xticks(range(len(good)), [NAMES[name].replace(" + ", "\n+ ") for name in good], rotation=60)
        axes.set_title(query, fontsize=11)
    all_axes[0].set_ylabel("ms a micro-batch")
    all_axes[-1].legend(fontsize=9)
    return figure, "Micro-batches of real queries, by phase"


def _latency(results: Results) -> Drawn:
    """Draw p50 and p99 of a batch while maintenance (merges, snapshots, clean-up) runs, and while not."""
    found = {}
    for case, labels in results.scenarios.get("storage", {}).get("cases", {}).items():
        for label, subjects in labels.items():
            if label.startswith("uniform"):
                found[case] = {name: stats for name, stats in subjects.items() if "with_maintenance" in stats}
    found = {case: subjects for case, subjects in found.items() if subjects}
    if not found:
        return None
    figure, all_axes = plt.subplots(1, len(found), figsize=(max(9, 6 * len(found)), 5.5), squeeze=False)
    for axes, (case, subjects) in zip(all_axes[0], found.items(), strict=True):
        for number, (title, field, percentile) in enumerate(
            (
                ("p50, none running", "without_maintenance", "median"),
                ("p50, running", "with_maintenance", "median"),
                ("p99, none running", "without_maintenance", "p99"),
                ("p99, running", "with_maintenance", "p99"),
            )
        ):
            heights = [stats.get(field, {}).get(percentile, 0) for stats in subjects.values()]
            positions = [position + number * 0.2 for position in range(len(subjects))]
            axes.bar(
                positions,
                heights,
                0.19,
                color=("#56B4E9", "#0072B2", "#E69F00", "#D55E00")[number],
                label=title,
            )
        axes.set_xticks(
            [position + 0.3 for position in range(len(subjects))],
            [NAMES[name].replace(" + ", "\n+ ") for name in subjects],
        )
        axes.set_title(case)
        axes.set_ylabel("a batch, ms")
        axes.legend(fontsize=10)
    return figure, "Latency of a batch while maintenance runs, and while none does"


def _memory(results: Results) -> Drawn:
    steps = results.scenarios.get("memory", {}).get("cases", {}).get("memory", {})
    labels = [label for label in steps if label.endswith(" keys") and not label.startswith("load")]
    if not labels:
        return None
    bars = [
        (label, subject) for label in labels for subject in steps[label] if "memory" in steps[label][subject]
    ]
    figure, axes = plt.subplots(figsize=(10, 1.5 + 0.42 * len(bars)))
    heap = [steps[label][subject]["memory"]["heap_bytes"]["median"] / _MB for label, subject in bars]
    native = [goals.native_megabytes(results, subject, label) or 0 for label, subject in bars]
    positions = list(range(len(bars)))[::-1]
    axes.barh(positions, heap, color="#E69F00", label="heap")
    axes.barh(positions, native, left=heap, color="#0072B2", label="native memory and agent")
    axes.set_yticks(positions, [f"{NAMES[subject]}, {label}" for label, subject in bars])
    axes.set_xlabel("MB")
    axes.legend()
    return figure, "Memory: heap after collection, native memory and agent"


def _merges(results: Results) -> Drawn:
    kinds = results.scenarios.get("merges", {}).get("kinds", {})
    if not kinds:
        return None
    figure, (bytes_axes, cpu_axes) = plt.subplots(1, 2, figsize=(12, 5))
    for (kind, groups), colour in zip(kinds.items(), _PHASES, strict=False):
        xs = [int(group) for group in groups]
        bytes_axes.plot(
            xs,
            [stats["rewritten_per_changed_byte"] for stats in groups.values()],
            "o-",
            color=colour,
            label=kind,
        )
        cpu_axes.plot(
            xs, [stats["cpu_us_per_record"] for stats in groups.values()], "o-", color=colour, label=kind
        )
    bytes_axes.set_ylabel("bytes rewritten per byte of change")
    cpu_axes.set_ylabel("CPU us per changed record")
    for axes in (bytes_axes, cpu_axes):
        axes.set_xscale("log")
        axes.set_xlabel("deltas a merge")
        axes.legend()
    return figure, "What a merge costs, by kind and number of deltas"


def _number(text: str) -> float:
    return float(text.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(text[-1], 1)


_PLOTS: Mapping[str, Callable[[Results], Drawn]] = {
    "speed": _speed,
    "restore-over-age": _restore_over_age,
    "batch-over-age": _batch_over_age,
    "storage-over-age": _storage_over_age,
    "growth": _growth,
    "phases": _phases,
    "own-phases": _own,
    "latency": _latency,
    "restore": _restore,
    "queries": _queries,
    "memory": _memory,
    "merges": _merges,
}
