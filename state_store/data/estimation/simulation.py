"""A simulated store without rows and files: the planning code decides, and only sizes are kept.

Chain, policy, registry, retention and cost model are those of the agent. The result of a compaction is
computed as RocksDB's universal compaction does, on sizes. Merges take no time here: each ends before the next
commit.

Runs are in RocksDB's order: newest first, each file of level 0 by itself, then the deeper levels. Requests to
checkpoint storage are counted and priced as docs/operations.md does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from state_store.core.checkpoint.lineage import Chain, ChainDelta
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    EMPTY_PARENT,
    DeltaName,
    SharedName,
)
from state_store.core.checkpoint.registry import Registry, StoredFile, reason_of
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, FileEntry, Manifest
from state_store.core.compat import pairwise
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.engine.database import SIZE_RATIO_PERCENT, DatabaseSettings
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.planning.policy import Policy, StoreStatistics
from state_store.core.settings.options import Options
from state_store.data.estimation.workload import Workload

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
        options.page_cache_limit_bytes > 0
        or any(
            cost.is_lazy(RestoreWork(sample.chain_files, sample.chain_bytes, deltas=0)) for sample in samples
        )
    )
    return INPUT_BYTES + BLOCK_BYTES + ROW_BYTES if options.look_ahead and is_sparse else 0
