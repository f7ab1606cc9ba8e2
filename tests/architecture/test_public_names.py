"""Exports of `state_store`: each name has a type for type checkers, and loads when it is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import state_store


def _typed_names(checkout: Path) -> dict[str, str]:
    """The names that `state_store` imports for type checkers, and the modules that they are from."""
    tree = ast.parse((checkout / "state_store" / "__init__.py").read_text(encoding="utf-8"))
    guards = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for guard in guards for node in guard.body if isinstance(node, ast.ImportFrom)]
    return {str(alias.asname): str(node.module) for node in imports for alias in node.names}


@pytest.mark.dear("a rule on all names")
def test_every_public_name_has_a_type(checkout: Path) -> None:
    typed = _typed_names(checkout)
    assert typed.keys() == set(state_store.__all__) - {"__version__"}
    for name, module in typed.items():
        assert getattr(state_store, name) is getattr(sys.modules[module], name)


def test_importing_the_package_loads_none_of_them() -> None:
    shown = "import sys, state_store; print([name for name in sys.modules if 'state_store.' in name])"
    loaded = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_an_older_python_is_told_what_it_needs() -> None:
    """An executor may run another Python than the one that the package was installed with."""
    code = "import sys; sys.version_info = (3, 9, 18); sys.version = '3.9.18 (main)'; import state_store"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert process.returncode
    message = process.stderr.strip().splitlines()[-1]
    assert message.startswith(
        f"ImportError: incremental-state-store needs Python 3.10 or later, and {sys.executable}"
    )
    assert message.endswith("is 3.9.18: give the driver and the executors a later one (spark.pyspark.python)")
