"""How much memory the rows take that a share of the look-ups finds there (docs/options.md, memoryBudget)."""

from __future__ import annotations

from state_store.core.settings.options import PROCESS_BYTES, PROCESS_SHARE
from state_store.data.estimation.tables import FAMILY_BYTES
from state_store.data.estimation.workload import Workload

_HEADER_BYTES, _ALIGNMENT_BYTES, _SLOT_BYTES = 16, 8, 8
_FULLEST = 0.85
"""Above this share of current rows the oldest are dropped rather than copied together."""

_BATCHES_OF_ROOM = 1.5
LEAST_BYTES = 16 << 20


def memory_for(workload: Workload, hit_ratio: float, stores: float) -> int:
    """The `memoryBudget` in bytes with which that share of the look-ups of keys that are there finds its row
    in memory, on an executor that has this many stores; at most what all rows take.
    """
    touches = workload.touches_per_partition()
    keys = workload.keys_per_partition
    rows = keys if hit_ratio >= 1 else min(keys, touches.distinct(touches.batches_for(hit_ratio)))
    row = _HEADER_BYTES + FAMILY_BYTES + workload.key_bytes + workload.value_bytes
    row += -row % _ALIGNMENT_BYTES
    room = _BATCHES_OF_ROOM * touches.distinct(1) * row
    used = stores * (rows * row / _FULLEST + room + _slots(rows) * _SLOT_BYTES)
    processes = min(PROCESS_BYTES, used * PROCESS_SHARE / (1 - PROCESS_SHARE))
    return max(LEAST_BYTES, round(used + processes))


def _slots(rows: float) -> int:
    """Of the index, which grows by doubling."""
    return 1 << int(rows * 8 / 5).bit_length()
