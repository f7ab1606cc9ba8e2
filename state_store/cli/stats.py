"""`state-store stats`: what is big in the state, and what is hot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from state_store.cli.command import json_option
from state_store.cli.output import number_column, output, print_json, print_table, size, text_column
from state_store.cli.rows_output import cell, plain
from state_store.cli.state_command import Chosen, state_command, version_options
from state_store.dataset.stats import RECENT, SAMPLE, Statistics

_PARTITIONS = (number_column("partition"), number_column("rows"), number_column("bytes"))
_SIZES = (text_column("bytes of"), *(number_column(one) for one in ("50 %", "95 %", "99 %", "largest")))
_LARGEST = (text_column("largest rows"), number_column("partition"), number_column("bytes"))
_RECENT = tuple(number_column(one) for one in ("version", "puts", "removes", "delta"))
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
    files, all column families. What versions changed is what their deltas say.
    """
    with chosen.open() as state:
        found = state.stats(sample=None if exact else SAMPLE, recent=recent)
    if as_json:
        print_json(
            plain({**asdict(found), "rows": found.rows, "is_exact": found.is_exact, "skew": found.skew})
        )
    else:
        _print(found)


def _print(found: Statistics) -> None:
    of = "all partitions" if found.is_exact else f"partitions {', '.join(map(str, found.sampled))}"
    output().print(
        f"version {found.version}: {found.rows} rows in {len(found.partitions)} partitions, "
        f"{size(found.size_bytes)} in files; the largest partition has {found.skew:.2f} times the average\n"
    )
    largest = sorted(found.partitions, key=lambda one: -one.rows)[:_MOST_PARTITIONS]
    print_table(_PARTITIONS, ((one.partition, one.rows, size(one.size_bytes)) for one in largest))
    output().print(f"\nsizes of {of}, {found.average_bytes:.0f} bytes a row on average:\n")
    print_table(_SIZES, (("keys", *found.key_bytes), ("values", *found.value_bytes)))
    output().print()
    print_table(_LARGEST, ((cell(one.key), one.partition, one.size_bytes) for one in found.largest))
    output().print()
    print_table(_RECENT, _recent(found))


def _recent(found: Statistics) -> Iterator[tuple[object, ...]]:
    for one in found.recent:
        yield one.version, one.puts, one.removes, size(one.delta_bytes)
