"""`state-store show`: rows of the state."""

from __future__ import annotations

from collections.abc import Sequence

import click

from state_store.cli.command import NUMBER
from state_store.cli.rows.chosen import Chosen, metered, parsed_key, state_command, version_options
from state_store.cli.rows.formats import format_options, limit_option, most_rows, print_first
from state_store.cli.streams import is_utc
from state_store.data.dataset.sql import MEMORY, Condition, moment_columns
from state_store.errors import OptionError


@state_command(
    "show",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --where \"flights > 100 and carrier <> 'AA'\" --columns carrier,flights",
        '/data/checkpoint --order-by "flights desc" --limit 10',
        "/data/checkpoint --key AA --version 41 --json",
        "/data/checkpoint --store left --limit 0 --format parquet --output left.parquet",
    ),
)
@version_options
@format_options
@limit_option
@click.option("--columns", metavar="NAMES", help="Only these columns, separated by commas, in this order.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Only rows for which this SQL is true: \"n > 5 and name = 'x'\". Nulls are as in SQL.",
)
@click.option("--order-by", metavar="ORDER", help='The order of the rows in SQL: "n desc, name".')
@click.option(
    "--memory", metavar="SIZE", default=MEMORY, show_default=True, help="The most memory that sorting takes."
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="VALUE",
    help="Only rows of this key: a value for each of its columns in order, or NAME=VALUE for each.",
)
@click.option(
    "--partition", "partitions", type=NUMBER, multiple=True, metavar="N", help="Only this partition."
)
def show(
    chosen: Chosen,
    form: str,
    target: str | None,
    limit: int | None,
    columns: str | None,
    where: str | None,
    order_by: str | None,
    memory: str,
    keys: Sequence[str],
    partitions: Sequence[int],
) -> None:
    """Show rows of the state.

    Shows the rows of one store in the version that Spark committed last, or another, with the user's own
    columns. Neither Spark nor a JVM is needed. Times are in the local zone in tables, and in UTC in JSON and
    CSV.
    """
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if names is not None and not all(names):
        raise OptionError("--columns has an empty name: give names, separated by commas", option="--columns")
    with chosen.open(partitions or None) as state:
        key = parsed_key(state, keys) if keys else None
        if order_by is None:
            condition = (
                None if where is None else Condition(where, state.view, option="--where", utc=is_utc())
            )
            reader = state.scan(names, condition, key=key)
        else:
            maximum = most_rows(form, limit)
            reader = state.ordered(
                order_by, names, where, key=key, limit=maximum, memory=memory, utc=is_utc()
            )
        described = f"row of version {state.version}"
        with metered(state, "read", prints=target is None):
            print_first(reader, reader.schema, form, target, limit, described, moment_columns(state.view))
