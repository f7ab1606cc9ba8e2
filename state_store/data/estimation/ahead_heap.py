"""Heap of an executor's JVM for rows that are read ahead while parts of a state are not local."""

from __future__ import annotations

from collections.abc import Sequence

from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.settings.options import Options
from state_store.data.estimation.simulation import Sample

INPUT_BYTES = 8 << 20
"""Bytes of an operator's input whose keys are announced at a time."""

BLOCK_BYTES = 16 << 20
"""Bytes of blocks that come into memory at a time."""

ROW_BYTES = 32 << 20
"""Bytes of rows above which no more are read ahead."""


def look_ahead_bytes(options: Options, cost: CostModel, samples: Sequence[Sample]) -> int:
    """Return the bytes of heap for look-ahead in each task; 0 if no restore leaves parts in storage."""
    is_sparse = options.snapshot_compression == "none" and (
        options.page_cache_limit_bytes > 0
        or any(
            cost.is_lazy(RestoreWork(sample.chain_files, sample.chain_bytes, deltas=0)) for sample in samples
        )
    )
    return INPUT_BYTES + BLOCK_BYTES + ROW_BYTES if options.look_ahead and is_sparse else 0
