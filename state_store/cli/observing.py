"""Commands that say how a query does: `doctor` once, `serve` with a page, a REST API and metrics."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from state_store.cli import exit_codes
from state_store.cli.command import DIRECTORY, WholeNumber, command, directory_argument, json_option
from state_store.cli.output import print_json, say
from state_store.observe.doctor import doctor as examine
from state_store.observe.model.rest_answers import to_json
from state_store.observe.model.rules import FINE, NOTE
from state_store.observe.serving.starting import serve as run


@command(
    "doctor",
    examples=("/data/checkpoint", "s3://bucket/checkpoint --restore-objective 30s --json"),
    note=DIRECTORY,
)
@directory_argument
@click.option(
    "--restore-objective",
    metavar="TIME",
    help="The longest acceptable restore, with which predictions are compared; 0: none. Default: the query's "
    "restoreObjective, as its newest merge found it.",
)
@json_option
def doctor(checkpoint: str, restore_objective: str | None, as_json: bool) -> int:
    """Say what is wrong with a query's checkpoints, and what to do.

    Findings come worst first. Looks at listings, at archives of snapshots and at what `verify` found last;
    `verify` reads every file. Exits with 1 if something is wrong; notes do not count. Works beside the
    running query and on a stopped one, of which it warns after 15 minutes without a checkpoint.
    """
    examination = examine(checkpoint, restore_objective=restore_objective)
    verdict, look = examination.verdict, examination.look
    if as_json:
        shown = {"checkpoint": checkpoint, "verdict": to_json(verdict)}
        if look is not None:
            shown["batch"] = look.batch
            shown["verified"] = look.verified.to_json()
            shown["stores"] = to_json(list(look.stores))
        print_json(shown)
    else:
        is_fine = verdict.severity == FINE
        say(verdict.sentence if is_fine else f"{checkpoint}:")
        for finding in verdict.findings:
            say(f"\n{finding.severity}: {finding.sentence}\n  {finding.remedy}\n  See {finding.link}")
    return exit_codes.OK if verdict.severity in (FINE, NOTE) else exit_codes.PROBLEM


@command(
    "serve",
    examples=(
        "/data/checkpoint",
        "flights=s3://bucket/flights delays=s3://bucket/delays --every 60s",
        "/data/checkpoint --host 0.0.0.0 --allow-host monitor.example.org --token-file token",
    ),
    note=DIRECTORY,
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
    type=WholeNumber(0, 65535),
    help="Port to listen on; 0: a free one.",
)
@click.option(
    "--every",
    metavar="TIME",
    help="Least time between two looks at a query. Default: 5s for local storage, 30s for other storage, "
    "whose requests cost money.",
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
    type=WholeNumber(1, 1024),
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
            ready=_say,
        )


def _say(url: str, count: int) -> None:
    say(f"Serving {count} {'query' if count == 1 else 'queries'} on {url} (end with Ctrl-C)")
