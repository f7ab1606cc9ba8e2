"""Breaks of the package `memory`: memory is used inside its bounds and before it is freed, and keys cannot
be made to collide.
"""

from __future__ import annotations

from mutants.data_plane.places import GUARD, HARD, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "tables go by a hash that everybody knows",
        f"{ROOT}/memory/KeyHash.scala",
        "  new SecureRandom().nextBytes(secret)\n",
        "  System.arraycopy(Xxh3.published, 0, secret, 0, secret.length)\n",
        HARD,
    ),
    Mutant(
        "records reach beyond their segment",
        f"{ROOT}/memory/Arena.scala",
        "if (end - next < size) grow(size)",
        "if (end - next < size - 8) grow(size)",
        HARD,
    ),
    Mutant(
        "freed memory is used again at once",
        f"{ROOT}/memory/OffHeap.scala",
        "if (checked) MemoryGuard.free(address) else Platform.freeMemory(address)",
        "Platform.freeMemory(address)",
        GUARD,
    ),
]
