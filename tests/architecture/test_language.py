"""Texts for users and readers begin with a verb or a noun; names are nouns and verbs."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest

OPENERS = {
    *("what", "whether", "of", "who", "whom", "whose", "that", "those", "which", "where", "wherever"),
    *("how", "whoever", "nobody", "one", "ones", "told", "may"),
}
"""Words that no docstring, Scaladoc, help text or message begins with."""

NAMES = {
    *("one", "ones", "it", "what", "most", "told", "came", "meant", "never_mind", "beside", "far", "here"),
    *("there", "whole", "much", "such", "others_too", "begun", "brought"),
}
"""Names that no variable, argument, function or attribute has."""

BARE = {"chosen", "found", "given", "kept", "known", "made", "restored", "shown", "wanted"}
"""Participles that no variable or argument has as its whole name: it is called by its noun."""

BARE_IN_SCALA = {"chosen", "found", "given", "kept", "known", "left", "made", "shown", "taken", "wanted"}
"""Participles that no value or variable of the data plane has as its whole name."""

NAMED_BY_NOUNS = ("state_store", "benchmarks", "examples", "scripts")
"""Directories in whose Python no variable is called by a participle alone."""

ACTIONS = {
    *("acts", "adds", "announces", "answers", "appends", "applies", "asks", "builds", "checks", "cleans"),
    *("collects", "compares", "compiles", "converts", "copies", "creates", "decides", "decodes", "deletes"),
    *("drives", "encodes", "fetches", "finds", "gives", "goes", "holds", "keeps", "looks", "makes"),
    *("opens", "passes", "plays", "predicts", "prints", "reads", "receives", "registers", "remembers"),
    *("removes", "replaces", "reports", "returns", "runs", "says", "sends", "serves", "shows"),
    *("takes", "tells", "tracks", "turns", "verifies", "waits", "watches", "writes"),
}
"""Words that no docstring of a class begins with: the class is a noun, such as "Writer of the batches"."""

HELPS = {"help", "description", "short_help", "epilog"}
"""Arguments of options and commands whose texts users read."""

SKIPPED = (".", "build", "dist", "__pycache__")
"""Beginnings of the names of directories without sources of ours, such as environments."""


@functools.cache
def _files(directory: Path, ending: str) -> tuple[tuple[str, str], ...]:
    """Return the name, below a directory, and the text of each source with that ending."""
    found = []
    for parent, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith(SKIPPED))
        paths = [Path(parent, name) for name in sorted(names) if name.endswith(ending)]
        found += [(path.relative_to(directory).as_posix(), path.read_text("utf-8")) for path in paths]
    return tuple(found)


@dataclass(frozen=True)
class Facts:
    """The texts and names of a module at which the rules look, each with its line."""

    docstrings: list[tuple[int, str]] = field(default_factory=list)
    """Docstrings of modules, classes and functions, and those below assignments."""
    helps: list[tuple[int, str]] = field(default_factory=list)
    of_classes: list[tuple[int, str]] = field(default_factory=list)
    """The docstring of each class."""
    names: list[tuple[int, str]] = field(default_factory=list)
    """Names that are given to things."""
    variables: list[tuple[int, str]] = field(default_factory=list)
    """Names that functions give to values and take them by."""
    definitions: list[tuple[int, str]] = field(default_factory=list)
    """Names of functions and classes."""


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def _facts(text: str) -> Facts:
    """Return the facts of a module; its tree is not kept, because those of all modules are large."""
    facts, todo = Facts(), deque([(ast.parse(text), False)])
    while todo:
        node, is_local = todo.popleft()
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and (shown := _text(statement.value)) is not None:
                facts.docstrings.append((statement.lineno, shown))
        if isinstance(node, ast.keyword):
            if node.arg in HELPS and (shown := _text(node.value)) is not None:
                facts.helps.append((node.value.lineno, shown))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            facts.names.append((node.lineno, node.id))
            if is_local:
                facts.variables.append((node.lineno, node.id))
        elif isinstance(node, ast.arg):
            facts.names.append((node.lineno, node.arg))
            facts.variables.append((node.lineno, node.arg))
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            facts.names.append((node.lineno, node.name))
            facts.definitions.append((node.lineno, node.name))
            if isinstance(node, ast.ClassDef):
                facts.of_classes.append((node.lineno, ast.get_docstring(node) or ""))
        is_inside = is_local or isinstance(node, (*FUNCTIONS, ast.Lambda))
        todo += [(child, is_inside) for child in ast.iter_child_nodes(node)]
    return facts


def _text(value: ast.expr) -> str | None:
    """Return the text of a literal."""
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def first_word(text: str) -> str:
    """Return the first word of a text in lower case, without marks."""
    return re.sub(r"^\W+|\W+$", "", text.split()[0]).lower() if text.split() else ""


def openers_in_python(text: str) -> list[str]:
    """Return the docstrings and help texts that begin with a forbidden word, each with its line."""
    texts = [*_facts(text).docstrings, *_facts(text).helps]
    return [f"{line}: {shown.strip()[:60]}" for line, shown in texts if first_word(shown) in OPENERS]


def actions_of_classes(text: str) -> list[str]:
    """Return the docstrings of classes that begin with an action, each with its line."""
    shown = _facts(text).of_classes
    return [f"{line}: {opening[:60]}" for line, opening in shown if first_word(opening) in ACTIONS]


def openers_in_scala(text: str) -> list[str]:
    """Return the documentation comments that begin with a forbidden word, each with its line."""
    found = []
    for match in re.finditer(r"/\*\*(.*?)\*/", text, flags=re.DOTALL):
        shown = re.sub(r"^\s*\*", " ", match[1], flags=re.MULTILINE)
        if first_word(shown) in OPENERS:
            found.append(f"{text[: match.start()].count(chr(10)) + 1}: {shown.strip()[:60]}")
    return found


def forbidden_names(text: str) -> list[str]:
    """Return the forbidden names that a Python source gives to things, each with its line."""
    return [f"{line}: {name}" for line, name in _facts(text).names if name.strip("_") in NAMES]


def bare_participles(text: str) -> list[str]:
    """Return the variables and arguments of functions named by a participle alone, each with its line."""
    return [f"{line}: {name}" for line, name in _facts(text).variables if name in BARE]


def bare_values_in_scala(text: str) -> list[str]:
    """Return the values and variables of a Scala source named by a participle alone, each with its line."""
    code = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    found = []
    for number, line in enumerate(code.split("\n"), 1):
        for pattern in re.findall(r"\b(?:val|var) +(\([^)=]*\)|\w+)", line.partition("//")[0]):
            found += [f"{number}: {name}" for name in re.findall(r"\w+", pattern) if name in BARE_IN_SCALA]
    return found


def openers_of_tests(text: str) -> list[str]:
    """Return the tests whose names begin with a forbidden word, each with its line."""
    found = []
    for line, name in _facts(text).definitions:
        words = re.match(r"test_([a-z]+)|Test([A-Z][a-z]*)", name)
        if words and (words[1] or words[2]).lower() in {*OPENERS, "whatever"} - {"nobody"}:
            found.append(f"{line}: {name}")
    return found


@pytest.mark.dear("a rule on all texts")
def test_python_texts_begin_with_a_verb_or_a_noun(checkout: Path) -> None:
    found = {name: wrong for name, text in _files(checkout, ".py") if (wrong := openers_in_python(text))}
    assert found == {}


def test_docstrings_of_classes_begin_with_a_noun(checkout: Path) -> None:
    sources = _files(checkout / "state_store", ".py")
    found = {name: wrong for name, text in sources if (wrong := actions_of_classes(text))}
    assert found == {}


def test_truth_is_returned_if_and_not_whether(checkout: Path) -> None:
    texts = [*_files(checkout, ".py"), *_files(checkout / "jvm_bridge", ".scala")]
    phrase = re.compile(r"returns? whether", flags=re.IGNORECASE)
    lines = {name: phrase.findall(text) for name, text in texts if not name.endswith("test_language.py")}
    assert {name for name, found in lines.items() if found} == set()


def test_actions_of_classes_are_found() -> None:
    assert actions_of_classes('class A:\n    """Keeps the rows."""\n') == ["1: Keeps the rows."]
    assert actions_of_classes('class A:\n    """Rows that wait."""\n') == []


def test_scala_comments_begin_with_a_verb_or_a_noun(checkout: Path) -> None:
    found = {name: wrong for name, text in _files(checkout, ".scala") if (wrong := openers_in_scala(text))}
    assert found == {}


@pytest.mark.dear("a rule on all names")
def test_names_are_nouns_and_verbs(checkout: Path) -> None:
    found = {name: wrong for name, text in _files(checkout, ".py") if (wrong := forbidden_names(text))}
    assert found == {}


def test_variables_are_called_by_their_nouns(checkout: Path) -> None:
    sources = [
        (f"{directory}/{name}", text)
        for directory in NAMED_BY_NOUNS
        for name, text in _files(checkout / directory, ".py")
    ]
    wrong = {name: bare_participles(text) for name, text in sources}
    assert {name: names for name, names in wrong.items() if names} == {}
    found = bare_participles("def f(given):\n    found = g()\n    known_files = found.known")
    assert found == ["1: given", "2: found"]


def test_values_of_the_data_plane_are_called_by_their_nouns(checkout: Path) -> None:
    sources = _files(checkout / "jvm_bridge", ".scala")
    assert {name: wrong for name, text in sources if (wrong := bare_values_in_scala(text))} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("val found = 1\n  private var left = 2L", ["1: found", "2: left"]),
        ("private lazy val known: Int = 1", ["1: known"]),
        ("val (made, rest) = f()", ["1: made"]),
        ("val foundVersion = of.found // val found", []),
        ("/** val kept */ val rest = kept", []),
    ],
)
def test_bare_values_of_scala_are_found(source: str, names: list[str]) -> None:
    assert bare_values_in_scala(source) == names


def test_names_of_tests_are_sentences(checkout: Path) -> None:
    found = {
        name: wrong for name, text in _files(checkout / "tests", ".py") if (wrong := openers_of_tests(text))
    }
    assert found == {}


@pytest.mark.parametrize("source", ["def test_what_is_there(): pass", "class TestOfStores: pass"])
def test_forbidden_names_of_tests_are_found(source: str) -> None:
    assert openers_of_tests(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""What is there."""',
        'class A:\n    """Whether it is."""',
        'FIELD = 1\n"""Of a store."""',
        'def f():\n    """\n    Who is asked.\n    """',
        'option("--x", help="Whether to do so.")',
    ],
)
def test_forbidden_openers_are_found(source: str) -> None:
    assert len(openers_in_python(source)) == 1


def test_forbidden_openers_of_scala_are_found() -> None:
    assert openers_in_scala("class A\n/**\n * What is there.\n */\nclass B\n") == ["2: What is there."]
    assert openers_in_scala("/** Returns the key. What follows is free. */") == []


@pytest.mark.parametrize(
    "source",
    ["for one in x: pass", "def f(what): pass", "it = 1", "def _came(): pass", "a = [one for one in x]"],
)
def test_forbidden_names_are_found(source: str) -> None:
    assert forbidden_names(source)
