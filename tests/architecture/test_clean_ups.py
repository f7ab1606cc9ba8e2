"""A clean-up after an error, which may fail with the same disk, hides no error and comes last."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = sorted((ROOT / "state_store").rglob("*.py"))
SCALA = sorted((ROOT / "jvm_bridge").glob("scala*/**/*.scala"))

_AFTER_AN_ERROR = re.compile(r"(?:case \w+: Throwable =>|finally)\s[^}]*?Files\.delete\w*\(")


def raising_clean_ups(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of handlers that raise, and of `finally`, in which a removal of a file may raise."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try):
            continue
        raising = [h.body for h in node.handlers if any(isinstance(s, ast.Raise) for s in ast.walk(h))]
        for statement in (s for body in (*raising, node.finalbody) for s in body):
            for call in ast.walk(statement):
                if isinstance(call, ast.Call) and is_removal(call):
                    yield call.lineno


def is_removal(call: ast.Call) -> bool:
    """Return True for a call that removes a file of the local disk, and raises if it cannot."""
    function = ast.unparse(call.func)
    if function == "shutil.rmtree":
        return not any(keyword.arg == "ignore_errors" for keyword in call.keywords)
    return function == "os.remove" or function.rpartition(".")[2] in ("unlink", "rmdir")


@pytest.mark.tier("more")
def test_no_removal_of_a_file_hides_an_error() -> None:
    assert len(PYTHON) > 100
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in PYTHON
        for line in raising_clean_ups(ast.parse(path.read_text()))
    ]
    assert not found, "call remove_unneeded there"


def test_no_removal_of_a_file_hides_an_error_in_the_data_plane() -> None:
    assert len(SCALA) > 100
    found = [path.name for path in SCALA if _AFTER_AN_ERROR.search(path.read_text())]
    assert not found, "call File.delete there, which throws nothing, after all that matters"


def test_such_removals_are_found() -> None:
    source = "try:\n    f()\nexcept OSError:\n    path.unlink(missing_ok=True)\n    raise\n"
    assert list(raising_clean_ups(ast.parse(source))) == [4]
    assert _AFTER_AN_ERROR.search("case e: Throwable =>\n  Files.deleteIfExists(file)\n  throw e")
