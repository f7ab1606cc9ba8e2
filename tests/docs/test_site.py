"""The site has the pages where others link to them."""

from __future__ import annotations

import re
from pathlib import Path


def test_pages_are_called_as_the_page_of_checkpoints_links_to_them(checkout: Path) -> None:
    """With directories for pages, each of its links would lead to nothing."""
    script = (checkout / "jvm_bridge/resources/state-store/page/page.js").read_text(encoding="utf-8")
    settings = (checkout / "mkdocs.yml").read_text(encoding="utf-8")
    assert '".html"' in script
    assert re.search(r"^use_directory_urls: false$", settings, re.MULTILINE)


def test_pages_of_remedies_are_in_the_navigation(checkout: Path) -> None:
    named = set(re.findall(r": ([\w-]+\.md)$", (checkout / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    texts = [path.read_text("utf-8") for path in (checkout / "state_store/observe").rglob("*.py")]
    linked = {page for text in texts for page in re.findall(r"docs/([\w-]+\.md)#", text)}
    assert linked
    assert linked <= named
