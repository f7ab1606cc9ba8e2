"""`state-store export`: the state as Parquet files."""

from __future__ import annotations

import click

from state_store.cli.command import json_option
from state_store.cli.output import output, print_json
from state_store.cli.rows.chosen import Chosen, metered, state_command, version_options


@state_command(
    "export", examples=("/data/checkpoint /data/state", "/data/checkpoint /data/left --store left --batch 40")
)
@version_options
@json_option
@click.argument("target", metavar="TARGET", type=click.Path())
def export(
    chosen: Chosen,
    as_json: bool,
    target: str,
) -> None:
    """Write the state as Parquet files.

    Writes a file for each partition into the new directory TARGET. The metadata of each file's schema say of
    which query, store, version and batch it is, and the watermark.
    """
    with chosen.open() as state:
        with metered(state, "exported"):
            rows = state.export(target)
        described = state.described()
    if as_json:
        print_json({**described, "rows": rows, "target": target})
    else:
        output().print(f"{rows} rows of version {described['version']} in {target}")
