"""Entry point of `state-store`: arguments, dispatch, exit codes."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import state_store
from state_store.cli import tables
from state_store.errors import StateStoreError

COMMANDS = ("checkpoints", "files", "full", "verify", "jar", "options")

OK, PROBLEM, USAGE, NOT_FOUND, RETRY, DEFECT = 0, 1, 2, 3, 4, 5
EXIT_CODES = {
    "damaged": PROBLEM,
    "format": PROBLEM,
    "option": USAGE,
    "missing": NOT_FOUND,
    "storage": RETRY,
    "unknown": RETRY,
    "conflict": RETRY,
    "busy": RETRY,
    "internal": DEFECT,
}

EPILOG = """exit codes:
  0  done
  1  a problem was found: something is damaged, or cannot be restored
  2  wrong arguments, or an option or checkpoint that this store cannot use
  3  no such checkpoint, version or file
  4  the storage or another writer was in the way; nothing is lost, try again
  5  a defect of this program

`state-store COMMAND --help` explains each; docs/operations.md says which to use when.
"""


def run(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with a code of EXIT_CODES."""
    sys.exit(main(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code; errors go to standard error (as JSON with --json)."""
    commands = {name: importlib.import_module(f"state_store.cli.{name}") for name in COMMANDS}
    parsed = _parser(commands).parse_args(arguments)
    try:
        return int(commands[parsed.command].run(parsed))
    except StateStoreError as error:
        _report(error, json=getattr(parsed, "json", False))
        return EXIT_CODES[error.kind]
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130


def _parser(commands: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="state-store",
        description="Looks at and works on the state of a Structured Streaming query, running or stopped.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"state-store {state_store.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in commands.items():
        one = subparsers.add_parser(name, help=module.HELP, description=module.DESCRIPTION)
        module.add_arguments(one)
    return parser


def _report(error: StateStoreError, *, json: bool) -> None:
    if json:
        print(tables.as_json({"error": error.to_json()}), file=sys.stderr)
    else:
        print(f"state-store: {error.message}", file=sys.stderr)
