"""Parts of the pages' sections: tables, pictures, medians with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.page.plots import NAMES
from benchmarks.results import CHANGELOG, HDFS, MEASURES, OURS, Results

MB = 1 << 20


OWN = (OURS, "incremental-full", "incremental-1g")


def comparison(results: Results, scenario: str, case: str) -> str:
    """Return a table with a row a step: each provider's median, and its multiple of this store's."""
    labels = results.scenarios.get(scenario, {}).get("cases", {}).get(case, {})
    rows = []
    subjects = [name for name in NAMES if any(name in steps for steps in labels.values())]
    for label in labels:
        kind = next(
            (kind for kind in MEASURES if any(kind in stats for stats in labels[label].values())), None
        )
        if kind is None:
            continue
        name = MEASURES[kind][0]
        cells = [spread(labels[label].get(subject, {}).get(kind, {}).get(name)) for subject in subjects]
        where = (scenario, case, label)
        own = next((subject for subject in OWN if kind in labels[label].get(subject, {})), OURS)
        ratios = [results.ratio(where, peers, kind, own) for peers in ((HDFS,), CHANGELOG)]
        rows.append((label, *cells, *("" if ratio is None else str(ratio) for ratio in ratios)))
    header = (
        "ms",
        *(NAMES[subject] for subject in subjects),
        "HDFS-backed / ours",
        "RocksDB + changelog / ours",
    )
    return table(header, rows)


def costs(results: Results, scenario: str, case: str) -> str:
    """Return a table of batches by phase, with CPU, written bytes, and the bytes in storage after."""
    rows = []
    for label, subject, stats in measured(results.scenarios[scenario]["cases"][case], "batch", "segments"):
        batch, segments = stats["batch"], stats["segments"]
        cpu = segments["cpu_jvm_s"]["median"] + segments["cpu_children_s"]["median"]
        rows.append(
            (
                label,
                NAMES[subject],
                spread(batch["open_ms"]),
                spread(batch["row_us"]),
                spread(batch["commit_ms"]),
                f"{cpu * 1000:.0f}",
                f"{segments['written_bytes']['median'] / MB:.2f}",
                f"{segments['last']['storage_bytes'] / MB:.0f}",
                str(segments["last"]["storage_files"]),
            )
        )
    header = (
        "",
        "provider",
        "open ms",
        "get + put us a key",
        "commit ms",
        "CPU ms",
        "MB written",
        "MB in storage",
        "files",
    )
    if not rows:
        return ""
    return (
        "<details><summary>A batch by phase, CPU, bytes</summary>\n\n"
        + table(header, rows)
        + "\n</details>\n\n"
    )


def measured(
    by_label: Mapping[str, Mapping[str, Any]], *figures: str
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield label, provider and statistics of each measurement that has all of these figures."""
    for label, subjects in by_label.items():
        for subject, stats in subjects.items():
            if all(name in stats for name in figures):
                yield label, subject, stats


def images(titles: Mapping[str, str], *names: str) -> str:
    return "".join(f"![{titles[name]}](images/{name}.svg)\n\n" for name in names if name in titles)


def spread(stats: Mapping[str, float] | None) -> str:
    if not stats:
        return ""
    if stats["n"] < 2:
        return short(stats["median"])
    return f"{short(stats['median'])} ({short(stats['q1'])}-{short(stats['q3'])})"


def short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
