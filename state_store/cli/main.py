"""Entry point of `state-store`; says what to install where the command line's own packages are missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from state_store.cli import exit_codes

_EXTRA = ("click", "rich")


def run(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with a code of `exit_codes`."""
    sys.exit(main(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line (by default with the process's arguments) and returns the exit code.

    Errors go to standard error, as JSON with `--json`. Where click or rich is not installed, as on an
    executor, one line says what to install.
    """
    try:
        from state_store.cli.commands import execute
    except ModuleNotFoundError as error:
        lacking = (error.name or "").partition(".")[0]
        if lacking not in _EXTRA:
            raise
        print(
            f"state-store: the command line needs the Python package '{lacking}': "
            "pip install 'incremental-state-store[cli]'",
            file=sys.stderr,
        )
        return exit_codes.USAGE
    return execute(arguments)
