"""Times of the tools on state, predicted from measured rates: seconds of CPU by rows and their bytes.

A tool's work is divided into tasks, a store each, which cores take one after the other. So the time is that
of the cores' rounds, and no more cores work than there are tasks. docs/state.md has a table that follows from
these rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from state_store.data.dataset.rewriting.store_writer import SPOOL_RATIO, pieces
from state_store.data.migration import TASK_MEMORY_BYTES, TASKS_A_CORE

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


_HALVED = pieces(0, "", 1, 2)[0].disk_bytes({0: 1000}) / 1000

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
