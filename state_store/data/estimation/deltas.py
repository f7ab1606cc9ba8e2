"""What the last deltas of some partitions show: records, their sizes, and which keys come again."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from state_store.core.checkpoint.metadata import DeltaMetadata
from state_store.core.checkpoint.names import DeltaName
from state_store.core.compat import pairwise
from state_store.core.engine.table import read_metadata, read_records
from state_store.data.dataset.pinned import PinnedVersion
from state_store.data.estimation.tables import FAMILY_BYTES, TableSize, table_size
from state_store.data.estimation.touches import Touches, observed

MOST_DELTAS = 32
MOST_BYTES = 32 << 20
"""Of the deltas of one partition that are read."""


@dataclass(frozen=True)
class DeltaRecords:
    """One delta: hashes of the keys that it puts, bytes of these keys and of their values, all together."""

    metadata: DeltaMetadata
    size_bytes: int
    written: frozenset[int]
    key_bytes: int
    value_bytes: int
    removals: int


@dataclass(frozen=True)
class DeltaSample:
    """Of each partition, the same number of deltas that follow each other, oldest first."""

    partitions: tuple[tuple[DeltaRecords, ...], ...]

    @classmethod
    def of(cls, partitions: Sequence[Sequence[DeltaRecords]]) -> DeltaSample:
        batches = min(len(deltas) for deltas in partitions)
        return cls(tuple(tuple(deltas[-batches:]) for deltas in partitions))

    @property
    def batches(self) -> int:
        return len(self.partitions[0])

    @property
    def keys(self) -> int:
        """Keys of these partitions after the last batch."""
        return sum(deltas[-1].metadata.keys for deltas in self.partitions)

    @property
    def puts(self) -> float:
        """Keys that a batch puts in these partitions."""
        return sum(len(one.written) for one in self._all) / self.batches

    @property
    def removals(self) -> float:
        """Keys that a batch removes from these partitions."""
        return sum(one.removals for one in self._all) / self.batches

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
        """Of the average key that is put, without its column family."""
        return sum(one.key_bytes for one in self._all) / max(1, self._records)

    @property
    def value_bytes(self) -> float:
        """Of the average value."""
        return sum(one.value_bytes for one in self._all) / max(1, self._records)

    def table(self) -> TableSize | None:
        """Sizes of the deltas by their records; None where they have none."""
        files = len(self._all)
        expected = table_size(self.key_bytes, self.value_bytes, self._records / files)
        own = sum(one.size_bytes for one in self._all) - files * expected.file_bytes
        own -= sum(one.removals for one in self._all) * expected.removal_bytes
        if own <= 0 or not self._records:
            return None
        return TableSize(expected.file_bytes, own / self._records, expected.removal_bytes)

    def touches(self) -> Touches:
        """Which keys batches write in these partitions."""
        counts = [0] * (self.batches + 1)
        for deltas in self.partitions:
            for times in Counter(key for one in deltas for key in one.written).values():
                counts[times] += 1
        powers = {1 << power for power in range(int(math.log2(self.batches)) + 1)}
        windows = [(width, self._distinct(width)) for width in sorted(powers | {self.batches})]
        return observed(counts, windows, self.keys, self.new)

    def _distinct(self, width: int) -> float:
        """Different keys in this many batches in a row, on average."""
        starts = range(0, self.batches - width + 1, width)
        distinct = sum(
            len(frozenset().union(*(one.written for one in deltas[first : first + width])))
            for deltas in self.partitions
            for first in starts
        )
        return distinct / len(starts)

    @property
    def _all(self) -> list[DeltaRecords]:
        return [one for deltas in self.partitions for one in deltas]

    @property
    def _records(self) -> int:
        return sum(len(one.written) for one in self._all)


def read_deltas(pin: PinnedVersion, directory: Path) -> list[DeltaRecords]:
    """The last deltas of a store, oldest first; below `directory`, which is removed. Raises DamagedError."""
    try:
        return [_read(pin, delta, directory) for delta in _last(pin)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _last(pin: PinnedVersion) -> list[DeltaName]:
    """Those that may be read and follow each other without a gap; but the first batch, which is not like the
    others, where there are others.
    """
    deltas: list[DeltaName] = []
    left = MOST_BYTES
    for delta in reversed(pin.lineage[-MOST_DELTAS:]):
        left -= pin.delta_bytes(delta)
        follows = not deltas or delta.version == deltas[-1].version - 1
        if not follows or (deltas and (left < 0 or delta.version == 1)):
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
