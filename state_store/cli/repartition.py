"""`state-store repartition`: another number of partitions for a stopped query."""

from __future__ import annotations

from typing import Any

import click

from state_store.cli.command import (
    DIRECTORIES,
    WholeNumber,
    command,
    directory_argument,
    json_option,
    note_unfinished,
    target_argument,
    writing,
)
from state_store.cli.output import print_json, say, size
from state_store.cli.progress_display import Meter
from state_store.cli.spark_session import spark_option
from state_store.data.dataset.rewriting.repartition import MOST_PARTITIONS
from state_store.data.dataset.rewriting.repartition import repartition as write_repartitioned
from state_store.data.query import Query
from state_store.data.query.arguments import counted, require_arrow

GOES_ON = "the same command goes on with it"


@command("repartition", examples=("/data/checkpoint /data/checkpoint-64 --partitions 64",), note=DIRECTORIES)
@json_option
@click.option(
    "--partitions",
    type=WholeNumber(1, MOST_PARTITIONS),
    required=True,
    metavar="N",
    help="Partitions in TARGET.",
)
@spark_option
@directory_argument
@target_argument
def repartition(checkpoint: str, target: str, partitions: int, as_json: bool, spark: Any) -> None:
    """Give a stopped query another number of partitions.

    Writes the checkpoint of a stopped query to TARGET, which must be empty, with the state of the version
    that Spark committed last in N partitions. Start the query with TARGET as its checkpointLocation, and
    never again with DIR, which stays as it is. The command needs disk in the directory of temporary files
    (TMPDIR) for the old and the new partitions of a group: those whose numbers differ by multiples of the
    greatest common divisor of both numbers of partitions. With --master all executors need TARGET at the same
    place, and the same command goes on with what an interrupted one has written.
    """
    require_arrow()
    query = Query.open(checkpoint)
    note_unfinished(query)
    stores = sum(
        1 if operator.is_in_one_partition else partitions
        for operator in query.operators
        for _ in operator.stores
    )
    advice = "remove it before the command is run again" if spark is None else GOES_ON
    with Meter("written", stores) as meter, writing(target, if_interrupted=advice):
        done = write_repartitioned(checkpoint, target, partitions, spark=spark, progress=meter)
    if as_json:
        print_json({"version": done.version, "rows": done.rows, "bytes": done.size_bytes})
    else:
        say(f"version {done.version}: {counted(done.rows, 'row')}, {size(done.size_bytes)}, in {target}")
