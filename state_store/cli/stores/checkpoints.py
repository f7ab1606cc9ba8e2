"""`state-store checkpoints`: which versions can be restored, from what, and what each added."""

from __future__ import annotations

from typing import Any

import click

from state_store.cli.command import query_command
from state_store.cli.output import Heading, moment, output, print_json, print_table, size
from state_store.data.dataset import checkpoints as histories
from state_store.data.query import Filter

_TEXTS = ("made", "wrote", "starts from")
_COLUMNS = [Heading(name, name not in _TEXTS) for name in histories.HEADINGS]


@query_command(
    "checkpoints",
    examples=(
        "/data/checkpoint",
        "hdfs://namenode/checkpoint --each",
        "s3://bucket/checkpoint --partition 3 --json",
    ),
)
@click.option("--each", is_flag=True, help="A table for each store instead of a sum over partitions.")
def checkpoints(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    each: bool,
) -> None:
    """List the checkpoints that can be restored.

    Lists the versions of the state that can be restored, oldest first: version v is the state after batch
    v - 1. Partitions of a store are summed up in one line; --each gives every store its own.
    """
    history = histories.checkpoints(checkpoint, chosen)
    if as_json:
        print_json(_json(history))
        return
    for heading, lines in history.groups(each=each):
        output().print(f"{heading}\n")
        print_table(_COLUMNS, map(_row, lines))
        output().print()


def _row(line: histories.Line) -> tuple[object, ...]:
    return (
        line.version,
        moment(line.made_ms),
        line.stores,
        line.wrote,
        line.starts_from,
        line.deltas,
        line.files,
        size(line.size_bytes),
        size(line.new_bytes),
    )


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
                "checkpoints": [one.to_json() for one in versions],
            }
            for key, versions in history.items()
        ],
    }
