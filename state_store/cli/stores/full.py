"""`state-store full`: make a full checkpoint now, of a running or a stopped query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from state_store.cli import exit_codes
from state_store.cli.command import changing, query_command, stores_option
from state_store.cli.output import (
    number_column,
    print_error,
    print_json,
    print_table,
    size,
    text_column,
)
from state_store.cli.progress_display import Meter
from state_store.cli.spark_session import spark_option
from state_store.cli.stores.remote_full import RemoteService
from state_store.data.maintenance.full_checkpoints import COMPRESSIONS, FullCheckpoint, full_checkpoint
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted
from state_store.errors import OptionError, from_json

_COLUMNS = (
    text_column("store"),
    number_column("version"),
    number_column("keys"),
    number_column("files"),
    number_column("bytes"),
    number_column("chain"),
    number_column("its bytes"),
    number_column("ms"),
)

_REMOTE_COLUMNS = (
    text_column("store"),
    text_column("outcome"),
    number_column("version"),
    number_column("files"),
    number_column("bytes"),
    number_column("ms"),
    text_column("failure"),
)


@query_command(
    "full",
    optional=True,
    examples=(
        "/data/checkpoint",
        "hdfs://namenode/checkpoint --operator 0 --partition 1",
        "s3://bucket/checkpoint --stores 8 --compression lz4 --json",
        "--url http://driver:4040 --query flights",
    ),
)
@stores_option("worked on")
@spark_option
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    help="The option snapshotCompression of the query. Default: that of the newest snapshot.",
)
@click.option("--url", metavar="URL", help="Ask the driver (http://driver:4040) or a `serve` instead of DIR.")
@click.option("--query", "query_name", metavar="NAME", help="With --url: the query, if there are several.")
@click.option(
    "--trigger-id", metavar="ID", help="With --url: an id of your own; repeating it repeats no request."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="With --url: file with the token of `state-store serve`.",
)
def full(
    checkpoint: str | None,
    chosen: Filter,
    as_json: bool,
    stores: int,
    compression: str | None,
    url: str | None,
    query_name: str | None,
    trigger_id: str | None,
    token_file: Path | None,
    spark: Any,
) -> int:
    """Make a full checkpoint now, which depends on no older file.

    The checkpoint is of the version that Spark committed last. All of its files are new, so later
    checkpoints depend on nothing older. It works beside the running query, which goes on from it, and on a
    stopped one. It needs disk space for twice the state of a partition in the directory of temporary files
    (TMPDIR), for each store worked on at once. A store that fails does not stop the others; the exit code is
    then that of its error.
    """
    if (checkpoint is None) == (url is None):
        raise OptionError("give either DIR or --url", option="--url")
    if url is not None:
        if compression is not None:
            raise OptionError("--compression is the query's own with --url", option="--compression")
        return _remote(url, query_name, chosen, trigger_id, token_file, as_json=as_json)
    if query_name or trigger_id or token_file:
        raise OptionError("--query, --trigger-id and --token-file belong to --url", option="--url")
    assert checkpoint is not None
    changing(if_interrupted="stores that were done keep their full checkpoints; the same command makes all")
    with Meter("full checkpoints", len(Query.open(checkpoint).stores(chosen))) as meter:
        outcomes = full_checkpoint(
            checkpoint,
            chosen.operator,
            chosen.partition,
            chosen.name,
            stores=stores,
            compression=compression,
            on_failure="report",
            spark=spark,
            progress=meter,
        )
    if as_json:
        print_json(outcomes.to_json())
    else:
        if outcomes.made:
            print_table(_COLUMNS, map(_row, outcomes.made))
        for failure in outcomes.failed:
            print_error(failure.error, as_json=False)
    return exit_codes.OF_KIND[outcomes.failed[0].error.kind] if outcomes.failed else exit_codes.OK


def _remote(
    url: str,
    query: str | None,
    chosen: Filter,
    trigger_id: str | None,
    token_file: Path | None,
    *,
    as_json: bool,
) -> int:
    token = None
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"the token cannot be read: {error}", option="--token-file") from None
    service = RemoteService(url, token)
    changing(if_interrupted="what the service was asked for goes on there")
    operation = service.full(service.query(query), chosen, trigger_id)
    if as_json:
        print_json(operation)
    else:
        print_table(_REMOTE_COLUMNS, map(_remote_row, operation["stores"]))
        if "failure" in operation:
            print_error(from_json(operation["failure"]), as_json=False)
    return exit_codes.PROBLEM if "failure" in operation else exit_codes.OK


def _remote_row(outcome: dict[str, Any]) -> tuple[object, ...]:
    failure = outcome.get("failure")
    return (
        f"{outcome['operator']}/{outcome['partition']}/{outcome['store']}",
        outcome["outcome"],
        outcome.get("version", "-"),
        outcome.get("files", "-"),
        size(outcome["bytes"]) if "bytes" in outcome else "-",
        outcome.get("duration_ms", "-"),
        failure["message"] if failure else "",
    )


def _row(checkpoint: FullCheckpoint) -> tuple[object, ...]:
    return (
        checkpoint.key,
        checkpoint.version.number,
        checkpoint.keys,
        checkpoint.files,
        size(checkpoint.bytes),
        counted(checkpoint.chain_files, "file"),
        size(checkpoint.chain_bytes),
        checkpoint.ms,
    )
