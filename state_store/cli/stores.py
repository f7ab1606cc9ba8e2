"""Commands that list the files of stores: `checkpoints`, `chain` and `files`.

`checkpoints` has the versions that can be restored, each with its files; `chain` draws the snapshot and the
deltas of a version; `files` says of each file which checkpoints need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from state_store.cli.command import NUMBER, query_command, spark_option
from state_store.cli.output import (
    Heading,
    Meter,
    fits,
    moment,
    moment_cells,
    number_column,
    print_json,
    print_table,
    print_tree,
    say,
    short_names,
    size,
    text_column,
    wide_option,
)
from state_store.cli.streams import visible
from state_store.core.codec import fields_to_json
from state_store.core.compat import pairwise
from state_store.data.dataset import checkpoints as histories
from state_store.data.maintenance.files import Files, HeldFile, runs
from state_store.data.maintenance.files import files as files_of
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted

_GIVES_WAY = ("why", "files", "stores", "new")
"""Columns that a narrow terminal does not show, the first to go first."""

Column = tuple[Heading, "list[object]"]

_COLUMNS = (
    text_column("store"),
    text_column("file"),
    number_column("bytes"),
    number_column("version"),
    number_column("count"),
    text_column("needed by"),
)
_REASON_COLUMNS = (text_column("reason"), number_column("bytes"), number_column("files"))


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


@query_command(
    "chain",
    examples=("/data/checkpoint --partition 0", "/data/checkpoint --version 41 --json"),
)
@click.option("--version", type=NUMBER, metavar="N", help="The version; default: the one committed last.")
def chain(checkpoint: str, chosen: Filter, as_json: bool, version: int | None) -> None:
    """Draw the files of a version.

    Draws, for each store, the versions that a version came from, newest first: those that a restore reads
    (the newest snapshot and the deltas after it), and, dim, those that are there for older versions.
    """
    with Meter("listed", len(Query.open(checkpoint).stores(chosen))) as meter:
        by_store = histories.chain(
            checkpoint, chosen.operator, chosen.partition, chosen.name, version=version, progress=meter
        )
    if as_json:
        print_json(
            [
                {**fields_to_json(key), "chain": [link.to_json() for link in found.links]}
                for key, found in by_store.items()
            ]
        )
        return
    for found in by_store.values():
        print_tree(_tree(found))


def _tree(chain: histories.StoreChain) -> Tree:
    start = f"snapshot {chain.base.version.number}" if chain.base else "nothing"
    tree = Tree(
        _text(
            f"store {chain.key}, version {chain.version}: a restore reads {size(chain.size_bytes)}, "
            f"from {start} and {counted(len(chain.deltas), 'delta')}"
        )
    )
    for link in chain.links:
        parts = [f"version {link.version.number}", moment(link.made_ms)]
        if link.delta_bytes is not None:
            parts.append(f"delta {size(link.delta_bytes)}")
        if link.snapshot is not None:
            files = counted(link.snapshot_files, "file")
            parts.append(f"{link.snapshot} snapshot of {files}, {size(link.snapshot_bytes)}")
        if link.reason is not None:
            parts.append(f"because: {link.reason}")
        tree.add(_text("  ".join(parts)), style="" if link.is_read else "dim")
    return tree


def _text(text: str) -> Text:
    return Text(visible(text))


@query_command(
    "files",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --unneeded",
        "/data/checkpoint --by-reason",
        "s3://bucket/checkpoint --needed-by 41 --json",
    ),
)
@click.option("--unneeded", is_flag=True, help="List only files with count 0.")
@click.option("--by-reason", is_flag=True, help="Sum the files up by the reason for which they are there.")
@wide_option
@click.option("--needed-by", type=NUMBER, metavar="VERSION", help="List only files that this version needs.")
@spark_option
def files(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    unneeded: bool,
    by_reason: bool,
    needed_by: int | None,
    spark: Any,
    wide: bool,
) -> None:
    """List the files, each with the checkpoints that need it.

    Lists the files of the state with the number of restorable checkpoints that need each (its count) and
    their versions. A file with count 0 is not needed: an attempt wrote it that Spark never committed, or it
    waits for the next clean-up.

    Names of files are shortened; --wide shows them whole. With --by-reason the command sums the files up: the
    snapshots and deltas that the newest version needs, those that only older versions need which can still be
    restored, and those that no version needs.
    """
    with Meter("listed", len(Query.open(checkpoint).stores(chosen))) as meter:
        found = files_of(
            checkpoint,
            chosen.operator,
            chosen.partition,
            chosen.name,
            unneeded=unneeded,
            needed_by=needed_by,
            spark=spark,
            progress=meter,
        )
    if as_json:
        print_json(_summed(found) if by_reason else found.to_json())
        return
    if by_reason:
        print_table(
            _REASON_COLUMNS,
            ((reason, size(size_bytes), count) for reason, (size_bytes, count) in found.by_reason().items()),
        )
        return
    print_table(_COLUMNS, (_row(file, wide=wide) for file in found.all))
    say(f"\n{counted(len(found.all), 'file')}, {size(sum(file.bytes for file in found.all))}")


def _summed(found: Files) -> dict[str, Any]:
    sums = found.by_reason().items()
    reasons = [
        {"reason": reason, "bytes": size_bytes, "files": count} for reason, (size_bytes, count) in sums
    ]
    return {"checkpoint": found.checkpoint, "reasons": reasons}


def _row(file: HeldFile, *, wide: bool) -> tuple[object, ...]:
    versions = runs(sorted({version.number for version in file.holders}))
    path = file.path if wide else short_names(file.path)
    return str(file.key), path, file.bytes, file.origin, len(file.holders), versions or "-"
