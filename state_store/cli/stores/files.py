"""`state-store files`: the files of a query's state, each with the checkpoints that need it."""

from __future__ import annotations

import click

from state_store.cli.command import NUMBER, query_command
from state_store.cli.output import (
    number_column,
    print_json,
    print_table,
    runs,
    say,
    size,
    text_column,
)
from state_store.data.maintenance.files import HeldFile
from state_store.data.maintenance.files import files as files_of
from state_store.data.query import Filter

_COLUMNS = (
    text_column("store"),
    text_column("file"),
    number_column("bytes"),
    number_column("written at"),
    number_column("count"),
    text_column("needed by"),
)


@query_command(
    "files",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --unneeded",
        "s3://bucket/checkpoint --needed-by 41 --json",
    ),
)
@click.option("--unneeded", is_flag=True, help="List only files with count 0.")
@click.option("--needed-by", type=NUMBER, metavar="VERSION", help="List only files that this version needs.")
def files(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    unneeded: bool,
    needed_by: int | None,
) -> None:
    """List the files, each with the checkpoints that need it.

    Lists the files of the state with the number of restorable checkpoints that need each (its count) and
    their versions. A file with count 0 is not needed: an attempt wrote it that Spark never committed, or it
    waits for the next clean-up.
    """
    found = files_of(
        checkpoint, chosen.operator, chosen.partition, chosen.name, unneeded=unneeded, needed_by=needed_by
    )
    if as_json:
        print_json(found.to_json())
        return
    print_table(_COLUMNS, map(_row, found.all))
    say(f"\n{len(found.all)} files, {size(sum(file.bytes for file in found.all))}")


def _row(file: HeldFile) -> tuple[object, ...]:
    versions = runs(sorted({version.number for version in file.holders}))
    return str(file.key), file.path, file.bytes, file.origin, len(file.holders), versions or "-"
