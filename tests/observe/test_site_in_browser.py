"""The site as a reader walks it, in a real browser: navigation, search, reference."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser

from state_store.cli.commands import NAMES

pytestmark = pytest.mark.tier("long")  # it installs what builds the site


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the site of this checkout."""
    directory = tmp_path_factory.mktemp("site")
    build = [checkout / ".venv-docs/bin/python", "-m", "mkdocs", "build", "--strict", "--site-dir", directory]
    for command in ([sys.executable, "scripts/environment.py", "docs"], build):
        subprocess.run(command, cwd=checkout, env={**os.environ, "NO_COLOR": "1"}, check=True, timeout=1800)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=directory))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def reader(site: str) -> Iterator[Browser]:
    browser = Browser()
    browser.size(1280, 900)
    yield browser
    browser.close()


def go(browser: Browser, address: str) -> None:
    browser.call("Page.navigate", url=address)
    is_there = "document.readyState == 'complete' && !!document.querySelector('article h1')"
    browser.wait(f"location.href == {json.dumps(address)} && {is_there}")


def of_page(browser: Browser) -> dict[str, object]:
    return browser.evaluate(
        "({over: Math.max(0, document.documentElement.scrollWidth - innerWidth),"
        " lost: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),"
        " is_empty: document.querySelector('article').innerText.length < 200})"
    )


@pytest.mark.parametrize(("wide", "high", "phone"), [(1280, 900, False), (390, 844, True)])
def test_each_page_of_the_navigation_fits_and_is_whole(reader, site, wide, high, phone):
    reader.size(wide, high, phone=phone)
    go(reader, f"{site}/index.html")
    links = "[...new Set([...document.querySelectorAll('nav a[href]')].map(a => a.href.split('#')[0]))]"
    pages = [link for link in reader.evaluate(links) if link.startswith(site)]
    assert len(pages) > 35
    for page in pages:
        go(reader, page)
        assert (page, of_page(reader)) == (page, {"over": 0, "lost": [], "is_empty": False})
    assert reader.problems == []
    foreign = [url for url in reader.requested if not url.startswith((site, "data:", "blob:"))]
    assert foreign == [], "a machine without the internet reads it"


def test_the_search_finds_an_option_in_the_reference(reader, site):
    go(reader, f"{site}/index.html")
    reader.click(".md-search__input")
    reader.evaluate("document.querySelector('.md-search__input').focus()")
    reader.call("Input.insertText", text="restoreObjective")
    reader.wait("document.querySelectorAll('.md-search-result__item').length")
    found = reader.evaluate("[...document.querySelectorAll('.md-search-result__item a')].map(a => a.href)")
    assert any(link.startswith(f"{site}/options.html") and "restoreobjective" in link for link in found)


def test_the_reference_has_all_commands_with_examples(reader, site):
    go(reader, f"{site}/cli.html")
    titles = reader.evaluate("[...document.querySelectorAll('h3')].map(h => h.id)")
    assert titles == [f"state-store-{name}" for name in NAMES]
    texts = reader.evaluate("[...document.querySelectorAll('pre')].map(p => p.innerText)")
    assert len(texts) == 1 + len(NAMES)
    assert all("Examples:" in text and "-h, --help" in text for text in texts)
    assert not any("UNSET" in text or "object at 0x" in text for text in texts)


def test_the_reference_of_python_has_all_names(reader, site):
    import state_store

    go(reader, f"{site}/api.html")
    titles = set(reader.evaluate("[...document.querySelectorAll('h2, h3')].map(h => h.id)"))
    assert {
        f"state_store.{name}" for name in ("open", "sql", "verify", "configure", "EmbeddedStore")
    } <= titles
    named = {title.removeprefix("state_store.") for title in titles if title.startswith("state_store.")}
    assert {name.split(".")[0] for name in named} <= {*dir(state_store), *state_store.__all__}
    assert "object at 0x" not in reader.evaluate("document.querySelector('article').innerText")
