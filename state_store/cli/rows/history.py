"""`state-store history`: the state of a key over the versions."""

from __future__ import annotations

from collections.abc import Sequence

import click

from state_store.cli.command import json_option
from state_store.cli.output import moment, number_column, print_json, print_table, text_column
from state_store.cli.rows.chosen import Chosen, parsed_key, state_command, version_options
from state_store.cli.rows.printed import cell, plain

_COLUMNS = (number_column("version"), number_column("batch"), text_column("committed"), text_column("state"))


@state_command(
    "history", examples=("/data/checkpoint AA", "/data/checkpoint carrier=AA day=2024-02-29 --json")
)
@version_options
@json_option
@click.option("--every", is_flag=True, help="Versions that did not write the key, too.")
@click.argument("key", nargs=-1, required=True, metavar="KEY...")
def history(
    chosen: Chosen,
    as_json: bool,
    every: bool,
    key: Sequence[str],
) -> None:
    """Show the state of a key over the versions.

    Shows each version that wrote the key, oldest first, as far back as deltas go. KEY is as for get.
    """
    with chosen.open() as state:
        given = parsed_key(state, key)
        found = [one for one in state.history(given) if every or one.is_changed]
        names = [*state.columns.key_names, "partition_id"]
    if as_json:
        print_json(
            [
                {
                    "version": one.version,
                    "batch": one.version - 1,
                    "committed_ms": one.committed_ms,
                    "is_changed": one.is_changed,
                    "row": plain(one.row),
                }
                for one in found
            ]
        )
        return
    rows = (
        (
            one.version,
            one.version - 1,
            moment(one.committed_ms),
            "(none)"
            if one.row is None
            else cell({name: value for name, value in one.row.items() if name not in names}),
        )
        for one in found
    )
    print_table(_COLUMNS, rows)
