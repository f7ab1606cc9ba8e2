"""The workload of a query: the writes into its state, as an estimate needs them.

Sizes of runs and of memory follow from the distribution of the keys that batches write (`Touches`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from state_store.core.compat import zip
from state_store.core.engine.database import BLOOM_BITS_PER_KEY, DatabaseSettings
from state_store.errors import OptionError

_SINGLE_RANKS = 32
_CLASSES_PER_OCTAVE = 4
_LONGEST_BATCHES = 1e9

FAMILY_BYTES = 2
"""Bytes of the column family before each key."""

NULLS_BYTES = 8
"""Bytes of the first word of a row in Spark's format, which most keys of a query share."""

_RESTART = 16
_TRAILER_BYTES = 5
_KEY_FOOTER_BYTES = 8
_HANDLE_BYTES = 6
_INDEX_ENTRY_BYTES = 3 + 4
_FILE_BYTES = 1_450
"""Bytes of the properties, the footer, the record of the batch, and the rest of a last block."""

PARTITIONS = 200
"""Spark's default of `spark.sql.shuffle.partitions`."""

MAX_PARTITION_BYTES = 512 << 30
"""Bound of the rows of a partition, in bytes: the simulation keeps each file of the state in memory."""

COMPRESSED_TO = 0.5
"""Share to which lz4 compresses a typical row (docs/options.md)."""


@dataclass(frozen=True)
class KeyClass:
    """A number of keys that are written `rate` times a batch on average, independently of each other."""

    keys: float
    rate: float


@dataclass(frozen=True)
class Touches:
    """The keys that batches write.

    Attributes:
        classes: existing keys, by how often they are written.
        new: keys of a batch that did not exist before.
        windows: measured counts of different keys in a number of consecutive batches, by that number, from 1
            up.
    """

    classes: tuple[KeyClass, ...]
    new: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()

    def distinct(self, batches: float) -> float:
        """Return the number of different keys that this many consecutive batches write."""
        measured = _between(self.windows, batches)
        if measured is not None:
            return measured
        if not self.windows:
            return self._modelled(batches)
        longest, count = self.windows[-1]
        bound = count + max(0.0, self._modelled(batches) - self._modelled(longest))
        return min(bound, count * (batches / longest) ** self._growth())

    def hit_ratio(self, batches: float) -> float:
        """Return the share of a batch's existing keys that the last `batches` batches wrote."""
        weights = [key_class.keys * -math.expm1(-key_class.rate) for key_class in self.classes]
        hits = sum(
            weight * -math.expm1(-key_class.rate * batches)
            for weight, key_class in zip(weights, self.classes, strict=True)
        )
        return hits / sum(weights) if sum(weights) else 1.0

    def batches_for(self, hit_ratio: float) -> float:
        """Return the number of last batches that wrote this share of the next batch's existing keys."""
        low, high = 0.0, 1.0
        while self.hit_ratio(high) < hit_ratio and high < _LONGEST_BATCHES:
            low, high = high, high * 2
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.hit_ratio(middle) < hit_ratio else (low, middle)
        return high

    def divided(self, parts: float) -> Touches:
        """Return the touches of one of this many partitions, which a hash of the keys makes alike."""
        return Touches(
            tuple(replace(key_class, keys=key_class.keys / parts) for key_class in self.classes),
            self.new / parts,
            tuple((batches, count / parts) for batches, count in self.windows),
        )

    def _growth(self) -> float:
        """Return the exponent by which the last windows grow; it does not rise any more."""
        if len(self.windows) < 2 or not self.windows[-2][1]:
            return 1.0
        (before, count_before), (after, count_after) = self.windows[-2:]
        return math.log(count_after / count_before) / math.log(after / before)

    def _modelled(self, batches: float) -> float:
        return self.new * batches + sum(
            key_class.keys * -math.expm1(-key_class.rate * batches) for key_class in self.classes
        )


def evenly(keys: float, updates: float, new: float = 0.0) -> Touches:
    """Return the touches of batches that write all keys equally often, `updates` existing keys each."""
    return Touches((KeyClass(keys, _rate(updates, keys)),) if updates > 0 else (), new)


def zipf(keys: float, updates: float, exponent: float, new: float = 0.0) -> Touches:
    """Return the touches for weights of rank r in proportion to r to the power of -`exponent`; 0: evenly."""
    if exponent == 0 or updates <= 0:
        return evenly(keys, updates, new)
    classes = [KeyClass(count, weight) for count, weight in _ranks(keys, exponent)]
    target = min(updates, keys * (1 - 1e-9))
    low, high = 0.0, 1.0
    while Touches(_scaled(classes, high)).distinct(1) < target and high < _LONGEST_BATCHES:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        enough = Touches(_scaled(classes, middle)).distinct(1) >= target
        low, high = (low, middle) if enough else (middle, high)
    return Touches(_scaled(classes, high), new)


def observed(counts: Sequence[int], windows: Sequence[tuple[int, float]], keys: float, new: float) -> Touches:
    """Return the touches that consecutive deltas show.

    The batch's new keys are taken to be among those that were written least often.

    Args:
        counts: `counts[c]` keys were written in c of the batches; `counts[0]` is ignored.
        windows: different keys by the number of batches; the last window has all batches.
        keys: the number of keys in the store.
        new: new keys of a batch.
    """
    batches = windows[-1][0]
    remaining = [float(count) for count in counts]
    strangers = new * batches
    for times in range(1, len(remaining)):
        deducted = min(remaining[times], strangers)
        remaining[times] -= deducted
        strangers -= deducted
    total = sum(remaining[1:])
    classes = [
        KeyClass(count, times / batches) for times, count in enumerate(remaining) if times > 1 and count
    ]
    once = remaining[1] if len(remaining) > 1 else 0.0
    if once > 0:
        seldom = once + max(0.0, keys - total)
        classes.append(KeyClass(seldom, _singles(once / seldom) / batches))
    return Touches(tuple(classes), new, tuple(windows))


def _singles(share: float) -> float:
    """Return the mean, at most 1, of a Poisson distribution that has the value 1 with probability `share`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.exp(-middle) < share else (low, middle)
    return high


def _rate(updates: float, keys: float) -> float:
    """Return the writes of each key in a batch for which a batch writes `updates` different ones."""
    return -math.log1p(-min(updates / max(keys, 1e-9), 1 - 1e-9))


def _scaled(classes: Sequence[KeyClass], factor: float) -> tuple[KeyClass, ...]:
    return tuple(replace(key_class, rate=key_class.rate * factor) for key_class in classes)


def _ranks(keys: float, exponent: float) -> Iterator[tuple[float, float]]:
    """Yield keys and their mean weight: single ranks first, then ever larger classes."""
    rank = 1.0
    while rank <= keys:
        width = 1.0 if rank <= _SINGLE_RANKS else rank * (2 ** (1 / _CLASSES_PER_OCTAVE) - 1)
        width = min(width, keys - rank + 1)
        yield width, (rank + (width - 1) / 2) ** -exponent
        rank += width


def _between(windows: Sequence[tuple[int, float]], batches: float) -> float | None:
    """Return the count interpolated between windows; None after the last."""
    before, count = 0.0, 0.0
    for after, next_count in windows:
        if batches <= after:
            return count + (next_count - count) * (batches - before) / (after - before)
        before, count = after, next_count
    return None


@dataclass(frozen=True)
class TableSize:
    """Bytes of an SST file itself, of each put and of each removal in it."""

    file_bytes: float
    put_bytes: float
    removal_bytes: float

    def of(self, puts: float, removals: float = 0.0) -> int:
        """Return the bytes of a file with this many records."""
        return max(1, round(self.file_bytes + puts * self.put_bytes + removals * self.removal_bytes))


def table_size(key_bytes: float, value_bytes: float, records: float, ratio: float = 1.0) -> TableSize:
    """Return the sizes of SST files of about this many records, as both planes write them (docs/format.md).

    Keys have a common prefix, as Spark's rows have, and random bytes after it. So neighbours share more bytes
    if there are more keys.

    Args:
        key_bytes: bytes of a key without its column family.
        value_bytes: bytes of a value.
        records: records in a file.
        ratio: the compressed share of the bytes of a block.
    """
    key = FAMILY_BYTES + key_bytes
    alike = min(key - 1, FAMILY_BYTES + NULLS_BYTES + math.log(max(records, 1), 256))
    shared = alike * (_RESTART - 1) / _RESTART
    bare = _record_bytes(key, shared, 0)
    put = _record_bytes(key, shared, value_bytes)
    block = DatabaseSettings().block_bytes
    index = _TRAILER_BYTES + _INDEX_ENTRY_BYTES + _HANDLE_BYTES + min(key, alike + 1)
    of_filter = BLOOM_BITS_PER_KEY / 8

    def with_blocks(size: float) -> float:
        return size * ratio + index * size / max(block, size) + of_filter

    return TableSize(_FILE_BYTES, with_blocks(put), with_blocks(bare))


def _record_bytes(key: float, shared: float, value: float) -> float:
    own = key - shared + _KEY_FOOTER_BYTES
    lengths = 1 + _varint_bytes(own) + _varint_bytes(value)
    return lengths + own + value + 4 / _RESTART


def _varint_bytes(number: float) -> int:
    return 1 + int(math.log(max(number, 1), 128))


@dataclass(frozen=True)
class Workload:
    """The writes of a query into one store, over all partitions, which are alike. Numbers are averages.

    Attributes:
        keys: the constant number of keys.
        key_bytes: bytes of an encoded key, as `stats` shows them. Spark's format has 8 bytes for each 64
            columns, 8 for each column, and the bytes of texts, rounded up to 8.
        value_bytes: bytes of an encoded value.
        updates_per_batch: different keys that a batch writes, new ones included.
        interval_ms: the time from a batch to the next.
        partitions: the number of partitions.
        new_per_batch: keys that a batch writes and that did not exist before.
        removed_per_batch: keys that a batch removes; None is `new_per_batch`.
        zipf: the exponent of Zipf's law by which keys are written; 0 writes all equally often.
        delta_table: measured sizes of deltas, instead of those that follow from the numbers above.
        merged_table: measured sizes of merged files, instead of those that follow from `snapshotCompression`.
        touches: the measured distribution of keys.
    """

    keys: float
    key_bytes: float
    value_bytes: float
    updates_per_batch: float
    interval_ms: float = 10_000
    partitions: int = PARTITIONS
    new_per_batch: float = 0.0
    removed_per_batch: float | None = None
    zipf: float = 0.0
    delta_table: TableSize | None = field(default=None, repr=False)
    merged_table: TableSize | None = field(default=None, repr=False)
    touches: Touches | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise OptionError for numbers that are impossible, or too large for a simulation."""
        numbers = [self.keys, self.key_bytes, self.value_bytes, self.updates_per_batch, self.interval_ms]
        numbers += [self.partitions, self.new_per_batch, self.removed_per_batch or 0, self.zipf]
        if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers):
            raise OptionError("an estimate needs finite numbers")
        if self.keys < 1 or self.partitions < 1 or self.interval_ms <= 0:
            raise OptionError("an estimate needs a key, a partition and an interval above 0")
        if self.keys / self.partitions * (self.key_bytes + self.value_bytes) > MAX_PARTITION_BYTES:
            raise OptionError(
                f"a partition would have more than {MAX_PARTITION_BYTES >> 30} GiB: "
                "estimate with more partitions"
            )
        rates = (self.zipf, self.new_per_batch, self.removed_per_batch or 0)
        if min(self.key_bytes, self.value_bytes, *rates) < 0:
            raise OptionError("sizes, rates and exponents are 0 or more")
        if not self.new_per_batch <= self.updates_per_batch <= self.keys + self.new_per_batch:
            raise OptionError(
                f"a batch cannot write {self.updates_per_batch:.0f} different keys, "
                f"{self.new_per_batch:.0f} of them new, if there are {self.keys:.0f}"
            )

    @property
    def keys_per_partition(self) -> float:
        """The number of keys in a partition."""
        return self.keys / self.partitions

    @property
    def removals_per_partition(self) -> float:
        """The number of keys that a batch removes from a partition."""
        removed = self.new_per_batch if self.removed_per_batch is None else self.removed_per_batch
        return removed / self.partitions

    def touches_per_partition(self) -> Touches:
        """Return the distribution of the keys that batches write in a partition."""
        updates = self.updates_per_batch - self.new_per_batch
        touches = self.touches or zipf(self.keys, updates, self.zipf, self.new_per_batch)
        return touches.divided(self.partitions)

    def deltas(self) -> TableSize:
        """Return the sizes of the files that batches write."""
        records = self.updates_per_batch / self.partitions
        return self.delta_table or table_size(self.key_bytes, self.value_bytes, records)

    def merged(self, *, compressed: bool) -> TableSize:
        """Return the sizes of the files that merges write."""
        ratio = COMPRESSED_TO if compressed else 1.0
        return self.merged_table or table_size(
            self.key_bytes, self.value_bytes, self.keys_per_partition, ratio
        )
