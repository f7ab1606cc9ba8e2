"""Function `state_store.estimate`: the resources of a store, from its workload and its options.

**Tools.** Times of the tools on state are predicted from measured rates: seconds of CPU by rows and their
bytes. A tool's work is divided into tasks, a store each, which cores take one after the other. So the time is
that of the cores' rounds, and no more cores work than there are tasks. docs/state.md has a table that follows
from these rates.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, NamedTuple

from state_store.core.checkpoint.registry import REASONS
from state_store.core.checkpoint.stored_documents import FULL
from state_store.core.compat import zip
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.sparse import end_bytes
from state_store.core.planning.cost import CostModel, LazyPolicy, RestoreWork
from state_store.core.settings.options import FILES, PROCESS_BYTES, PROCESS_SHARE, Options, parse
from state_store.data.dataset.moments import table
from state_store.data.dataset.rewriting.store_writer import SPOOL_RATIO, pieces
from state_store.data.estimation.simulation import FAMILY_BYTES, Sample, SimulatedStore, Workload
from state_store.data.migration import TASK_MEMORY_BYTES, TASKS_A_CORE
from state_store.data.query import ProgressOption, reporting
from state_store.data.query.arguments import check_names, check_number, shown
from state_store.errors import OptionError

RETAIN, MAINTENANCE_MS, HIT_RATIO, MAX_BATCHES = 100, 60_000, 0.9, 12_000
"""Spark's defaults of `minBatchesToRetain` and `maintenanceInterval`, and those of an estimate."""

MAX_RETAINED, MAX_EXECUTORS, MAX_CORES = 100_000, 1_000_000, 1_024

_CYCLES = 8
"""Number of cycles between full checkpoints that are simulated."""

_MS_PER_HOUR, _MINUTES_PER_MONTH, _BYTES_PER_GB = 3_600_000, 30 * 24 * 60, 1e9

NAME_NODE_OPERATIONS_PER_PUT = 5
"""A status, a new file, its block, its end, and a rename."""

_HEADER_BYTES, _ALIGNMENT_BYTES, _SLOT_BYTES = 16, 8, 8

_FULLEST = 0.85
"""Share of current rows in memory; above it the oldest are dropped instead of copied together."""

_SPARE_BATCHES = 1.5

MIN_BYTES = 16 << 20

JVM_BYTES = 384 << 20
"""Memory of an executor's JVM outside its heap and the budget: the least overhead that Spark adds."""

INPUT_BYTES, BLOCK_BYTES, ROWS_AHEAD_BYTES = 8 << 20, 16 << 20, 32 << 20
"""Heap for look-ahead: an operator's input whose keys are announced at a time, blocks that come into memory
at a time, and rows above which no more are read ahead."""

ROW_BYTES = 88
"""Bytes in files of the rows with which tools were measured."""

RESTS_ON = (
    f"CPU time of a core, measured for rows of {ROW_BYTES} bytes in files on a local disk; storage and "
    "network are taken to keep up"
)
"""The measurement that the times of tools rest on, in words."""

_PYTHON_BYTES = 300 << 20
"""Memory of a task's Python process: the most that any tool had, of 190 to 270 MB."""

_START_S = 1.0
"""Seconds of CPU in which a core starts its Python worker, which Spark uses again."""

_FILTER_BYTES = 10
"""Bytes of a Bloom filter that a row takes while its file is written."""

_HALVED = pieces(0, "", 1, 2)[0].disk_bytes({0: 1000}) / 1000


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


@dataclass(frozen=True)
class Tool:
    """The cost of a tool.

    Attributes:
        name: the command.
        million_s: seconds of CPU for a million rows of `ROW_BYTES`.
        byte_ns: nanoseconds of CPU for each byte that a row has more or less, measured between 88 and 643.
        disk: bytes of local disk that a task needs, by the bytes in files of its partition.
        task_s: seconds of CPU in which each task starts a program of its own.
        memory_bytes: memory that a task needs outside the JVM of its executor.
        filter_bytes: the same for each row of its partition.
    """

    name: str
    million_s: float
    byte_ns: float
    disk: float
    task_s: float = 0.0
    memory_bytes: int = _PYTHON_BYTES
    filter_bytes: int = 0

    def cpu_s(self, rows: float, row_bytes: float) -> float:
        """Return the seconds of CPU for rows that have this many bytes in files."""
        return rows * max(self.million_s * 1000 + self.byte_ns * (row_bytes - ROW_BYTES), 0.0) / 1e9

    def time(self, rows: float, row_bytes: float, partitions: int, cores: int) -> ToolTime:
        """Return its time, as `tool_times` does."""
        tasks = min(partitions, TASKS_A_CORE * cores) if self.name == "migrate" else partitions
        cpu_s = self.cpu_s(rows, row_bytes)
        time_s = _START_S + math.ceil(tasks / cores) * (cpu_s / tasks + self.task_s)
        disk_bytes = round(self.disk * rows * row_bytes / partitions)
        memory_bytes = round(self.memory_bytes + self.filter_bytes * rows / partitions)
        return ToolTime(self.name, cpu_s, tasks, time_s, disk_bytes, memory_bytes)


TOOLS = (
    Tool("repartition", 2.2, 8, _HALVED, filter_bytes=_FILTER_BYTES // 2),
    Tool("import", 4.2, 12, 2 * SPOOL_RATIO + 1, filter_bytes=_FILTER_BYTES),
    Tool("verify", 0.75, 2.5, 1),
    Tool("export", 0.75, 4, 2),
    Tool("full", 0.55, 4.7, 2),
    Tool("migrate", 3.8, 12, 2, task_s=5.0, memory_bytes=_PYTHON_BYTES + TASK_MEMORY_BYTES),
)
"""The tools that read or write all rows; `repartition` to twice as many partitions."""


def tool_times(rows: float, row_bytes: float, partitions: int, cores: int) -> tuple[ToolTime, ...]:
    """Return the time of each tool for a state in one store a partition.

    Args:
        rows: the rows of all partitions.
        row_bytes: bytes of a row in files.
        partitions: the number of partitions, which are alike.
        cores: cores of the executors that work.
    """
    return tuple(tool.time(rows, row_bytes, partitions, cores) for tool in TOOLS)


def in_time(seconds: float) -> str:
    """Return seconds as people read them, in one unit."""
    for unit, unit_s in (("days", 2 * 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= unit_s:
            return f"{seconds / min(unit_s, 86_400):.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"


@dataclass(frozen=True)
class Requests:
    """Numbers of requests by kind, in S3's terms: LIST, GET, PUT and DELETE."""

    lists: float = 0.0
    gets: float = 0.0
    puts: float = 0.0
    deletes: float = 0.0

    @property
    def total(self) -> float:
        """Requests of all kinds."""
        return self.lists + self.gets + self.puts + self.deletes


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


class Figure(NamedTuple):
    """A line of an estimate: the attribute that it shows, a label, its numbers, and their unit.

    `maximum` is None if there is only one number. The unit is `bytes`, `ms` or empty.
    """

    name: str
    label: str
    average: float
    maximum: float | None = None
    unit: str = ""


def _as(label: str, unit: str = "") -> dict[str, str]:
    return {"label": label, "unit": unit}


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
        name_node_operations_per_minute: operations of an HDFS NameNode for these requests.
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
    stored_bytes: Range = field(metadata=_as("bytes in storage", "bytes"))
    stored_files: Range = field(metadata=_as("files in storage"))
    upload_bytes_per_s: float = field(metadata=_as("bytes uploaded a second", "bytes"))
    write_amplification: float = field(metadata=_as("bytes uploaded per byte of change"))
    merges_per_hour: float = field(metadata=_as("incremental merges an hour"))
    full_per_hour: float = field(metadata=_as("full checkpoints an hour"))
    restore_bytes: Range = field(metadata=_as("bytes that a restore reads", "bytes"))
    restore_files: Range = field(metadata=_as("files that a restore reads"))
    restore_ms: Range = field(metadata=_as("time of a restore", "ms"))
    reasons: Mapping[str, tuple[float, float]]
    requests_per_minute: Requests
    name_node_operations_per_minute: float = field(metadata=_as("NameNode operations a minute"))
    requests_dollars_per_month: float = field(metadata=_as("dollars a month for requests"))
    storage_dollars_per_month: float = field(metadata=_as("dollars a month for storage"))
    memory_bytes: int = field(metadata=_as("memoryBudget that serves {:.0%} of look-ups", "bytes"))
    memory_overhead_bytes: int = field(metadata=_as("memoryOverhead without Python workers", "bytes"))
    look_ahead_bytes: int = field(metadata=_as("heap for look-ahead, each task", "bytes"))
    hit_ratio: float
    executors: int
    executor_cores: int
    batches: int
    is_steady: bool
    tools: tuple[ToolTime, ...]
    tools_rest_on: str = RESTS_ON

    def figures(self) -> Iterator[Figure]:
        """Yield the figures in the order in which they are shown, without the tools."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "reasons":
                for reason, (size_bytes, files) in self.reasons.items():
                    if files:
                        yield Figure("", f"bytes for {reason}", size_bytes, unit="bytes")
                        yield Figure("", f"files for {reason}", files)
            elif each.name == "requests_per_minute":
                for kind in ("puts", "lists", "gets", "deletes"):
                    yield Figure("", f"{kind[:-1].upper()} requests a minute", getattr(value, kind))
            elif each.metadata:
                label, unit = each.metadata["label"].format(self.hit_ratio), each.metadata["unit"]
                average, maximum = astuple(value) if isinstance(value, Range) else (value, None)
                yield Figure(each.name, label, average, maximum, unit)

    def rows(self) -> list[tuple[str, float, float | None]]:
        """Return rows for tables: a name, the average, and the maximum (None: there is only one number)."""
        figures = [
            (f"{figure.label}, ms" if figure.unit == "ms" else figure.label, figure.average, figure.maximum)
            for figure in self.figures()
        ]
        return [
            *figures,
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
    prices = Prices() if prices is None else prices
    cost = CostModel() if cost is None else cost
    for name, value, type_, kind in (
        ("workload", workload, Workload, "workload is a state_store.Workload"),
        ("options", options or {}, Mapping, "options are a mapping by name"),
        ("cost", cost, CostModel, "cost is that of state_store.measure"),
        ("prices", prices, Prices, "prices are a state_store.Prices"),
    ):
        if not isinstance(value, type_):
            raise OptionError(f"{kind}, not {shown(value)}", option=name)
    check_names("options", list(options or ()))
    if not isinstance(hit_ratio, (int, float)) or not 0 < hit_ratio <= 1:
        raise OptionError(f"hit_ratio is above 0 and at most 1, not {shown(hit_ratio)}", option="hit_ratio")
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
        retain, parsed.retained_checkpoints, parsed.retained_age_ms, older_bytes=parsed.retained_older_bytes
    )
    model = copy.copy(cost)
    model.thorough = parsed.restore_verification == FILES
    model.lazy_policy = LazyPolicy.of(parsed, end_bytes)
    store = SimulatedStore(
        workload, parsed, retention, model, maintenance_ms=maintenance_ms, settings=settings
    )
    with reporting(progress, "simulated", 1, "batches") as meter:
        samples, is_steady = _steady(_sampled(store, retention.keep, batches, meter), retention.keep)

    def mean(name: str) -> float:
        return sum(getattr(sample, name) for sample in samples) / len(samples)

    def span(name: str, peak: str, times: float = 1.0) -> Range:
        return Range(times * mean(name), times * max(getattr(sample, peak) for sample in samples))

    partitions = workload.partitions
    hours = len(samples) * workload.interval_ms / _MS_PER_HOUR
    fulls = sum(sample.merged == FULL for sample in samples)
    merges = sum(sample.merged is not None for sample in samples) - fulls
    stored_bytes = span("kept_bytes", "stored_bytes", partitions)
    asked = sum((sample.requests for sample in samples), Counter())
    requests = Requests(**{kind: count * partitions / 60 / hours for kind, count in asked.items()})
    dollars = (requests.puts + requests.lists) * prices.puts + requests.gets * prices.gets
    memory = memory_for(workload, hit_ratio, max(1.0, partitions / executors))
    row_bytes = workload.table(workload.keys_per_partition).put_bytes
    return Estimate(
        workload,
        texts,
        retain,
        stored_bytes,
        span("kept_files", "stored_files", partitions),
        upload_bytes_per_s=partitions * mean("uploaded_bytes") / workload.interval_ms * 1000,
        write_amplification=mean("uploaded_bytes") / mean("delta_bytes"),
        merges_per_hour=partitions * merges / hours,
        full_per_hour=partitions * fulls / hours,
        restore_bytes=span("chain_bytes", "chain_bytes"),
        restore_files=span("chain_files", "chain_files"),
        restore_ms=span("restore_ms", "restore_ms"),
        reasons={reason: _kept(samples, reason, partitions) for reason in REASONS},
        requests_per_minute=requests,
        name_node_operations_per_minute=requests.total + (NAME_NODE_OPERATIONS_PER_PUT - 1) * requests.puts,
        requests_dollars_per_month=dollars / 1000 * _MINUTES_PER_MONTH,
        storage_dollars_per_month=stored_bytes.average / _BYTES_PER_GB * prices.gigabyte_months,
        memory_bytes=memory,
        memory_overhead_bytes=memory + JVM_BYTES,
        look_ahead_bytes=_look_ahead_bytes(parsed, model, samples),
        hit_ratio=hit_ratio,
        executors=executors,
        executor_cores=executor_cores,
        batches=len(samples),
        is_steady=is_steady,
        tools=tool_times(workload.keys, row_bytes, partitions, executors * executor_cores),
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


def _kept(samples: Sequence[Sample], reason: str, partitions: int) -> tuple[float, float]:
    """Return the average bytes and files that are kept for a reason, over all partitions."""
    kept = [sample.reasons.get(reason, (0, 0)) for sample in samples]
    size_bytes, files = (partitions * sum(numbers) / len(samples) for numbers in zip(*kept, strict=True))
    return size_bytes, files


def _look_ahead_bytes(options: Options, cost: CostModel, samples: Sequence[Sample]) -> int:
    """Return the bytes of heap for look-ahead in each task; 0 if no restore leaves parts in storage."""
    chains = (RestoreWork(sample.chain_files, sample.chain_bytes, deltas=0) for sample in samples)
    is_sparse = options.local_disk_limit_bytes > 0 or any(map(cost.is_lazy, chains))
    return INPUT_BYTES + BLOCK_BYTES + ROWS_AHEAD_BYTES if options.look_ahead and is_sparse else 0


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
    slots = 1 << int(rows * 8 / 5).bit_length()  # of the index, which grows by doubling
    spare_bytes = _SPARE_BATCHES * touches.distinct(1) * row
    used = stores * (rows * row / _FULLEST + spare_bytes + slots * _SLOT_BYTES)
    processes = min(PROCESS_BYTES, used * PROCESS_SHARE / (1 - PROCESS_SHARE))
    return max(MIN_BYTES, round(used + processes))
