"""`state-store checkpoints`: the versions that can be restored, each with its files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from state_store.cli.command import query_command
from state_store.cli.output import (
    moment_cells,
    number_column,
    output,
    print_json,
    print_table,
    say,
    size,
    text_column,
)
from state_store.cli.progress import Meter
from state_store.data.dataset import checkpoints as histories
from state_store.data.query import Filter, Query

_WIDE = 110
"""Columns of a terminal that has room for all columns of the table."""


@query_command(
    "checkpoints",
    examples=(
        "/data/checkpoint",
        "hdfs://namenode/checkpoint --each",
        "s3://bucket/checkpoint --partition 3 --json",
    ),
)
@click.option("--each", is_flag=True, help="Print a table for each store instead of a sum over partitions.")
def checkpoints(checkpoint: str, chosen: Filter, as_json: bool, each: bool) -> None:
    """List the versions that can be restored.

    Lists the versions of the state that can be restored, oldest first: version v is the state after batch
    v - 1. Partitions of a store are summed up in one line; --each prints a table for every store. "restore"
    is the snapshot that a restore begins with, and the number of deltas after it; "wrote" is what was made at
    the version, and "why" says for what reason; "new" are its bytes that no older version has.
    """
    with Meter("listed", len(Query.open(checkpoint).stores(chosen))) as meter:
        history = histories.checkpoints(
            checkpoint, chosen.operator, chosen.partition, chosen.name, progress=meter
        )
    if as_json:
        print_json(_json(history))
        return
    for heading, lines in history.groups(each=each):
        say(f"{heading}\n")
        _print(lines, is_wide=not sys.stdout.isatty() or output().width >= _WIDE)
        say()


def _print(lines: Sequence[histories.Line], *, is_wide: bool) -> None:
    committed, times = moment_cells("committed", [line.made_ms for line in lines])
    number, text = number_column, text_column
    headings = [number("version"), committed, text("wrote"), text("restore"), number("bytes"), number("new")]
    if is_wide:
        headings += [number("stores"), number("files")]
    has_reasons = is_wide and any(line.reasons for line in lines)
    if has_reasons:
        headings.append(text("why"))
    rows = []
    for line, time in zip(lines, times):
        restore = f"{line.starts_from} +{line.deltas}" if line.deltas else line.starts_from
        row = [line.version, time, line.wrote, restore, size(line.size_bytes), size(line.new_bytes)]
        row += [line.stores, line.files] if is_wide else []
        rows.append([*row, line.reasons] if has_reasons else row)
    print_table(headings, rows)


def _json(history: histories.Checkpoints) -> dict[str, Any]:
    query = history.query
    names = {operator.id: operator.name for operator in query.operators}
    return {
        "checkpoint": query.location,
        "batch": query.committed_batch(),
        "stores": [
            {
                "operator": key.operator,
                "operator_name": names[key.operator],
                "partition": key.partition,
                "name": key.name,
                "checkpoints": [version.to_json() for version in versions],
            }
            for key, versions in history.items()
        ],
    }
