"""The result files of one extent, and the figures in them for goals, plots and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HDFS = "hdfs"
ROCKSDB = "rocksdb"
CHANGELOG = ("rocksdb-changelog", "rocksdb-cache", "rocksdb-changelog-bounded")
OURS = "incremental"
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
"""Stores by name, as pages call them and in their order."""

# By the kind of a step: the number that is compared, and its meaning.
MEASURES = {
    "batch": ("wall_ms", "a batch: open, get and put of every key, commit"),
    "scan": ("wall_ms", "a full scan"),
    "prefix": ("wall_ms", "all prefix scans"),
    "first": ("wall_ms", "the first rows in order"),
    "restore": ("total_ms", "task start to first row"),
    "recover": ("end_ms", "task start to the end of the first batch"),
}


@dataclass(frozen=True)
class Ratio:
    """The median of a peer as a multiple of this store's median, with what the quartiles of both allow.

    Attributes:
        theirs: the peer's times.
        own: this store's times.
        value: the peer's median divided by this store's.
        low: the peer's lower quartile divided by this store's upper one; None if one of them ran only once.
        high: the peer's upper quartile divided by this store's lower one; None if one of them ran only once.
    """

    theirs: Mapping[str, float]
    own: Mapping[str, float]
    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        spread = f" ({_times(self.low)}-{_times(self.high)})" if self.low and self.high else ""
        return f"{_times(self.value)}x{spread}"


@dataclass(frozen=True)
class Results:
    """The results of scenarios by name, as the files have them."""

    scenarios: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def bench(self) -> str:
        return next((result["bench"] for result in self.scenarios.values()), "none")

    def cases(self, scenario: str) -> Mapping[str, Any]:
        """Return the steps of a scenario by case; its queries are those of a case without a name."""
        result = self.scenarios.get(scenario, {})
        return result["cases"] if "cases" in result else {"": result.get("queries", {})}

    def step(self, scenario: str, case: str, label: str) -> Mapping[str, Any]:
        """Return statistics by provider; empty if the step was not measured."""
        return self.cases(scenario).get(case, {}).get(label, {})

    def stats(self, scenario: str, case: str, label: str, subject: str) -> Mapping[str, Any]:
        """Return the statistics of a step and provider. Raises KeyError: it was not measured."""
        return self.step(scenario, case, label)[subject]

    def median(
        self, scenario: str, case: str, label: str, subject: str, kind: str, name: str
    ) -> float | None:
        stats = self.step(scenario, case, label).get(subject, {}).get(kind, {}).get(name)
        return stats["median"] if stats else None

    def ratio(
        self, where: tuple[str, str, str], peers: tuple[str, ...], kind: str, ours: str = OURS
    ) -> Ratio | None:
        """Return the ratio of the quickest of `peers` to this store; None if either was not measured."""
        name = MEASURES[kind][0]
        step = self.step(*where)
        times = {subject: step.get(subject, {}).get(kind, {}).get(name) for subject in (*peers, ours)}
        peer_times = [times[peer] for peer in peers if times[peer] and times[peer]["median"]]
        own = times[ours]
        if not peer_times or not own or not own["median"]:
            return None
        peer = min(peer_times, key=lambda time: time["median"])
        value = peer["median"] / own["median"]
        if min(peer["n"], own["n"]) < 2 or not own["q1"]:
            return Ratio(peer, own, value)
        return Ratio(peer, own, value, peer["q1"] / own["q3"], peer["q3"] / own["q1"])

    def all_ratios(self) -> dict[str, float]:
        """Return the ratio of each measured step, by `scenario/case/step/peer`."""
        return {
            "/".join((*where, peer)): round(ratio.value, 3)
            for where, kind in self.measured()
            for peer in self.step(*where)
            if not peer.startswith(OURS) and (ratio := self.ratio(where, (peer,), kind))
        }

    def measured(self) -> Iterator[tuple[tuple[str, str, str], str]]:
        """Yield each step that compares times, with its kind."""
        for scenario, result in self.scenarios.items():
            for case, labels in result.get("cases", {}).items():
                for label, subjects in labels.items():
                    kinds = [kind for kind in MEASURES if any(kind in stats for stats in subjects.values())]
                    if kinds:
                        yield (scenario, case, label), kinds[0]

    def written(self, *step: str) -> float:
        """Return bytes written to checkpoint storage per byte of a row written, over the batches of a step.

        A row is a key row and its value row, as the driver writes them. Raises KeyError: it was not measured.
        """
        stats, spec = self.stats(*step), self.scenarios[step[0]]["specs"][step[1]]
        key_bytes = 16 if spec.get("layout", "plain") == "plain" else 24
        row_bytes = key_bytes + max(24, (spec.get("value_bytes", 100) + 7) // 8 * 8)
        rows = stats["batch"]["operations"]["median"] * stats["segments"]["batches"]
        return float(stats["segments"]["total"]["written_bytes"] / (rows * row_bytes))


def load(directory: Path) -> Results:
    """Read every `<scenario>.json` of a directory."""
    files = sorted(directory.glob("*.json"))
    return Results({file.stem: json.loads(file.read_text()) for file in files})


def joined(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's result in which the steps of `later` replace the earlier ones.

    `parts` of the result names the replaced steps, their machine and time.
    """
    cases = {
        case: {label: {**stats} for label, stats in labels.items()}
        for case, labels in earlier["cases"].items()
    }
    specs = {**earlier["specs"]}
    for case, labels in later["cases"].items():
        for label, subjects in labels.items():
            cases.setdefault(case, {}).setdefault(label, {}).update(subjects)
        spec = specs.setdefault(case, later["specs"][case])
        names = {subject["name"] for subject in spec["subjects"]}
        added = [subject for subject in later["specs"][case]["subjects"] if subject["name"] not in names]
        specs[case] = {**spec, "subjects": [*spec["subjects"], *added]}
    part = {
        "machine": later["machine"],
        "seconds": later["seconds"],
        "stores": {
            case: sorted({name for subjects in labels.values() for name in subjects})
            for case, labels in later["cases"].items()
        },
    }
    return {**earlier, "cases": cases, "specs": specs, "parts": [*earlier.get("parts", []), part]}


def errors(result: Mapping[str, Any]) -> list[str]:
    """Return the errors of a scenario by case, step and provider."""
    problems = []
    for case, labels in result.get("cases", {}).items():
        for label, subjects in labels.items():
            for subject, stats in subjects.items():
                for kind in ("error", "maintenance-error"):
                    problems += [
                        f"{case} / {label} / {subject}: {kind}: {e['message']}" for e in stats.get(kind, [])
                    ]
    for query, subjects in result.get("queries", {}).items():
        problems += [
            f"{query} / {subject}: {e}" for subject, stats in subjects.items() for e in stats.get("error", [])
        ]
    return problems


def _times(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"
