"""A simulated store without rows and files: planning code decides on a workload, and only sizes are kept.

A workload is the writes of a query into its state (`Workload`): how many keys there are, and which of them
batches write. Sizes of runs and of memory follow from the distribution of the keys that batches write
(`Touches`), and sizes of files from those of keys and values (`TableSize`).

The store (`SimulatedStore`) takes the writes batch by batch. Chain, policy, registry, retention and cost
model are those of the agent. The result of a compaction is computed as RocksDB's universal compaction does,
on sizes. Merges take no time here: each ends before the next commit. Runs are in RocksDB's order: newest
first, each file of level 0 by itself, then the deeper levels. Requests to checkpoint storage are counted and
priced as docs/operations.md does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from state_store.core.checkpoint.lineage import Chain, ChainDelta
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    EMPTY_PARENT,
    DeltaName,
    SharedName,
)
from state_store.core.checkpoint.registry import Registry, StoredFile, reason_of
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, FileEntry, Manifest
from state_store.core.compat import pairwise, zip
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.engine.database import BLOOM_BITS_PER_KEY, SIZE_RATIO_PERCENT, DatabaseSettings
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.planning.policy import Policy, StoreStatistics
from state_store.core.settings.options import Options
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

UPLOAD_PART_BYTES = 64 << 20
"""Part size of uploads, S3A's default: each part of a larger file, its start and its end are requests."""

NAME_NODE_OPERATIONS_PER_PUT = 5
"""A status, a new file, its block, its end, and a rename."""

_MINUTES_PER_MONTH = 30 * 24 * 60
_BYTES_PER_GB = 1e9

DEEPEST = 6
_LEFT_OUT_PERCENT = 10
"""Share of the younger runs that a compaction of all may leave out."""

_UNCOUNTED_BYTES = 6_500
"""Bytes of a file that RocksDB does not count before it ends the file."""

_ARCHIVE_BYTES, _ARCHIVE_ENTRY_BYTES = 5_000, 110
"""Bytes of an archive, and of each file that it names."""

INPUT_BYTES = 8 << 20
"""Bytes of an operator's input whose keys are announced at a time."""

BLOCK_BYTES = 16 << 20
"""Bytes of blocks that come into memory at a time."""

ROW_BYTES = 32 << 20
"""Bytes of rows above which no more are read ahead."""


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


@dataclass(frozen=True)
class Requests:
    """Numbers of requests by kind, in S3's terms: LIST, GET, PUT and DELETE. They can be added."""

    lists: float = 0.0
    gets: float = 0.0
    puts: float = 0.0
    deletes: float = 0.0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.lists + other.lists,
            self.gets + other.gets,
            self.puts + other.puts,
            self.deletes + other.deletes,
        )

    def __mul__(self, times: float) -> Requests:
        return Requests(self.lists * times, self.gets * times, self.puts * times, self.deletes * times)

    @property
    def total(self) -> float:
        """Requests of all kinds."""
        return self.lists + self.gets + self.puts + self.deletes

    @property
    def name_node_operations(self) -> float:
        """Operations of an HDFS NameNode for these requests."""
        return self.lists + self.gets + self.deletes + NAME_NODE_OPERATIONS_PER_PUT * self.puts


@dataclass(frozen=True)
class Prices:
    """US dollars for 1,000 PUT or LIST requests, for 1,000 GET requests, and for a GB (1e9 bytes) a month.

    The defaults are the list prices of S3 Standard in us-east-1, in 2025. DELETE is free there. Traffic
    within the region is free as well.
    """

    puts: float = 0.005
    gets: float = 0.0004
    gigabyte_months: float = 0.023

    def requests_a_month(self, a_minute: Requests) -> float:
        """Return the price of requests in 30 days, in dollars."""
        dollars = (a_minute.puts + a_minute.lists) * self.puts + a_minute.gets * self.gets
        return dollars / 1000 * _MINUTES_PER_MONTH

    def storage_a_month(self, size_bytes: float) -> float:
        """Return the price of stored bytes in a month, in dollars."""
        return size_bytes / _BYTES_PER_GB * self.gigabyte_months


def commit(size_bytes: float) -> Requests:
    """Return the requests of a commit whose delta has this size, under checkpoint format 2."""
    return Requests(puts=_puts(size_bytes))


def incremental_merge(new_bytes: list[int]) -> Requests:
    """Return the requests of an incremental merge that writes files of these sizes."""
    return Requests(4, 1, 3 + sum(map(_puts, new_bytes)), 2)


def full_merge(new_bytes: list[int]) -> Requests:
    """Return the requests of a full merge that writes files of these sizes."""
    return Requests(3, 0, 2 + sum(map(_puts, new_bytes)), 1)


def clean_up(deleted: int, archives: int) -> Requests:
    """Return the requests of a clean-up that deletes files, and reads archives that are new to it."""
    return Requests(6, archives, 1, 1 + deleted)


def _puts(size_bytes: float) -> int:
    return 1 if size_bytes <= UPLOAD_PART_BYTES else 2 + math.ceil(size_bytes / UPLOAD_PART_BYTES)


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


@dataclass(frozen=True)
class Sample:
    """A partition after a batch.

    It has the files in storage (before and after a clean-up, if there was one) and their number by reason,
    the size and the predicted time of a restore of the newest version, the bytes uploaded for the batch, the
    requests, and the kind of the merge (None: there was none).
    """

    stored_bytes: int
    stored_files: int
    kept_bytes: int
    kept_files: int
    reasons: Mapping[str, tuple[int, int]]
    chain_bytes: int
    chain_files: int
    restore_ms: float
    uploaded_bytes: int
    delta_bytes: int
    requests: Requests
    merged: str | None


class SimulatedStore:
    """A partition of a workload, whose first batch writes all keys."""

    def __init__(
        self,
        workload: Workload,
        options: Options,
        retention: RetentionPolicy,
        cost: CostModel,
        *,
        maintenance_ms: float,
        settings: DatabaseSettings | None = None,
    ) -> None:
        self._keys = workload.keys_per_partition
        self._interval_ms = workload.interval_ms
        self._touches = workload.touches_per_partition()
        self._removals = workload.removals_per_partition
        self._delta_table = workload.deltas()
        self._merged_table = workload.merged(compressed=options.snapshot_compression != "none")
        self._settings = settings or DatabaseSettings()
        self._retention = retention
        self._batches_between_cleanups = max(1, round(maintenance_ms / workload.interval_ms))
        self._policy = Policy(options, "estimate")
        self._pause_ms = options.min_pause_between_merges_ms
        self._statistics = StoreStatistics(cost)
        self._statistics.note_chain_start(0)
        self._merged_ms, self._merging_bytes = -float("inf"), 0
        self._chain = Chain()
        self._registry = Registry()
        self._runs: list[Run] = []
        self._stored: dict[str, int] = {}
        self._stored_bytes = 0
        self._unneeded: dict[str, StoredFile] = {}
        self._version = 0
        self._tables = 0
        self._requests = Requests()
        self._unread_archives = 0

    def batch(self) -> Sample:
        """Run one more batch."""
        before = self._chain
        uploaded = delta_bytes = self._commit()
        self._requests = commit(delta_bytes)
        merged = None
        if before.version is not None:
            merged, size_bytes = self._merge(before)
            uploaded += size_bytes
        stored = self._stored_bytes, len(self._stored)
        if self._version % self._batches_between_cleanups == 0:
            self._clean_up()
        chain = self._chain
        return Sample(
            *stored,
            self._stored_bytes,
            len(self._stored),
            self._reasons(),
            chain.size_bytes,
            chain.files,
            self._statistics.predict_restore_ms(chain),
            uploaded,
            delta_bytes,
            self._requests,
            merged,
        )

    @property
    def _now_ms(self) -> int:
        return round(self._version * self._interval_ms)

    def _commit(self) -> int:
        self._version += 1
        first = self._version == 1
        puts = self._keys if first else self._touches.distinct(1)
        size_bytes = self._delta_table.of(puts, 0 if first else self._removals)
        parent = EMPTY_PARENT if first else _id(self._version - 1)
        name = DeltaName(self._version, _id(self._version), parent, 0)
        self._chain = self._chain.commit(ChainDelta(name, size_bytes))
        self._registry.commit(name, size_bytes)
        self._statistics.note_commit(round(self._keys))
        self._store(name.path, size_bytes)
        return size_bytes

    # ---- merges ------------------------------------------------------------------------------------------

    def _merge(self, chain: Chain) -> tuple[str | None, int]:
        """Return the kind and uploaded bytes of the merge that is due for the version before the new one."""
        due = self._policy.due(chain, self._statistics, self._now_ms)
        if due is None or self._now_ms - self._merged_ms < self._pause_ms:
            return None, 0
        self._merged_ms, self._merging_bytes = self._now_ms, chain.size_bytes
        runs = ingested(self._runs, [self._delta_entry(delta) for delta in chain.deltas])
        if due.kind == FULL:
            self._runs = compact_all(runs, self._merged)
        else:
            self._runs = compact_runs(runs, self._settings, self._merged)
        manifest = self._manifest(chain)
        archive_bytes = _ARCHIVE_BYTES + _ARCHIVE_ENTRY_BYTES * len(manifest.files)
        new = [file for file in manifest.files if file.path not in self._stored]
        for file in new:
            self._store(file.path, file.size_bytes)
        self._store(manifest.snapshot.path, archive_bytes)
        sizes = [file.size_bytes for file in new]
        self._requests += full_merge(sizes) if manifest.kind == FULL else incremental_merge(sizes)
        self._unread_archives += 1
        self._chain = self._chain.publish(manifest)
        self._statistics.note_merge(manifest, self._now_ms)
        self._forget(self._registry.publish(manifest, archive_bytes))
        return manifest.kind, sum(file.size_bytes for file in new) + archive_bytes

    def _delta_entry(self, delta: ChainDelta) -> FileEntry:
        return FileEntry(self._table_name(), delta.name.path, delta.size_bytes, "", 0, delta.name.version)

    def _merged(self, runs: Sequence[Run], level: int, oldest: bool) -> Run:
        """Merge neighbours into one run. The oldest has all keys once, others the last writes of each key."""
        batches = sum(run.batches for run in runs)
        puts, removals = (self._keys, 0.0) if oldest else self._last_changes(batches)
        table, settings = self._merged_table, self._settings.for_store(self._merging_bytes)
        sizes = file_sizes(table.of(puts, removals), level, settings, table.file_bytes)
        return Run(batches, level, tuple(self._new_file(size_bytes, level) for size_bytes in sizes))

    def _last_changes(self, batches: int) -> tuple[float, float]:
        """Return the puts and removals that remain of this many consecutive batches, each key once.

        A batch removes as many keys as it adds. Keys that were added in these batches and removed again
        (`young`) leave no put, nor do older ones that were changed and removed later (`old`): of the older
        keys that were changed, the share batches / lifetime is removed, half of them after the change.
        """
        removals = self._removals * batches
        written = self._touches.distinct(batches)
        lifetime = self._keys / self._removals if self._removals else float("inf")
        young = self._removals * max(0.0, batches - lifetime)
        old = max(0.0, written - self._removals * batches) * min(1.0, batches / lifetime) / 2
        return max(0.0, min(written - young - old, self._keys)), removals

    def _new_file(self, size_bytes: int, level: int) -> FileEntry:
        name = self._table_name()
        path = SharedName(self._version, 0, self._tables).path
        return FileEntry(name, path, size_bytes, "", level, self._version)

    def _table_name(self) -> str:
        self._tables += 1
        return f"{self._tables:06d}.sst"

    def _manifest(self, chain: Chain) -> Manifest:
        files = tuple(file for run in reversed(self._runs) for file in run.files)
        assert chain.version is not None
        shares, before = any(file.path in self._stored for file in files), chain.snapshot
        full = chain.version if not shares else before.full if before else None
        merges = 1 + (before.merges_since_full if before else 0)
        return Manifest(
            chain.version.number,
            chain.version.checkpoint_id,
            INCREMENTAL if shares else FULL,
            None if before is None else before.version_id,
            full,
            merges if shares else 0,
            chain.version.number - (full.number if full else 0),
            round(self._keys),
            files,
            created_ms=self._now_ms,
        )

    # ---- files -------------------------------------------------------------------------------------------

    def _store(self, path: str, size_bytes: int) -> None:
        self._stored[path] = size_bytes
        self._stored_bytes += size_bytes

    def _forget(self, files: Sequence[StoredFile]) -> None:
        self._unneeded |= {file.path: file for file in files}

    def _clean_up(self) -> None:
        """Delete the files that `Retention` deletes when it is due, as no retained version needs them."""
        too_old = 0
        if self._retention.age_ms:
            too_old = self._version - int(self._retention.age_ms / self._interval_ms) - 1
        floor = self._retention.floor(self._version, self._registry, too_old)
        superseded = any(file.origin < floor for file in self._unneeded.values())
        freed = self._registry.retire_below(floor)
        if not freed and not superseded:
            return
        self._forget(freed)
        going = [
            file
            for file in self._unneeded.values()
            if file.origin < floor or not file.path.startswith(DELTA_DIRECTORY)
        ]
        for file in going:
            del self._unneeded[file.path]
            self._stored_bytes -= self._stored.pop(file.path, 0)
        self._requests += clean_up(len(going), self._unread_archives)
        self._unread_archives = 0

    def _reasons(self) -> dict[str, tuple[int, int]]:
        needed = self._chain.paths()
        if self._chain.snapshot is not None:
            needed.add(self._chain.snapshot.snapshot.path)
        totals: dict[str, tuple[int, int]] = {}
        for path, size_bytes in self._stored.items():
            reason = reason_of(path, by_newest=path in needed, by_older=path not in self._unneeded)
            so_far_bytes, files = totals.get(reason, (0, 0))
            totals[reason] = so_far_bytes + size_bytes, files + 1
        return totals


def _id(version: int) -> str:
    return f"v{version}"


def look_ahead_bytes(options: Options, cost: CostModel, samples: Sequence[Sample]) -> int:
    """Return the bytes of heap for look-ahead in each task; 0 if no restore leaves parts in storage."""
    is_sparse = options.snapshot_compression == "none" and (
        options.local_disk_limit_bytes > 0
        or any(
            cost.is_lazy(RestoreWork(sample.chain_files, sample.chain_bytes, deltas=0)) for sample in samples
        )
    )
    return INPUT_BYTES + BLOCK_BYTES + ROW_BYTES if options.look_ahead and is_sparse else 0
