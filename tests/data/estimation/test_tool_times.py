"""The time of tools on a state: by rows, bytes, cores and tasks."""

from __future__ import annotations

import pytest

from state_store.data.dataset.rewriting.store_writer import pieces
from state_store.data.estimation.estimate import ROW_BYTES, TOOLS, estimate, in_time, tool_times
from state_store.data.estimation.workload import Workload, table_size

ROWS, PARTITIONS = 1e9, 100


def named(cores: int, rows: float = ROWS, row_bytes: float = ROW_BYTES, partitions: int = PARTITIONS) -> dict:
    return {time.name: time for time in tool_times(rows, row_bytes, partitions, cores)}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_cores_divide_the_time_until_each_has_a_task(tool):
    alone, ten, hundred, more = (named(cores)[tool.name] for cores in (1, 10, 100, 5_000))
    assert alone.cpu_s == ten.cpu_s == pytest.approx(tool.cpu_s(ROWS, ROW_BYTES))
    assert alone.time_s > alone.cpu_s and alone.tasks <= PARTITIONS
    assert alone.time_s / ten.time_s == pytest.approx(10, rel=0.1)
    assert ten.time_s / hundred.time_s == pytest.approx(10, rel=0.2)
    assert more.time_s == hundred.time_s


def test_a_last_round_of_few_tasks_takes_as_long_as_a_full_one():
    times = [named(cores)["verify"].time_s for cores in (50, 99, 100)]
    assert times[0] == times[1] == pytest.approx(2 * times[2], rel=0.1)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_larger_rows_cost_more_each_and_less_by_the_byte(tool):
    small, large = tool.cpu_s(ROWS, ROW_BYTES), tool.cpu_s(ROWS / 4, 4 * ROW_BYTES)
    assert tool.cpu_s(ROWS, ROW_BYTES) == pytest.approx(1000 * tool.million_s)
    assert tool.cpu_s(ROWS, 4 * ROW_BYTES) > small > 0
    assert large < 1.05 * small
    assert tool.cpu_s(ROWS, 20) > 0


def test_a_task_needs_the_disk_that_the_tool_looks_for():
    size_bytes = round(ROWS * ROW_BYTES / PARTITIONS)
    (piece,) = pieces(0, "", 1, 2)
    times = named(10)
    assert times["repartition"].task_disk_bytes == pytest.approx(piece.disk_bytes({0: size_bytes}), rel=0.01)
    assert times["verify"].task_disk_bytes == size_bytes
    assert times["import"].task_memory_bytes == named(10, rows=10 * ROWS)["import"].task_memory_bytes
    assert times["migrate"].task_memory_bytes > 1 << 30


def test_an_estimate_has_the_times_for_its_rows_and_cores():
    workload = Workload(1e8, 24, 400, 1e6, partitions=40)
    found = estimate(workload, executors=3, executor_cores=4, batches=10)
    assert found.tools == tool_times(1e8, table_size(24, 400, 1e8 / 40).put_bytes, 40, 12)
    assert "88 bytes" in found.tools_rest_on


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "< 1 s"), (59, "59 s"), (61, "1 min"), (3_600, "1 h"), (170_000, "47 h"), (700_000, "8 days")],
)
def test_times_are_shown_in_one_unit(seconds, text):
    assert in_time(seconds) == text
