"""The rows of a partition as the groups that PySpark's own worker makes of them.

Neighbouring rows with equal keys are a group, across the borders of batches. A group's rows are read as the
processor asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from state_store.functions.processors.batches import Batch


class Groups:
    """An iteration over the groups of a partition, run by run.

    For each item of `runs`, go through `groups` to its end, and each group's rows before the next group.
    """

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._batch: Batch | None = None
        self._first = 0
        self._advance()

    def _advance(self) -> None:
        self._batch, self._first = next(self._batches, None), 0

    def runs(self, limit: Any) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the keys of each run, of at most `limit()` groups; see `groups`."""
        while self._batch is not None:
            keys, count = self._batch.keys, len(self._batch.keys)
            if self._first == count:
                self._advance()
                continue
            self._stop = min(self._first + limit(), count)
            yield keys[self._first : self._stop]

    def groups(self) -> Iterator[tuple[tuple[Any, ...], Iterator[Any]]]:
        """Yield key and rows of each group of the run whose keys `runs` yielded last."""
        batch, start, stop = self._batch, self._first, self._stop
        assert batch is not None
        for number in range(start, stop):
            self._first = number + 1
            last = number + 1 == len(batch.keys)
            rows = batch.chunks(self._pieces(batch, number)) if last else batch.group(number)
            yield batch.keys[number], rows
            for _ in rows:  # what the processor did not read
                pass

    def _pieces(self, batch: Batch, number: int) -> Iterator[tuple[Batch, int]]:
        """Yield the last group of `batch`, and the groups of the next batches that continue it."""
        key = batch.keys[number]
        yield batch, number
        while True:
            self._advance()
            batch_after = self._batch
            if batch_after is None or batch_after.keys[0] != key:
                return
            self._first = 1
            yield batch_after, 0
            if len(batch_after.keys) > 1:
                return
