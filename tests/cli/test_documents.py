"""Commands in the documents run as they are written, and links between documents lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint

from state_store.cli.commands import load
from state_store.cli.main import main
from state_store.core.settings.options import OPTIONS

CHECKOUT = Path(__file__).resolve().parent.parent.parent
ELSEWHERE = {"jar", "serve", "migrate"}
"""Commands that compile, go on until they are ended or need a JVM: other tests run them."""

PAGES = (
    "README.md",
    "docs/operations.md",
    "docs/alerts.md",
    "docs/tuning.md",
    "docs/index.md",
    "docs/cli.md",
    "docs/storage.md",
    "docs/faq.md",
    "docs/cookbook.md",
)
"""Pages whose commands are about one checkpoint; docs/state.md and the tutorial have tests of their own."""

WITH_TESTS = {
    "README.md": "tests/spark/test_first_steps.py",
    "docs/tutorial.md": "tests/spark/test_first_steps.py",
    "docs/state.md": "tests/data/dataset/test_document.py",
    "docs/operations.md": "tests/data/dataset/test_document.py",
    "docs/functions.md": "tests/functions/test_guide.py",
    "docs/vectorized.md": "tests/functions/test_guide.py",
    "docs/lakehouse.md": "tests/spark/lakehouse/lakehouse_session.py",
    "docs/cookbook.md": "tests/data/dataset/test_document.py",
}
"""Pages with blocks in Python, and the tests that run them."""


TYPED = r"def \1(\2: Any, \3: Any, \4: Any) -> Any:"


def commands(document: str) -> list[str]:
    """The lines of fenced or indented blocks that start with `state-store`, without comments."""
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    found = re.findall(r"^(?:    )?(state-store [^#\n]*)", text, re.MULTILINE)
    return [line.strip() for line in found]


def pages() -> list[Path]:
    top = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md"]
    return [*top, *sorted((CHECKOUT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return checkpoint("flights", tmp_path_factory.mktemp("query"))


def test_the_documents_have_commands():
    assert len(commands("docs/operations.md")) >= 8
    assert len(commands("README.md")) >= 4


@pytest.mark.parametrize(
    "command",
    [
        command
        for page in PAGES
        for command in commands(page)
        if shlex.split(command)[1] not in ELSEWHERE and "--url" not in command
    ],
)
def test_commands_of_the_documents_run(command, directory, tmp_path, capsys):
    places = {"DIR": str(directory), "VERSION": "2", "COPY": str(directory)}
    if shlex.split(command)[1] == "cp":
        places["COPY"] = str(tmp_path / "copy")
    words = [places.get(word, word) for word in shlex.split(command)]
    words = [str(directory) if word.endswith("/flights") else word for word in words]
    warns = words[1] == "doctor"  # of a query that has stopped
    assert main(words[1:]) == warns, capsys.readouterr().err


def test_every_block_in_python_is_run_by_a_test():
    with_blocks = {
        page.relative_to(CHECKOUT).as_posix()
        for page in pages()
        if re.search(r"^```(python|py)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert with_blocks == WITH_TESTS.keys()
    for page, test in WITH_TESTS.items():
        assert Path(page).name in (CHECKOUT / test).read_text(encoding="utf-8")


def test_every_page_with_commands_is_run_by_a_test():
    others = {"docs/state.md", "docs/tutorial.md", "docs/migration.md", "docs/rest.md"}
    with_commands = {page.relative_to(CHECKOUT).as_posix() for page in pages() if commands(str(page))}
    assert with_commands <= {*PAGES, *others}


def test_commands_of_the_documents_are_understood():
    """Parse every command of every page: its options exist, and its arguments have their types."""
    for page in pages():
        for command in commands(str(page)):
            name, *words = shlex.split(command)[1:]
            places = {
                "VERSION": "2",
                "SOURCE": "/data/source",
                "BACK": "/data/back",
                "TARGET": "/data/target",
            }
            words = [places.get(word, word) for word in words]
            load(name).make_context(name, words)


WRONG_TYPES = """\
import state_store
state_store.open("x", on_damage="nope")  # type: ignore[arg-type]
state_store.full_checkpoint("x", on_failure="nope")  # type: ignore[arg-type]
state_store.vectorized(frame="nope")  # type: ignore[call-overload]
state_store.open("x", version="2")  # type: ignore[arg-type]
"""
"""Calls that a strict type checker refuses: an error that is missing makes its comment an error."""


@pytest.mark.tier("more")
def test_blocks_in_python_satisfy_a_strict_type_checker(tmp_path):
    """Functions that Spark calls have no types to give; packages without types cannot be checked."""
    names = []
    for page in ("README.md", "docs/tutorial.md", "docs/state.md", "docs/operations.md"):
        text = (CHECKOUT / page).read_text(encoding="utf-8")
        for number, code in enumerate(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)):
            names.append(f"{Path(page).stem}_{number}.py")
            typed = re.sub(r"^def (\w+)\((\w+), (\w+), (\w+)\):$", TYPED, code, flags=re.MULTILINE)
            (tmp_path / names[-1]).write_text(f"from typing import Any\n{typed}", encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG_TYPES, encoding="utf-8")
    names.append("wrong.py")
    checker = (sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--no-error-summary")
    done = subprocess.run(
        [*checker, "--disable-error-code", "import-untyped", *names],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(CHECKOUT), "MYPY_CACHE_DIR": str(CHECKOUT / ".mypy_cache/blocks")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert len(names) >= 11
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_between_documents_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_to_headings_lead_to_one(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text(encoding="utf-8")):
        linked = page.parent / target if target else page
        assert anchor in anchors(linked), f"{page.name} links to a heading that {linked.name} lacks: {anchor}"


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_operations_page_names_only_options_that_exist():
    text = (CHECKOUT / "docs/operations.md").read_text(encoding="utf-8")
    known = {option.name for option in OPTIONS}
    named = set(re.findall(r"`([a-z]+[A-Z][A-Za-z]+)`", text)) | set(
        re.findall(r"incremental\.(\w{2,})", text)
    )
    named = {name for name in named if not name.startswith("incremental")}  # metrics
    options = named - {
        "checkpointFormatVersion",
        "checkpointLocation",
        "startingOffsets",
        "stateUniqueIds",
        "addBatch",
        "foreachBatch",
        "transformWithState",
    }
    assert options <= known, options - known
    assert options
