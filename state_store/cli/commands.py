"""The commands of `state-store`, together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from state_store import __version__
from state_store.cli import exit_codes
from state_store.cli.command import PROGRAM
from state_store.cli.completion import completion
from state_store.cli.cp import cp
from state_store.cli.doctor import doctor
from state_store.cli.estimate import estimate_command
from state_store.cli.jar import jar
from state_store.cli.migrate import migrate
from state_store.cli.options import options
from state_store.cli.repartition import repartition
from state_store.cli.rows.diff import diff
from state_store.cli.rows.export import export
from state_store.cli.rows.get import get
from state_store.cli.rows.history import history
from state_store.cli.rows.import_ import import_
from state_store.cli.rows.show import show
from state_store.cli.rows.stats import stats
from state_store.cli.serve import serve
from state_store.cli.stores.chain import chain
from state_store.cli.stores.checkpoints import checkpoints
from state_store.cli.stores.files import files
from state_store.cli.stores.full import full
from state_store.cli.stores.repair import repair
from state_store.cli.stores.verify import verify
from state_store.errors import Interrupted


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"""\
\b
Examples:
  state-store checkpoints /data/checkpoint
  state-store show /data/checkpoint --where "flights > 100"
  state-store verify s3://bucket/checkpoint --json
  state-store full hdfs://namenode/checkpoint --operator 0

{exit_codes.HELP}
`state-store COMMAND --help` explains each command; docs/operations.md says which to use when.""",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def state_store_command() -> None:
    """Look at and work on the state of a Structured Streaming query, running or stopped."""


for _command in (
    doctor,
    serve,
    checkpoints,
    chain,
    files,
    full,
    verify,
    repair,
    show,
    get,
    diff,
    history,
    stats,
    estimate_command,
    export,
    cp,
    import_,
    repartition,
    migrate,
    jar,
    options,
    completion,
):
    state_store_command.add_command(_command)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    try:
        code: Any = state_store_command.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as abort:
        if isinstance(abort.__cause__, Interrupted):
            print(f"{PROGRAM}: interrupted: {abort.__cause__}", file=sys.stderr)
        return exit_codes.INTERRUPTED
    return code if isinstance(code, int) else exit_codes.OK
