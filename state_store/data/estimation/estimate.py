"""Function `state_store.estimate`: the resources of a store, from its workload and its options.

**Tools.** Times of the tools on state, predicted from measured rates: seconds of CPU by rows and their bytes.

A tool's work is divided into tasks, a store each, which cores take one after the other. So the time is that
of the cores' rounds, and no more cores work than there are tasks. docs/state.md has a table that follows from
these rates.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state_store.core.checkpoint.registry import REASONS
from state_store.core.checkpoint.stored_documents import FULL
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.sparse import end_bytes
from state_store.core.planning.cost import CostModel, LazyPolicy
from state_store.core.settings.options import FILES, PROCESS_BYTES, PROCESS_SHARE, parse
from state_store.data.dataset.moments import table
from state_store.data.dataset.rewriting.store_writer import SPOOL_RATIO, pieces
from state_store.data.estimation.simulation import (
    FAMILY_BYTES,
    Prices,
    Requests,
    Sample,
    SimulatedStore,
    Workload,
    look_ahead_bytes,
    table_size,
)
from state_store.data.migration import TASK_MEMORY_BYTES, TASKS_A_CORE
from state_store.data.query import ProgressOption, reporting
from state_store.data.query.arguments import check_names, check_number, shown
from state_store.errors import OptionError

ROW_BYTES = 140
"""Bytes in files of the rows of most measurements."""

RESTS_ON = (
    f"CPU time of a core, measured for rows of {ROW_BYTES} bytes in files on a local disk; storage and "
    "network are taken to keep up"
)
"""The measurement that the times rest on, in words."""

_PYTHON_BYTES = 300 << 20
"""Memory of a task's Python process: the most that any tool had, of 190 to 270 MB."""

_START_S = 1.0
"""Seconds of CPU in which a core starts its Python worker, which Spark uses again."""

_FILTER_BYTES = 10
"""Bytes of a Bloom filter that a row takes while its file is written."""

_HALVED = pieces(0, "", 1, 2)[0].disk_bytes({0: 1000}) / 1000

RETAIN = 100
"""Spark's default of `minBatchesToRetain`."""

MAINTENANCE_MS = 60_000
"""Spark's default of `maintenanceInterval`."""

HIT_RATIO = 0.9

MAX_BATCHES = 12_000

_CYCLES = 8
"""Number of cycles between full checkpoints that are simulated."""

MAX_RETAINED, MAX_EXECUTORS, MAX_CORES = 100_000, 1_000_000, 1_024

_MS_PER_HOUR = 3_600_000

_HEADER_BYTES, _ALIGNMENT_BYTES, _SLOT_BYTES = 16, 8, 8

_FULLEST = 0.85
"""Share of current rows in memory; above it the oldest are dropped instead of copied together."""

_SPARE_BATCHES = 1.5

MIN_BYTES = 16 << 20

JVM_BYTES = 384 << 20
"""Memory of an executor's JVM outside its heap and the budget: the least overhead that Spark adds."""


@dataclass(frozen=True)
class Tool:
    """The cost of a tool.

    Attributes:
        name: the command.
        million_s: seconds of CPU for a million rows of `row_bytes`.
        byte_ns: nanoseconds of CPU for each byte that a row has more or less, measured between 88 and 643.
        disk: bytes of local disk that a task needs, by the bytes in files of its partition.
        row_bytes: bytes in files of a row that was measured.
        task_s: seconds of CPU in which each task starts a program of its own.
        memory_bytes: memory that a task needs outside the JVM of its executor.
        filter_bytes: the same for each row of its partition.
    """

    name: str
    million_s: float
    byte_ns: float
    disk: float
    row_bytes: int = ROW_BYTES
    task_s: float = 0.0
    memory_bytes: int = _PYTHON_BYTES
    filter_bytes: int = 0

    def cpu_s(self, rows: float, row_bytes: float) -> float:
        """Return the seconds of CPU for rows that have this many bytes in files."""
        return rows * max(self.million_s * 1000 + self.byte_ns * (row_bytes - self.row_bytes), 0.0) / 1e9


TOOLS = (
    Tool("repartition", 3.8, 12, _HALVED, filter_bytes=_FILTER_BYTES // 2),
    Tool("import", 8.3, 47, 2 * SPOOL_RATIO + 1, filter_bytes=_FILTER_BYTES),
    Tool("verify", 1.4, 4, 1),
    Tool("export", 1.2, 8, 2),
    Tool("full", 1.0, 7, 2),
    Tool("migrate", 2.9, 30, 2, row_bytes=91, task_s=5.0, memory_bytes=_PYTHON_BYTES + TASK_MEMORY_BYTES),
)
"""The tools that read or write all rows; `repartition` to twice as many partitions."""


@dataclass(frozen=True)
class ToolTime:
    """The time of a tool for a state.

    Attributes:
        name: the command.
        cpu_s: seconds that one core takes, without the start of tasks.
        tasks: the tasks of its job.
        time_s: seconds that the job takes on the cores.
        task_disk_bytes: local disk in the directory of temporary files that each task needs.
        task_memory_bytes: memory that each task needs outside the JVM of its executor.
    """

    name: str
    cpu_s: float
    tasks: int
    time_s: float
    task_disk_bytes: int
    task_memory_bytes: int


def tool_times(rows: float, row_bytes: float, partitions: int, cores: int) -> tuple[ToolTime, ...]:
    """Return the time of each tool for a state in one store a partition.

    Args:
        rows: the rows of all partitions.
        row_bytes: bytes of a row in files.
        partitions: the number of partitions, which are alike.
        cores: cores of the executors that work.
    """
    return tuple(_time(tool, rows, row_bytes, partitions, cores) for tool in TOOLS)


def _time(tool: Tool, rows: float, row_bytes: float, partitions: int, cores: int) -> ToolTime:
    tasks = min(partitions, TASKS_A_CORE * cores) if tool.name == "migrate" else partitions
    cpu_s = tool.cpu_s(rows, row_bytes)
    rounds = math.ceil(tasks / cores)
    return ToolTime(
        tool.name,
        cpu_s,
        tasks,
        _START_S + rounds * (cpu_s / tasks + tool.task_s),
        round(tool.disk * rows * row_bytes / partitions),
        round(tool.memory_bytes + tool.filter_bytes * rows / partitions),
    )


def in_time(seconds: float) -> str:
    """Return seconds as people read them, in one unit."""
    for unit, unit_s in (("days", 2 * 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= unit_s:
            return f"{seconds / min(unit_s, 86_400):.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"


@dataclass(frozen=True)
class Range:
    """The average over time, and the maximum."""

    average: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float], times: float = 1.0) -> Range:
        """Return average and maximum of values, multiplied by `times`."""
        return cls(times * sum(values) / len(values), times * max(values))


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
        reasons: average bytes and files by the reason for which they are kept.
        requests_per_minute: requests to storage for commits, merges and clean-ups.
        name_node_operations_per_minute: operations of an HDFS NameNode for these requests.
        requests_dollars_per_month: their price.
        storage_dollars_per_month: the price of the stored bytes.
        restore_bytes: bytes that a restore of one partition reads on a machine without its files.
        restore_files: files that it reads.
        restore_ms: milliseconds that it takes.
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
    reasons: Mapping[str, tuple[float, float]]
    upload_bytes_per_s: float
    write_amplification: float
    merges_per_hour: float
    full_per_hour: float
    requests_per_minute: Requests
    name_node_operations_per_minute: float
    requests_dollars_per_month: float
    storage_dollars_per_month: float
    restore_bytes: Range
    restore_files: Range
    restore_ms: Range
    hit_ratio: float
    executors: int
    memory_bytes: int
    memory_overhead_bytes: int
    look_ahead_bytes: int
    executor_cores: int
    batches: int
    is_steady: bool
    tools: tuple[ToolTime, ...]
    tools_rest_on: str = RESTS_ON

    def rows(self) -> list[tuple[str, float, float | None]]:
        """Return rows for tables: a name, the average, and the maximum (None: there is only one number)."""
        return [
            ("bytes in storage", self.stored_bytes.average, self.stored_bytes.maximum),
            ("files in storage", self.stored_files.average, self.stored_files.maximum),
            *((f"bytes for {reason}", size_bytes, None) for reason, (size_bytes, _) in self.reasons.items()),
            ("bytes uploaded a second", self.upload_bytes_per_s, None),
            ("bytes uploaded per byte of change", self.write_amplification, None),
            ("incremental merges an hour", self.merges_per_hour, None),
            ("full checkpoints an hour", self.full_per_hour, None),
            ("requests to storage a minute", self.requests_per_minute.total, None),
            ("operations of a NameNode a minute", self.name_node_operations_per_minute, None),
            ("dollars a month for requests", self.requests_dollars_per_month, None),
            ("dollars a month for storage", self.storage_dollars_per_month, None),
            ("bytes a restore reads", self.restore_bytes.average, self.restore_bytes.maximum),
            ("files a restore reads", self.restore_files.average, self.restore_files.maximum),
            ("ms a restore takes", self.restore_ms.average, self.restore_ms.maximum),
            (f"memoryBudget for {self.hit_ratio:.0%} of look-ups", self.memory_bytes, None),
            ("memoryOverhead without Python workers", self.memory_overhead_bytes, None),
            ("heap for look-ahead, each task", self.look_ahead_bytes, None),
            *((f"seconds of {tool.name} on the executors", tool.time_s, None) for tool in self.tools),
        ]

    def __repr__(self) -> str:
        return (
            f"Estimate({self.stored_bytes.average:.0f} bytes in {self.stored_files.average:.0f} files, "
            f"{self.upload_bytes_per_s:.0f} bytes uploaded a second, "
            f"a restore takes {self.restore_ms.average:.0f} ms, memoryBudget {self.memory_bytes})"
        )

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        cells = [
            (name, f"{average:,.6g}", "" if maximum is None else f"{maximum:,.6g}")
            for name, average, maximum in self.rows()
        ]
        return table(f"{self.workload}", ("", "on average", "at most"), cells)


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
    settings: DatabaseSettings | None = None,
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
        settings: settings of databases, for tests.
        batches: the maximum number of batches to simulate.
        prices: prices of storage; None is S3's list prices.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        OptionError: an option does not exist, or a number is out of its bounds.
    """
    if not isinstance(workload, Workload):
        raise OptionError(f"workload is a state_store.Workload, not {shown(workload)}", option="workload")
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options are a mapping by name, not {shown(options)}", option="options")
    check_names("options", list(options or ()))
    if cost is not None and not isinstance(cost, CostModel):
        raise OptionError(f"cost is that of state_store.measure, not {shown(cost)}", option="cost")
    if not isinstance(hit_ratio, (int, float)) or not 0 < hit_ratio <= 1:
        raise OptionError(f"hit_ratio is above 0 and at most 1, not {shown(hit_ratio)}", option="hit_ratio")
    if prices is not None and not isinstance(prices, Prices):
        raise OptionError(f"prices are a state_store.Prices, not {shown(prices)}", option="prices")
    check_number("retain", retain, minimum=1, maximum=MAX_RETAINED)
    check_number("executors", executors, minimum=1, maximum=MAX_EXECUTORS)
    check_number("executor_cores", executor_cores, minimum=1, maximum=MAX_CORES)
    check_number("batches", batches, minimum=10, maximum=10 * MAX_BATCHES)
    if not isinstance(maintenance_ms, (int, float)) or not 0 < maintenance_ms < math.inf:
        raise OptionError(
            f"maintenance_ms is finite and above 0, not {shown(maintenance_ms)}", option="maintenance_ms"
        )
    texts = {name: str(value) for name, value in (options or {}).items()}
    parsed = parse(texts)
    retention = RetentionPolicy(
        retain,
        parsed.retained_checkpoints,
        parsed.retained_age_ms,
        older_bytes=parsed.retained_older_bytes,
    )
    model = CostModel() if cost is None else copy.copy(cost)
    model.thorough = parsed.restore_verification == FILES
    model.lazy_policy = LazyPolicy.of(parsed, end_bytes)
    store = SimulatedStore(
        workload,
        parsed,
        retention,
        model,
        maintenance_ms=maintenance_ms,
        settings=settings,
    )
    with reporting(progress, "simulated", 1, "batches") as meter:
        samples = _sampled(store, retention.keep, batches, meter)
    window, is_steady = _steady(samples, retention.keep)
    return _summed(
        workload,
        texts,
        retain,
        window,
        is_steady=is_steady,
        hit_ratio=hit_ratio,
        executors=executors,
        executor_cores=executor_cores,
        prices=prices or Prices(),
        look_ahead=look_ahead_bytes(parsed, model, window),
    )


def _sampled(store: SimulatedStore, keep: int, maximum: int, meter: Any) -> list[Sample]:
    """Return the first batches: until enough cycles are complete, or the maximum is reached."""
    samples: list[Sample] = []
    remaining = _CYCLES + 1
    if meter is not None:
        meter.expect(maximum)
    while remaining and len(samples) < maximum:
        samples.append(store.batch())
        if meter is not None and hasattr(meter, "moved"):
            meter.moved(1)
        remaining -= samples[-1].merged == FULL and len(samples) > keep
    return samples


def _steady(samples: Sequence[Sample], keep: int) -> tuple[Sequence[Sample], bool]:
    """Return the batches of complete cycles, after those in which the first versions were retained.

    If there is no cycle, they are the second half.
    """
    fulls = [index for index, sample in enumerate(samples) if sample.merged == FULL and index >= keep]
    if len(fulls) < 2:
        return samples[len(samples) // 2 :], False
    return samples[fulls[0] : fulls[-1]], True


def _summed(
    workload: Workload,
    options: Mapping[str, str],
    retain: int,
    window: Sequence[Sample],
    *,
    is_steady: bool,
    hit_ratio: float,
    executors: int,
    executor_cores: int,
    prices: Prices,
    look_ahead: int,
) -> Estimate:
    partitions, uploaded = workload.partitions, sum(sample.uploaded_bytes for sample in window)
    hours = len(window) * workload.interval_ms / _MS_PER_HOUR
    merged = [sample.merged for sample in window if sample.merged is not None]
    fulls = sum(kind == FULL for kind in merged)
    kept = Range.of([sample.kept_bytes for sample in window], partitions)
    files = Range.of([sample.kept_files for sample in window], partitions)
    per_minute = sum((sample.requests for sample in window), Requests()) * (partitions / 60 / hours)
    reasons = {
        reason: (
            partitions * sum(sample.reasons.get(reason, (0, 0))[0] for sample in window) / len(window),
            partitions * sum(sample.reasons.get(reason, (0, 0))[1] for sample in window) / len(window),
        )
        for reason in REASONS
    }
    memory = memory_for(workload, hit_ratio, max(1.0, partitions / executors))
    row_bytes = table_size(workload.key_bytes, workload.value_bytes, workload.keys_per_partition).put_bytes
    return Estimate(
        workload,
        options,
        retain,
        Range(kept.average, partitions * max(sample.stored_bytes for sample in window)),
        Range(files.average, partitions * max(sample.stored_files for sample in window)),
        reasons,
        partitions * uploaded / (len(window) * workload.interval_ms / 1000),
        uploaded / max(1, sum(sample.delta_bytes for sample in window)),
        partitions * (len(merged) - fulls) / hours,
        partitions * fulls / hours,
        per_minute,
        per_minute.name_node_operations,
        prices.requests_a_month(per_minute),
        prices.storage_a_month(kept.average),
        Range.of([sample.chain_bytes for sample in window]),
        Range.of([sample.chain_files for sample in window]),
        Range.of([sample.restore_ms for sample in window]),
        hit_ratio,
        executors,
        memory,
        memory + JVM_BYTES,
        look_ahead,
        executor_cores,
        len(window),
        is_steady,
        tool_times(workload.keys, row_bytes, partitions, executors * executor_cores),
    )


def memory_for(workload: Workload, hit_ratio: float, stores: float) -> int:
    """Return the `memoryBudget` in bytes for a share of look-ups that find their row in memory.

    Only look-ups of existing keys count.

    Args:
        workload: what the query writes.
        hit_ratio: the share; 1 keeps all rows.
        stores: the number of stores on the executor.
    """
    touches = workload.touches_per_partition()
    keys = workload.keys_per_partition
    rows = keys if hit_ratio >= 1 else min(keys, touches.distinct(touches.batches_for(hit_ratio)))
    row = _HEADER_BYTES + FAMILY_BYTES + workload.key_bytes + workload.value_bytes
    row += -row % _ALIGNMENT_BYTES
    spare_bytes = _SPARE_BATCHES * touches.distinct(1) * row
    used = stores * (rows * row / _FULLEST + spare_bytes + _slots(rows) * _SLOT_BYTES)
    processes = min(PROCESS_BYTES, used * PROCESS_SHARE / (1 - PROCESS_SHARE))
    return max(MIN_BYTES, round(used + processes))


def _slots(rows: float) -> int:
    """Return the slots of the index, which grows by doubling."""
    return 1 << int(rows * 8 / 5).bit_length()
