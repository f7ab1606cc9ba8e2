"""The sorted runs of a snapshot and their compaction: RocksDB's universal compaction, on sizes.

Runs are in RocksDB's order: newest first, each file of level 0 by itself, then the deeper levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from state_store.core.checkpoint.stored_documents import FileEntry
from state_store.core.compat import pairwise
from state_store.core.engine.database import SIZE_RATIO_PERCENT, DatabaseSettings

DEEPEST = 6
_LEFT_OUT_PERCENT = 10
"""Share of the younger runs that a compaction of all may leave out."""

_UNCOUNTED_BYTES = 6_500
"""Bytes of a file that RocksDB does not count before it ends the file."""


@dataclass(frozen=True)
class Run:
    """A sorted run that covers the changes of this many batches; the oldest also has every key."""

    batches: int
    level: int
    files: tuple[FileEntry, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.size_bytes for file in self.files)


Merge = Callable[[Sequence[Run], int, bool], Run]
"""Function that merges neighbouring runs into one, in a level; its last argument is True if the oldest run is
among them."""


def ingested(runs: Sequence[Run], files: Sequence[FileEntry]) -> list[Run]:
    """Return the runs after an ingestion of files, oldest file first.

    Each file goes to the deepest empty level above all runs, or to level 0.
    """
    result = list(runs)
    for file in files:
        level = max(0, result[0].level - 1) if result else DEEPEST
        result.insert(0, Run(1, level, (replace(file, level=level),)))
    return result


def compact_runs(runs: Sequence[Run], settings: DatabaseSettings, merge: Merge) -> list[Run]:
    """Return the runs after `Database.compact_runs`."""
    result = list(runs)
    while len(result) >= settings.max_runs:
        picked = _outgrown(result, settings) or _similar(result) or _surplus(result, settings)
        if picked is None:
            break
        start, end = picked
        oldest = end == len(result)
        level = DEEPEST if oldest else max(0, result[end].level - 1)
        result[start:end] = [merge(result[start:end], level, oldest)]
    return result


def compact_all(runs: Sequence[Run], merge: Merge) -> list[Run]:
    """Return the runs after `Database.compact_all`."""
    return [merge(runs, DEEPEST, True)]


def file_sizes(size_bytes: float, level: int, settings: DatabaseSettings, file_bytes: float) -> list[int]:
    """Return the sizes of the files in which RocksDB writes a run of `size_bytes`.

    Each thread of a compaction writes its own files, which have `file_bytes` each without records.
    """
    if level == 0 or size_bytes <= settings.file_bytes:
        return [round(size_bytes)]
    count = math.ceil(size_bytes / (settings.file_bytes + _UNCOUNTED_BYTES)) + settings.threads - 1
    return [round((size_bytes + (count - 1) * file_bytes) / count)] * count


def _outgrown(runs: Sequence[Run], settings: DatabaseSettings) -> tuple[int, int] | None:
    """Pick all runs if the younger have grown to their share of the oldest.

    The newest of level 0, except for one, are left out if they are small and the others suffice: RocksDB
    leaves them for later.
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
    """Pick the first neighbours each of which is not much larger than all before it together."""
    for start in range(len(runs) - 1):
        end, together = start + 1, runs[start].size_bytes
        while end < len(runs) and together * (100 + SIZE_RATIO_PERCENT) >= runs[end].size_bytes * 100:
            together += runs[end].size_bytes
            end += 1
        if end - start > 1:
            return start, end
    return None


def _surplus(runs: Sequence[Run], settings: DatabaseSettings) -> tuple[int, int] | None:
    """Pick the youngest, so that `max_runs` remain."""
    surplus = len(runs) - settings.max_runs
    return (0, surplus + 1) if surplus > 0 else None
