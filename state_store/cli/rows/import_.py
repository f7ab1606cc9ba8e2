"""`state-store import`: the rows of tables as the state of a stopped query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from state_store.cli.command import json_option, note_unfinished, target_argument, writing
from state_store.cli.output import print_json, say, size
from state_store.cli.progress_display import Meter
from state_store.cli.rows.chosen import state_command
from state_store.core.compat import zip
from state_store.data.dataset.rewriting.importing import import_state
from state_store.data.query import Query
from state_store.data.query.arguments import counted, require_arrow
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
@target_argument
def import_(
    checkpoint: str, operator: int, store: str | None, as_json: bool, rows: tuple[str, ...], target: str
) -> None:
    """Replace the state of a stopped query by rows of tables.

    Writes the checkpoint of a stopped query to TARGET, which must be empty. ROWS, a file or directory of
    Parquet, takes the place of the state of one store; for several stores at once, such as both sides of a
    join or the variables and timers of transformWithState, give NAME=ROWS for each. Stores that are not named
    stay as they are. ROWS has the columns that show prints. Start the query with TARGET as its
    checkpointLocation, and never again with DIR, which stays as it is. A query that has never run gets its
    checkpoint from state_store.bootstrap (Python).
    """
    require_arrow()
    given = _given(rows, store)
    query = Query.open(checkpoint)
    note_unfinished(query)
    advice = "remove it before the command is run again"
    with Meter("written", len(query.stores())) as meter, writing(target, if_interrupted=advice):
        done = import_state(checkpoint, given, target, operator, store, progress=meter)
    if as_json:
        print_json({"version": done.version, "rows": done.rows, "bytes": done.size_bytes})
    else:
        say(f"version {done.version}: {counted(done.rows, 'row')}, {size(done.size_bytes)}, in {target}")


def _given(rows: Sequence[str], store: str | None) -> Any:
    """Return the rows of one store, or those of several by their names. Raise OptionError if names lack."""
    if len(rows) == 1 and ("=" not in rows[0] or Path(rows[0]).exists()):
        return rows[0]
    pairs = [text.partition("=") for text in rows]
    unnamed = [text for text, (_, equals, _) in zip(rows, pairs, strict=True) if not equals]
    if unnamed:
        raise OptionError(f"for several stores give NAME=ROWS for each: '{unnamed[0]}' has no name")
    if store is not None:
        raise OptionError(f"--store {store} is for rows without a name, not for {rows[0]}")
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise OptionError(f"a store has rows twice: {', '.join(names)}. Give each name once")
    return {name: path for name, _, path in pairs}
