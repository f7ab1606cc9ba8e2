"""The installed package and the tests of the agent run on Python 3.9, as Spark 4.0 allows."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
import runpy
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import wings

HERE = wings.COMPAT
# Functions by their last name, and arguments that they have from 3.10 on.
LATER = {
    "zip": {"strict"},
    "dataclass": {"slots", "kw_only"},
    **{f"bisect{side}": {"key"} for side in ("", "_left", "_right")},
    **{f"insort{side}": {"key"} for side in ("", "_left", "_right")},
}


def later_than_3_9(text: str) -> list[str]:
    """Return the parts of a source that Python 3.9 does not run, each with its line."""
    tree = ast.parse(text)
    ours = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == HERE
        for alias in node.names
    }
    kept_as_text = _annotations(tree) if "from __future__ import annotations" in text else set()
    return [
        f"{node.lineno}: {use}"
        for node in ast.walk(tree)
        if id(node) not in kept_as_text
        for use in _later(node, ours)
    ]


def _annotations(tree: ast.Module) -> set[int]:
    found = (
        getattr(node, name, None) or ast.Pass()
        for node in ast.walk(tree)
        for name in ("annotation", "returns")
    )
    return {id(part) for annotation in found for part in ast.walk(annotation)}


def _later(node: ast.AST, ours: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        given = {keyword.arg for keyword in node.keywords} & LATER.get(name, set())
        if given and not (isinstance(node.func, ast.Name) and name in ours):
            yield f"{name}({', '.join(sorted(given))})"
        if name == "hardlink_to":
            yield "Path.hardlink_to()"
        if name == "total" and isinstance(node.func, ast.Attribute):
            yield "Counter.total()"
    elif isinstance(node, ast.Attribute) and ast.unparse(node) == "itertools.pairwise":
        yield "itertools.pairwise"
    elif isinstance(node, ast.ImportFrom) and node.module == "itertools":
        yield from (alias.name for alias in node.names if alias.name == "pairwise")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        if any(isinstance(side, ast.Name) and _is_type(side.id) for side in (node.left, node.right)):
            yield ast.unparse(node)
    elif isinstance(node, ast.Match):
        yield "match"


def _is_type(name: str) -> bool:
    return isinstance(getattr(builtins, name, None), type) or re.match("[A-Z][a-z]", name) is not None


@pytest.mark.tier("more")
def test_the_package_runs_on_python_3_9(checkout: Path) -> None:
    installed = [*wings.sources(checkout), *(checkout / "jvm_bridge/resources").glob("*.py")]
    assert len(installed) > 100
    assert _later_in(path for path in installed if path.stem != "compat") == {}


def test_the_tests_of_the_agent_run_on_python_3_9(checkout: Path) -> None:
    shared = [checkout / "tests" / name for name in ("conftest.py", "faults.py", "runtimes.py", "waiting.py")]
    assert _later_in([*shared, *(checkout / "tests/agent").glob("**/*.py")]) == {}


def _later_in(paths: Iterable[Path]) -> dict[str, list[str]]:
    return {str(path): later for path in paths if (later := later_than_3_9(path.read_text(encoding="utf-8")))}


@pytest.mark.parametrize(
    "text",
    [
        "zip(a, b, strict=True)",
        "from dataclasses import dataclass\n@dataclass(frozen=True, slots=True)\nclass A: pass",
        "bisect.bisect_right(a, b, key=len)",
        "import itertools\nitertools.pairwise(a)",
        "from itertools import pairwise",
        "Path = str | None",
        "Text = list[str] | Missing",
        "isinstance(a, One | Other)",
        "def f(a: int | None): pass",
        "match a:\n    case 1: pass",
        "Counter(a).total()",
        "path.hardlink_to(other)",
    ],
)
def test_code_that_an_older_python_does_not_run_is_found(text: str) -> None:
    assert later_than_3_9(text)


def test_code_that_an_older_python_runs_is_not_found(checkout: Path) -> None:
    text = f"from __future__ import annotations\nfrom {HERE} import zip\n"
    assert not later_than_3_9(text + "def f(a: int | None) -> str | None:\n    return zip(a, b, strict=True)")
    assert not later_than_3_9("found = seen | {1}\nflags = re.A | re.B\nzip(a, b)")


@pytest.fixture(scope="module")
def on_3_9(checkout: Path) -> dict[str, object]:
    """The module as Python 3.9 loads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.version_info", (3, 9, 18))
        return runpy.run_path(str(checkout / f"{HERE.replace('.', '/')}.py"))


@pytest.mark.parametrize(
    "sizes", [sizes for many in range(4) for sizes in itertools.product(range(3), repeat=many)]
)
@pytest.mark.parametrize("strict", [False, True])
def test_zip_is_what_later_pythons_have(on_3_9, sizes: tuple[int, ...], strict: bool) -> None:
    def outcome(function):
        try:
            return list(function(*(iter(range(size)) for size in sizes), strict=strict))
        except ValueError:
            return "of other lengths"

    assert on_3_9["zip"] is not zip
    assert outcome(on_3_9["zip"]) == outcome(zip)


@pytest.mark.parametrize("size", range(4))
def test_pairwise_is_what_later_pythons_have(on_3_9, size: int) -> None:
    assert list(on_3_9["pairwise"](iter(range(size)))) == list(itertools.pairwise(range(size)))
