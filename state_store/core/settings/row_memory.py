"""Division of the memory budget between rows and the processes that serve them."""

from __future__ import annotations

PROCESS_BYTES, PROCESS_SHARE = 64 << 20, 0.25
"""Part of the memory budget that is not for rows, in bytes and as a share. The agent's process takes 20 to
55 MiB, most while it merges; the JVM takes about 10 MiB for compiled code and for the C library.
"""


def row_memory_bytes(budget_bytes: int) -> int:
    """Return the part of a memory budget that is for rows and their indexes."""
    return budget_bytes - min(PROCESS_BYTES, int(budget_bytes * PROCESS_SHARE))
