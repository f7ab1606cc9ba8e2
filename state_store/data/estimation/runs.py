"""The sorted runs of a snapshot, and what merges make of them: RocksDB's universal compaction, on sizes.

Runs are in the order of RocksDB: newest first, each file of level 0 by itself, then the deeper levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from state_store.core.checkpoint.manifest import FileEntry
from state_store.core.compat import pairwise
from state_store.core.engine.settings import SIZE_RATIO_PERCENT, DatabaseSettings

DEEPEST = 6
_LEFT_OUT_PERCENT = 10
"""Of the younger runs, that may be left out of a compaction of all."""

_UNCOUNTED_BYTES = 6_500
"""Of a file, that RocksDB does not see before it ends it."""


@dataclass(frozen=True)
class Run:
    """A sorted run that covers the changes of this many batches; the oldest holds every key as well."""

    batches: int
    level: int
    files: tuple[FileEntry, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


Merge = Callable[[Sequence[Run], int, bool], Run]
"""Makes one run of neighbours in a level; True says that the oldest is among them."""


def ingested(runs: Sequence[Run], files: Sequence[FileEntry]) -> list[Run]:
    """The runs after files were ingested, oldest first: each goes to the deepest level above all that has
    none, or to level 0.
    """
    left = list(runs)
    for file in files:
        level = max(0, left[0].level - 1) if left else DEEPEST
        left.insert(0, Run(1, level, (replace(file, level=level),)))
    return left


def compact_runs(runs: Sequence[Run], settings: DatabaseSettings, merge: Merge) -> list[Run]:
    """What `Database.compact_runs` makes of them."""
    left = list(runs)
    while len(left) >= settings.max_runs:
        picked = _outgrown(left, settings) or _similar(left) or _surplus(left, settings)
        if picked is None:
            break
        start, end = picked
        oldest = end == len(left)
        level = DEEPEST if oldest else max(0, left[end].level - 1)
        left[start:end] = [merge(left[start:end], level, oldest)]
    return left


def compact_all(runs: Sequence[Run], merge: Merge) -> list[Run]:
    """What `Database.compact_all` makes of them."""
    return [merge(runs, DEEPEST, True)]


def file_sizes(size_bytes: float, level: int, settings: DatabaseSettings, file_bytes: float) -> list[int]:
    """Into files of which sizes RocksDB writes a run of that size, of which `file_bytes` are a file's own.
    Each thread of a compaction writes files of its own.
    """
    if level == 0 or size_bytes <= settings.file_bytes:
        return [round(size_bytes)]
    count = math.ceil(size_bytes / (settings.file_bytes + _UNCOUNTED_BYTES)) + settings.threads - 1
    return [round((size_bytes + (count - 1) * file_bytes) / count)] * count


def _outgrown(runs: Sequence[Run], settings: DatabaseSettings) -> tuple[int, int] | None:
    """All of them, where the younger have grown to their share of the oldest; but the newest of level 0, of
    which one stays, where they are few bytes and the others are enough: RocksDB leaves them for later.
    """
    least = settings.size_amplification_percent * runs[-1].size_bytes / 100
    young = sum(run.size_bytes for run in runs[:-1])
    if young < least:
        return None
    left_out, start = 0, 0
    for run, older in pairwise(runs):
        left_out += run.size_bytes
        if older.level or left_out * 100 > young * _LEFT_OUT_PERCENT or young - left_out < least:
            break
        start += 1
    return start, len(runs)


def _similar(runs: Sequence[Run]) -> tuple[int, int] | None:
    """The first neighbours of which each is not much larger than those before it together."""
    for start in range(len(runs) - 1):
        end, together = start + 1, runs[start].size_bytes
        while end < len(runs) and together * (100 + SIZE_RATIO_PERCENT) >= runs[end].size_bytes * 100:
            together += runs[end].size_bytes
            end += 1
        if end - start > 1:
            return start, end
    return None


def _surplus(runs: Sequence[Run], settings: DatabaseSettings) -> tuple[int, int] | None:
    """The youngest, so that no more than `max_runs` are left."""
    more = len(runs) - settings.max_runs
    return (0, more + 1) if more > 0 else None
