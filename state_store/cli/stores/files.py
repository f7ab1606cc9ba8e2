"""`state-store files`: the files of a query's state, each with the checkpoints that need it."""

from __future__ import annotations

from typing import Any

import click

from state_store.cli.command import NUMBER, query_command
from state_store.cli.output import (
    number_column,
    print_json,
    print_table,
    say,
    short_names,
    size,
    text_column,
    wide_option,
)
from state_store.cli.progress_display import Meter
from state_store.cli.spark_session import spark_option
from state_store.data.maintenance.files import Files, HeldFile, runs
from state_store.data.maintenance.files import files as files_of
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted

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
