"""Executors with many stores: the resources of a store with little to do, and the time of a batch over all.

One JVM for each provider takes a few stores, and then many, through the same steps. The difference between
both, divided by the number of additional stores, is the share of a store: the process itself, its libraries
and the agent, which all stores share, are in both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.environment import providers
from benchmarks.environment.providers import CHANGELOG, HDFS, Variant, incremental
from benchmarks.results import NAMES, Results
from benchmarks.scenarios.store_level import BUDGET_MB, Case, Extent, Run, Step, batches, case, load

SCENARIO = "executors"
USUAL, MANY = 200, 1000
KEYS_EACH = 100
TOUCHED_EACH = 20
BATCH = f"{TOUCHED_EACH} keys a store"
MAINTAINED = f"{BATCH}, with maintenance"
MEMORY = "memory"
RECOVER = "recover"

_TOTALS = {
    "total_bytes": ("heap_bytes", "jvm_anonymous_bytes", "jvm_file_bytes", "children_pss_bytes"),
    "threads": ("jvm_threads", "children_threads"),
    "descriptors": ("jvm_descriptors", "children_descriptors"),
}


def numbers(extent: Extent) -> tuple[int, ...]:
    """Return the numbers of stores of an executor, ascending; the others are compared with the first."""
    return {"quick": (2,), "standard": (10, USUAL), "full": (10, USUAL, MANY)}[extent.name]


def executors(extent: Extent, ours: bool) -> list[Run]:
    """Return runs of memory, threads and descriptors, of batches that touch each store, and of recovery."""
    subjects = _subjects(extent, ours)
    if extent.is_quick:
        return [Run([_many(count, subjects, extent, ours) for count in numbers(extent)], heap_mb=1024)]
    return [
        Run(
            [_many(count, [subject], extent, ours) for count in numbers(extent)],
            heap_mb=2048,
            touch_heap=True,
        )
        for subject in subjects
    ]


def _subjects(extent: Extent, ours: bool) -> list[Variant]:
    subjects = [HDFS, providers.bounded(CHANGELOG, BUDGET_MB)]
    if extent.is_full:
        subjects.append(providers.bounded(providers.ROCKSDB, BUDGET_MB))
    return [*subjects, incremental(BUDGET_MB)] if ours else subjects


def _many(count: int, subjects: list[Variant], extent: Extent, ours: bool) -> Case:
    size, rounds = TOUCHED_EACH * count, {"quick": 1, "standard": 2, "full": 4}[extent.name]
    step = batches(extent, "uniform", size, batches=1, segments=rounds, maintenance_every=0)
    steps: list[Step] = [
        {**load(KEYS_EACH * count), "label": "load"},
        {**step, "label": BATCH},
        {**step, "label": MAINTAINED, "segments": 1, "warmup_segments": 0, "maintenance_every": 1},
        {"do": "memory", "label": MEMORY},
        {"do": "recover", "label": RECOVER, "local": "absent", "size": size, "repetitions": 1},
    ]
    return case(name(count), subjects, steps, ours=ours, stores=count)


def name(count: int) -> str:
    """Return the name of the case with this many stores."""
    return f"{count} stores"


def where(count: int) -> tuple[str, str, str]:
    """Return the step of the results with the batches of this many stores."""
    return SCENARIO, name(count), BATCH


def counts(results: Results) -> list[int]:
    """Return the measured numbers of stores, ascending."""
    cases: Mapping[str, Any] = results.scenarios.get(SCENARIO, {}).get("specs", {})
    return sorted(case["stores"] for case in cases.values())


def memory(results: Results, subject: str, count: int) -> dict[str, float]:
    """Return bytes and handles of an executor, and those of JVM and agent together; empty if not measured."""
    stats = results.step(SCENARIO, name(count), MEMORY).get(subject, {}).get("memory", {})
    medians = {field: stat["median"] for field, stat in stats.items()}
    totals = {total: sum(medians[field] for field in fields) for total, fields in _TOTALS.items() if medians}
    return {**medians, **totals}


def floor(results: Results, subject: str, count: int) -> dict[str, float]:
    """Return the bytes and handles of each store beyond those that all stores share.

    They are the growth from the fewest measured stores to `count`; empty if either was not measured.
    """
    least = min(counts(results), default=count)
    smallest, largest = (memory(results, subject, stores) for stores in (least, count))
    if not smallest or count <= least:
        return {}
    return {field: (value - smallest[field]) / (count - least) for field, value in largest.items()}


def agent_share(results: Results, subject: str, count: int) -> float:
    """Return the CPU time of the JVM's children as a share of batches without maintenance: 1 is a core.

    Raises KeyError: it was not measured.
    """
    stats = results.stats(*where(count), subject)
    return float(stats["segments"]["cpu_children_s"]["median"] * 1000 / stats["batch"]["wall_ms"]["median"])


def rows(results: Results) -> Iterator[dict[str, Any]]:
    """Yield the figures of each number of stores and provider: a store's share, memory, a batch, a loss."""
    for count, (subject, title) in itertools.product(counts(results), NAMES.items()):
        step = results.step(*where(count)).get(subject, {})
        if "segments" in step:
            yield {
                "label": name(count),
                "store": title,
                "batch": step["batch"],
                "memory": memory(results, subject, count),
                "each": floor(results, subject, count),
                "cpu_jvm": step["segments"]["cpu_jvm_s"]["median"] / count,
                "cpu_children": step["segments"]["cpu_children_s"]["median"] / count,
                "recover_ms": results.median(SCENARIO, name(count), RECOVER, subject, "recover", "end_ms"),
            }
