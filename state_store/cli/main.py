"""Entry point of `state-store`; says what to install if the command line's own packages are missing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from state_store.cli.process import NOTHING_WRITTEN, ExitCode, ended_by_signals
from state_store.core.runtime import has_left_calls_behind

_EXTRA = ("click", "rich")
_WITHOUT_PANDAS = frozenset({"diff", "get", "history", "show", "sql"})
"""Commands for which pyarrow and DuckDB would import pandas without any use, for half of their CPU."""


class _NoPandas:
    """Finder of modules that hides pandas, as if it was not installed."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with an `ExitCode`."""
    # No command multiplies matrices, and numpy's library for that starts a thread a core when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not _WITHOUT_PANDAS.isdisjoint(words[:1]):
        sys.meta_path.insert(0, _NoPandas())
    code = main(arguments)
    if has_left_calls_behind():
        # Clients of services wait for such calls when the interpreter ends.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (by default with the process's arguments) and return the exit code.

    Errors go to standard error, as JSON with `--json`. If click or rich is not installed, as on an executor,
    one line says what to install.
    """
    try:
        with ended_by_signals():
            from state_store.cli.commands import execute

            return execute(arguments)
    except KeyboardInterrupt:
        print(f"state-store: interrupted: {NOTHING_WRITTEN}", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except ModuleNotFoundError as error:
        lacking = (error.name or "").partition(".")[0]
        if lacking not in _EXTRA:
            raise
        print(
            f"state-store: the command line needs the Python package '{lacking}': "
            f"pip install {lacking} (the extra 'cli' of incremental-state-store has it)",
            file=sys.stderr,
        )
        return ExitCode.USAGE
