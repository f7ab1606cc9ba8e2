"""The packages that tables of state need and executors do not have: pyarrow, numpy."""

from __future__ import annotations

import importlib.util
import sys

from state_store.errors import OptionError


def require_arrow() -> None:
    """Raises OptionError, which says what to install, where one of them is missing."""
    for package in ("pyarrow", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise OptionError(
                f"rows of state need the Python package '{package}', which {sys.executable} lacks: "
                "pip install 'incremental-state-store[arrow]'"
            )
