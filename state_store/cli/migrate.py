"""`state-store migrate`: a stopped query to another state store."""

from __future__ import annotations

import click

from state_store.cli.command import (
    Location,
    OptionValue,
    WholeNumber,
    command,
    json_option,
    note_unfinished,
    target_argument,
    writing,
)
from state_store.cli.output import print_json, say
from state_store.cli.progress_display import Meter
from state_store.core.settings.option import BYTES
from state_store.data.migration import STORES
from state_store.data.migration import migrate as write_migrated
from state_store.data.query import Query
from state_store.data.query.arguments import counted

_NOTE = """\
SOURCE and TARGET are paths or file: or hdfs: URIs, or others that the Hadoop of the installed pyspark reads,
with --conf. Java is needed, and the pyspark of the Spark that runs the query or a later one."""


def _pairs(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise click.BadParameter(f"'{name}' is not KEY=VALUE")
    return {name: value for name, _, value in pairs}


@command(
    "migrate",
    examples=(
        "/data/checkpoint /data/checkpoint-incremental --to incremental",
        "/data/checkpoint-incremental /data/checkpoint-rocksdb --to rocksdb --format 1",
        "hdfs://nn/checkpoint hdfs://nn/checkpoint-2 --to incremental --memory 8g --json",
    ),
    note=_NOTE,
)
@json_option
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_pairs,
    help="Configuration of the stores; spark.hadoop.* is Hadoop's.",
)
@click.option(
    "--memory",
    type=OptionValue(BYTES, 64 << 20, 1 << 40),
    metavar="SIZE",
    help="The heap of the JVM that copies, such as 4g; at least 64m.",
)
@click.option(
    "--threads",
    type=WholeNumber(1, 1024),
    metavar="N",
    help="Stores at a time. Default: the number of cores, at most 4.",
)
@click.option(
    "--format",
    "checkpoint_format",
    metavar="N",
    type=WholeNumber(1, 2),
    help="Spark's checkpoint format in TARGET. Default: 2 if the store has it.",
)
@click.option("--to", type=click.Choice(list(STORES)), required=True, help="The state store of TARGET.")
@click.argument("source", metavar="SOURCE", type=Location())
@target_argument
def migrate(
    source: str,
    target: str,
    to: str,
    checkpoint_format: int | None,
    threads: int | None,
    memory: int | None,
    conf: dict[str, str],
    as_json: bool,
) -> None:
    """Move a stopped query to another state store, as a copy.

    Copies the version that Spark committed last from Spark's HDFS-backed store, Spark's RocksDB store or the
    incremental store to TARGET, which must be empty, with Spark's logs. Start the query with TARGET as its
    checkpointLocation: it goes on where it stopped. SOURCE stays as it is, to go back to; never let the query
    go on from both.
    """
    query = Query.of_any_store(source)
    note_unfinished(query)
    stores = len(query.stores())
    advice = "remove it before the command is run again"
    with Meter("copied", stores, unit="rows") as meter, writing(target, if_interrupted=advice):
        done = write_migrated(
            source,
            target,
            to,
            checkpoint_format=checkpoint_format,
            threads=threads,
            memory=None if memory is None else f"{memory >> 10}k",
            conf=conf,
            progress=meter,
        )
    if as_json:
        print_json(
            {
                "from": done.source,
                "to": done.target,
                "format": done.checkpoint_format,
                "version": done.version,
                "stores": done.stores,
                "rows": done.rows,
            }
        )
    else:
        say(
            f"version {done.version}: {counted(done.rows, 'row')} of {counted(done.stores, 'store')}, from "
            f"{done.source} to "
            f"{done.target} in checkpoint format {done.checkpoint_format}, in {target}"
        )
