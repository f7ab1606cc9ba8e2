"""`state-store stats`: what is big in the state, and what is hot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from state_store.cli.command import json_option
from state_store.cli.output import moment, number_column, output, print_json, print_table, size, text_column
from state_store.cli.rows.chosen import Chosen, metered, state_command, version_options
from state_store.cli.rows.printed import cell, plain
from state_store.data.dataset.ages import Ages
from state_store.data.dataset.expiry import WATERMARK
from state_store.data.dataset.stats import RECENT, SAMPLE, Statistics

_PARTITIONS = (number_column("partition"), number_column("rows"), number_column("bytes"))
_SIZES = (text_column("bytes of"), *(number_column(one) for one in ("50 %", "95 %", "99 %", "largest")))
_LARGEST = (text_column("largest rows"), number_column("partition"), number_column("bytes"))
_RECENT = tuple(number_column(one) for one in ("version", "puts", "removes", "delta"))
_AGES = (text_column("last changed"), number_column("keys"), number_column("share"))
_AGE_LINES = 5
_MOST_PARTITIONS = 10


@state_command(
    "stats", examples=("/data/checkpoint", "/data/checkpoint --exact --json", "/data/checkpoint --store left")
)
@version_options
@json_option
@click.option("--exact", is_flag=True, help=f"Read all partitions for sizes, not {SAMPLE}.")
@click.option(
    "--recent",
    type=click.IntRange(min=0),
    default=RECENT,
    show_default=True,
    metavar="N",
    help="Versions to look at.",
)
def stats(
    chosen: Chosen,
    as_json: bool,
    exact: bool,
    recent: int,
) -> None:
    """Say what is big and what is hot.

    Rows and bytes of each partition are exact. Sizes of keys and values and the largest rows are those of a
    few partitions, and the output says of which; --exact reads all. Bytes of a partition are those of its
    files, all column families. What versions changed is what their deltas say, and since when keys have not
    been changed, too, as far as there are deltas. Rows that have had their time are those that the next batch
    may remove: by a time-out, a time to live, a timer, or a window that the watermark has passed.
    """
    with chosen.open() as state:
        sample = None if exact else SAMPLE
        with metered(state, "read", sample):
            statistics = state.stats(sample=sample, recent=recent)
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
    output().print(
        f"version {statistics.version}: {statistics.rows} rows in {len(statistics.partitions)} partitions, "
        f"{size(statistics.size_bytes)} in files; "
        f"the largest partition has {statistics.skew:.2f} times the average\n"
    )
    largest = sorted(statistics.partitions, key=lambda one: -one.rows)[:_MOST_PARTITIONS]
    print_table(_PARTITIONS, ((one.partition, one.rows, size(one.size_bytes)) for one in largest))
    output().print(f"\nsizes of {scope}, {statistics.average_bytes:.0f} bytes a row on average:\n")
    print_table(_SIZES, (("keys", *statistics.key_bytes), ("values", *statistics.value_bytes)))
    output().print()
    print_table(_LARGEST, ((cell(one.key), one.partition, one.size_bytes) for one in statistics.largest))
    output().print()
    print_table(_RECENT, _recent(statistics))
    if statistics.ages.keys:
        output().print(f"\nkeys of {scope} by their last change:\n")
        print_table(_AGES, _ages(statistics.ages))
    if statistics.expired is not None:
        one = statistics.expired
        clock = "the watermark" if one.clock == WATERMARK else "the time"
        output().print(
            f"\n{one.rows} of {one.looked_at} rows of {scope} ({one.share:.1%}) have had their time: "
            f"{one.column} against {clock}, {moment(one.at_ms)}"
        )


def _ages(ages: Ages) -> Iterator[tuple[object, ...]]:
    """The newest versions one by one, those before them together."""
    changes = ages.last_changes
    older, newer = changes[:-_AGE_LINES], changes[-_AGE_LINES:]
    groups = [(f"in version {one.version}, {moment(one.committed_ms)}", one.keys) for one in reversed(newer)]
    if older:
        since = (
            f"in versions {older[0].version} to {older[-1].version}, since {moment(older[0].committed_ms)}"
        )
        groups.append((since, sum(one.keys for one in older)))
    if ages.older:
        before = f"before version {changes[0].version}" if changes else "before any delta that is there"
        groups.append((before, ages.older))
    yield from ((name, keys, f"{keys / ages.keys:.1%}") for name, keys in groups)


def _recent(found: Statistics) -> Iterator[tuple[object, ...]]:
    for one in found.recent:
        yield one.version, one.puts, one.removes, size(one.delta_bytes)
