"""The tab's page in a real browser: its content, the effect of its button, and the page of help."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from observed.ui_application import Running

sys.path.append(str(Path(__file__).resolve().parents[2] / "observe"))

from browser import Browser

pytestmark = [
    pytest.mark.tier("more"),
    pytest.mark.spark,
    pytest.mark.older(more=("4.0",)),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium"),
]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("page"), settings_={"maxDeltas": "100"}) as running:
        running.start("flights by airport", "processed")
        running.feed("flights by airport", 5)
        yield running


@pytest.fixture
def browser() -> Iterator[Browser]:
    chromium = Browser()
    chromium.size(1280, 900)
    yield chromium
    chromium.close()


def test_the_page_shows_the_query_and_its_button_makes_a_full_checkpoint(
    app: Running, browser: Browser, tmp_path: Path
) -> None:
    browser.open(f"{app.ui}/checkpoints/")
    browser.wait("document.querySelectorAll('#state-store .uplot canvas').length === 3")
    text = browser.evaluate("document.querySelector('#state-store').innerText")
    verdict = text.index("Fine as far as executors report: batch 4")
    assert verdict < text.index("Slowest restore") < text.index("Stores\n")
    assert text.index("sums") < text.index("$"), "the user's variables come before internal ones"
    assert browser.evaluate("document.querySelectorAll('#ss-stores tbody tr').length") == 2
    figures = browser.evaluate("document.querySelector('#ss-figures').innerText")
    assert all(name in figures for name in ("Last batch took", "Stores restored", "Stores by executor"))
    summary = browser.evaluate("document.querySelector('#ss-summary').innerText")
    assert all(name in summary for name in ("Commit of a store", "writing the delta", "storing it"))
    browser.evaluate("document.querySelector('#ss-history tbody button').click()")
    browser.wait("document.querySelector('#ss-history tr.inside') !== null")
    opened = browser.evaluate("document.querySelector('#ss-history tr.inside').innerText")
    assert "storing them" in opened and "the whole batch" in opened and "0/1/default" in opened
    browser.click("#ss-full")
    browser.wait("document.querySelector('#state-store').dataset.full === 'done'")
    status = browser.evaluate("document.querySelector('#ss-status').textContent")
    assert status.startswith("Full checkpoint of version 5: 2 of 2 stores in "), status
    cards = "document.querySelector('#ss-figures').innerText"
    browser.wait(f"{cards}.includes('of version 5')")
    shown = "document.querySelector('#ss-history tbody tr .tag.full') !== null"
    browser.wait(shown)
    assert "never" not in browser.evaluate("document.querySelector('#ss-stores').innerText")
    browser.picture(Path(os.environ.get("STATE_STORE_PICTURES", tmp_path)) / "checkpoints-tab.png")
    assert browser.requested
    assert [url for url in browser.requested if not url.startswith((app.ui, "data:", "blob:"))] == []
    browser.call("Page.navigate", url=browser.evaluate("document.querySelector('#state-store .foot a').href"))
    browser.wait("document.querySelector('main.help') !== null && document.readyState === 'complete'")
    assert browser.problems == []
