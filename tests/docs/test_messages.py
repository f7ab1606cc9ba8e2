"""Messages that docs/operations.md quotes are in the sources, so that a search for them succeeds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
NOT_OURS = (
    "[STATE_STORE_CHECKPOINT_IDS_NOT_SUPPORTED]",
    "CheckpointInfo length",
    "No space left on device",
    "oom-kill",
)
"""Messages of Spark or the operating system."""

_ADJACENT = re.compile(r'"\s*\+?\s*(?:\n\s*)?[fsr]{0,2}"')
_PLACEHOLDER = re.compile(r"\.\.\.|\bN\b")


def sources() -> str:
    """Return all sources, with adjacent literals joined into one."""
    files = [
        path
        for directory, ending in (("state_store", "*.py"), ("jvm_bridge", "*.scala"), ("jvm_bridge", "*.py"))
        for path in (CHECKOUT / directory).rglob(ending)
    ]
    return "\n".join(_ADJACENT.sub("", path.read_text(encoding="utf-8")) for path in files)


def quotes() -> list[str]:
    """Return the quotations of the page: headings in double quotes, and sentences in them."""
    text = (CHECKOUT / "docs/operations.md").read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|^    [^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r'"([^"\n]{12,}(?:\n[^"\n]+)?)"', text)
    return [" ".join(quote.split()) for quote in found]


@pytest.fixture(scope="module")
def corpus() -> str:
    return sources()


def test_the_page_quotes_messages():
    assert len(quotes()) >= 8


@pytest.mark.parametrize("quote", quotes())
def test_a_quoted_message_is_in_the_sources(quote, corpus):
    if any(foreign in quote for foreign in NOT_OURS):
        return
    for part in _PLACEHOLDER.split(quote):
        if len(part := part.strip(" ,:'.")) >= 6:
            assert part in corpus, f"no source says {part!r}"


def test_the_page_has_advice_for_each_kind_of_error():
    page = (CHECKOUT / "docs/operations.md").read_text(encoding="utf-8")
    advice = next((CHECKOUT / "jvm_bridge").rglob("AgentException.scala")).read_text(encoding="utf-8")
    kinds = re.findall(r'^    "(\w+)" -> "', advice, re.MULTILINE)
    assert len(kinds) > 5
    assert re.findall(r"^\| `\[(\w+)\]` \|", page, re.MULTILINE) == kinds
