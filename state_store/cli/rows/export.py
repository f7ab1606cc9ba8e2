"""`state-store export`: the state as Parquet files."""

from __future__ import annotations

from state_store.cli.command import json_option, target_argument, writing
from state_store.cli.output import print_json, say
from state_store.cli.rows.chosen import Chosen, metered, state_command, version_options
from state_store.data.query.arguments import counted


@state_command(
    "export", examples=("/data/checkpoint /data/state", "/data/checkpoint /data/left --store left --batch 40")
)
@version_options
@json_option
@target_argument
def export(chosen: Chosen, as_json: bool, target: str) -> None:
    """Write the state as Parquet files.

    Writes a file for each partition into the new directory TARGET. The metadata of each file's schema name
    the query, the store, the version, the batch and the watermark.
    """
    with chosen.open() as state:
        advice = "remove it before the command is run again"
        with metered(state, "exported"), writing(target, if_interrupted=advice):
            rows = state.export(target)
        described = state.described()
    if as_json:
        print_json({**described, "rows": rows, "target": target})
    else:
        say(f"{counted(rows, 'row')} of version {described['version']} in {target}")
