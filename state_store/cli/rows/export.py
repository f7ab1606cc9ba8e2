"""`state-store export`: the state as Parquet files."""

from __future__ import annotations

from typing import Any

from state_store.cli.command import json_option, target_argument, writing
from state_store.cli.output import print_json, say
from state_store.cli.progress_display import Meter
from state_store.cli.rows.chosen import Chosen, state_command, version_options
from state_store.cli.spark_session import spark_option
from state_store.data.query.arguments import counted


@state_command(
    "export", examples=("/data/checkpoint /data/state", "/data/checkpoint /data/left --store left --batch 40")
)
@version_options
@json_option
@spark_option
@target_argument
def export(chosen: Chosen, as_json: bool, target: str, spark: Any) -> None:
    """Write the state as Parquet files.

    Writes a file for each partition into the new directory TARGET. The metadata of each file's schema name
    the query, the store, the version, the batch and the watermark.
    """
    with chosen.open() as state:
        advice = "remove it before the command is run again"
        with Meter("exported", len(state.partitions)) as meter, writing(target, if_interrupted=advice):
            rows = state.export(target, spark=spark, progress=meter)
        described = state.described()
    if as_json:
        print_json({**described, "rows": rows, "target": target})
    else:
        say(f"{counted(rows, 'row')} of version {described['version']} in {target}")
