"""`state-store cp`: copy a checkpoint while its query runs."""

from __future__ import annotations

from typing import Any

from state_store.cli.command import (
    DIRECTORIES,
    command,
    directory_argument,
    json_option,
    target_argument,
    writing,
)
from state_store.cli.output import print_json, say, size
from state_store.cli.progress_display import Meter
from state_store.cli.spark_session import spark_option
from state_store.data.dataset.rewriting.copying import copy
from state_store.data.query import Query
from state_store.data.query.arguments import counted

_HELP_AFTER_CTRL_C = "the same command goes on with it"


@command(
    "cp",
    examples=("/data/checkpoint s3://bucket/checkpoint", "/data/checkpoint /backup/41 --json"),
    note=DIRECTORIES,
)
@json_option
@spark_option
@directory_argument
@target_argument
def cp(checkpoint: str, target: str, as_json: bool, spark: Any) -> None:
    """Copy a checkpoint, consistent while the query runs.

    Copies the version that Spark committed last, all its stores and Spark's logs, to TARGET; a query that is
    started on the copy goes on from there. Files that TARGET has already are not copied again: the same
    command continues a copy that was interrupted. Meanwhile a lease protects the files of DIR from deletion.
    """
    stores = len(Query.open(checkpoint).stores())
    with Meter("copied", stores) as meter, writing(target, if_interrupted=_HELP_AFTER_CTRL_C):
        done = copy(checkpoint, target, spark=spark, progress=meter)
    if as_json:
        print_json(
            {"version": done.version, "files": done.files, "bytes": done.size_bytes, "present": done.present}
        )
    else:
        present = f"; {counted(done.present, 'file')} had been copied before" if done.present else ""
        say(f"version {done.version}: {counted(done.files, 'file')}, {size(done.size_bytes)} copied{present}")
