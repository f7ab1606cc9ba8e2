"""`state-store cp`: a checkpoint copied while its query runs."""

from __future__ import annotations

import click

from state_store.cli.command import DIRECTORIES, command, json_option
from state_store.cli.output import output, print_json, size
from state_store.cli.progress import Meter
from state_store.data.dataset.rewriting.copying import copy
from state_store.data.query import Query


@command(
    "cp",
    examples=("/data/checkpoint s3://bucket/checkpoint", "/data/checkpoint /backup/41 --json"),
    note=DIRECTORIES,
)
@json_option
@click.argument("checkpoint", metavar="DIR", type=click.Path(file_okay=False))
@click.argument("target", metavar="TARGET")
def cp(checkpoint: str, target: str, as_json: bool) -> None:
    """Copy a checkpoint, consistent while the query runs.

    Copies the version that Spark committed last, all its stores and Spark's logs, to TARGET; a query that is
    started on the copy goes on from there. What is in TARGET already is not copied again: a copy that broke
    off goes on with the same command. A lease holds the files meanwhile.
    """
    with Meter("copied", len(Query.open(checkpoint).stores())) as meter:
        done = copy(checkpoint, target, progress=meter)
    if as_json:
        print_json(
            {"version": done.version, "files": done.files, "bytes": done.size_bytes, "present": done.present}
        )
    else:
        there = f", {done.present} files were there" if done.present else ""
        output().print(f"version {done.version}: {done.files} files, {size(done.size_bytes)} copied{there}")
