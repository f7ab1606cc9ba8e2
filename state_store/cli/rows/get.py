"""`state-store get`: the state of a key."""

from __future__ import annotations

from collections.abc import Sequence

import click

from state_store.cli.output import print_json
from state_store.cli.rows.cells import plain, rows_as_values
from state_store.cli.rows.chosen import Chosen, metered, parsed_key, state_command, version_options
from state_store.cli.rows.formats import DOCUMENT, format_options, print_row, print_rows
from state_store.data.dataset.sql import moment_columns
from state_store.errors import MissingError


@state_command(
    "get",
    examples=(
        "/data/checkpoint AA",
        "/data/checkpoint carrier=AA day=2024-02-29 --json",
        "/data/checkpoint AA --batch 40",
        "/data/checkpoint AA --store left --format csv",
    ),
)
@version_options
@format_options
@click.argument("key", nargs=-1, required=True, metavar="KEY...")
def get(chosen: Chosen, form: str, target: str | None, key: Sequence[str]) -> None:
    """Print the state of one key.

    KEY is a value for each column of the key in order, or NAME=VALUE for each; structs are JSON, and windows
    may be as tables show them. null stands for a null value, except in a column of texts: use show --where
    "NAME is null" there. A value that begins with a minus comes after --. Only the partition that has the
    key is read. The exit code is 3 if there is no such key. A side of a join has several rows for a key, and
    a list has one for each element: --json prints these as an array, and a single row as an object.
    """
    with chosen.open() as state:
        with metered(state, "read", 1):
            rows = state.rows_of(parsed_key(state, key))
        if not rows.num_rows:
            named = ", ".join(text if text.strip() else f"'{text}'" for text in key)
            raise MissingError(f"there is no key {named} in version {state.version}")
        if not state.has_one_row_a_key or target is not None or form not in ("table", DOCUMENT):
            print_rows(iter(rows.to_batches()), rows.schema, form, target, moment_columns(state.view))
            return
        (row,) = (row for batch in rows.to_batches() for row in rows_as_values(batch))
        if form == DOCUMENT:
            print_json(plain(row))
        else:
            print_row(row, moment_columns(state.view))
