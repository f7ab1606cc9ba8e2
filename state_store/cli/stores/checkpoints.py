"""`state-store checkpoints`: the versions that can be restored, each with its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from state_store.cli.command import query_command
from state_store.cli.output import (
    Heading,
    fits,
    moment_cells,
    number_column,
    print_json,
    print_table,
    say,
    size,
    text_column,
)
from state_store.cli.progress_display import Meter
from state_store.core.compat import pairwise
from state_store.data.dataset import checkpoints as histories
from state_store.data.query import Filter, Query

_GIVES_WAY = ("why", "files", "stores", "new")
"""Columns that a narrow terminal does not show, the first to go first."""


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
        _print(lines)
        say()


def _print(lines: Sequence[histories.Line]) -> None:
    """Print a line for each version: on a narrow terminal with fewer columns, and times in whole seconds."""
    columns = _columns(lines)
    brief = _columns(lines, brief=True) if _is_brief(lines) else columns
    choices = [_without(columns, _GIVES_WAY[:count]) for count in range(len(_GIVES_WAY))]
    choices += [_without(brief, _GIVES_WAY[:-1]), _without(columns, _GIVES_WAY), _without(brief, _GIVES_WAY)]
    print_table(*next((shown for shown in choices if fits(*shown)), choices[-1]))


Column = tuple[Heading, "list[object]"]


def _columns(lines: Sequence[histories.Line], *, brief: bool = False) -> list[Column]:
    """Return the columns of the table with their cells; `brief`: times have no milliseconds."""
    moments = [
        _to_seconds(line.made_ms) if brief and line.made_ms is not None else line.made_ms for line in lines
    ]
    committed, times = moment_cells("committed", moments, brief=brief)
    number, text = number_column, text_column
    reasons: list[object] = [line.reasons for line in lines]
    return [
        (number("version"), [line.version for line in lines]),
        (committed, list(times)),
        (text("wrote"), [line.wrote for line in lines]),
        (
            text("restore"),
            [f"{line.starts_from}{f' +{line.deltas}' if line.deltas else ''}" for line in lines],
        ),
        (number("bytes"), [size(line.size_bytes) for line in lines]),
        (number("new"), [size(line.new_bytes) for line in lines]),
        (number("stores"), [line.stores for line in lines]),
        (number("files"), [line.files for line in lines]),
        *([(text("why"), reasons)] if any(reasons) else []),
    ]


def _without(
    columns: Sequence[Column], names: Sequence[str]
) -> tuple[list[Heading], list[tuple[object, ...]]]:
    """Return the headings and the rows of a table without some columns."""
    kept = [(heading, cells) for heading, cells in columns if heading.name not in names]
    return [heading for heading, _ in kept], list(zip(*(cells for _, cells in kept)))


def _restore(line: histories.Line) -> str:
    return f"{line.starts_from} +{line.deltas}" if line.deltas else line.starts_from


def _to_seconds(milliseconds: int) -> int:
    """Return the first whole second at or after a moment, in milliseconds."""
    return -(-milliseconds // 1000) * 1000


def _is_brief(lines: Sequence[histories.Line]) -> bool:
    """Return True if every time, in whole seconds, still names its version: none was committed in between."""
    moments = sorted(line.made_ms for line in lines if line.made_ms is not None)
    return not any(before < after <= _to_seconds(before) for before, after in pairwise(moments))


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
