"""Executors with many stores: what a store takes that has little to do, and what a batch over all costs.

One JVM for each provider takes a few stores, and then many, through the same steps. What grows from one to
the other, divided by the number of stores between, is what a store takes: the process itself, its libraries
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
    """The numbers of stores of an executor, ascending; the others are compared with the first."""
    return {"quick": (2,), "standard": (10, USUAL), "full": (10, USUAL, MANY)}[extent.name]


def executors(extent: Extent, ours: bool) -> list[Run]:
    """Memory, threads and descriptors of a store, batches that touch each a little, recovery of them all."""
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
    found = [HDFS, providers.bounded(CHANGELOG, BUDGET_MB)]
    if extent.is_full:
        found.append(providers.bounded(providers.ROCKSDB, BUDGET_MB))
    return [*found, incremental(BUDGET_MB)] if ours else found


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
    return sorted(one["stores"] for one in cases.values())


@dataclass(frozen=True)
class Floor:
    """Return the costs of each store beyond those that all stores share.

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
    """From the fewest stores that were measured to `count`; None where there is only one of the two."""
    least = min(counts(results), default=count)
    few, many = (_memory(results, subject, one) for one in (least, count))
    if few is None or many is None or count <= least:
        return None

    def each(*names: str) -> float:
        return sum(many[one]["median"] - few[one]["median"] for one in names) / (count - least)

    return Floor(
        heap_bytes=each("heap_bytes"),
        native_bytes=each("jvm_anonymous_bytes"),
        mapped_bytes=each("jvm_file_bytes"),
        agent_bytes=each("children_pss_bytes"),
        threads=each(*(f"{owner}_threads" for owner in ("jvm", "children"))),
        descriptors=each(*(f"{owner}_descriptors" for owner in ("jvm", "children"))),
    )


def agent_share(results: Results, subject: str, count: int) -> float | None:
    """CPU of the JVM's child processes over the time of batches without maintenance: 1 is a core."""
    step = results.step(*where(count)).get(subject, {})
    if "segments" not in step:
        return None
    segments = step["segments"]
    return float(segments["cpu_children_s"]["median"] * 1000 / step["batch"]["wall_ms"]["median"])


def _memory(results: Results, subject: str, count: int) -> Mapping[str, Any] | None:
    step = results.step(SCENARIO, name(count), MEMORY)
    found: Mapping[str, Any] | None = step.get(subject, {}).get("memory")
    return found


def row(results: Results, subject: str, count: int) -> tuple[str, ...] | None:
    """Return a row of the table: memory, handles, a batch, CPU a commit, the first batch after a loss."""
    step = results.step(*where(count)).get(subject, {})
    if "segments" not in step:
        return None
    taken, memory = floor(results, subject, count), _memory(results, subject, count)
    recovered = results.median(SCENARIO, name(count), RECOVER, subject, "recover", "end_ms")
    segments = step["segments"]
    bytes_of = (
        ()
        if taken is None
        else (
            taken.total_bytes,
            taken.heap_bytes,
            taken.native_bytes,
            taken.mapped_bytes,
            taken.agent_bytes,
        )
    )
    return (
        *(f"{value / _MB:.2f}" for value in bytes_of),
        *([""] * (5 - len(bytes_of))),
        *("" if memory is None else f"{_both(memory, one):.0f}" for one in _HANDLES),
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


def _both(memory: Mapping[str, Any], what: str) -> float:
    return float(memory[f"jvm_{what}"]["median"] + memory[f"children_{what}"]["median"])
