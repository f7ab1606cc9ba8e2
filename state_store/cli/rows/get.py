"""`state-store get`: the state of one key."""

from __future__ import annotations

from collections.abc import Sequence

import click

from state_store.cli.command import json_option
from state_store.cli.rows.chosen import Chosen, parsed_key, state_command, version_options
from state_store.cli.rows.printed import print_row
from state_store.errors import MissingError


@state_command(
    "get",
    examples=(
        "/data/checkpoint AA",
        "/data/checkpoint carrier=AA day=2024-02-29 --json",
        "/data/checkpoint AA --batch 40",
    ),
)
@version_options
@json_option
@click.argument("key", nargs=-1, required=True, metavar="KEY...")
def get(
    chosen: Chosen,
    as_json: bool,
    key: Sequence[str],
) -> None:
    """Print the state of one key.

    KEY is a value for each column of the key in order, or NAME=VALUE for each. Only the partition that the
    key is in is read. Exits with 3 when there is no such key. A side of a join has several rows a key: use
    show --key.
    """
    with chosen.open() as state:
        row = state.get(parsed_key(state, key))
        if row is None:
            raise MissingError(f"there is no key {', '.join(key)} in version {state.version}")
        print_row(row, as_json=as_json)
