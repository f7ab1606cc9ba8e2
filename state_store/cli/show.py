"""`state-store show`: rows of the state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from state_store.cli.output import output
from state_store.cli.rows_output import format_options, print_rows
from state_store.cli.state_command import open_state, parsed_key, state_command, version_options
from state_store.cli.where import condition

if TYPE_CHECKING:
    import pyarrow

LIMIT = 20


@state_command(
    "show",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --where \"flights > 100 and carrier <> 'AA'\" --columns carrier,flights",
        "/data/checkpoint --key AA --version 41",
        "/data/checkpoint --store left --limit 0 --format parquet --output left.parquet",
    ),
)
@version_options
@format_options
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most so many rows, 0: all. Default: {LIMIT} in a table, else all.",
)
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
    checkpoint: str,
    operator: int,
    store: str,
    version: int | None,
    batch: int | None,
    at: datetime | None,
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
    with open_state(checkpoint, operator, store, version, batch, at, partitions or None) as state:
        chosen = None if where is None else condition(where, state.schema)
        if keys:
            of_key = state.key_filter(parsed_key(state, keys))
            chosen = of_key if chosen is None else chosen & of_key
        reader = state.scan(columns.split(",") if columns else None, chosen)
        most = LIMIT if limit is None and form == "table" else limit or None
        shown = print_rows(first_rows(reader, most), reader.schema, form, target)
        if form == "table" and target is None:
            more = f" (the first {most}; --limit 0 shows all)" if shown == most else ""
            output().print(f"\n{shown} rows of version {state.version}{more}")


def first_rows(batches: Iterable[pyarrow.RecordBatch], most: int | None) -> Iterator[pyarrow.RecordBatch]:
    """At most so many rows of the batches; None: all."""
    left = most
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return
