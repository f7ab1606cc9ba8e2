"""Commands to look at a query by its files: `doctor`, `serve`, `checkpoints`, `chain` and `files`.

They read listings and archives of snapshots, no rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from state_store.cli import command as declare
from state_store.cli import output
from state_store.cli.process import ExitCode, visible
from state_store.core.codec import fields_to_json
from state_store.data.dataset import checkpoints as histories
from state_store.data.dataset.checkpoints import Files, HeldFile, runs
from state_store.data.dataset.checkpoints import files as files_of
from state_store.data.query.arguments import counted


@declare.command(
    "doctor",
    examples=("/data/checkpoint", "s3://bucket/checkpoint --restore-objective 30s --json"),
    note=declare.DIRECTORY,
)
@declare.directory_argument
@click.option(
    "--restore-objective",
    metavar="TIME",
    help="The longest acceptable restore, with which predictions are compared; 0: none. Default: the query's "
    "restoreObjective, as its newest merge found it.",
)
@declare.json_option
def doctor(checkpoint: str, restore_objective: str | None, as_json: bool) -> int:
    """Say what is wrong with a query's checkpoints, and what to do.

    Findings come worst first. Looks at listings, at archives of snapshots and at what `verify` found last;
    `verify` reads every file. Exits with 1 if something is wrong; notes do not count. Works beside the
    running query and on a stopped one, of which it warns after 15 minutes without a checkpoint.
    """
    from state_store.observe.generated_files import help_on
    from state_store.observe.look import doctor as examine
    from state_store.observe.rest_answers import to_json
    from state_store.observe.verdict import FINE, NOTE

    examination = examine(checkpoint, restore_objective=restore_objective)
    verdict, look = examination.verdict, examination.look
    if as_json:
        document = {"checkpoint": checkpoint, "verdict": to_json(verdict)}
        if look is not None:
            document["batch"] = look.batch
            document["verified"] = look.verified.to_json()
            document["stores"] = to_json(list(look.stores))
        output.print_json(document)
    else:
        is_fine = verdict.severity == FINE
        output.say(verdict.sentence if is_fine else f"{checkpoint}:")
        for finding in verdict.findings:
            output.say(f"\n{finding.severity}: {finding.sentence}\n  {finding.remedy}")
            output.write(f"  See {help_on(finding)}\n")  # never folded, so that a terminal opens it
    return ExitCode.OK if verdict.severity in (FINE, NOTE) else ExitCode.PROBLEM


@declare.command(
    "serve",
    examples=(
        "/data/checkpoint",
        "flights=s3://bucket/flights delays=s3://bucket/delays --every 60s",
        "/data/checkpoint --host 0.0.0.0 --allow-host monitor.example.org --token-file token",
    ),
    note=declare.DIRECTORY,
)
@click.argument("checkpoints", metavar="[NAME=]DIR...", nargs=-1, required=True)
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on."
)
@click.option(
    "--port",
    metavar="N",
    default=8190,
    show_default=True,
    type=declare.WholeNumber(0, 65535),
    help="Port to listen on; 0: a free one.",
)
@click.option(
    "--every",
    metavar="TIME",
    help="Least time between two looks at a query. Default: 5s for local storage, 30s for other storage, "
    "whose requests cost money, and more above 200 stores.",
)
@click.option(
    "--restore-objective",
    metavar="TIME",
    help="The longest acceptable restore, with which predictions are compared; 0: none. Default: each "
    "query's restoreObjective, as its newest merge found it.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with a token that requests need; its owner alone may read it.",
)
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="Another host name that requests may be for."
)
@click.option("--tls-certificate", type=click.Path(path_type=Path), help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Key of the certificate, PEM.")
@click.option("--read-only", is_flag=True, help="Refuse requests for full checkpoints.")
@click.option(
    "--stores",
    default=2,
    show_default=True,
    type=declare.WholeNumber(1, 1024),
    metavar="N",
    help="Stores of which full checkpoints are made at a time.",
)
@click.option("--documentation", metavar="URL", help="Address of the documentation, for links on the page.")
def serve(
    checkpoints: tuple[str, ...],
    host: str,
    port: int,
    every: str | None,
    restore_objective: str | None,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    tls_certificate: Path | None,
    tls_key: Path | None,
    read_only: bool,
    stores: int,
    documentation: str | None,
) -> None:
    """Serve a page, a REST API and metrics of queries.

    The metrics are for Prometheus; queries may run or be stopped. Needs no Spark: it reads listings and
    archives in checkpoint storage. Requests for full checkpoints work as `state-store full` does. Listens on
    this machine alone, unless there is a token. Ctrl-C or SIGTERM ends it.
    """
    from state_store.observe.serve import serve as run

    with contextlib.suppress(KeyboardInterrupt):
        run(
            checkpoints,
            host=host,
            port=port,
            every=every,
            restore_objective=restore_objective,
            token_file=token_file,
            allow_host=allow_host,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            read_only=read_only,
            stores=stores,
            documentation=documentation,
            ready=_say_where,
        )


def _say_where(url: str, count: int) -> None:
    output.say(f"Serving {count} {'query' if count == 1 else 'queries'} on {url} (end with Ctrl-C)")


_MIN_COLUMNS = 5
"""Columns of a version that every output has; a narrow one leaves out the last of the others."""


@declare.query_command(
    "checkpoints",
    examples=(
        "/data/checkpoint",
        "hdfs://namenode/checkpoint --each",
        "s3://bucket/checkpoint --partition 3 --json",
    ),
)
@click.option("--each", is_flag=True, help="Print a table for each store instead of a sum over partitions.")
def checkpoints(selection: declare.QueryStores, as_json: bool, each: bool) -> None:
    """List the versions that can be restored.

    Lists the versions of the state that can be restored, oldest first: version v is the state after batch
    v - 1. Partitions of a store are summed up in one line; --each prints a table for every store. "restore"
    is the snapshot that a restore begins with, and the number of deltas after it; "wrote" is what was made at
    the version, and "why" says for what reason; "new" are its bytes that no older version has.
    """
    with selection.meter("listed") as meter:
        history = histories.checkpoints(*selection, progress=meter)
    if as_json:
        output.print_json(_versions_json(history))
        return
    for heading, lines in history.groups(each=each):
        output.say(f"{heading}\n")
        _print_versions(lines)
        output.say()


def _print_versions(lines: Sequence[histories.Line]) -> None:
    """Print a line for each version, without the last columns if the output is narrow."""
    committed, times = output.moment_cells("committed", [line.made_ms for line in lines])
    number, text = output.number_column, output.text_column
    columns: list[tuple[output.Heading, Sequence[object]]] = [
        (number("version"), [line.version for line in lines]),
        (committed, times),
        (text("wrote"), [line.wrote for line in lines]),
        (
            text("restore"),
            [f"{line.starts_from}{f' +{line.deltas}' if line.deltas else ''}" for line in lines],
        ),
        (number("bytes"), [output.size(line.size_bytes) for line in lines]),
        (number("new"), [output.size(line.new_bytes) for line in lines]),
        (number("stores"), [line.stores for line in lines]),
        (number("files"), [line.files for line in lines]),
        (text("why"), [line.reasons for line in lines]),
    ]
    if not any(line.reasons for line in lines):
        del columns[-1]
    # Versions are many, a line each: folded cells would double the lines for the column that matters least.
    while len(columns) > _MIN_COLUMNS and not output.fits(columns):
        del columns[-1]
    output.print_table(
        [heading for heading, _ in columns], zip(*(cells for _, cells in columns), strict=True)
    )


def _versions_json(history: histories.Checkpoints) -> dict[str, Any]:
    query = history.query
    names = {operator.id: operator.name for operator in query.operators}
    return {
        "checkpoint": query.location,
        "batch": query.committed_batch(),
        "stores": [
            {
                "operator": key.operator,
                "operator_name": names[key.operator],
                "partition": key.partition,
                "name": key.name,
                "checkpoints": [version.to_json() for version in versions],
            }
            for key, versions in history.items()
        ],
    }


@declare.query_command(
    "chain",
    examples=("/data/checkpoint --partition 0", "/data/checkpoint --version 41 --json"),
)
@click.option(
    "--version", type=declare.NUMBER, metavar="N", help="The version; default: the one committed last."
)
def chain(selection: declare.QueryStores, as_json: bool, version: int | None) -> None:
    """Draw the files of a version.

    Draws, for each store, the versions that a version came from, newest first: those that a restore reads
    (the newest snapshot and the deltas after it), and, dim, those that are there for older versions.
    """
    with selection.meter("listed") as meter:
        by_store = histories.chain(*selection, version=version, progress=meter)
    if as_json:
        output.print_json(
            [
                {**fields_to_json(key), "chain": [link.to_json() for link in store_chain.links]}
                for key, store_chain in by_store.items()
            ]
        )
        return
    for store_chain in by_store.values():
        output.print_tree(_tree_of(store_chain))


def _tree_of(chain: histories.StoreChain) -> Tree:
    start = f"snapshot {chain.base.version.number}" if chain.base else "nothing"
    tree = Tree(
        _visible_text(
            f"store {chain.key}, version {chain.version}: a restore reads {output.size(chain.size_bytes)}, "
            f"from {start} and {counted(len(chain.deltas), 'delta')}"
        )
    )
    for link in chain.links:
        parts = [f"version {link.version.number}", output.moment(link.made_ms)]
        if link.delta_bytes is not None:
            parts.append(f"delta {output.size(link.delta_bytes)}")
        if link.snapshot is not None:
            files = counted(link.snapshot_files, "file")
            parts.append(f"{link.snapshot} snapshot of {files}, {output.size(link.snapshot_bytes)}")
        if link.reason is not None:
            parts.append(f"because: {link.reason}")
        tree.add(_visible_text("  ".join(parts)), style="" if link.is_read else "dim")
    return tree


def _visible_text(text: str) -> Text:
    return Text(visible(text))


_FILE_COLUMNS = (
    output.text_column("store"),
    output.text_column("file"),
    output.number_column("bytes"),
    output.number_column("version"),
    output.number_column("count"),
    output.text_column("needed by"),
)


_REASON_COLUMNS = (output.text_column("reason"), output.number_column("bytes"), output.number_column("files"))


@declare.query_command(
    "files",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --unneeded",
        "/data/checkpoint --by-reason",
        "s3://bucket/checkpoint --needed-by 41 --json",
    ),
)
@click.option("--unneeded", is_flag=True, help="List only files with count 0.")
@click.option("--by-reason", is_flag=True, help="Sum the files up by the reason for which they are there.")
@click.option(
    "--needed-by", type=declare.NUMBER, metavar="VERSION", help="List only files that this version needs."
)
@declare.spark_option
def files(
    selection: declare.QueryStores,
    as_json: bool,
    unneeded: bool,
    by_reason: bool,
    needed_by: int | None,
    spark: Any,
) -> None:
    """List the files, each with the checkpoints that need it.

    Lists the files of the state with the number of restorable checkpoints that need each (its count) and
    their versions. A file with count 0 is not needed: an attempt wrote it that Spark never committed, or it
    waits for the next clean-up.

    Names of files are shortened; --wide shows them whole. With --by-reason the command sums the files up: the
    snapshots and deltas that the newest version needs, those that only older versions need which can still be
    restored, and those that no version needs.
    """
    with selection.meter("listed") as meter:
        held_files = files_of(
            *selection,
            unneeded=unneeded,
            needed_by=needed_by,
            spark=spark,
            progress=meter,
        )
    if as_json:
        output.print_json(_summed(held_files) if by_reason else held_files.to_json())
        return
    if by_reason:
        output.print_table(
            _REASON_COLUMNS,
            (
                (reason, output.size(size_bytes), count)
                for reason, (size_bytes, count) in held_files.by_reason().items()
            ),
        )
        return
    output.print_table(_FILE_COLUMNS, (_file_row(file) for file in held_files.all))
    output.say(
        f"\n{counted(len(held_files.all), 'file')}, {output.size(sum(file.bytes for file in held_files.all))}"
    )


def _summed(files: Files) -> dict[str, Any]:
    sums = files.by_reason().items()
    reasons = [
        {"reason": reason, "bytes": size_bytes, "files": count} for reason, (size_bytes, count) in sums
    ]
    return {"checkpoint": files.checkpoint, "reasons": reasons}


def _file_row(file: HeldFile) -> tuple[object, ...]:
    versions = runs(sorted({version.number for version in file.holders}))
    path = file.path if output.is_wide() else output.short_names(file.path)
    return str(file.key), path, file.bytes, file.origin, len(file.holders), versions or "-"
