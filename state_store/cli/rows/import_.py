"""`state-store import`: the rows of a table as the state of a stopped query."""

from __future__ import annotations

import click

from state_store.cli.command import json_option
from state_store.cli.output import output, print_json, size
from state_store.cli.progress import Meter
from state_store.cli.rows.chosen import check_pyarrow, state_command
from state_store.dataset.importing import import_rows
from state_store.query import Query


@state_command(
    "import",
    examples=(
        "/data/checkpoint /data/rows.parquet /data/checkpoint-filled",
        "/data/checkpoint /data/left.parquet /data/checkpoint-filled --store left",
    ),
    stopped=True,
)
@json_option
@click.argument("rows", metavar="ROWS", type=click.Path())
@click.argument("target", metavar="TARGET")
def import_(checkpoint: str, operator: int, store: str, as_json: bool, rows: str, target: str) -> None:
    """Give a stopped query the rows of a table as its state.

    Writes the checkpoint of a stopped query to TARGET, which must be empty, with ROWS, a file or directory of
    Parquet, as its state in place of what it has; stores that are not named stay as they are. ROWS has the
    columns that show prints. Start the query with TARGET as its checkpointLocation, and never again with DIR,
    which stays as it is. A query that has never run gets its checkpoint from state_store.bootstrap (Python).
    """
    check_pyarrow()
    with Meter("written", len(Query.open(checkpoint).stores())) as meter:
        done = import_rows(checkpoint, rows, target, operator, store, progress=meter)
    if as_json:
        print_json({"version": done.version, "rows": done.rows, "bytes": done.size_bytes})
    else:
        output().print(f"version {done.version}: {done.rows} rows, {size(done.size_bytes)}, in {target}")
