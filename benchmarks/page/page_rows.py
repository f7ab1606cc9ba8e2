"""Figures that templates make rows of: of each step and store, of machines, and of forms of functions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from typing import Any

from benchmarks.page.rendering import in_pages
from benchmarks.results import CHANGELOG, HDFS, MEASURES, NAMES, OURS, ROCKSDB, Results

PEERS = {"HDFS-backed": (HDFS,), "RocksDB": (ROCKSDB,), "RocksDB + changelog": CHANGELOG}
_WHOLE, _LAZY = (OURS, "incremental-full", "incremental-1g"), "incremental-lazy"


@in_pages
def steps(results: Results, scenario: str, figure: str) -> Iterator[dict[str, Any]]:
    """Yield the statistics of each step and store, or of each query, that have this figure."""
    for case, labels in results.cases(scenario).items():
        for label, subjects in labels.items():
            for subject, stats in subjects.items():
                if figure in stats and label != "empty":
                    step = (scenario, case, label, subject)
                    yield {**stats, "step": step, "case": case, "label": label, "store": NAMES[subject]}


@in_pages
def medians(results: Results, scenario: str, case: str) -> list[dict[str, Any]]:
    """Return each step's medians by store, and their multiples of this store's, and of its lazy restores."""
    measured = results.cases(scenario).get(case, {})
    stores = [name for name in NAMES if any(name in subjects for subjects in measured.values())]
    peers = {title: group for title, group in PEERS.items() if set(group) & set(stores)}
    rows = []
    for where, kind in results.measured():
        if where[:2] == (scenario, case):
            step = measured[where[2]]
            own = next((name for name in _WHOLE if kind in step.get(name, {})), OURS)
            times = {NAMES[name]: step.get(name, {}).get(kind, {}).get(MEASURES[kind][0]) for name in stores}
            ratios = {
                f"{title} / {word}": results.ratio(where, group, kind, store)
                for word, store in (("ours", own), ("lazy", _LAZY))
                for title, group in peers.items()
                if word == "ours" or _LAZY in stores
            }
            rows.append({"ms": where[2], **times, **ratios})
    return rows


@in_pages
def machines(results: Results) -> Iterator[dict[str, Any]]:
    """Yield the facts and versions of each scenario, and of each part that was measured later."""
    for name, result in results.scenarios.items():
        parts = [
            {**part, "bench": result["bench"], "name": f"{name}: {case} ({', '.join(stores)})"}
            for part in result.get("parts", [])
            for case, stores in part["stores"].items()
        ]
        for row in ({**result, "name": name}, *parts):
            facts = row["machine"]
            packages = (f"{package} {version}" for package, version in facts["packages"].items() if version)
            texts = (
                ", ".join(packages),
                ", ".join(facts["jars"]),
                f"Python {facts['python']}",
                facts["java"],
            )
            yield {**row, "versions": "; ".join(texts)}


@in_pages
def subjects(results: Results) -> list[dict[str, Any]]:
    """Return the stores of all cases, each with its options that differ from Spark's defaults."""
    cases = [case for result in results.scenarios.values() for case in result.get("specs", {}).values()]
    return [subject for case in cases for subject in case["subjects"]]


@in_pages
def function(results: Results, form: str, store: str = OURS, groups: int = 44_000) -> dict[str, Any]:
    """Return the measurement of a form of a function, with its multiples of Spark's form."""
    sizes = {size["groups"]: size for size in results.scenarios["vectorized"]["functions"]}
    entries = [*sizes[groups]["measurements"], *sizes[groups]["ratios"]]
    return dict(ChainMap(*(entry for entry in entries if (entry["store"], entry["form"]) == (store, form))))
