"""`state-store diff`: what changed between two versions of the state."""

from __future__ import annotations

import click

from state_store.cli.rows.chosen import Chosen, metered, state_command
from state_store.cli.rows.printed import format_options, limit_option, print_first


@state_command(
    "diff",
    examples=(
        "/data/checkpoint 40 41",
        "/data/checkpoint 40 --format json",
        "s3://bucket/checkpoint 1 41 --feed --format csv --output changes.csv",
    ),
)
@format_options
@limit_option
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
    with Chosen(checkpoint, operator, store, newer).open() as state:
        reader = state.changes(older) if feed else state.diff(older)
        told = f"changes from version {older} to version {state.version}"
        with metered(state, "read", prints=target is None):
            print_first(reader, reader.schema, form, target, limit, told)
