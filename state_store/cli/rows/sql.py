"""`state-store sql`: a SELECT over the stores of a query."""

from __future__ import annotations

import click

from state_store.cli.command import DIRECTORY, NUMBER, command, directory_argument, utc_option
from state_store.cli.progress_display import Meter
from state_store.cli.rows.chosen import Chosen, version_options
from state_store.cli.rows.formats import format_options, limit_option, print_first
from state_store.cli.streams import is_utc
from state_store.data.dataset.opening import sql_batches
from state_store.data.dataset.sql import MEMORY
from state_store.data.query import Query

_NOTE = f"""\
{DIRECTORY} The query may run meanwhile.

\b
Tables:
  state              the operator's only store, the left side of a join, or the first variable
  NAME               any store of the operator: SHOW TABLES lists them
  operator_1.NAME    a store of another operator
  state_at(41)       a table at another version, or at a moment: left_at('2 hours ago')
"""


@command(
    "sql",
    examples=(
        '/data/checkpoint "select carrier, sum(flights) from state group by all order by 2 desc"',
        '/data/checkpoint "from state_at(40) anti join state using (carrier)" --json',
        '/data/checkpoint "show tables"',
        '/data/checkpoint "select * from state" --at "2 hours ago" --format parquet --output rows.parquet',
    ),
    note=_NOTE,
)
@version_options
@format_options
@limit_option
@utc_option
@click.option(
    "--memory", metavar="SIZE", default=MEMORY, show_default=True, help="The most memory that DuckDB takes."
)
@click.option(
    "--operator",
    type=NUMBER,
    default=0,
    show_default=True,
    metavar="N",
    help="The operator whose stores are named without a schema.",
)
@directory_argument
@click.argument("query", metavar="QUERY")
def sql(chosen: Chosen, form: str, target: str | None, limit: int | None, memory: str, query: str) -> None:
    """Query the state in SQL.

    Runs one SELECT of DuckDB's SQL over the stores of a query, at the version that Spark committed last, or
    another. Only the columns, partitions and keys that the query names are read. DuckDB runs in this process
    and sees the state alone: no files, no network.
    """
    stores = len(Query.open(chosen.checkpoint).stores())
    with Meter("read", stores) as meter:
        reader = sql_batches(
            chosen.checkpoint,
            query,
            operator=chosen.operator,
            version=chosen.version,
            batch=chosen.batch,
            at=chosen.at,
            memory=memory,
            utc=is_utc(),
            progress=meter,
        )
        print_first(reader, reader.schema, form, target, limit, "row")
