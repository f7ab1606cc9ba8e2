"""The package never makes objects of the bytes that others wrote, as docs/security.md says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import wings

READERS = {"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
"""Modules that make objects of bytes, and run what the bytes say."""

READING = {"allow_pickle", "read_pickle", "Unpickler"}
"""Functions and arguments of others that do the same."""

OUTSIDE = {"functions"}
"""Rooms whose code runs in Spark's Python workers, which get every function pickled."""


def unpickling(source: str) -> Iterator[str]:
    """Yield the parts of a module that may make objects of bytes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in READERS)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in READERS:
                yield str(node.module)
            yield from (alias.name for alias in node.names if alias.name in READING)
        elif isinstance(node, ast.Attribute) and node.attr in READING:
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in READING:
            yield node.arg
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__":
            yield node.func.id


def test_nothing_is_unpickled(checkout: Path) -> None:
    found = {}
    for path in wings.sources(checkout):
        name = wings.module_of(path, checkout)
        uses = sorted(set(unpickling(path.read_text(encoding="utf-8"))))
        if uses and wings.room_of(name) not in OUTSIDE:
            found[name] = uses
    assert not found


def test_the_agent_uses_none_of_the_exceptions() -> None:
    assert OUTSIDE.isdisjoint({"agent", *wings.MAY_IMPORT["agent"]})


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, marshal",
        "def f():\n    from pickle import loads",
        "import pandas\npandas.read_pickle('a')",
        "from pandas import read_pickle",
        "numpy.load(file, allow_pickle=True)",
        "__import__('shelve')",
    ],
)
def test_every_way_is_seen(source: str) -> None:
    assert list(unpickling(source))
