"""Statistics of the last deltas of some partitions: records, their sizes, and keys that recur."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from state_store.core.checkpoint.names import DeltaName
from state_store.core.checkpoint.stored_documents import DeltaMetadata
from state_store.core.compat import pairwise
from state_store.core.engine.table import read_metadata, read_records
from state_store.data.dataset.reading.pinned import PinnedVersion
from state_store.data.estimation.touches import Touches, observed
from state_store.data.estimation.workload import FAMILY_BYTES, TableSize, table_size

MOST_DELTAS = 32
MOST_BYTES = 32 << 20
"""Bound of the deltas that are read of one partition, in bytes."""


@dataclass(frozen=True)
class DeltaRecords:
    """The records of one delta.

    Attributes:
        metadata: the delta's metadata.
        size_bytes: the size of its file.
        written: hashes of the keys that it puts.
        key_bytes: bytes of these keys.
        value_bytes: bytes of their values.
        removals: the number of keys that it removes.
    """

    metadata: DeltaMetadata
    size_bytes: int
    written: frozenset[int]
    key_bytes: int
    value_bytes: int
    removals: int


@dataclass(frozen=True)
class DeltaSample:
    """Consecutive deltas of some partitions, the same number of each, oldest first."""

    partitions: tuple[tuple[DeltaRecords, ...], ...]

    @classmethod
    def of(cls, partitions: Sequence[Sequence[DeltaRecords]]) -> DeltaSample:
        """Return a sample with the same number of last deltas of each partition, which has one at least."""
        batches = min(len(deltas) for deltas in partitions)
        return cls(tuple(tuple(deltas[-batches:]) for deltas in partitions))

    @property
    def batches(self) -> int:
        """The number of deltas of each partition."""
        return len(self.partitions[0])

    @property
    def keys(self) -> int:
        """Keys of these partitions after the last batch."""
        return sum(deltas[-1].metadata.keys for deltas in self.partitions)

    @property
    def puts(self) -> float:
        """Keys that a batch puts in these partitions."""
        return sum(len(delta.written) for delta in self._all) / self.batches

    @property
    def removals(self) -> float:
        """Keys that a batch removes from these partitions."""
        return sum(delta.removals for delta in self._all) / self.batches

    @property
    def new(self) -> float:
        """Keys that a batch puts in these partitions and that were not there before."""
        new_keys = sum(
            after.metadata.keys - before.metadata.keys + after.metadata.removes
            for deltas in self.partitions
            for before, after in pairwise(deltas)
        )
        return min(self.puts, max(0.0, new_keys / (self.batches - 1))) if self.batches > 1 else 0.0

    @property
    def key_bytes(self) -> float:
        """Average bytes of a put key, without its column family."""
        return sum(delta.key_bytes for delta in self._all) / max(1, self._records)

    @property
    def value_bytes(self) -> float:
        """Average bytes of a value."""
        return sum(delta.value_bytes for delta in self._all) / max(1, self._records)

    def table(self) -> TableSize | None:
        """Return the sizes of the deltas by their records; None if they have none."""
        files = len(self._all)
        expected = table_size(self.key_bytes, self.value_bytes, self._records / files)
        own = sum(delta.size_bytes for delta in self._all) - files * expected.file_bytes
        own -= sum(delta.removals for delta in self._all) * expected.removal_bytes
        if own <= 0 or not self._records:
            return None
        return TableSize(expected.file_bytes, own / self._records, expected.removal_bytes)

    def touches(self) -> Touches:
        """Return the distribution of the keys that batches write in these partitions."""
        counts = [0] * (self.batches + 1)
        for deltas in self.partitions:
            for times in Counter(key for delta in deltas for key in delta.written).values():
                counts[times] += 1
        powers = {1 << power for power in range(int(math.log2(self.batches)) + 1)}
        windows = [(width, self._distinct(width)) for width in sorted(powers | {self.batches})]
        return observed(counts, windows, self.keys, self.new)

    def _distinct(self, width: int) -> float:
        """Return the average number of different keys in this many consecutive batches."""
        starts = range(0, self.batches - width + 1, width)
        distinct = sum(
            len(frozenset().union(*(delta.written for delta in deltas[first : first + width])))
            for deltas in self.partitions
            for first in starts
        )
        return distinct / len(starts)

    @property
    def _all(self) -> list[DeltaRecords]:
        return [delta for deltas in self.partitions for delta in deltas]

    @property
    def _records(self) -> int:
        return sum(len(delta.written) for delta in self._all)


def read_deltas(pin: PinnedVersion, directory: Path) -> list[DeltaRecords]:
    """Return the last deltas of a store, oldest first.

    `directory` is used meanwhile and removed. Raises DamagedError.
    """
    try:
        return [_read(pin, delta, directory) for delta in _last(pin)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _last(pin: PinnedVersion) -> list[DeltaName]:
    """Return the newest deltas that follow each other without a gap, within the bounds.

    The first batch is left out if there are others, because it is unlike them.
    """
    deltas: list[DeltaName] = []
    remaining_bytes = MOST_BYTES
    for delta in reversed(pin.lineage[-MOST_DELTAS:]):
        remaining_bytes -= pin.delta_bytes(delta)
        follows = not deltas or delta.version == deltas[-1].version - 1
        if not follows or (deltas and (remaining_bytes < 0 or delta.version == 1)):
            break
        deltas.append(delta)
    return deltas[::-1]


def _read(pin: PinnedVersion, delta: DeltaName, directory: Path) -> DeltaRecords:
    path = pin.fetch(delta, directory)
    metadata = DeltaMetadata.from_json(read_metadata(path), file=delta.path)
    written = set()
    key_bytes = value_bytes = removals = 0
    for key, value in read_records(path):
        if value is None:
            removals += 1
            continue
        written.add(hash(key))
        key_bytes += len(key) - FAMILY_BYTES
        value_bytes += len(value)
    path.unlink()
    return DeltaRecords(
        metadata, pin.delta_bytes(delta), frozenset(written), key_bytes, value_bytes, removals
    )
