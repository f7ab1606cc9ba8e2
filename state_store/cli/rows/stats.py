"""`state-store stats`: sizes of the state, and its changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from state_store.cli.command import WholeNumber, json_option
from state_store.cli.output import (
    moment,
    number_column,
    print_json,
    print_table,
    say,
    size,
    text_column,
)
from state_store.cli.progress_display import Meter
from state_store.cli.rows.cells import cell, plain
from state_store.cli.rows.chosen import Chosen, state_command, version_options
from state_store.cli.spark_session import spark_option
from state_store.data.dataset.stats import RECENT, SAMPLE, WATERMARK, Ages, Statistics
from state_store.data.query.arguments import counted

_PARTITIONS = (number_column("partition"), number_column("rows"), number_column("bytes"))
_SIZES = (text_column("bytes of"), *(number_column(name) for name in ("50 %", "95 %", "99 %", "largest")))
_LARGEST = (text_column("largest rows"), number_column("partition"), number_column("bytes"))
_RECENT = tuple(number_column(name) for name in ("version", "puts", "removes", "delta"))
_AGES = (text_column("last changed"), number_column("keys"), number_column("share"))
_AGE_LINES = 5
_MOST_PARTITIONS = 10


@state_command(
    "stats", examples=("/data/checkpoint", "/data/checkpoint --exact --json", "/data/checkpoint --store left")
)
@version_options
@json_option
@click.option("--exact", is_flag=True, help=f"Read all partitions for sizes, not only {SAMPLE}.")
@click.option(
    "--recent",
    type=WholeNumber(0, 10_000),
    default=RECENT,
    show_default=True,
    metavar="N",
    help="The number of versions whose changes are shown.",
)
@spark_option
def stats(chosen: Chosen, as_json: bool, exact: bool, recent: int, spark: Any) -> None:
    """Show the sizes of the state, and its changes.

    Rows and bytes of each partition are exact. Sizes of keys and values and the largest rows are those of a
    few partitions, which the output names; --exact reads all. Bytes of a partition are those of its
    files, with all column families. The changes of versions, and the last changes of keys, are known as far
    back as there are deltas. Rows whose time is over are those that the next batch may remove: by a time-out,
    a time to live, a timer, or a window that the watermark has passed.
    """
    with chosen.open() as state:
        sample = None if exact else SAMPLE
        count = len(state.partitions)
        with Meter("read", count if sample is None else min(sample, count)) as meter:
            statistics = state.stats(sample=sample, recent=recent, spark=spark, progress=meter)
    if as_json:
        print_json(
            plain(
                {
                    **asdict(statistics),
                    "rows": statistics.rows,
                    "is_exact": statistics.is_exact,
                    "skew": statistics.skew,
                    "expired_share": None if statistics.expired is None else statistics.expired.share,
                }
            )
        )
    else:
        _print(statistics)


def _print(statistics: Statistics) -> None:
    scope = (
        "all partitions" if statistics.is_exact else f"partitions {', '.join(map(str, statistics.sampled))}"
    )
    partitions = counted(len(statistics.partitions), "partition")
    say(
        f"version {statistics.version}: {counted(statistics.rows, 'row')} in {partitions}, "
        f"{size(statistics.size_bytes)} in files; "
        f"the largest partition has {statistics.skew:.2f} times the average\n"
    )
    largest = sorted(statistics.partitions, key=lambda found: -found.rows)[:_MOST_PARTITIONS]
    print_table(_PARTITIONS, ((found.partition, found.rows, size(found.size_bytes)) for found in largest))
    say(f"\nsizes of {scope}, {statistics.average_bytes:.0f} bytes a row on average:\n")
    print_table(_SIZES, (("keys", *statistics.key_bytes), ("values", *statistics.value_bytes)))
    say()
    print_table(
        _LARGEST, ((cell(row.key), row.partition, row.size_bytes) for row in statistics.largest), cut=True
    )
    say()
    print_table(_RECENT, _recent(statistics))
    if statistics.ages.keys:
        say(f"\nkeys of {scope} by their last change:\n")
        print_table(_AGES, _ages(statistics.ages))
    if statistics.expired is not None:
        expired = statistics.expired
        clock = "the watermark" if expired.clock == WATERMARK else "the time"
        say(
            f"\n{expired.rows} of {counted(expired.looked_at, 'row')} of {scope} ({expired.share:.1%}): "
            f"their time is over, by {expired.column} and {clock}, {moment(expired.at_ms)}"
        )


def _ages(ages: Ages) -> Iterator[tuple[object, ...]]:
    """Yield a line for each of the newest versions, and lines for those before them together."""
    changes = ages.last_changes
    older, newer = changes[:-_AGE_LINES], changes[-_AGE_LINES:]
    groups = [(f"in version {at.version}, {moment(at.committed_ms)}", at.keys) for at in reversed(newer)]
    if older:
        first, last = older[0], older[-1]
        span = f"version {first.version}" if first is last else f"versions {first.version} to {last.version}"
        groups.append((f"in {span}, since {moment(first.committed_ms)}", sum(at.keys for at in older)))
    if ages.older:
        before = f"before version {changes[0].version}" if changes else "before all deltas"
        groups.append((before, ages.older))
    yield from ((name, keys, f"{keys / ages.keys:.1%}") for name, keys in groups)


def _recent(found: Statistics) -> Iterator[tuple[object, ...]]:
    for at in found.recent:
        yield at.version, at.puts, at.removes, size(at.delta_bytes)
