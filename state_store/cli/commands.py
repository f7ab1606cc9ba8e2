"""The group of all commands of `state-store`, and the one that makes a shell complete them."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import get_completion_class

from state_store import __version__
from state_store.cli import exit_codes
from state_store.cli.command import PROGRAM, command
from state_store.cli.cp import cp
from state_store.cli.doctor import doctor
from state_store.cli.estimate import estimate_command
from state_store.cli.jar import jar
from state_store.cli.migrate import migrate
from state_store.cli.options import options
from state_store.cli.output import prepare, visible
from state_store.cli.repartition import repartition
from state_store.cli.rows.diff import diff
from state_store.cli.rows.export import export
from state_store.cli.rows.get import get
from state_store.cli.rows.history import history
from state_store.cli.rows.import_ import import_
from state_store.cli.rows.show import show
from state_store.cli.rows.sql import sql
from state_store.cli.rows.stats import stats
from state_store.cli.serve import serve
from state_store.cli.stores.chain import chain
from state_store.cli.stores.checkpoints import checkpoints
from state_store.cli.stores.files import files
from state_store.cli.stores.full import full
from state_store.cli.stores.repair import repair
from state_store.cli.stores.verify import verify
from state_store.errors import Interrupted, masked

_SHELLS = ("bash", "zsh", "fish")


_FOR_THIS_SHELL = """\
For this shell alone:
  eval "$(state-store completion bash)"        in bash
  eval "$(state-store completion zsh)"         in zsh
  state-store completion fish | source         in fish"""


@command(
    "completion",
    examples=("bash > ~/.local/share/bash-completion/completions/state-store",),
    note=f"\b\n{_FOR_THIS_SHELL}",
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete the commands.

    Put the line that runs it into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish for every shell.
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, PROGRAM, "_STATE_STORE_COMPLETE").source())


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"""\
\b
Examples:
  state-store checkpoints /data/checkpoint
  state-store show /data/checkpoint --where "flights > 100"
  state-store sql /data/checkpoint "select sum(flights) from state"
  state-store verify s3://bucket/checkpoint --json
  state-store full hdfs://namenode/checkpoint --operator 0

{exit_codes.HELP}
`state-store COMMAND --help` explains each command; docs/operations.md says which one helps when.""",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def state_store_command() -> None:
    """Inspect and maintain the state of a Structured Streaming query, running or stopped."""


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
    sql,
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
    """Run the command line and return the exit code."""
    prepare()
    try:
        code: Any = state_store_command.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        print(visible(masked(shown.getvalue()), lines=True), end="", file=sys.stderr)
        return error.exit_code
    except click.Abort as abort:
        if isinstance(abort.__cause__, Interrupted):
            print(f"{PROGRAM}: interrupted: {abort.__cause__}", file=sys.stderr)
        return exit_codes.INTERRUPTED
    return code if isinstance(code, int) else exit_codes.OK
