"""The list of the subjects of Spark's own tests names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path


def test_each_test_of_the_list_is_there(checkout: Path) -> None:
    page = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", page)
    rows = [line for line in page.splitlines() if line.startswith("| ") and "::" in line]
    assert len(named) == len(rows) > 30
    assert len(page.splitlines()) <= 80
    files = {path.name: path for path in (checkout / "tests").rglob("test_*.py")}
    for file, test in named:
        tree = ast.parse(files[file].read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert test in functions, f"{file} has no {test}"
