"""What a query writes into its state, as an estimate needs it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from state_store.data.estimation.tables import TableSize, table_size
from state_store.data.estimation.touches import Touches, zipf
from state_store.errors import OptionError

PARTITIONS = 200
"""Spark's default of `spark.sql.shuffle.partitions`."""

MOST_PARTITION_BYTES = 512 << 30
"""Rows of a partition beyond which no estimate is made: it keeps each file of the state in memory."""

COMPRESSED_TO = 0.5
"""What lz4 makes of a typical row, as docs/options.md says."""


@dataclass(frozen=True)
class Workload:
    """One store of a query in all its partitions together, which are alike. Numbers are averages.

    keys: how many there are all the time; key_bytes, value_bytes: of the encoded rows, as `stats` shows them:
    in Spark's format 8 bytes for each 64 columns and 8 for each column, and for a text its bytes rounded up
    to 8 in addition.

    updates_per_batch: different keys that a batch writes, those counted that were not there before, which are
    `new_per_batch`. As many are removed, or `removed_per_batch`; the number of keys stays as it is. zipf: the
    exponent of Zipf's law by which keys are written; 0: all as often as any other.

    delta_table, merged_table, touches: measured, in place of what follows from the numbers above, and from
    `snapshotCompression`.
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
        """Raise OptionError for numbers that cannot be, or are too large to be worth a simulation."""
        numbers = [self.keys, self.key_bytes, self.value_bytes, self.updates_per_batch, self.interval_ms]
        numbers += [self.partitions, self.new_per_batch, self.removed_per_batch or 0, self.zipf]
        if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers):
            raise OptionError("an estimate needs finite numbers")
        if self.keys < 1 or self.partitions < 1 or self.interval_ms <= 0:
            raise OptionError("an estimate needs a key, a partition and an interval above 0")
        if self.keys / self.partitions * (self.key_bytes + self.value_bytes) > MOST_PARTITION_BYTES:
            raise OptionError(
                f"a partition would have more than {MOST_PARTITION_BYTES >> 30} GiB: "
                "estimate with more partitions"
            )
        rates = (self.zipf, self.new_per_batch, self.removed_per_batch or 0)
        if min(self.key_bytes, self.value_bytes, *rates) < 0:
            raise OptionError("sizes, rates and exponents are 0 or more")
        if not self.new_per_batch <= self.updates_per_batch <= self.keys + self.new_per_batch:
            raise OptionError(
                f"a batch cannot write {self.updates_per_batch:.0f} different keys, "
                f"{self.new_per_batch:.0f} of them new, where {self.keys:.0f} are there"
            )

    @property
    def keys_per_partition(self) -> float:
        return self.keys / self.partitions

    @property
    def removals_per_partition(self) -> float:
        """Keys that a batch removes from a partition."""
        removed = self.new_per_batch if self.removed_per_batch is None else self.removed_per_batch
        return removed / self.partitions

    def touches_per_partition(self) -> Touches:
        """The keys that batches write in a partition."""
        updates = self.updates_per_batch - self.new_per_batch
        whole = self.touches or zipf(self.keys, updates, self.zipf, self.new_per_batch)
        return whole.divided(self.partitions)

    def deltas(self) -> TableSize:
        """The files that batches write."""
        records = self.updates_per_batch / self.partitions
        return self.delta_table or table_size(self.key_bytes, self.value_bytes, records)

    def merged(self, *, compressed: bool) -> TableSize:
        """The files that merges write."""
        ratio = COMPRESSED_TO if compressed else 1.0
        return self.merged_table or table_size(
            self.key_bytes, self.value_bytes, self.keys_per_partition, ratio
        )
