"""Commands that write a copy of a checkpoint: `cp`, `import`, `repartition` and `migrate`.

The checkpoint that they read stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from state_store.cli import command as declare
from state_store.cli.output import Meter, print_json, say, size
from state_store.core.settings.option import BYTES
from state_store.data.dataset.rewriting.beside import is_beside
from state_store.data.dataset.rewriting.copying import MAX_PARTITIONS, copy
from state_store.data.dataset.rewriting.copying import repartition as write_repartitioned
from state_store.data.dataset.rewriting.importing import import_state
from state_store.data.migration import STORES
from state_store.data.migration import migrate as write_migrated
from state_store.data.query import Query
from state_store.data.query.arguments import counted, require_arrow
from state_store.errors import OptionError

_GOES_ON = "the same command goes on with it"


@declare.command(
    "cp",
    examples=("/data/checkpoint s3://bucket/checkpoint", "/data/checkpoint /backup/41 --json"),
    note=declare.DIRECTORIES,
)
@declare.json_option
@declare.spark_option
@declare.directory_argument
@declare.target_argument
def cp(checkpoint: str, target: str, as_json: bool, spark: Any) -> None:
    """Copy a checkpoint, consistent while the query runs.

    Copies the version that Spark committed last, all its stores and Spark's logs, to TARGET; a query that is
    started on the copy goes on from there. Files that TARGET has already are not copied again: the same
    command continues a copy that was interrupted. Meanwhile a lease protects the files of DIR from deletion.
    """
    stores = len(Query.open(checkpoint).stores())
    with Meter("copied", stores) as meter, declare.writing(target, if_interrupted=_GOES_ON):
        done = copy(checkpoint, target, spark=spark, progress=meter)
    if as_json:
        print_json(
            {"version": done.version, "files": done.files, "bytes": done.size_bytes, "present": done.present}
        )
    else:
        present = f"; {counted(done.present, 'file')} had been copied before" if done.present else ""
        say(f"version {done.version}: {counted(done.files, 'file')}, {size(done.size_bytes)} copied{present}")


@declare.state_command(
    "import",
    examples=(
        "/data/checkpoint /data/rows.parquet /data/checkpoint-filled",
        "/data/checkpoint /data/left.parquet /data/checkpoint-filled --store left",
        "/data/checkpoint left=/data/left.parquet right=/data/right.parquet /data/checkpoint-filled",
    ),
    stopped=True,
)
@declare.json_option
@declare.spark_option
@click.argument("rows", metavar="ROWS...", nargs=-1, required=True)
@declare.target_argument
def import_(
    checkpoint: str,
    operator: int,
    store: str | None,
    as_json: bool,
    rows: tuple[str, ...],
    target: str,
    spark: Any,
) -> None:
    """Replace the state of a stopped query by rows of tables.

    Writes the checkpoint of a stopped query to TARGET, which must be empty. ROWS, a file or directory of
    Parquet, takes the place of the state of one store; for several stores at once, such as both sides of a
    join or the variables and timers of transformWithState, give NAME=ROWS for each. Stores that are not named
    stay as they are. ROWS has the columns that show prints. Start the query with TARGET as its
    checkpointLocation, and never again with DIR, which stays as it is. A query that has never run gets its
    checkpoint from state_store.bootstrap (Python). With --master Spark reads ROWS and its executors write
    TARGET: all need both at the same place.
    """
    require_arrow()
    rows_by_store = _rows_of_stores(rows, store)
    query = Query.open(checkpoint)
    declare.note_unfinished(query)
    advice = "remove it before the command is run again"
    with Meter("written", len(query.stores())) as meter, declare.writing(target, if_interrupted=advice):
        done = import_state(checkpoint, rows_by_store, target, operator, store, spark=spark, progress=meter)
    if as_json:
        print_json({"version": done.version, "rows": done.rows, "bytes": done.size_bytes})
    else:
        say(f"version {done.version}: {counted(done.rows, 'row')}, {size(done.size_bytes)}, in {target}")


def _rows_of_stores(rows: Sequence[str], store: str | None) -> Any:
    """Return one store's rows, or those of several by their names. Raise OptionError if names are missing."""
    pairs = [text.partition("=") for text in rows]
    unnamed = [  # of s3://bucket/day=2024-02-29/rows.parquet, too
        text for text, (name, equals, _) in zip(rows, pairs, strict=True) if not equals or "/" in name
    ]
    if len(rows) == 1 and (unnamed or Path(rows[0]).exists()):
        return rows[0]
    if unnamed:
        raise OptionError(f"for several stores give NAME=ROWS for each: '{unnamed[0]}' has no name")
    if store is not None:
        raise OptionError(f"--store {store} is for rows without a name, not for {rows[0]}")
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise OptionError(f"a store has rows twice: {', '.join(names)}. Give each name once")
    return {name: path for name, _, path in pairs}


@declare.command(
    "repartition",
    examples=(
        "/data/checkpoint /data/checkpoint-64 --partitions 64",
        "/data/checkpoint /data/checkpoint-64 --partitions 64 --running",
    ),
    note=declare.DIRECTORIES,
)
@declare.json_option
@click.option(
    "--partitions",
    type=declare.WholeNumber(1, MAX_PARTITIONS),
    required=True,
    metavar="N",
    help="Partitions in TARGET.",
)
@click.option("--running", is_flag=True, help="The query runs on: write most of TARGET now.")
@declare.spark_option
@declare.directory_argument
@declare.target_argument
def repartition(
    checkpoint: str, target: str, partitions: int, running: bool, as_json: bool, spark: Any
) -> None:
    """Give a query another number of partitions.

    Writes the checkpoint of a stopped query to TARGET, which must be empty, with the state of the version
    that Spark committed last in N partitions. Start the query with TARGET as its checkpointLocation, and
    never again with DIR, which stays as it is. The command needs disk in the directory of temporary files
    (TMPDIR) for the old and the new partitions of a group: those whose numbers differ by multiples of the
    greatest common divisor of both numbers of partitions. With --master all executors need TARGET at the same
    place, and the same command goes on with what an interrupted one has written.

    With --running most of TARGET is written while the query runs. Then stop the query, and run the same
    command without --running: it moves only what has changed since. If the query runs on for longer than it
    retains versions, run the command with --running again.
    """
    require_arrow()
    query = Query.open(checkpoint)
    if not running:
        declare.note_unfinished(query)
    stores = sum(
        1 if operator.is_in_one_partition else partitions
        for operator in query.operators
        for _ in operator.stores
    )
    goes_on = running or spark is not None or is_beside(target, query.location, partitions)
    advice = _GOES_ON if goes_on else "remove it before the command is run again"
    with Meter("written", stores) as meter, declare.writing(target, if_interrupted=advice):
        done = write_repartitioned(
            checkpoint, target, partitions, running=running, spark=spark, progress=meter
        )
    if as_json:
        print_json(
            {
                "version": done.version,
                "rows": done.rows,
                "bytes": done.size_bytes,
                "complete": done.is_complete,
            }
        )
        return
    say(f"version {done.version}: {counted(done.rows, 'row')}, {size(done.size_bytes)}, in {target}")
    if not done.is_complete:
        say(f"{target} is incomplete: stop the query, then run the same command without --running")


_MIGRATE_NOTE = """\
SOURCE and TARGET are paths or file: or hdfs: URIs, or others that the Hadoop of the installed pyspark reads,
with --conf. Java is needed, and the pyspark of the Spark that runs the query or a later one."""


def _pairs(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise click.BadParameter(f"'{name}' is not KEY=VALUE")
    return {name: value for name, _, value in pairs}


@declare.command(
    "migrate",
    examples=(
        "/data/checkpoint /data/checkpoint-incremental --to incremental",
        "/data/checkpoint-incremental /data/checkpoint-rocksdb --to rocksdb --format 1",
        "hdfs://nn/checkpoint hdfs://nn/checkpoint-2 --to incremental --memory 8g --json",
    ),
    note=_MIGRATE_NOTE,
)
@declare.json_option
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_pairs,
    help="Configuration of the stores; spark.hadoop.* is Hadoop's.",
)
@click.option(
    "--memory",
    type=declare.OptionValue(BYTES, 64 << 20, 1 << 40),
    metavar="SIZE",
    help="The heap of the JVM that copies, such as 4g; at least 64m.",
)
@click.option(
    "--threads",
    type=declare.WholeNumber(1, 1024),
    metavar="N",
    help="Stores at a time. Default: the number of cores, at most 4.",
)
@click.option(
    "--format",
    "checkpoint_format",
    metavar="N",
    type=declare.WholeNumber(1, 2),
    help="Spark's checkpoint format in TARGET. Default: 2 if the store has it.",
)
@click.option("--to", type=click.Choice(list(STORES)), required=True, help="The state store of TARGET.")
@declare.spark_option
@click.argument("source", metavar="SOURCE", type=declare.Location())
@declare.target_argument
def migrate(
    source: str,
    target: str,
    to: str,
    checkpoint_format: int | None,
    threads: int | None,
    memory: int | None,
    conf: dict[str, str],
    as_json: bool,
    spark: Any,
) -> None:
    """Move a stopped query to another state store, as a copy.

    Copies the version that Spark committed last from Spark's HDFS-backed store, Spark's RocksDB store or the
    incremental store to TARGET, which must be empty, with Spark's logs. Start the query with TARGET as its
    checkpointLocation: it goes on where it stopped. SOURCE stays as it is, to go back to; never let the query
    go on from both. With --master all executors need Java and TARGET at the same place, each task starts a
    JVM, and the same command goes on with what an interrupted one has written.
    """
    query = Query.of_any_store(source)
    declare.note_unfinished(query)
    stores = len(query.stores())
    advice = "remove it before the command is run again" if spark is None else _GOES_ON
    with Meter("copied", stores, unit="rows") as meter, declare.writing(target, if_interrupted=advice):
        done = write_migrated(
            source,
            target,
            to,
            checkpoint_format=checkpoint_format,
            threads=threads,
            memory=None if memory is None else f"{memory >> 10}k",
            conf=conf,
            spark=spark,
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
