"""Rows on their way to new partitions: a file of sorted runs.

Rows are kept in memory up to a bound, and while they are read a chunk of each run. Then those of each
partition are sorted and written as a run; rows that arrive in order become one run however many they are.
Reading merges the runs of a partition as streams. The rows are pickled, and read by the process that wrote
them alone.
"""

from __future__ import annotations

import heapq
import itertools
import operator
import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

MEMORY_BYTES = 64 << 20
"""Bytes of rows in memory, over all partitions."""

_ROW_BYTES = 150
"""Bytes of memory that a row takes beside those of its key and its value."""

_CHUNK_ROWS = 1024
"""Rows that are read at a time of each run."""

_key = operator.itemgetter(0)


class SortedSpool:
    """The rows of several partitions: tuples, in each partition sorted by their first item, a key.

    Rows with the same key stay in the order in which they were added. `close` closes the file and removes
    nothing. One thread at a time.
    """

    def __init__(self, path: Path, partitions: Iterable[int], memory_bytes: int = MEMORY_BYTES) -> None:
        """Make the file.

        Args:
            path: a local file.
            partitions: the numbers of the partitions.
            memory_bytes: the bound of the rows in memory.
        """
        self._file = path.open("w+b")
        self._memory_bytes = memory_bytes
        self._used_bytes = 0
        self._waiting: dict[int, list[Any]] = {number: [] for number in partitions}
        self._runs: dict[int, list[list[int]]] = {number: [] for number in self._waiting}
        self._last: dict[int, bytes] = {}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, partition: int, rows: Sequence[Any], size_bytes: int) -> None:
        """Add rows, whose keys and values have this many bytes, to a partition."""
        self._waiting[partition] += rows
        self._used_bytes += size_bytes + _ROW_BYTES * len(rows)
        if self._used_bytes > self._memory_bytes:
            self._write_out()

    def merged(self, partition: int) -> Iterator[Any]:
        """Yield the rows of a partition in the order of their keys; nothing may be added meanwhile."""
        self._write_out()
        runs = [self._read(run) for run in self._runs[partition]]
        return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=_key)

    def runs(self, partition: int) -> int:
        """Return the number of sorted runs that a partition has in the file."""
        return len(self._runs[partition])

    def _write_out(self) -> None:
        """Write the rows in memory to the file, those of each partition as a run or the end of one."""
        if not self._used_bytes:
            return
        self._file.seek(0, 2)
        for partition, rows in self._waiting.items():
            if not rows:
                continue
            rows.sort(key=_key)
            runs = self._runs[partition]
            if not runs or _key(rows[0]) < self._last[partition]:
                runs.append([])
            for first in range(0, len(rows), _CHUNK_ROWS):
                runs[-1].append(self._file.tell())
                pickle.dump(rows[first : first + _CHUNK_ROWS], self._file)
            self._last[partition] = _key(rows[-1])
            self._waiting[partition] = []
        self._used_bytes = 0

    def _read(self, run: Sequence[int]) -> Iterator[Any]:
        for place in run:
            self._file.seek(place)
            yield from pickle.load(self._file)


def chunks(rows: Iterable[Any], count: int = _CHUNK_ROWS) -> Iterator[list[Any]]:
    """Yield rows as lists of at most `count`."""
    source = iter(rows)
    while chunk := list(itertools.islice(source, count)):
        yield chunk
