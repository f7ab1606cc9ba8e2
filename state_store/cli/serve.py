"""`state-store serve`: a page, a REST API and metrics of queries, from their files."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from state_store.cli import exit_codes
from state_store.cli.command import DIRECTORY, command
from state_store.cli.doctor import duration_ms
from state_store.cli.output import say
from state_store.errors import OptionError

_EXTRA = ("starlette", "uvicorn", "prometheus_client", "h11", "anyio")


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
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8190, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option(
    "--every",
    metavar="TIME",
    help="Least time between two looks at a query. Default: 5s for local storage, 30s for other storage, "
    "whose requests cost money.",
)
@click.option(
    "--restore-objective",
    "objective",
    metavar="TIME",
    help="Compare predicted restores with this. 0: with nothing. Default: each query's restoreObjective, as "
    "its newest merge found it.",
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
    type=click.IntRange(min=1),
    metavar="N",
    help="Stores of which full checkpoints are made at a time.",
)
@click.option("--documentation", metavar="URL", help="Address of the documentation, for links on the page.")
def serve(
    checkpoints: tuple[str, ...],
    host: str,
    port: int,
    every: str | None,
    objective: str | None,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    tls_certificate: Path | None,
    tls_key: Path | None,
    read_only: bool,
    stores: int,
    documentation: str | None,
) -> int:
    """Serve a page, a REST API and Prometheus metrics of queries, running or stopped.

    Needs no Spark: it reads listings and archives in checkpoint storage. Requests for full checkpoints work
    as `state-store full` does. Listens on this machine alone, unless there is a token. Ends with Ctrl-C.
    """
    try:
        program = importlib.import_module("state_store.observe.serving.program")
    except ModuleNotFoundError as error:
        lacking = (error.name or "").partition(".")[0]
        if lacking not in _EXTRA:
            raise
        raise OptionError(
            f"serve needs the Python package '{lacking}': pip install 'incremental-state-store[serve]'"
        ) from None
    every_s = None if every is None else duration_ms(every) / 1000
    if every_s is not None and every_s < 1:
        raise OptionError("--every must be 1s or more", option="--every")
    settings = program.Settings(
        host=host,
        port=port,
        every_s=every_s,
        objective_ms=None if objective is None else duration_ms(objective),
        token=None if token_file is None else program.token_from(token_file),
        allowed_hosts=allow_host,
        certificate=tls_certificate,
        key=tls_key,
        read_only=read_only,
        stores=stores,
        documentation=documentation,
    )
    service = program.Program(checkpoints, settings)
    count = len(service.watched)
    say(f"Serving {count} {'query' if count == 1 else 'queries'} on {service.url} (end with Ctrl-C)")
    service.run()
    return exit_codes.OK
