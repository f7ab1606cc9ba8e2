"""Commands in the documents run as they are written, and links between documents lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint

from state_store.cli.main import main
from state_store.core.settings.options import OPTIONS

CHECKOUT = Path(__file__).resolve().parent.parent.parent
COMPILES, SERVES = "jar", "serve"


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
        one
        for page in ("README.md", "docs/operations.md")
        for one in commands(page)
        if shlex.split(one)[1] not in (COMPILES, SERVES)
    ],
)
def test_commands_of_the_documents_run(command, directory, capsys):
    words = [{"DIR": str(directory), "VERSION": "2"}.get(word, word) for word in shlex.split(command)]
    assert main(words[1:]) == 0, capsys.readouterr().err


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
    """What a page's headings are called in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_operations_page_names_only_options_that_exist():
    text = (CHECKOUT / "docs/operations.md").read_text(encoding="utf-8")
    known = {one.name for one in OPTIONS}
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
