"""Hooks of the site: pages from the root of the repository, and decisions outside the navigation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root; a link to `docs/PAGE` in them becomes one to `PAGE`."""
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=re.sub(r"\]\(docs/", "](", text)))
    for file in files.documentation_pages():
        if file.src_uri.startswith("decisions/") and file.name != "index":
            file.inclusion = file.inclusion.NOT_IN_NAV
    return files
