"""The group of all commands of `state-store`; the module of a command is imported when it is used."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence
from typing import Any

import click

from state_store import __version__
from state_store.cli.process import EXIT_CODES, ExitCode, prepare, visible
from state_store.errors import Interrupted, masked

_PROGRAM = "state-store"

GROUPS: dict[str, dict[str, str]] = {
    "Look at a query": {
        "doctor": "Say what is wrong with a query's checkpoints, and what to do.",
        "serve": "Serve a page, a REST API and metrics of queries.",
        "checkpoints": "List the versions that can be restored.",
        "chain": "Draw the files of a version.",
        "files": "List the files, each with the checkpoints that need it.",
        "stats": "Show the sizes of the state, and its changes.",
    },
    "Read its state": {
        "show": "Show rows of the state.",
        "sql": "Query the state in SQL.",
        "get": "Print the state of one key.",
        "diff": "Show what changed between two versions.",
        "history": "Show the state of a key over the versions.",
        "export": "Write the state as Parquet files.",
    },
    "Keep it whole": {
        "verify": "Check all files and restore the newest checkpoint.",
        "full": "Make a full checkpoint now, which depends on no older file.",
        "repair": "Remove files that nothing needs, and repair snapshots.",
    },
    "Move or change it, as a copy": {
        "cp": "Copy a checkpoint, consistent while the query runs.",
        "import": "Replace the state of a stopped query by rows of tables.",
        "repartition": "Give a query another number of partitions.",
        "migrate": "Move a stopped query to another state store, as a copy.",
    },
    "Prepare a job": {
        "estimate": "Estimate storage, memory and restore times of a query.",
        "options": "List the options, or explain some.",
        "jar": "Print the path of the jar, or compile it.",
        "completion": "Print the script that makes a shell complete the commands.",
    },
}
"""The commands by what they are for, each with the first sentence of its help."""

NAMES = tuple(name for group in GROUPS.values() for name in group)

_MODULES = {
    **dict.fromkeys(("doctor", "serve", "checkpoints", "chain", "files"), "look"),
    **dict.fromkeys(("show", "sql", "get", "diff", "history", "export", "stats"), "rows"),
    **dict.fromkeys(("verify", "full", "repair"), "maintenance"),
    **dict.fromkeys(("cp", "import", "repartition", "migrate"), "copies"),
    **dict.fromkeys(("options", "jar", "completion"), "job"),
    "estimate": "estimate",
}
"""The modules that declare the commands."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none of that name."""
        return load(cmd_name) if cmd_name in NAMES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that arguments name, and the others; an error names the nearest command."""
        if args[0] in NAMES or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        import difflib

        nearest = difflib.get_close_matches(args[0], NAMES, n=1)
        if not nearest:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command '{args[0]}'. The nearest is '{nearest[0]}'.", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups, without importing them."""
        longest = max(map(len, NAMES))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), text) for name, text in commands.items()])


def load(name: str) -> click.Command:
    """Return a command, whose module is imported."""
    module = importlib.import_module(f"state_store.cli.{_MODULES[name]}")
    return next(
        declared
        for declared in vars(module).values()
        if isinstance(declared, click.Command) and declared.name == name
    )


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"""\
\b
Examples:
  state-store checkpoints /data/checkpoint
  state-store show /data/checkpoint --where "flights > 100"
  state-store sql /data/checkpoint "select sum(flights) from state"
  state-store verify s3://bucket/checkpoint --json
  state-store full hdfs://namenode/checkpoint --operator 0

{EXIT_CODES}
`state-store COMMAND --help` explains each command; docs/operations.md says which one helps when.""",
)
@click.version_option(__version__, prog_name=_PROGRAM, message="%(prog)s %(version)s")
def state_store_command() -> None:
    """Inspect and maintain the state of a Structured Streaming query, running or stopped."""


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    prepare()
    try:
        code: Any = state_store_command.main(arguments, prog_name=_PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        print(visible(masked(message.getvalue()), lines=True), end="", file=sys.stderr)
        return error.exit_code
    except click.Abort as abort:
        if isinstance(abort.__cause__, Interrupted):
            print(f"{_PROGRAM}: interrupted: {abort.__cause__}", file=sys.stderr)
        return ExitCode.INTERRUPTED
    return code if isinstance(code, int) else ExitCode.OK
