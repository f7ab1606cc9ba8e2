"""A simulated store without rows and files: planning code decides on a workload, and only sizes are kept.

A workload is the writes of a query into its state (`Workload`): how many keys there are, and which of them
batches write. Sizes of runs and of memory follow from the distribution of the keys that batches write
(`Touches`), and sizes of files from those of keys and values (`TableSize`).

The store (`SimulatedStore`) takes the writes batch by batch. Chain, policy, registry, retention and cost
model are those of the agent. The result of a compaction is computed as RocksDB's universal compaction does,
on sizes. Merges take no time here: each ends before the next commit. Runs are in RocksDB's order: newest
first, each file of level 0 by itself, then the deeper levels. Requests to checkpoint storage are counted as
docs/operations.md does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from state_store.core.checkpoint.lineage import Chain, ChainDelta
from state_store.core.checkpoint.names import DELTA_DIRECTORY, EMPTY_PARENT, DeltaName, SharedName
from state_store.core.checkpoint.registry import Registry, StoredFile, reason_of
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, FileEntry, Manifest
from state_store.core.compat import pairwise
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.engine.database import BLOOM_BITS_PER_KEY, SIZE_RATIO_PERCENT, DatabaseSettings
from state_store.core.planning.cost import CostModel
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
_TRAILER_BYTES, _KEY_FOOTER_BYTES, _HANDLE_BYTES, _INDEX_ENTRY_BYTES = 5, 8, 6, 3 + 4
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

DEEPEST = 6
_LEFT_OUT_PERCENT = 10
"""Share of the younger runs that a compaction of all may leave out."""

_UNCOUNTED_BYTES = 6_500
"""Bytes of a file that RocksDB does not count before it ends the file."""

_ARCHIVE_BYTES, _ARCHIVE_ENTRY_BYTES = 5_000, 110
"""Bytes of an archive, and of each file that it names."""


@dataclass(frozen=True)
class Touches:
    """The keys that batches write.

    Attributes:
        classes: numbers of existing keys, and the writes of each of them in a batch on average, which are
            independent of each other.
        new: keys of a batch that did not exist before.
        windows: measured counts of different keys in a number of consecutive batches, by that number, from 1
            up.
    """

    classes: tuple[tuple[float, float], ...]
    new: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()

    def distinct(self, batches: float) -> float:
        """Return the number of different keys that this many consecutive batches write.

        It is interpolated between windows. After the last one it grows no faster than between the last two.
        """
        width, count, growth = 0, 0.0, math.inf
        for next_width, next_count in self.windows:
            if batches <= next_width:
                return count + (next_count - count) * (batches - width) / (next_width - width)
            growth = math.log(next_count / count) / math.log(next_width / width) if count else 1.0
            width, count = next_width, next_count
        more = max(0.0, self._modelled(batches) - self._modelled(width))
        return min(count + more, count * (batches / width) ** growth) if width else more

    def hit_ratio(self, batches: float) -> float:
        """Return the share of a batch's existing keys that the last `batches` batches wrote."""
        weights = [(keys * -math.expm1(-rate), rate) for keys, rate in self.classes]
        hits = sum(weight * -math.expm1(-rate * batches) for weight, rate in weights)
        total = sum(weight for weight, _ in weights)
        return hits / total if total else 1.0

    def batches_for(self, hit_ratio: float) -> float:
        """Return the number of last batches that wrote this share of the next batch's existing keys."""
        return _least(lambda batches: self.hit_ratio(batches) >= hit_ratio)

    def divided(self, parts: float) -> Touches:
        """Return the touches of one of this many partitions, which a hash of the keys makes alike."""
        return Touches(
            tuple((keys / parts, rate) for keys, rate in self.classes),
            self.new / parts,
            tuple((batches, count / parts) for batches, count in self.windows),
        )

    def _modelled(self, batches: float) -> float:
        return self.new * batches + sum(keys * -math.expm1(-rate * batches) for keys, rate in self.classes)


def _least(is_enough: Callable[[float], bool]) -> float:
    """Return the least number above 0 that is enough, or one of more than `_LONGEST_BATCHES`."""
    low, high = 0.0, 1.0
    while not is_enough(high) and high < _LONGEST_BATCHES:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def zipf(keys: float, updates: float, exponent: float, new: float = 0.0) -> Touches:
    """Return the touches of batches that write `updates` existing keys, by Zipf's law.

    The weight of rank r is r to the power of -`exponent`; 0 writes all keys equally often. The first ranks
    are classes of their own; later ones share ever larger classes.
    """
    if updates <= 0:
        return Touches((), new)
    if exponent == 0:
        return Touches(((keys, -math.log1p(-min(updates / max(keys, 1e-9), 1 - 1e-9))),), new)
    ranks, rank = [], 1.0
    while rank <= keys:
        width = 1.0 if rank <= _SINGLE_RANKS else rank * (2 ** (1 / _CLASSES_PER_OCTAVE) - 1)
        width = min(width, keys - rank + 1)
        ranks.append((width, (rank + (width - 1) / 2) ** -exponent))
        rank += width

    def scaled(factor: float) -> Touches:
        return Touches(tuple((count, weight * factor) for count, weight in ranks), new)

    target = min(updates, keys * (1 - 1e-9)) + new
    return scaled(_least(lambda factor: scaled(factor).distinct(1) >= target))


def observed(
    counts: Mapping[int, int], windows: Sequence[tuple[int, float]], keys: float, new: float
) -> Touches:
    """Return the touches that consecutive deltas show.

    The batch's new keys are taken to be among those that were written least often. Keys that were written
    once are taken for some of all others, each of which is written as seldom.

    Args:
        counts: `counts[c]` keys were written in c of the batches.
        windows: different keys by the number of batches; the last window has all batches.
        keys: the number of keys in the store.
        new: new keys of a batch.
    """
    batches = windows[-1][0]
    strangers, once, total = new * batches, 0.0, 0.0
    classes = []
    for times, count in sorted(counts.items()):
        existing = max(0.0, count - strangers)
        strangers -= count - existing
        total += existing
        if times == 1:
            once = existing
        elif existing:
            classes.append((existing, times / batches))
    if once:
        seldom = once + max(0.0, keys - total)
        share = min(once / seldom, math.exp(-1))  # of a Poisson distribution's values that are 1
        classes.append((seldom, _least(lambda mean: mean * math.exp(-mean) >= share) / batches))
    return Touches(tuple(classes), new, tuple(windows))


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
    own = key - alike * (_RESTART - 1) / _RESTART + _KEY_FOOTER_BYTES
    block = DatabaseSettings().block_bytes
    index = _TRAILER_BYTES + _INDEX_ENTRY_BYTES + _HANDLE_BYTES + min(key, alike + 1)

    def varint_bytes(number: float) -> int:
        return 1 + int(math.log(max(number, 1), 128))

    def record_bytes(value: float) -> float:
        size = 1 + varint_bytes(own) + varint_bytes(value) + own + value + 4 / _RESTART
        return size * ratio + index * size / max(block, size) + BLOOM_BITS_PER_KEY / 8

    return TableSize(_FILE_BYTES, record_bytes(value_bytes), record_bytes(0))


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
        rates = (self.key_bytes, self.value_bytes, self.zipf, self.new_per_batch, self.removed_per_batch or 0)
        numbers = (self.keys, self.updates_per_batch, self.interval_ms, self.partitions, *rates)
        if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers):
            raise OptionError("an estimate needs finite numbers")
        if self.keys < 1 or self.partitions < 1 or self.interval_ms <= 0:
            raise OptionError("an estimate needs a key, a partition and an interval above 0")
        if self.keys_per_partition * (self.key_bytes + self.value_bytes) > MAX_PARTITION_BYTES:
            raise OptionError(
                f"a partition would have more than {MAX_PARTITION_BYTES >> 30} GiB: "
                "estimate with more partitions"
            )
        if min(rates) < 0:
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

    def table(self, records: float, ratio: float = 1.0) -> TableSize:
        """Return the sizes of files of about this many of its records; `ratio` is that of compression."""
        return table_size(self.key_bytes, self.value_bytes, records, ratio)


def puts(size_bytes: float) -> int:
    """Return the PUT requests for a file."""
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
        surplus = len(result) - settings.max_runs
        picked = _outgrown(result, settings) or _similar(result) or ((0, surplus + 1) if surplus else None)
        if picked is None:
            break
        start, end = picked
        oldest = end == len(result)
        level = DEEPEST if oldest else max(0, result[end].level - 1)
        result[start:end] = [merge(result[start:end], level, oldest)]
    return result


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


@dataclass(frozen=True)
class Sample:
    """A partition after a batch.

    It has the files in storage (before and after a clean-up, if there was one) and bytes and files by reason,
    the size and the predicted time of a restore of the newest version, the bytes uploaded for the batch, the
    requests by kind in S3's terms, and the kind of the merge (None: there was none).
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
    requests: Counter[str]
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
        ratio = 1.0 if options.snapshot_compression == "none" else COMPRESSED_TO
        changes = workload.updates_per_batch / workload.partitions
        self._delta_table = workload.delta_table or workload.table(changes)
        self._merged_table = workload.merged_table or workload.table(self._keys, ratio)
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
        self._version = self._tables = self._unread_archives = 0
        self._requests: Counter[str] = Counter()

    def batch(self) -> Sample:
        """Run one more batch."""
        before = self._chain
        self._requests = Counter()
        uploaded = delta_bytes = self._commit()
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
        """Store the delta of a batch and return its bytes."""
        self._version += 1
        first = self._version == 1
        changes = (self._keys, 0.0) if first else (self._touches.distinct(1), self._removals)
        size_bytes = self._delta_table.of(*changes)
        parent = EMPTY_PARENT if first else f"v{self._version - 1}"
        name = DeltaName(self._version, f"v{self._version}", parent, 0)
        self._chain = self._chain.commit(ChainDelta(name, size_bytes))
        self._registry.commit(name, size_bytes)
        self._statistics.note_commit(round(self._keys))
        self._store(name.path, size_bytes)
        return size_bytes

    def _store(self, path: str, size_bytes: int) -> None:
        self._stored[path] = size_bytes
        self._stored_bytes += size_bytes
        self._requests["puts"] += puts(size_bytes)

    # ---- merges ------------------------------------------------------------------------------------------

    def _merge(self, chain: Chain) -> tuple[str | None, int]:
        """Return the kind and uploaded bytes of the merge that is due for the version before the new one."""
        due = self._policy.due(chain, self._statistics, self._now_ms)
        if due is None or self._now_ms - self._merged_ms < self._pause_ms:
            return None, 0
        self._merged_ms, self._merging_bytes = self._now_ms, chain.size_bytes
        deltas = [
            self._file(delta.name.path, delta.size_bytes, 0, delta.name.version) for delta in chain.deltas
        ]
        runs = ingested(self._runs, deltas)
        if due.kind == FULL:
            self._runs = [self._merged(runs, DEEPEST, True)]
        else:
            self._runs = compact_runs(runs, self._settings, self._merged)
        manifest = self._manifest(chain)
        archive_bytes = _ARCHIVE_BYTES + _ARCHIVE_ENTRY_BYTES * len(manifest.files)
        new = [file for file in manifest.files if file.path not in self._stored]
        for file in new:
            self._store(file.path, file.size_bytes)
        self._store(manifest.snapshot.path, archive_bytes)
        if manifest.kind == FULL:
            self._requests.update(lists=3, puts=1, deletes=1)
        else:
            self._requests.update(lists=4, gets=1, puts=2, deletes=2)
        self._unread_archives += 1
        self._chain = self._chain.publish(manifest)
        self._statistics.note_merge(manifest, self._now_ms)
        self._forget(self._registry.publish(manifest, archive_bytes))
        return manifest.kind, sum(file.size_bytes for file in new) + archive_bytes

    def _merged(self, runs: Sequence[Run], level: int, oldest: bool) -> Run:
        """Merge neighbours into one run. The oldest has all keys once, others the last writes of each key."""
        batches = sum(run.batches for run in runs)
        changes = (self._keys, 0.0) if oldest else self._last_changes(batches)
        table, settings = self._merged_table, self._settings.for_store(self._merging_bytes)
        sizes = file_sizes(table.of(*changes), level, settings, table.file_bytes)
        files = (
            self._file(SharedName(self._version, 0, self._tables + 1).path, size_bytes, level, self._version)
            for size_bytes in sizes
        )
        return Run(batches, level, tuple(files))

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
        old = max(0.0, written - removals) * min(1.0, batches / lifetime) / 2
        return max(0.0, min(written - young - old, self._keys)), removals

    def _file(self, path: str, size_bytes: int, level: int, origin: int) -> FileEntry:
        self._tables += 1
        return FileEntry(f"{self._tables:06d}.sst", path, size_bytes, "", level, origin)

    def _manifest(self, chain: Chain) -> Manifest:
        files = tuple(file for run in reversed(self._runs) for file in run.files)
        assert chain.version is not None
        shares, before = any(file.path in self._stored for file in files), chain.snapshot
        full = chain.version if not shares else before.full if before else None
        return Manifest(
            chain.version.number,
            chain.version.checkpoint_id,
            INCREMENTAL if shares else FULL,
            None if before is None else before.version_id,
            full,
            1 + (before.merges_since_full if before else 0) if shares else 0,
            chain.version.number - (full.number if full else 0),
            round(self._keys),
            files,
            created_ms=self._now_ms,
        )

    # ---- files -------------------------------------------------------------------------------------------

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
            path
            for path, file in self._unneeded.items()
            if file.origin < floor or not path.startswith(DELTA_DIRECTORY)
        ]
        for path in going:
            del self._unneeded[path]
            self._stored_bytes -= self._stored.pop(path, 0)
        self._requests.update(lists=6, gets=self._unread_archives, puts=1, deletes=1 + len(going))
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
