"""The table of docs/state.md: the rates that `estimate` uses, and the times that it computes from them."""

from __future__ import annotations

from rich import filesize

from state_store.data.estimation.estimate import ROW_BYTES, TOOLS, in_time, tool_times

SIZES = ((10, 200, 1), (1_000, 200, 1), (1_000, 200, 100), (10_000, 2_000, 200))
"""Gigabytes of files, partitions, cores."""

HEADINGS = (
    "",
    "s a million rows",
    "MB/s",
    "10 GB, one core",
    "1 TB, one core",
    "1 TB, 100 cores",
    "10 TB, 200 cores",
    "disk a task, 10 TB",
    "memory a task, 10 TB",
)


def table() -> list[str]:
    """Return the lines of the table."""
    columns = [
        tool_times(gigabytes * 1e9 / ROW_BYTES, ROW_BYTES, partitions, cores)
        for gigabytes, partitions, cores in SIZES
    ]
    lines = [HEADINGS, ("---",) * len(HEADINGS)]
    for number, tool in enumerate(TOOLS):
        times = [column[number] for column in columns]
        lines.append(
            (
                f"`{tool.name}`",
                f"{tool.million_s:.2g}",
                f"{ROW_BYTES / tool.million_s:.0f}",
                *(in_time(time.time_s) for time in times),
                filesize.decimal(times[-1].task_disk_bytes),
                filesize.decimal(times[-1].task_memory_bytes),
            )
        )
    return [f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("| --- ", "|---") for cells in lines]


def test_the_table_of_state_is_computed_from_the_rates(checkout):
    page = (checkout / "docs/state.md").read_text(encoding="utf-8")
    assert "\n".join(table()).replace("--- |", "---|") in page
