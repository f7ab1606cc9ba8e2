"""A store many times as large as its memory: a batch, reads of a look-up, written bytes.

The memory is a gigabyte for 50 million keys, and proportionally less for fewer. The whole is compared with a
tenth of the keys, which about fits into memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.environment import providers
from benchmarks.results import OURS, Results
from benchmarks.scenarios.store_level import Extent, Run, Step, batches, case, load, short

SCENARIO = "size"
BUDGET = "a sixth of their bytes"
BYTES_A_KEY = (1 << 30) / 50_000_000
_LEAST_BUDGET_MB = 16


def budget_mb(keys: int) -> int:
    """Memory of a store of this many keys."""
    return max(_LEAST_BUDGET_MB, round(keys * BYTES_A_KEY / (1 << 20)))


def size(extent: Extent, ours: bool) -> list[Run]:
    """Batches, and then many of them, on `extent.largest` keys and before on a tenth of them."""
    most = extent.largest
    quick, budget = extent.is_quick, budget_mb(most)
    subjects = [providers.changelog_with_cache(budget, 1), providers.incremental(budget)]
    steps: list[Step] = []
    for keys in (most // 10, most):
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
    """The steps of batches in order: the smaller size, the larger one, many batches on that."""
    steps = results.scenarios.get(SCENARIO, {}).get("specs", {}).get(SCENARIO, {}).get("steps", [])
    return [step["label"] for step in steps if step["do"] == "batches"]


@dataclass(frozen=True)
class Amplification:
    """Work per row and per byte, over the batches of a step.

    For a look-up that memory does not answer: the files whose filters it asked, and the blocks that it
    read. For a byte of change: the bytes that appeared in checkpoint storage. For a live byte: the bytes
    held at the end.
    """

    misses_share: float
    filters: float
    blocks: float
    written: float
    held: float


def amplification(results: Results, step: str) -> Amplification | None:
    """Return the figures of this store, or None if the step was not measured."""
    own = results.step(SCENARIO, SCENARIO, step).get(OURS, {})
    if "segments" not in own:
        return None
    custom, segments = own["segments"]["custom"], own["segments"]
    hits, misses = custom["incrementalIndexHits"], custom["incrementalIndexMisses"]
    rows = own["batch"]["operations"]["median"] * segments["batches"]
    changed = rows * results.row_bytes(SCENARIO, SCENARIO)
    held = results.step(SCENARIO, SCENARIO, f"{step}, storage").get(OURS, {}).get("storage")
    return Amplification(
        misses_share=misses / max(1, hits + misses),
        filters=custom["incrementalBaseFilters"] / max(1, misses),
        blocks=custom["incrementalBaseBlocks"] / max(1, misses),
        written=segments["total"]["written_bytes"] / changed,
        held=held["bytes"]["median"] / held["live_bytes"]["median"] if held else 0.0,
    )


def growth(results: Results) -> float | None:
    """Return how many times as long a batch takes on all keys as on a tenth of them."""
    found = labels(results)
    if len(found) < 2:
        return None
    compared = (found[0], found[-1])
    few, many = (results.median(SCENARIO, SCENARIO, one, OURS, "batch", "wall_ms") for one in compared)
    return many / few if few and many else None
