"""`state-store diff`: what changed between two versions of the state."""

from __future__ import annotations

import click

from state_store.cli.output import output
from state_store.cli.rows_output import format_options, print_rows
from state_store.cli.show import LIMIT, first_rows
from state_store.cli.state_command import open_state, state_command


@state_command(
    "diff",
    examples=(
        "/data/checkpoint 40 41",
        "/data/checkpoint 40 --format json",
        "s3://bucket/checkpoint 1 41 --feed --format csv --output changes.csv",
    ),
)
@format_options
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most so many rows, 0: all. Default: {LIMIT} in a table, else all.",
)
@click.option("--feed", is_flag=True, help="What each version wrote, instead of before and after.")
@click.argument("older", type=int, metavar="OLDER")
@click.argument("newer", type=int, required=False, metavar="[NEWER]")
def diff(
    checkpoint: str,
    operator: int,
    store: str,
    older: int,
    newer: int | None,
    form: str,
    target: str | None,
    limit: int | None,
    feed: bool,
) -> None:
    """Show what changed between two versions.

    Shows each key that was added, changed or removed after version OLDER (0: the empty state) and up to NEWER
    (default: the version that Spark committed last), with its values before and after. It reads the deltas;
    where one is gone, both versions.
    """
    with open_state(checkpoint, operator, store, newer) as state:
        reader = state.changes(older) if feed else state.diff(older)
        most = LIMIT if limit is None and form == "table" else limit or None
        shown = print_rows(first_rows(reader, most), reader.schema, form, target)
        if form == "table" and target is None:
            more = f" (the first {most}; --limit 0 shows all)" if shown == most else ""
            output().print(f"\n{shown} changes from version {older} to version {state.version}{more}")
