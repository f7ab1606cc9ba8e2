"""`state-store show`: rows of the state."""

from __future__ import annotations

from collections.abc import Sequence

import click

from state_store.cli.rows.chosen import Chosen, metered, parsed_key, state_command, version_options
from state_store.cli.rows.printed import format_options, limit_option, print_first
from state_store.cli.rows.where import condition


@state_command(
    "show",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --where \"flights > 100 and carrier <> 'AA'\" --columns carrier,flights",
        "/data/checkpoint --key AA --version 41 --json",
        "/data/checkpoint --store left --limit 0 --format parquet --output left.parquet",
    ),
)
@version_options
@format_options
@limit_option
@click.option("--columns", metavar="NAMES", help="Only these columns, separated by commas, in this order.")
@click.option("--where", metavar="CONDITION", help="Only rows of which it is true: n > 5 and name = 'x'.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="VALUE",
    help="Only rows of this key: a value for each of its columns in order, or NAME=VALUE for each.",
)
@click.option("--partition", "partitions", type=int, multiple=True, metavar="N", help="Only this partition.")
def show(
    chosen: Chosen,
    form: str,
    target: str | None,
    limit: int | None,
    columns: str | None,
    where: str | None,
    keys: Sequence[str],
    partitions: Sequence[int],
) -> None:
    """Show rows of the state.

    Shows the rows of one store in the version that Spark committed last, or another, with the user's own
    columns. Needs neither Spark nor a JVM.
    """
    with chosen.open(partitions or None) as state:
        kept = None if where is None else condition(where, state.schema)
        if keys:
            of_key = state.key_filter(parsed_key(state, keys))
            kept = of_key if kept is None else kept & of_key
        reader = state.scan(columns.split(",") if columns else None, kept)
        with metered(state, "read", prints=target is None):
            print_first(reader, reader.schema, form, target, limit, f"rows of version {state.version}")
