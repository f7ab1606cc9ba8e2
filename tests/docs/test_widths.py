"""Lines of the pages that people write have at most 120 characters, so that a change shows as what it is."""

from __future__ import annotations

import re
from pathlib import Path

GENERATED = {f"docs/{name}.md" for name in ("options", "metrics", "alerts", "cli", "benchmarks")}
WIDTH = 120


def long_lines(text: str) -> list[int]:
    """Return the numbers of the lines that are too long, but for tables, blocks of code and single words."""
    found, in_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and len(line) > WIDTH and not line.startswith(("|", "    ")) and _can_break(line):
            found.append(number)
    return found


def _can_break(line: str) -> bool:
    """Return False for a line that is one link, picture or piece of code."""
    return bool(re.search(r"\s", re.sub(r"`[^`]*`|!?\[[^\]]*\]\([^)]*\)", "x", line.strip().lstrip("-*> "))))


def test_lines_of_pages_are_short(checkout: Path) -> None:
    pages = [*checkout.glob("*.md"), *(checkout / "docs").rglob("*.md")]
    texts = {page.relative_to(checkout).as_posix(): page.read_text(encoding="utf-8") for page in pages}
    found = {
        name: lines for name, text in texts.items() if name not in GENERATED and (lines := long_lines(text))
    }
    assert found == {}


def test_a_long_line_is_found() -> None:
    text = "\n".join(["a " * 61, "| " + "a " * 61, "```", "a " * 61, "```", "`" + "a " * 61 + "`"])
    assert long_lines(text) == [1]
