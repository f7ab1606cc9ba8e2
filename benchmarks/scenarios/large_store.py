"""A store many times as large as its memory: a batch, reads of a look-up, written bytes.

The memory is a gigabyte for 50 million keys, and proportionally less for fewer. The store is compared with
one of a tenth of the keys, which about fits into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.environment import providers
from benchmarks.results import OURS, Results
from benchmarks.scenarios.store_level import Extent, Run, Step, batches, case, load, short

SCENARIO = "size"
BYTES_A_KEY = (1 << 30) / 50_000_000
_MIN_BUDGET_MB = 16


def budget_mb(keys: int) -> int:
    """Return the memory of a store of this many keys, in MB."""
    return max(_MIN_BUDGET_MB, round(keys * BYTES_A_KEY / (1 << 20)))


def size(extent: Extent, ours: bool) -> list[Run]:
    """Return runs of a few batches, and then many, on `extent.largest` keys and on a tenth of them."""
    largest = extent.largest
    quick, budget = extent.is_quick, budget_mb(largest)
    subjects = [providers.changelog_with_cache(budget, 1), providers.incremental(budget)]
    steps: list[Step] = []
    for keys in (largest // 10, largest):
        steps += [
            {**load(keys), "chunk_bytes": 128 << 20},
            settle(extent, keys),
            batches(
                extent,
                "uniform",
                batch_size(extent),
                label=label(keys),
                segments=1 if quick else 2,
                batches=1 if quick else 4,
                maintenance_every=1 if quick else 4,
            ),
            {"do": "storage", "label": stored(keys)},
        ]
    rounds = 50 if extent.is_full else 1
    later = batches(extent, "uniform", batch_size(extent), label=AFTER, warmup_segments=0, segments=rounds)
    steps += [
        {**later, "batches": 2 if quick else 10, "maintenance_every": 2 if quick else 10},
        {"do": "storage", "label": f"{AFTER}, storage"},
        {"do": "recover", "label": RECOVER, "local": "absent", "size": batch_size(extent), "repetitions": 1},
    ]
    return [Run([case(SCENARIO, subjects, steps, ours=ours)])]


def settle(extent: Extent, keys: int) -> Step:
    """Run batches until the merges that the load left are done: three quiet batches in succession."""
    return {
        "do": "settle",
        "label": f"{label(keys)}, settling",
        "size": batch_size(extent),
        "calm": 1 if extent.is_quick else 3,
        "share": 20,
        "rounds": 2 if extent.is_quick else 30,
    }


AFTER = "many batches"
RECOVER = "first batch elsewhere"


def batch_size(extent: Extent) -> int:
    return 500 if extent.is_quick else 20_000


def label(keys: int) -> str:
    return f"{short(keys)} keys"


def stored(keys: int) -> str:
    return f"{label(keys)}, storage"


def labels(results: Results) -> list[str]:
    """Return the steps of batches in order: the smaller size, the larger size, many batches on that."""
    steps = results.scenarios.get(SCENARIO, {}).get("specs", {}).get(SCENARIO, {}).get("steps", [])
    return [step["label"] for step in steps if step["do"] == "batches"]


def amplifications(results: Results) -> Iterator[dict[str, Any]]:
    """Yield the work per row and per byte of this store, over the batches of each step that was measured.

    For a look-up that memory does not answer: the filters that it checks and the blocks that it reads. For a
    byte of change: the bytes written to checkpoint storage. For a live byte: the bytes held at the end.
    """
    for step in labels(results):
        own = results.step(SCENARIO, SCENARIO, step).get(OURS, {})
        if "segments" in own:
            custom = own["segments"]["custom"]
            hits, misses = custom["incrementalIndexHits"], custom["incrementalIndexMisses"]
            held = results.step(SCENARIO, SCENARIO, f"{step}, storage").get(OURS, {}).get("storage")
            yield {
                "label": step,
                "misses_share": misses / max(1, hits + misses),
                "filters": custom["incrementalBaseFilters"] / max(1, misses),
                "blocks": custom["incrementalBaseBlocks"] / max(1, misses),
                "written": results.written(SCENARIO, SCENARIO, step, OURS),
                "held": held["bytes"]["median"] / held["live_bytes"]["median"] if held else 0.0,
            }


def growth(results: Results) -> float | None:
    """Return the time of a batch on all keys as a multiple of that on a tenth of them."""
    measured_labels = labels(results)
    if len(measured_labels) < 2:
        return None
    compared = (measured_labels[0], measured_labels[-1])
    smaller, larger = (
        results.median(SCENARIO, SCENARIO, step, OURS, "batch", "wall_ms") for step in compared
    )
    return larger / smaller if smaller and larger else None
