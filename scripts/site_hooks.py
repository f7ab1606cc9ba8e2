"""Hooks of the site: pages from elsewhere in the repository, and decisions outside the navigation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "tests/README.md": "TESTS.md"}
"""Pages of the site that lie elsewhere in the repository, and their names in the site."""

_LINK = re.compile(r"\]\((?:\.\./)?(?:docs/)?([^)]*)")

_UP = re.compile(r"\]\(\.\./([^)#]*)")


def on_files(files: Files, config: Any) -> Files:
    """Add these pages, with their links as they are in the site."""
    for path, name in PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        text = _LINK.sub(lambda link: f"]({PAGES.get(link[1], link[1])}", text)
        files.append(File.generated(config, name, content=text))
    for file in files.documentation_pages():
        if file.src_uri.startswith("decisions/") and file.name != "index":
            file.inclusion = file.inclusion.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page with links to those pages as they are in the site."""
    return _UP.sub(lambda link: f"]({PAGES.get(link[1], '../' + link[1])}", markdown)
