"""The store-level scenarios as data: their cases and sizes at each of the three extents.

A scenario is a list of `Run`; a run is one driver JVM; a case is a set of providers that go through the same
steps in turns. `scala/driver/Case.scala` reads the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.environment import providers
from benchmarks.environment.providers import (
    CHANGELOG,
    HDFS,
    Variant,
    incremental,
    incremental_never_full,
    incremental_never_merged,
    peers,
)

Step = dict[str, Any]
Case = dict[str, Any]

BUDGET_MB = 256
AGES = (0, 10, 20, 50, 100, 200, 500, 1000, 1500, 2000)
RETAINED = 10


@dataclass(frozen=True)
class Run:
    """A run of a driver JVM. `touch_heap` is for runs that measure resident memory."""

    cases: Sequence[Case]
    heap_mb: int = 3072
    touch_heap: bool = False


@dataclass(frozen=True)
class Extent:
    """The extent of a run of each scenario: `quick`, `standard` or `full`.

    `largest` is the number of keys of a store that is larger than its memory. `cases` and `stores` name
    those to measure; if they are empty, all are.
    """

    name: str
    keys: int
    segments: int
    batches: int
    largest: int
    cases: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()

    @property
    def is_quick(self) -> bool:
        return self.name == "quick"

    @property
    def is_full(self) -> bool:
        return self.name == "full"

    def asked(self, cases: Iterable[Case]) -> list[Case]:
        """Return the measured cases with their measured stores."""
        some = [
            {**case, "subjects": [each for each in case["subjects"] if self.measures(each["name"])]}
            for case in cases
            if not self.cases or case["name"] in self.cases
        ]
        return [case for case in some if case["subjects"]]

    def measures(self, store: str) -> bool:
        return not self.stores or store in self.stores


EXTENTS = {
    "quick": Extent("quick", keys=20_000, segments=2, batches=2, largest=10_000),
    "standard": Extent("standard", keys=500_000, segments=2, batches=4, largest=2_000_000),
    "full": Extent("full", keys=500_000, segments=5, batches=10, largest=50_000_000),
}


def case(name: str, subjects: Iterable[Variant], steps: Sequence[Step], *, ours: bool, **shape: Any) -> Case:
    """Return a case as the driver reads it.

    Retention is the same for all. Without the jar of this store its variants are left out.
    """
    retain = {"spark.sql.streaming.minBatchesToRetain": str(RETAINED)}
    present = [variant for variant in subjects if ours or not variant.is_ours]
    described = [
        {
            "name": variant.name,
            "provider": variant.provider,
            "conf": {**retain, **variant.conf},
            "title": variant.title,
        }
        for variant in present
    ]
    return {"name": name, "subjects": described, "steps": list(steps), **shape}


def load(keys: int) -> Step:
    return {"do": "load", "label": f"load {short(keys)}", "to": keys}


def batches(extent: Extent, pattern: str, size: int, **changes: Any) -> Step:
    """Return segments of batches; the first warms up, except in the quick extent.

    Small batches come in larger numbers.
    """
    many = extent.batches if size > 5_000 or extent.is_quick else extent.batches * 3
    step = {
        "do": "batches",
        "label": f"{pattern} {short(size)}",
        "pattern": pattern,
        "size": size,
        "warmup_segments": 0 if extent.is_quick else 1,
        "segments": extent.segments,
        "batches": many if size < 100_000 else max(2, extent.batches // 3),
        "maintenance_every": 10 if size <= 5_000 else 4,
    }
    return {**step, **changes}


def short(count: int) -> str:
    """Return 20000 as 20k, 5000000 as 5M."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit and count % (unit // 10) == 0:
            return f"{count / unit:g}{name}"
    return str(count)


def store(extent: Extent, ours: bool) -> list[Run]:
    """Return cases that vary one thing each.

    They vary the number of keys, the size of values and batches, the pattern of access and the number of
    stores.
    """
    quick = extent.is_quick
    base = extent.keys
    size = 2_000 if quick else 20_000
    best = incremental(BUDGET_MB)
    subjects = [*compared(extent), best]
    two = [*closest(extent), best]

    def simple(name: str, keys: int, steps: Sequence[Step] = (), **shape: Any) -> Case:
        some = steps or [batches(extent, "uniform", min(size, keys // 10))]
        subjects_of_case = subjects if name == "base" or extent.is_full else two
        return case(name, subjects_of_case, [load(keys), *some, {"do": "verify"}], ours=ours, **shape)

    patterns = [batches(extent, "uniform", size)]
    for other in (100,) if quick else (100, 1_000, 100_000):
        patterns.append(batches(extent, "uniform", other))
    patterns += [batches(extent, pattern, size) for pattern in ("zipf", "read-only", "append", "sliding")]
    cases = [simple("base", base, patterns)]
    scan = {"do": "scan", "label": "scan", "repetitions": 3 if quick else 5}
    dirty = {**scan, "label": "scan with uncommitted rows", "uncommitted": size}
    rows = 20_000 if quick else 1_000_000
    cases.append(simple("scan", rows, [batches(extent, "uniform", size), scan, dirty]))
    many = 5 if quick else 25  # the first of them run interpreted code
    groups = {
        "do": "prefix",
        "label": "prefix scan",
        "scans": 2_000 if quick else 20_000,
        "repetitions": many,
    }
    cases.append(simple("prefix", base, [batches(extent, "uniform", size), groups], layout="prefix"))
    ordered = [variant for variant in two if variant.name != HDFS.name]  # that store has no order
    first = {"do": "first", "label": "first 1k", "rows": 1_000, "repetitions": many}
    steps = [load(base), batches(extent, "sliding", size), first, {"do": "verify"}]
    cases.append(case("range", ordered, steps, ours=ours, layout="range"))
    shared = [*closest(extent, 8), best]
    steps = [load(base), batches(extent, "uniform", size), {"do": "verify"}]
    cases.append(case("8 stores", shared, steps, ours=ours, stores=8))
    cases += [
        simple(f"values of {size_} bytes", base // 5, value_bytes=size_)
        for size_ in ((1000,) if quick else (20, 1000))
    ]
    sizes = () if quick else (10_000, 100_000) if not extent.is_full else (10_000, 100_000, 2_000_000)
    cases += [simple(f"{short(keys)} keys", keys) for keys in sizes]
    if extent.is_quick:
        return [Run(cases)]
    return [Run([each]) for each in cases] if extent.is_full else [Run(cases[:3]), Run(cases[3:])]


def compared(extent: Extent, stores: int = 1) -> list[Variant]:
    """Return Spark's providers; the quick extent leaves out those that resemble another."""
    return [HDFS, CHANGELOG] if extent.is_quick else peers(BUDGET_MB, stores)


def closest(extent: Extent, stores: int = 1) -> list[Variant]:
    """Return Spark's default provider, and RocksDB at its quickest; the full extent has all."""
    variants = compared(extent, stores)
    return variants if extent.is_full else [HDFS, variants[-1]]


def history(extent: Extent) -> list[Variant]:
    """Return Spark's providers for long runs; only the full extent has RocksDB without changelogs."""
    return [HDFS, providers.ROCKSDB, CHANGELOG] if extent.is_full else [HDFS, CHANGELOG]


def growth(extent: Extent, ours: bool) -> list[Run]:
    """Return cases of a growing state, and of the largest size with four times the memory.

    The latter has a JVM of its own, because the memory budget is that of an executor.
    """
    points = {
        "quick": (10_000, 40_000),
        "standard": (100_000, 1_000_000, 5_000_000),
        "full": (100_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000),
    }[extent.name]
    size = 2_000 if extent.is_quick else 20_000

    def step(label: str, size: int) -> Step:
        many = 2 if extent.is_quick else 3
        return batches(extent, "uniform", size, label=label, segments=2, batches=many, maintenance_every=many)

    def grown(name: str, peers: Sequence[Variant], budget_mb: int, upto: Iterable[int]) -> Case:
        best = incremental(budget_mb) if budget_mb == BUDGET_MB else incremental(budget_mb, "incremental-1g")
        subjects = [*peers, providers.changelog_with_cache(budget_mb, 1), best]
        steps: list[Step] = []
        for keys in upto:
            steps += [load(keys), step(f"{short(keys)} keys", size)]
        if not extent.is_quick:
            steps.append(step(f"{short(keys)} keys, 50k", 50_000))
        return case(name, subjects, [*steps, {"do": "storage"}, {"do": "verify"}], ours=ours)

    # A heap of 4 GB does not hold more than 5 million keys in the HDFS-backed store.
    usual = [keys for keys in points if keys <= 5_000_000]
    runs = [Run([grown("growth", [HDFS], BUDGET_MB, usual)], heap_mb=4096)]
    if not extent.is_quick:
        runs.append(Run([grown("growth, 1 GB", [HDFS], 4 * BUDGET_MB, usual[-1:])], heap_mb=4096))
    if extent.is_full:
        beyond = [keys for keys in points if keys > 5_000_000]
        runs.append(Run([grown("growth beyond", [], BUDGET_MB, beyond)]))
    return runs


def age(extent: Extent, ours: bool) -> list[Run]:
    """Return cases of a batch and of a restore as batches pass over a state of constant size."""
    quick = extent.is_quick
    keys, size = (5_000, 200) if quick else (100_000, 1_000)
    ages = (0, 10, 40) if quick else AGES
    steps: list[Step] = [load(keys)]
    for before, until in zip((0, *ages), ages, strict=False):
        remaining = until - before
        if remaining:
            each = min(50, remaining)
            step = batches(extent, "uniform", size, label=f"batches to {until}", warmup_segments=0)
            steps.append({**step, "segments": remaining // each, "batches": each})
        steps += [
            {
                "do": "restore",
                "label": f"restore at {until}",
                "local": "absent",
                "repetitions": 3 if extent.is_full else 1 if quick else 2,
            },
            {"do": "storage", "label": f"storage at {until}"},
        ]
    subjects = [
        *history(extent),
        incremental(BUDGET_MB, "incremental-full", fullAfterDeltas="15" if quick else "200"),
        incremental_never_full(BUDGET_MB),
    ]
    return [Run([case("age", subjects, steps, ours=ours)])]


def restore(extent: Extent, ours: bool) -> list[Run]:
    """Return cases that time the first row on a new and on the same machine.

    They vary the number of changes since the last maintenance.
    """
    quick = extent.is_quick
    keys, size = (5_000, 200) if quick else (extent.keys, 1_000)
    steps: list[Step] = [
        load(keys),
        batches(extent, "uniform", size, batches=10, segments=1, label="snapshot"),
    ]
    done = 0
    for deltas in (0, 10) if quick else (0, 10, 100, 1_000):
        if deltas:
            remaining = deltas - done
            step = batches(extent, "uniform", size, label=f"deltas to {deltas}", warmup_segments=0)
            steps.append(
                {
                    **step,
                    "segments": max(1, remaining // 50),
                    "batches": min(50, remaining),
                    "maintenance_every": 0,
                }
            )
        done = deltas
        for local in ("absent", "present"):
            label = f"{deltas} deltas, local files {local}"
            steps.append({"do": "restore", "label": label, "local": local, "repetitions": 2 if quick else 5})
    subjects = [
        HDFS,
        providers.ROCKSDB,
        CHANGELOG,
        incremental(BUDGET_MB),
        incremental_never_merged(BUDGET_MB),
    ]
    return [Run([case("restore", subjects, steps, ours=ours)])]


def recovery(extent: Extent, ours: bool) -> list[Run]:
    """Return cases in which a query goes on elsewhere, by size.

    They time the first row and the end of the first batch, on the local disk and on storage with slow
    requests: of a young state (one large change and a few small ones), and of a state merged from many
    changes.
    """
    quick = extent.is_quick
    sizes = (1_000, 10_000) if quick else (500_000, 5_000_000)
    size, small = (500, 50) if quick else (20_000, 100)

    def steps(
        some: Sequence[int], where: Sequence[str], after: Sequence[int], repetitions: int, **loaded: int
    ) -> list[Step]:
        result: list[Step] = []
        for keys in some:
            result += [
                {**load(keys), **loaded},
                batches(extent, "uniform", size, batches=3, segments=1, label=f"batches at {short(keys)}"),
            ]
            for local in where:
                label = f"{short(keys)} keys, local files {local}"
                fewer = max(1, repetitions // 2) if keys == sizes[-1] else repetitions
                often = repetitions if local == "present" else fewer  # a goal compares the sizes
                result.append({"do": "restore", "label": label, "local": local, "repetitions": often})
                for many in after:
                    first = {"label": f"{label}, batch of {short(many)}", "size": many}
                    result.append({"do": "recover", **first, "local": local, "repetitions": fewer})
        return result

    subjects = [*history(extent), incremental(BUDGET_MB)]
    near = steps(sizes, ("absent",) if quick else ("absent", "present"), (size,), 1 if quick else 5)
    runs = [Run([case("recovery", subjects, near, ours=ours)], heap_mb=4096)]
    lazy = incremental(BUDGET_MB, "incremental-lazy", restoreMode="lazy")
    some, repetitions = sizes[:1] if quick else sizes, 1 if quick else 3
    remote = steps(some, ("absent",), (small, size), repetitions)
    runs.append(Run([case(REMOTE_CASES[0], [*subjects, lazy], remote, ours=ours, **FAR)], heap_mb=4096))
    if not quick:
        remote = steps(some, ("absent",), (small, size), repetitions, chunk_bytes=8 << 20)
        merged = [CHANGELOG, incremental(BUDGET_MB), lazy]
        runs.append(Run([case(REMOTE_CASES[1], merged, remote, ours=ours, **FAR)], heap_mb=4096))
    return runs


REMOTE_CASES = ("recovery, far storage", "recovery, far storage, merged")

FAR = {
    "scheme": "delayed",
    "hadoop_conf": {
        "fs.delayed.impl": "statestore.benchmark.DelayedFileSystem",
        "fs.delayed.request.ms": "20",
        "fs.delayed.stream.bytes": str(100 << 20),
    },
}
"""Remote storage of a case: `scala/driver/DelayedFileSystem.scala`."""


def storage(extent: Extent, ours: bool) -> list[Run]:
    """Return cases of bytes written to checkpoint storage, and held there, over long runs of batches."""
    quick = extent.is_quick
    subjects = [*history(extent), incremental(BUDGET_MB)]
    sizes = (1_000, 100) if quick else (20_000, 1_000)
    rounds = 1 if quick else 10
    cases = []
    for size in sizes:
        step = batches(extent, "uniform", size, segments=rounds, batches=10, warmup_segments=rounds)
        steps = [load(extent.keys), {**step, "maintenance_every": 5 if quick else 10}, {"do": "storage"}]
        restore_step = {
            "do": "restore",
            "label": "restore",
            "local": "absent",
            "repetitions": 1 if quick else 3,
        }
        cases.append(case(f"batches of {short(size)}", subjects, [*steps, restore_step], ours=ours))
    return [Run(cases)]


def memory(extent: Extent, ours: bool) -> list[Run]:
    """Return cases of heap, native and resident memory, a provider a JVM.

    The whole heap is touched before, so that growth is native.
    """
    quick = extent.is_quick
    sizes = (20_000,) if quick else (500_000, 2_000_000)
    largest = 50_000 if quick else 10_000_000
    runs = []
    measured = peers(BUDGET_MB) if extent.is_full else [HDFS, CHANGELOG]
    for variant in [*measured, incremental(BUDGET_MB)]:
        if variant.is_ours and not ours:
            continue
        steps: list[Step] = [{"do": "memory", "label": "empty"}]
        goes_on = variant.is_ours or (extent.is_full and variant.name != HDFS.name)
        reach = [*sizes, *([largest] if goes_on else [])]
        for keys in reach:
            step = batches(
                extent,
                "uniform",
                keys // 25 if quick else 20_000,
                segments=1,
                label=f"batches at {short(keys)}",
            )
            steps += [load(keys), step, {"do": "memory", "label": f"{short(keys)} keys"}]
        runs.append(
            Run(
                [case("memory", [variant], steps, ours=ours)],
                heap_mb=1024 if quick else 2048,
                touch_heap=True,
            )
        )
    return runs


def hdfs(extent: Extent, ours: bool) -> list[Run]:
    """Return the scenarios `store` and `restore` in small, with checkpoints on a real HDFS.

    The caller adds its URI and jar.
    """
    quick = extent.is_quick
    keys, size = (2_000, 200) if quick else (100_000, 5_000)
    # Restores of the HDFS-backed store take from 66 to 440 ms in one run.
    restore = {"do": "restore", "repetitions": 3 if quick else 9}
    subjects = [*closest(extent), incremental(BUDGET_MB)]
    steps = [
        load(keys),
        batches(extent, "uniform", size, maintenance_every=4),
        {"do": "storage"},
        {**restore, "label": "restore, local files absent", "local": "absent"},
        {**restore, "label": "restore, local files present", "local": "present"},
    ]
    return [Run([case("hdfs", subjects, steps, ours=ours)])]
