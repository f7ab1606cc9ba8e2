"""Executors with many stores: the resources of a store with little to do, and the time of a batch over all.

One JVM for each provider takes a few stores, and then many, through the same steps. The difference between
both, divided by the number of additional stores, is the share of a store: the process itself, its libraries
and the agent, which all stores share, are in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.environment import providers
from benchmarks.environment.providers import CHANGELOG, HDFS, Variant, incremental
from benchmarks.results import Results
from benchmarks.scenarios.store_level import BUDGET_MB, Case, Extent, Run, Step, batches, case, load

SCENARIO = "executors"
USUAL, MANY = 200, 1000
KEYS_EACH = 100
TOUCHED_EACH = 20
BATCH = f"{TOUCHED_EACH} keys a store"
MAINTAINED = f"{BATCH}, with maintenance"
MEMORY = "memory"
RECOVER = "recover"

_MB = 1 << 20
_HANDLES = ("threads", "descriptors")


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


@dataclass(frozen=True)
class Floor:
    """The costs of each store beyond those that all stores share.

    Bytes are grouped by place; threads and descriptors are those of JVM and agent together.
    """

    heap_bytes: float
    native_bytes: float
    mapped_bytes: float
    agent_bytes: float
    threads: float
    descriptors: float

    @property
    def total_bytes(self) -> float:
        return self.heap_bytes + self.native_bytes + self.mapped_bytes + self.agent_bytes


def floor(results: Results, subject: str, count: int) -> Floor | None:
    """Return the costs from the fewest measured stores to `count`; None if either was not measured."""
    least = min(counts(results), default=count)
    smallest, largest = (_memory(results, subject, stores) for stores in (least, count))
    if smallest is None or largest is None or count <= least:
        return None

    def each(*names: str) -> float:
        return sum(largest[field]["median"] - smallest[field]["median"] for field in names) / (count - least)

    return Floor(
        heap_bytes=each("heap_bytes"),
        native_bytes=each("jvm_anonymous_bytes"),
        mapped_bytes=each("jvm_file_bytes"),
        agent_bytes=each("children_pss_bytes"),
        threads=each(*(f"{owner}_threads" for owner in ("jvm", "children"))),
        descriptors=each(*(f"{owner}_descriptors" for owner in ("jvm", "children"))),
    )


def agent_share(results: Results, subject: str, count: int) -> float | None:
    """Return the CPU time of the JVM's children as a share of batches without maintenance: 1 is a core."""
    step = results.step(*where(count)).get(subject, {})
    if "segments" not in step:
        return None
    segments = step["segments"]
    return float(segments["cpu_children_s"]["median"] * 1000 / step["batch"]["wall_ms"]["median"])


def _memory(results: Results, subject: str, count: int) -> Mapping[str, Any] | None:
    step = results.step(SCENARIO, name(count), MEMORY)
    memory: Mapping[str, Any] | None = step.get(subject, {}).get("memory")
    return memory


def row(results: Results, subject: str, count: int) -> tuple[str, ...] | None:
    """Return a row of the table: memory, handles, a batch, CPU of a commit, the first batch after a loss."""
    step = results.step(*where(count)).get(subject, {})
    if "segments" not in step:
        return None
    costs, memory = floor(results, subject, count), _memory(results, subject, count)
    recovered = results.median(SCENARIO, name(count), RECOVER, subject, "recover", "end_ms")
    segments = step["segments"]
    bytes_of = (
        ()
        if costs is None
        else (
            costs.total_bytes,
            costs.heap_bytes,
            costs.native_bytes,
            costs.mapped_bytes,
            costs.agent_bytes,
        )
    )
    return (
        *(f"{value / _MB:.2f}" for value in bytes_of),
        *([""] * (5 - len(bytes_of))),
        *("" if memory is None else f"{_both(memory, handle):.0f}" for handle in _HANDLES),
        "" if memory is None else f"{memory['jvm_mappings']['median']:.0f}",
        f"{step['batch']['wall_ms']['median']:.0f}",
        *(f"{segments[owner]['median'] * 1000 / count:.2f}" for owner in ("cpu_jvm_s", "cpu_children_s")),
        "" if recovered is None else f"{recovered:.0f}",
    )


HEADER = (
    "MB a store",
    "heap",
    "native",
    "mapped",
    "agent",
    "threads",
    "descriptors",
    "mappings",
    "batch ms",
    "CPU ms a commit, JVM",
    "and its processes",
    "first batch after a loss, ms",
)


def _both(memory: Mapping[str, Any], name: str) -> float:
    return float(memory[f"jvm_{name}"]["median"] + memory[f"children_{name}"]["median"])
