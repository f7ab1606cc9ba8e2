"""Function `state_store.estimate`: the resources of a store, from its workload and its options.

One partition is simulated batch by batch, without rows and files: planning code decides, and only sizes are
kept. Chain, policy, registry, retention and cost model are those of the agent. The result of a compaction is
computed as RocksDB's universal compaction does, on sizes. Merges take no time here: each ends before the next
commit. Requests to checkpoint storage are counted as docs/operations.md does. The figures are those of whole
cycles between full checkpoints, times the partitions.

Times of the tools on state are predicted from measured rates: seconds of CPU by rows and their bytes. A
tool's work is divided into tasks, a store each, which cores take one after the other. So the time is that of
the cores' rounds, and no more cores work than there are tasks. docs/state.md has a table that follows from
these rates.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NamedTuple

from state_store.core.checkpoint.lineage import Chain, ChainDelta
from state_store.core.checkpoint.names import DELTA_DIRECTORY, EMPTY_PARENT, DeltaName, SharedName, VersionId
from state_store.core.checkpoint.registry import REASONS, Registry, StoredFile, reason_of
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, FileEntry, Manifest
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.engine.database import SIZE_RATIO_PERCENT, DatabaseSettings
from state_store.core.files.sparse import end_bytes
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.planning.policy import Policy, StoreStatistics
from state_store.core.settings.options import PROCESS_BYTES, PROCESS_SHARE, Options, parse
from state_store.data.dataset.moments import table
from state_store.data.dataset.rewriting.store_writer import SPOOL_RATIO, pieces
from state_store.data.estimation.workload import FAMILY_BYTES, TableSize, Workload, table_size
from state_store.data.migration import TASK_MEMORY_BYTES
from state_store.data.query import ProgressOption, reporting
from state_store.data.query.arguments import check_names, check_number, shown
from state_store.errors import OptionError

RETAIN, MAINTENANCE_MS, HIT_RATIO, MAX_BATCHES = 100, 60_000, 0.9, 12_000
"""Spark's defaults of `minBatchesToRetain` and `maintenanceInterval`, and those of an estimate."""

_CYCLES = 8
"""Number of cycles between full checkpoints that are simulated."""

_PART_BYTES = 64 << 20
"""Part size of uploads, S3A's default: each part of a larger file, its start and its end are requests."""

_MERGE_REQUESTS = {
    INCREMENTAL: {"lists": 4, "gets": 1, "puts": 2, "deletes": 2},
    FULL: {"lists": 3, "puts": 1, "deletes": 1},
}
"""Requests of a merge beside those for its files."""

_ARCHIVE_BYTES, _ARCHIVE_ENTRY_BYTES = 5_000, 110
"""Bytes of an archive, and of each file that it names."""

DEEPEST = 6
"""Level of the oldest run."""

_LEFT_OUT_PERCENT, _UNCOUNTED_BYTES = 10, 6_500
"""Share of the younger runs that a compaction of all may leave out; bytes of a file beyond its bound."""

MIN_BYTES = 16 << 20

Sample = dict[Any, Any]
"""A counter of what a batch did and of what is in storage after it, by name or by reason and unit."""

JVM_BYTES = 384 << 20
"""Memory of an executor's JVM outside its heap and the budget: the least overhead that Spark adds."""

AHEAD_BYTES = (8 + 16 + 32) << 20
"""Heap of a task for look-ahead: an operator's input, blocks that come at a time, and rows read ahead."""


# ---- sorted runs -----------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A sorted run that covers the changes of this many batches; the oldest also has every key.

    Runs are in RocksDB's order: newest first, each file of level 0 by itself, then the deeper levels.
    """

    batches: int
    level: int
    files: Sequence[FileEntry]

    @classmethod
    def of(cls, batches: int, level: int, files: Iterable[tuple[int, DeltaName | SharedName]]) -> Run:
        """Return the run of files of these sizes and names."""
        entries = [FileEntry(name.name, name.path, size, "", level, name.version) for size, name in files]
        return cls(batches, level, entries)

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.size_bytes for file in self.files)


def ingested(runs: Sequence[Run], deltas: Sequence[ChainDelta]) -> list[Run]:
    """Return the runs after an ingestion of deltas, oldest first.

    Each goes to the deepest empty level above all runs, or to level 0.
    """
    result = list(runs)
    for delta in deltas:
        level = max(0, result[0].level - 1) if result else DEEPEST
        result.insert(0, Run.of(1, level, [(delta.size_bytes, delta.name)]))
    return result


def compact_runs(
    runs: Sequence[Run], settings: DatabaseSettings, merge: Callable[[Sequence[Run], int], Run]
) -> list[Run]:
    """Return the runs after `Database.compact_runs`; `merge` makes one of neighbours, in a level."""
    result = list(runs)
    while len(result) >= settings.max_runs:
        surplus = (0, len(result) - settings.max_runs + 1)
        start, end = _outgrown(result, settings) or _similar(result) or surplus
        if end - start < 2:
            break
        level = DEEPEST if end == len(result) else max(0, result[end].level - 1)
        result[start:end] = [merge(result[start:end], level)]
    return result


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


def file_sizes(
    table: TableSize, changes: tuple[float, float], level: int, settings: DatabaseSettings
) -> list[int]:
    """Return the sizes of the files in which RocksDB writes a run of so many puts and removals.

    Each thread of a compaction writes its own files.
    """
    size_bytes = table.of(*changes)
    if level == 0 or size_bytes <= settings.file_bytes:
        return [size_bytes]
    count = math.ceil(size_bytes / (settings.file_bytes + _UNCOUNTED_BYTES)) + settings.threads - 1
    return [round((size_bytes + (count - 1) * table.file_bytes) / count)] * count


# ---- the simulated store ---------------------------------------------------------------------------------


class SimulatedStore:
    """A partition of a workload, whose first batch writes all keys. `stored` are bytes by path."""

    def __init__(
        self, workload: Workload, options: Options, retain: int, cost: CostModel, maintenance_ms: float
    ) -> None:
        self._keys = workload.keys / workload.partitions
        self._removals = workload.removals / workload.partitions
        self._touches, self._interval_ms = workload.touches_per_partition(), workload.interval_ms
        self._delta_table, self._merged_table = workload.tables(options.snapshot_compression)
        self._settings = self._files = DatabaseSettings()
        self.retention = RetentionPolicy.of(options, retain)
        self._cleanup_batches = max(1, round(maintenance_ms / workload.interval_ms))
        self._policy, self._pause_ms = Policy(options, "estimate"), options.min_pause_between_merges_ms
        self._statistics = StoreStatistics(cost)
        self._statistics.note_chain_start(0)
        self._chain, self._registry = Chain(), Registry()
        self._runs: list[Run] = []
        self.stored: dict[str, int] = {}
        self._unneeded: dict[str, StoredFile] = {}
        self._version = self._now_ms = self._unread_archives = 0
        self._merged_ms, self._table_numbers = -math.inf, itertools.count(1)
        self._sample: Sample = Counter()

    def batch(self) -> Sample:
        """Run one more batch: a commit, the merge that is due for the version before it, and a clean-up.

        Return bytes and files in storage by reason, and of all before a clean-up (`stored`), the restore of
        the newest version, bytes that were uploaded, requests by kind in S3's terms, and merges.
        """
        sample: Sample = Counter()
        self._sample, before = sample, self._chain
        self._version += 1
        self._now_ms = round(self._version * self._interval_ms)
        self._commit()
        if before.version is not None:
            self._merge(before.version, before)
        sample.update(stored_bytes=sum(self.stored.values()), stored_files=len(self.stored))
        if self._version % self._cleanup_batches == 0:
            self._clean_up()
        sample.update(restore_bytes=self._chain.size_bytes, restore_files=self._chain.files)
        sample["restore_ms"] = self._statistics.predict_restore_ms(self._chain)
        needed = {file.path for file in self._registry.files(self._chain.deltas[-1].name.version_id)}
        for path, size_bytes in self.stored.items():
            reason = reason_of(path, by_newest=path in needed, by_older=path not in self._unneeded)
            sample[reason, "bytes"] += size_bytes
            sample[reason, "files"] += 1
        return sample

    def _commit(self) -> None:
        """Store the delta of a batch."""
        version, is_first = self._version, self._version == 1
        changes = (self._keys, 0.0) if is_first else (self._touches.distinct(1), self._removals)
        size_bytes = self._sample["delta_bytes"] = self._delta_table.of(*changes)
        name = DeltaName(version, f"v{version}", EMPTY_PARENT if is_first else f"v{version - 1}", 0)
        self._chain = self._chain.commit(ChainDelta(name, size_bytes))
        self._registry.commit(name, size_bytes)
        self._statistics.note_commit(round(self._keys))
        self._store(name.path, size_bytes)

    def _store(self, path: str, size_bytes: int) -> None:
        self.stored[path] = size_bytes
        self._sample["uploaded_bytes"] += size_bytes
        self._sample["puts"] += 1 if size_bytes <= _PART_BYTES else 2 + math.ceil(size_bytes / _PART_BYTES)

    def _merge(self, version: VersionId, chain: Chain) -> None:
        """Make the merge that is due for a version."""
        due = self._policy.due(chain, self._statistics, self._now_ms)
        if due is None or self._now_ms - self._merged_ms < self._pause_ms:
            return
        self._merged_ms = self._now_ms
        self._files = self._settings.for_store(chain.size_bytes)
        runs = ingested(self._runs, chain.deltas)
        if due.kind == FULL:
            self._runs = [self._merged(runs, DEEPEST)]
        else:
            self._runs = compact_runs(runs, self._settings, self._merged)
        files = tuple(file for run in reversed(self._runs) for file in run.files)
        new_files = [file for file in files if file.path not in self.stored]
        kind, merges, changes = INCREMENTAL, chain.merges_since_full + 1, chain.deltas_since_full
        if len(new_files) == len(files):
            kind, merges, changes = FULL, 0, 0
        self._sample.update({kind: 1, **_MERGE_REQUESTS[kind]})
        manifest = Manifest(*version, kind, None, None, merges, changes, round(self._keys), files)
        archive_bytes = _ARCHIVE_BYTES + _ARCHIVE_ENTRY_BYTES * len(files)
        for file in new_files:
            self._store(file.path, file.size_bytes)
        self._store(manifest.snapshot.path, archive_bytes)
        self._unread_archives += 1
        self._chain = self._chain.publish(manifest)
        self._statistics.note_merge(manifest, self._now_ms)
        self._unneeded |= {file.path: file for file in self._registry.publish(manifest, archive_bytes)}

    def _merged(self, runs: Sequence[Run], level: int) -> Run:
        """Merge neighbours into one run. The oldest has all keys once, others the last writes of each key.

        A batch removes as many keys as it adds. Of the puts of some batches in a row none remains of keys
        that were added in them and removed again (`young`), nor of older ones that were changed and removed
        later (`old`): of these, the share batches / lifetime is removed, half of them after the change.
        """
        batches = sum(run.batches for run in runs)
        changes = (self._keys, 0.0)
        if level < DEEPEST:
            removals, written = self._removals * batches, self._touches.distinct(batches)
            lifetime = self._keys / self._removals if self._removals else math.inf
            young = self._removals * max(0.0, batches - lifetime)
            old = max(0.0, written - removals) * min(1.0, batches / lifetime) / 2
            changes = (max(0.0, min(written - young - old, self._keys)), removals)
        sizes = file_sizes(self._merged_table, changes, level, self._files)
        names = (SharedName(self._version, 0, number) for number in self._table_numbers)
        return Run.of(batches, level, zip(sizes, names, strict=False))

    def _clean_up(self) -> None:
        """Delete the files that `Retention` deletes when it is due, as no retained version needs them."""
        age_ms = self.retention.age_ms
        too_old = self._version - int(age_ms / self._interval_ms) - 1 if age_ms else 0
        floor = self.retention.floor(self._version, self._registry, too_old)
        is_superseded = any(file.origin < floor for file in self._unneeded.values())
        freed = self._registry.retire_below(floor)
        if not freed and not is_superseded:
            return
        self._unneeded |= {file.path: file for file in freed}
        going = [
            path
            for path, file in self._unneeded.items()
            if file.origin < floor or not path.startswith(DELTA_DIRECTORY)
        ]
        for path in going:
            del self._unneeded[path]
            self.stored.pop(path, None)
        self._sample.update(lists=6, gets=self._unread_archives, puts=1, deletes=1 + len(going))
        self._unread_archives = 0


def _steady(store: SimulatedStore, maximum: int, progress: ProgressOption) -> tuple[list[Sample], bool]:
    """Return the batches of complete cycles, after those in which the first versions were retained.

    If there is no cycle among the maximum number of batches, they are the second half of these.
    """
    samples: list[Sample] = []
    fulls: list[int] = []
    with reporting(progress, "simulated", 1, "batches") as meter:
        if meter is not None:
            meter.expect(maximum)
        while len(fulls) <= _CYCLES and len(samples) < maximum:
            samples.append(store.batch())
            if hasattr(meter, "moved"):
                meter.moved(1)
            if samples[-1][FULL] and len(samples) > store.retention.keep:
                fulls.append(len(samples) - 1)
    is_steady = len(fulls) > 1
    return samples[fulls[0] : fulls[-1]] if is_steady else samples[len(samples) // 2 :], is_steady


# ---- tools and memory ------------------------------------------------------------------------------------

ROW_BYTES = 88
"""Bytes in files of the rows with which tools were measured."""

_PYTHON_BYTES = 300 << 20
"""Memory of a task's Python process: the most that any tool had, of 190 to 270 MB."""

_START_S = 1.0
"""Seconds of CPU in which a core starts its Python worker, which Spark uses again."""

_HALVED = pieces(0, "", 1, 2)[0].disk_bytes({0: 1000}) / 1000


class Tool(NamedTuple):
    """The cost of a tool: `million_s` seconds of CPU for a million rows of `ROW_BYTES`.

    Each byte that a row has more or less takes `byte_ns` of CPU, measured between 88 and 643. A task needs
    `disk` bytes of local disk by the bytes in files of its partition, `task_s` seconds of CPU in which it
    starts a program of its own, and `memory_bytes` outside the JVM of its executor.
    """

    name: str
    million_s: float
    byte_ns: float
    disk: float
    task_s: float = 0.0
    memory_bytes: int = _PYTHON_BYTES

    def cpu_s(self, rows: float, row_bytes: float) -> float:
        """Return the seconds of CPU for rows that have this many bytes in files."""
        return rows * max(self.million_s * 1000 + self.byte_ns * (row_bytes - ROW_BYTES), 0.0) / 1e9


TOOLS = (
    Tool("repartition", 2.2, 8, _HALVED),
    Tool("import", 4.3, 13, 2 * SPOOL_RATIO + 1),
    Tool("verify", 0.75, 2.5, 1),
    Tool("export", 0.75, 4, 2),
    Tool("full", 0.55, 4.7, 2),
    Tool("migrate", 3.8, 12, 2, task_s=5.0, memory_bytes=_PYTHON_BYTES + TASK_MEMORY_BYTES),
)
"""The tools that read or write all rows; `repartition` to twice as many partitions."""


@dataclass(frozen=True)
class ToolTime:
    """The time of a tool for a state: `cpu_s` on one core, without the start of tasks, `time_s` on all cores.

    Each task needs `task_disk_bytes` in the directory of temporary files, and `task_memory_bytes` outside the
    JVM of its executor.
    """

    name: str
    cpu_s: float
    tasks: int
    time_s: float
    task_disk_bytes: int
    task_memory_bytes: int


def tool_times(rows: float, row_bytes: float, partitions: int, cores: int) -> tuple[ToolTime, ...]:
    """Return the time of each tool on these cores, for rows in one store for each of the equal partitions."""

    def time_of(tool: Tool) -> ToolTime:
        tasks = min(partitions, cores) if tool.name == "migrate" else partitions
        cpu_s = tool.cpu_s(rows, row_bytes)
        time_s = _START_S + math.ceil(tasks / cores) * (cpu_s / tasks + tool.task_s)
        disk_bytes = round(tool.disk * rows * row_bytes / partitions)
        return ToolTime(tool.name, cpu_s, tasks, time_s, disk_bytes, tool.memory_bytes)

    return tuple(map(time_of, TOOLS))


def in_time(seconds: float) -> str:
    """Return seconds as people read them, in one unit."""
    for unit, unit_s in (("days", 2 * 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= unit_s:
            return f"{seconds / min(unit_s, 86_400):.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"


def memory_for(workload: Workload, hit_ratio: float, stores: float) -> int:
    """Return the `memoryBudget` for a share of the look-ups of existing keys that find their row in memory.

    There are so many stores on an executor. A row has a header of 16 bytes and is aligned to 8. At most 85 %
    of the rows in memory are current, and those of one and a half batches come in addition.
    """
    touches, keys = workload.touches_per_partition(), workload.keys / workload.partitions
    rows = keys if hit_ratio >= 1 else min(keys, touches.distinct(touches.batches_for(hit_ratio)))
    row_bytes = 16 + FAMILY_BYTES + workload.key_bytes + workload.value_bytes
    row_bytes += -row_bytes % 8
    slots = 1 << int(rows * 8 / 5).bit_length()  # of the index, which grows by doubling
    used_bytes = stores * (rows * row_bytes / 0.85 + 1.5 * touches.distinct(1) * row_bytes + slots * 8)
    processes = min(PROCESS_BYTES, used_bytes * PROCESS_SHARE / (1 - PROCESS_SHARE))
    return max(MIN_BYTES, round(used_bytes + processes))


# ---- the estimate ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requests:
    """Numbers of requests by kind, in S3's terms: LIST, GET, PUT and DELETE."""

    lists: float = 0.0
    gets: float = 0.0
    puts: float = 0.0
    deletes: float = 0.0


@dataclass(frozen=True)
class Prices:
    """US dollars for 1,000 PUT or LIST requests, for 1,000 GET requests, and for a GB (1e9 bytes) a month.

    The defaults are the list prices of S3 Standard in us-east-1, in 2025. DELETE is free there. Traffic
    within the region is free as well.
    """

    puts: float = 0.005
    gets: float = 0.0004
    gigabyte_months: float = 0.023


@dataclass(frozen=True)
class Range:
    """The average over time, and the maximum."""

    average: float
    maximum: float


@dataclass(frozen=True, repr=False)
class Estimate:
    """The resources of a workload in steady state, over all partitions unless stated otherwise.

    Attributes:
        workload: the workload.
        options: the options that were given.
        retain: the number of retained versions.
        stored_bytes: bytes in checkpoint storage; the maximum is that before a clean-up.
        stored_files: files in checkpoint storage.
        upload_bytes_per_s: bytes uploaded to checkpoint storage.
        write_amplification: bytes uploaded for each byte of the deltas.
        merges_per_hour: incremental merges.
        full_per_hour: full checkpoints.
        restore_bytes: bytes that a restore of one partition reads on a machine without its files.
        restore_files: files that it reads.
        restore_ms: milliseconds that it takes.
        reasons: average bytes and files by the reason for which they are kept.
        requests_per_minute: requests to storage for commits, merges and clean-ups.
        requests_dollars_per_month: their price.
        storage_dollars_per_month: the price of the stored bytes.
        memory_bytes: the memoryBudget of each executor for which `hit_ratio` of the look-ups find their row
            in memory.
        memory_overhead_bytes: the `spark.executor.memoryOverhead` of an executor with that budget, without
            what Python workers need; on YARN and Kubernetes the container's limit counts it.
        look_ahead_bytes: bytes of the JVM's heap that look-ahead takes in each task for a store of which
            parts are still in storage; 0 if restores of the workload are not lazy.
        hit_ratio: that share.
        executors: the number of executors.
        executor_cores: cores of each of them.
        batches: the number of batches in the averages, after those until the steady state.
        is_steady: True if these batches are complete cycles between full checkpoints.
        tools: the time of each tool that moves or reads all rows, as a job of Spark on these cores, with the
            local disk and the memory of a task.
        tools_rest_on: the measurement that these times rest on, in words.
    """

    workload: Workload
    options: Mapping[str, str]
    retain: int
    stored_bytes: Range
    stored_files: Range
    upload_bytes_per_s: float
    write_amplification: float
    merges_per_hour: float
    full_per_hour: float
    restore_bytes: Range
    restore_files: Range
    restore_ms: Range
    reasons: Mapping[str, tuple[float, float]]
    requests_per_minute: Requests
    requests_dollars_per_month: float
    storage_dollars_per_month: float
    memory_bytes: int
    memory_overhead_bytes: int
    look_ahead_bytes: int
    hit_ratio: float
    executors: int
    executor_cores: int
    batches: int
    is_steady: bool
    tools: tuple[ToolTime, ...]
    tools_rest_on: str = (
        f"CPU time of a core, measured for rows of {ROW_BYTES} bytes in files on a local disk; storage and "
        "network are taken to keep up"
    )

    def figures(self) -> Iterator[tuple[str, float, float | None]]:
        """Yield every number, also of the workload, by its name: the average, and the maximum or None."""
        for name, value in {**vars(self.workload), **vars(self)}.items():
            if isinstance(value, Range):
                yield name, value.average, value.maximum
            elif isinstance(value, Requests):
                for kind, count in vars(value).items():
                    yield f"{kind}_per_minute", count, None
            elif name == "reasons":
                for reason, (size_bytes, files) in self.reasons.items():
                    yield f"bytes for {reason}", size_bytes, None
                    yield f"files for {reason}", files, None
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                yield name, value, None

    def __repr__(self) -> str:
        return (
            f"Estimate({self.stored_bytes.average:.0f} bytes in {self.stored_files.average:.0f} files, "
            f"{self.upload_bytes_per_s:.0f} bytes uploaded a second, "
            f"a restore takes {self.restore_ms.average:.0f} ms, memoryBudget {self.memory_bytes})"
        )

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        tools = ((f"seconds of {tool.name} on the executors", tool.time_s, None) for tool in self.tools)
        rows = [
            (name, *("" if number is None else f"{number:,.6g}" for number in numbers))
            for name, *numbers in (*self.figures(), *tools)
        ]
        return table("Estimate", ("", "on average", "at most"), rows)


def estimate(
    workload: Workload,
    options: Mapping[str, Any] | None = None,
    *,
    retain: int = RETAIN,
    hit_ratio: float = HIT_RATIO,
    executors: int = 1,
    executor_cores: int = 1,
    maintenance_ms: float = MAINTENANCE_MS,
    cost: CostModel | None = None,
    batches: int = MAX_BATCHES,
    prices: Prices | None = None,
    progress: ProgressOption = None,
) -> Estimate:
    """Simulate the agent's planning for the workload, on sizes alone, until its decisions are periodic.

        state_store.estimate(
            state_store.Workload(keys=50e6, key_bytes=24, value_bytes=120, updates_per_batch=200_000),
            {"restoreObjective": "5s"}, retain=20,
        )

    Args:
        workload: what the query writes.
        options: options of the store, by name as in a query.
        retain: Spark's `minBatchesToRetain`, which `retainedCheckpoints` narrows.
        hit_ratio: the share of look-ups that should find their row in memory.
        executors: the number of executors that share the partitions.
        executor_cores: cores of each executor, on which tools run.
        maintenance_ms: Spark's `stateStore.maintenanceInterval`, after which clean-ups run.
        cost: the model that predicts restores; None is that of an unknown remote storage.
        batches: the maximum number of batches to simulate.
        prices: prices of storage; None is S3's list prices.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        OptionError: an option does not exist, or a number is out of its bounds.
    """
    model, prices = copy.copy(cost or CostModel()), prices or Prices()
    has_ratio = isinstance(hit_ratio, (int, float)) and 0 < hit_ratio <= 1
    has_interval = isinstance(maintenance_ms, (int, float)) and 0 < maintenance_ms < math.inf
    for name, value, is_right, kind in (
        ("workload", workload, isinstance(workload, Workload), "a state_store.Workload"),
        ("options", options, isinstance(options or {}, Mapping), "a mapping by name"),
        ("cost", cost, isinstance(model, CostModel), "that of state_store.measure"),
        ("prices", prices, isinstance(prices, Prices), "a state_store.Prices"),
        ("hit_ratio", hit_ratio, has_ratio, "above 0 and at most 1"),
        ("maintenance_ms", maintenance_ms, has_interval, "finite and above 0"),
    ):
        if not is_right:
            raise OptionError(f"the argument {name} is {kind}, not {shown(value)}", option=name)
    check_names("options", list(options or ()))
    check_number("retain", retain, minimum=1, maximum=100_000)
    check_number("executors", executors, minimum=1, maximum=1_000_000)
    check_number("executor_cores", executor_cores, minimum=1, maximum=1_024)
    check_number("batches", batches, minimum=10, maximum=10 * MAX_BATCHES)
    texts = {name: str(value) for name, value in (options or {}).items()}
    parsed = parse(texts)
    model.follow(parsed, end_bytes)
    store = SimulatedStore(workload, parsed, retain, model, maintenance_ms)
    samples, is_steady = _steady(store, batches, progress)

    totals: Sample = Counter()
    for sample in samples:
        totals.update(sample)
    partitions, count = workload.partitions, len(samples)
    per_batch, per_hour = partitions / count, partitions / (count * workload.interval_ms / 3_600_000)

    def of_stored(unit: str) -> Range:
        highest = max(sample[f"stored_{unit}"] for sample in samples)
        return Range(per_batch * sum(totals[reason, unit] for reason in REASONS), partitions * highest)

    def of_restores(unit: str) -> Range:
        return Range(totals[f"restore_{unit}"] / count, max(sample[f"restore_{unit}"] for sample in samples))

    stored_bytes = of_stored("bytes")
    requests = Requests(*(totals[kind.name] * per_hour / 60 for kind in fields(Requests)))
    dollars = (requests.puts + requests.lists) * prices.puts + requests.gets * prices.gets
    memory_bytes = memory_for(workload, hit_ratio, max(1.0, partitions / executors))
    restores = (RestoreWork(sample["restore_files"], sample["restore_bytes"], 0) for sample in samples)
    is_sparse = parsed.local_disk_limit_bytes > 0 or any(map(model.is_lazy, restores))
    row_bytes = table_size(workload.key_bytes, workload.value_bytes, workload.keys / partitions).put_bytes
    return Estimate(
        workload,
        texts,
        retain,
        stored_bytes,
        of_stored("files"),
        upload_bytes_per_s=totals["uploaded_bytes"] * per_hour / 3600,
        write_amplification=totals["uploaded_bytes"] / totals["delta_bytes"],
        merges_per_hour=totals[INCREMENTAL] * per_hour,
        full_per_hour=totals[FULL] * per_hour,
        restore_bytes=of_restores("bytes"),
        restore_files=of_restores("files"),
        restore_ms=of_restores("ms"),
        reasons={
            reason: (per_batch * totals[reason, "bytes"], per_batch * totals[reason, "files"])
            for reason in REASONS
        },
        requests_per_minute=requests,
        requests_dollars_per_month=dollars / 1000 * (30 * 24 * 60),
        storage_dollars_per_month=stored_bytes.average / 1e9 * prices.gigabyte_months,
        memory_bytes=memory_bytes,
        memory_overhead_bytes=memory_bytes + JVM_BYTES,
        look_ahead_bytes=AHEAD_BYTES if parsed.look_ahead and is_sparse else 0,
        hit_ratio=hit_ratio,
        executors=executors,
        executor_cores=executor_cores,
        batches=count,
        is_steady=is_steady,
        tools=tool_times(workload.keys, row_bytes, partitions, executors * executor_cores),
    )
