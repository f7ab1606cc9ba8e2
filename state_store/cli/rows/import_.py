"""`state-store import`: the rows of tables as the state of a stopped query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from state_store.cli.command import json_option
from state_store.cli.output import output, print_json, size
from state_store.cli.progress import Meter
from state_store.cli.rows.chosen import state_command
from state_store.core.compat import zip
from state_store.data.dataset.packages import require_arrow
from state_store.data.dataset.rewriting.importing import import_state
from state_store.data.query import DEFAULT_NAME, Query
from state_store.errors import OptionError


@state_command(
    "import",
    examples=(
        "/data/checkpoint /data/rows.parquet /data/checkpoint-filled",
        "/data/checkpoint /data/left.parquet /data/checkpoint-filled --store left",
        "/data/checkpoint left=/data/left.parquet right=/data/right.parquet /data/checkpoint-filled",
    ),
    stopped=True,
)
@json_option
@click.argument("rows", metavar="ROWS...", nargs=-1, required=True)
@click.argument("target", metavar="TARGET")
def import_(
    checkpoint: str, operator: int, store: str, as_json: bool, rows: tuple[str, ...], target: str
) -> None:
    """Give a stopped query the rows of tables as its state.

    Writes the checkpoint of a stopped query to TARGET, which must be empty, with ROWS, a file or directory of
    Parquet, as its state in place of what it has, or of several stores at once, each as NAME=ROWS: both sides
    of a join, the variables and timers of transformWithState. Stores that are not named stay as they are.
    ROWS has the columns that show prints. Start the query with TARGET as its checkpointLocation, and never
    again with DIR, which stays as it is. A query that has never run gets its checkpoint from
    state_store.bootstrap (Python).
    """
    require_arrow()
    given = _given(rows, store)
    with Meter("written", len(Query.open(checkpoint).stores())) as meter:
        done = import_state(
            checkpoint, given, target, operator, None if store == DEFAULT_NAME else store, progress=meter
        )
    if as_json:
        print_json({"version": done.version, "rows": done.rows, "bytes": done.size_bytes})
    else:
        output().print(f"version {done.version}: {done.rows} rows, {size(done.size_bytes)}, in {target}")


def _given(rows: Sequence[str], store: str) -> Any:
    """The rows of one store, or of several by their names. Raises OptionError."""
    if len(rows) == 1 and ("=" not in rows[0] or Path(rows[0]).exists()):
        return rows[0]
    pairs = [one.partition("=") for one in rows]
    unnamed = [one for one, (_, equals, _) in zip(rows, pairs, strict=True) if not equals]
    if unnamed:
        raise OptionError(f"of several stores the rows are given as NAME=ROWS each, not as '{unnamed[0]}'")
    if store != DEFAULT_NAME:
        raise OptionError(f"--store {store} is for rows without a name, not for {rows[0]}")
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise OptionError(f"a store is given rows once, not twice: {', '.join(names)}")
    return {name: path for name, _, path in pairs}
