"""The wings of the control plane: the folders of `state_store`, and which may import which.

Imports count wherever they stand: at the top of a module, in a function, and for types alone.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = "state_store"

SHARED = {"errors"}
"""Imported by every wing, as the standard library is."""

MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "core": frozenset(),
    "agent": frozenset({"core"}),
    "session": frozenset({"core"}),
    "functions": frozenset({"core"}),
    "data": frozenset({"core", "session"}),
    "testing": frozenset({"core"}),
    "observe": frozenset({"core", "session", "data"}),
    "cli": frozenset({"core", "session", "data", "observe"}),
}
"""The wings, each with the other wings that it may import."""


def wing_of(module: str) -> str:
    """Return the wing of a module; the package itself and `state_store.errors` are wings of their own."""
    return module.split(".")[1] if "." in module else module


def room_of(module: str) -> str:
    """Return the folder below `core` or `data` that a module is in; elsewhere its wing."""
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and parts[1] in ("core", "data") else wing_of(module)


@functools.cache
def imported(source: Path, root: Path) -> tuple[str, ...]:
    """Return the modules of the package that `source` imports; several rules ask for them.

    Args:
        source: a Python file, which does not change.
        root: the directory that contains the package.
    """
    return tuple(_imports_of(source, root))


def _imports_of(source: Path, root: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{source}: use absolute imports inside the package"
            if node.module is None or node.module.split(".")[0] != PACKAGE:
                continue
            for alias in node.names:
                inner = root.joinpath(*node.module.split("."), alias.name)
                if inner.is_dir() or inner.with_suffix(".py").is_file():
                    yield f"{node.module}.{alias.name}"
                elif (node.module, alias.name) != (PACKAGE, "__version__"):
                    yield node.module


def module_of(source: Path, root: Path) -> str:
    """Return the name under which `source` is imported."""
    return ".".join(source.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def sources(root: Path) -> list[Path]:
    """Return the modules of the package below `root`, sorted."""
    return sorted((root / PACKAGE).rglob("*.py"))


def violations(root: Path) -> list[str]:
    """Return one line for each import that `MAY_IMPORT` forbids."""
    found = []
    for source in sources(root):
        module = module_of(source, root)
        wing = wing_of(module)
        if wing in (PACKAGE, *SHARED):
            continue
        for used in imported(source, root):
            other = wing_of(used)
            if other != wing and other not in SHARED and other not in MAY_IMPORT.get(wing, ()):
                found.append(f"{module} imports {used}: {wing} may not import {other}")
    return found


def imports(root: Path) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports, without the package's `__init__`."""
    found: dict[str, set[str]] = {}
    for source in sources(root):
        module = module_of(source, root)
        if module != PACKAGE:
            found[module] = {used for used in imported(source, root) if used not in (module, PACKAGE)}
    return found
