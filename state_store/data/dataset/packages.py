"""The packages that tables of state need and executors do not have: pyarrow, numpy, pandas, DuckDB."""

from __future__ import annotations

import importlib.util
import sys

from state_store.errors import OptionError


def require_arrow() -> None:
    """Raise OptionError with the command that installs it if pyarrow or numpy is missing."""
    for package in ("pyarrow", "numpy"):
        _require(package, "rows of state need", "arrow")


def require_pandas() -> None:
    """Raise OptionError with the command that installs it if pandas is missing."""
    _require("pandas", "frames of state need", "arrow")


def require_duckdb() -> None:
    """Raise OptionError with the command that installs it if DuckDB, pyarrow or numpy is missing."""
    require_arrow()
    _require("duckdb", "conditions and queries in SQL need", "cli")


def _require(package: str, need: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise OptionError(
            f"{need} the Python package '{package}', which {sys.executable} lacks: "
            f"pip install {package} (the extra '{extra}' of incremental-state-store has it)"
        )
