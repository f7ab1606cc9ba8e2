"""`state-store full`: make a full checkpoint now and so cut the chain, of a running or a stopped query."""

from __future__ import annotations

import click

from state_store.cli import exit_codes
from state_store.cli.command import query_command
from state_store.cli.output import number_column, print_error, print_json, print_table, size, text_column
from state_store.cli.progress import Meter
from state_store.cli.stores.at_once import stores_option
from state_store.data.maintenance.full_checkpoints import COMPRESSIONS, FullCheckpoint, full_checkpoint
from state_store.data.query import Filter, Query

_COLUMNS = (
    text_column("store"),
    number_column("version"),
    number_column("keys"),
    number_column("files"),
    number_column("bytes"),
    number_column("chain before"),
    number_column("bytes before"),
    number_column("ms"),
)


@query_command(
    "full",
    examples=(
        "/data/checkpoint",
        "hdfs://namenode/checkpoint --operator 0 --partition 1",
        "s3://bucket/checkpoint --stores 8 --compression lz4 --json",
    ),
)
@stores_option("worked on")
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    help="The query's snapshotCompression. Default: that of the store's newest snapshot.",
)
def full(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    stores: int,
    compression: str | None,
) -> int:
    """Make a full checkpoint now, which depends on no older file.

    Makes a full checkpoint of the version that Spark committed last: its files are all new, so later
    checkpoints depend on nothing older. Works beside the running query, which goes on from it, and on a
    stopped one. Needs disk for twice the state of a partition in the directory of temporary files (TMPDIR),
    for each store worked on at once. A store that fails does not stop the others; the exit code is then that
    of its error.
    """
    with Meter("full checkpoints", len(Query.open(checkpoint).stores(chosen))) as meter:
        outcomes = full_checkpoint(
            checkpoint,
            chosen.operator,
            chosen.partition,
            chosen.name,
            stores=stores,
            compression=compression,
            on_failure="report",
            progress=meter,
        )
    if as_json:
        print_json(outcomes.to_json())
    else:
        print_table(_COLUMNS, map(_row, outcomes.made))
        for failure in outcomes.failed:
            print_error(failure.error, as_json=False)
    return exit_codes.OF_KIND[outcomes.failed[0].error.kind] if outcomes.failed else exit_codes.OK


def _row(checkpoint: FullCheckpoint) -> tuple[object, ...]:
    return (
        checkpoint.key,
        checkpoint.version.number,
        checkpoint.keys,
        checkpoint.files,
        size(checkpoint.bytes),
        f"{checkpoint.chain_files} files",
        size(checkpoint.chain_bytes),
        round(checkpoint.ms),
    )
