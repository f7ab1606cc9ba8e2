"""`state-store repartition`: another number of partitions for a stopped query."""

from __future__ import annotations

import click

from state_store.cli.command import DIRECTORIES, command, json_option
from state_store.cli.output import output, print_json, size
from state_store.cli.progress import Meter
from state_store.data.dataset.packages import require_arrow
from state_store.data.dataset.rewriting.repartition import repartition as write_repartitioned
from state_store.data.query import Query


@command("repartition", examples=("/data/checkpoint /data/checkpoint-64 --partitions 64",), note=DIRECTORIES)
@json_option
@click.option("--partitions", type=click.IntRange(min=1), required=True, metavar="N", help="How many.")
@click.argument("checkpoint", metavar="DIR", type=click.Path(file_okay=False))
@click.argument("target", metavar="TARGET")
def repartition(checkpoint: str, target: str, partitions: int, as_json: bool) -> None:
    """Give a stopped query another number of partitions.

    Writes the checkpoint of a stopped query to TARGET, which must be empty, with the state of the version
    that Spark committed last in N partitions. Start the query with TARGET as its checkpointLocation, and
    never again with DIR, which stays as it is. Needs memory for the rows of a partition, and disk for those
    of a store in the directory of temporary files (TMPDIR).
    """
    require_arrow()
    stores = sum(
        1 if one.is_in_one_partition else partitions
        for one in Query.open(checkpoint).operators
        for _ in one.stores
    )
    with Meter("written", stores) as meter:
        done = write_repartitioned(checkpoint, target, partitions, progress=meter)
    if as_json:
        print_json({"version": done.version, "rows": done.rows, "bytes": done.size_bytes})
    else:
        output().print(f"version {done.version}: {done.rows} rows, {size(done.size_bytes)}, in {target}")
