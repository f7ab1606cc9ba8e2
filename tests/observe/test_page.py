"""The page in a real browser: its content, its button, and its accessibility.

`STATE_STORE_PICTURES=docs/pictures` writes the pictures of the documents.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import httpx
import pytest
from browser import Browser
from query_directory import QueryDirectory, rows
from running_service import Served, serving

import state_store
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, Cause

pytestmark = pytest.mark.tier("more")

TEXT = "document.querySelector('#state-store').innerText"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield a browser."""
    chromium = Browser()
    yield chromium
    chromium.close()


@pytest.fixture
def page(browser: Browser) -> Browser:
    """Return the browser as a desk has it, without the page of the test before and anything noted."""
    browser.call("Page.navigate", url="about:blank")
    browser.size(1280, 900)
    browser.problems.clear()
    browser.requested.clear()
    return browser


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> QueryDirectory:
    """Return a query of 12 partitions of different sizes, 40 versions, with merges and a full checkpoint."""
    root = tmp_path_factory.mktemp("skewed")
    query = QueryDirectory(root / "flights-by-airport", root / "scratch", partitions=12)
    for version in range(1, 41):
        query.version = version
        query._write(
            f"offsets/{version - 1}", {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}, "{}"
        )
        for number, key in enumerate(query.keys):
            count = (9000 if version == 1 else 150 + 31 * (version % 9)) * (number + 2) // 9
            first = 0 if version == 1 else 20_000 + (version % 16) * 800
            query.newest[key] = query.write_version(key, rows(first, count), query.newest.get(key))
        query._log_commit()
        if version % 7 == 0:
            for key in query.keys:
                query.merge(key, FULL if version == 14 else INCREMENTAL)
    return query


@pytest.fixture(scope="module")
def shown(skewed: QueryDirectory) -> Iterator[Served]:
    """Yield a service of the skewed query."""
    service = serving(skewed.location, every_s=1.0)
    yield service
    service.stop()


def pictured(browser: Browser, name: str, tmp_path: Path, *, high: int | None = None) -> Path:
    """Write a picture, where the documents have it if they are being made."""
    path = Path(os.environ.get("STATE_STORE_PICTURES", tmp_path)) / f"{name}.png"
    browser.picture(path, high=high)
    assert path.stat().st_size > 10_000
    return path


@pytest.mark.tier("more")
def test_the_verdict_comes_first_and_everything_is_shown(
    page: Browser, shown: Served, tmp_path: Path
) -> None:
    page.open(shown.url)
    page.wait("document.querySelectorAll('#state-store .uplot canvas').length === 3")
    text = page.evaluate(TEXT)
    assert (
        text.index("Fine as far as listings show: batch 39")
        < text.index("Slowest restore")
        < text.index("Stores")
    )
    assert page.evaluate("document.querySelectorAll('#ss-stores tbody tr').length") == 12
    assert page.evaluate("document.querySelector('#ss-stores tbody tr').innerText").startswith("0/11/default")
    assert page.evaluate("document.querySelectorAll('#ss-drawing rect.shared').length") > 0
    assert page.evaluate("document.querySelectorAll('#ss-history tbody tr').length") == 20
    assert "restoreObjective" in page.evaluate("document.querySelector('#ss-config').textContent")
    pictured(page, "checkpoints-page", tmp_path)
    page.size(1280, 900, dark=True)
    page.evaluate("new Promise((after) => setTimeout(after, 700))")
    pictured(page, "checkpoints-page-dark", tmp_path, high=900)


def test_every_figure_and_column_is_explained(page: Browser, shown: Served) -> None:
    """The hint of each heading is in the page of help, to which the page leads."""
    page.open(shown.url)
    page.evaluate("document.querySelector('#ss-history tbody button').click()")
    page.wait("document.querySelector('#ss-history tr.inside') !== null")
    said = "[...document.querySelectorAll('{}')].map((e) => [e.innerText.replace(/ [↓]$/, ''), e.title])"
    for selector in (
        "#ss-figures .figure",
        "#ss-latest dt",
        "#ss-summary thead th",
        "#ss-stores th",
        "#ss-history > thead th",
    ):
        found = page.evaluate(said.format(selector))
        assert found and all(hint for _, hint in found), (selector, found)
    hints = {hint for _, hint in page.evaluate(said.format("#ss-history > thead th"))}
    page.call("Page.navigate", url=page.evaluate("document.querySelector('.foot a').href"))
    page.wait("document.querySelector('main.help') !== null")
    help_page = page.evaluate("document.body.innerText")
    assert all(hint in help_page for hint in hints)
    assert page.problems == []


def test_percentiles_are_those_of_the_versions_that_are_named(page: Browser, shown: Served) -> None:
    """The row of a figure over checkpoints has the nearest ranks of its column."""
    page.open(shown.url)
    page.wait("document.querySelector('#ss-summary tbody') !== null")
    count = int(page.evaluate("document.querySelector('#ss-summary-about').innerText").split()[-2])
    (query,) = shown.http.get("v1/queries").json()["queries"]
    answer = shown.http.get(f"v1/queries/{query['name']}/checkpoints?limit={count}").json()
    table_rows = "[...document.querySelectorAll('#ss-summary tr')]"
    for field, name in (("batch_ms", "Batch"), ("new_bytes", "New bytes")):
        values = sorted(row[field] for row in answer["history"] if field in row)
        row = f"{table_rows}.find((row) => row.innerText.startsWith('{name}, over checkpoints'))"
        assert len(set(values)) > 3, field
        cells = page.evaluate(f"[...({row}).cells].slice(1, 4).map((cell) => cell.innerText)")
        ranks = [values[math.ceil(part * len(values)) - 1] for part in (0.5, 0.95, 1)]
        assert [_number(cell) for cell in cells] == pytest.approx(ranks, rel=0.06), field


UNITS = {"ms": 1, "s": 1e3, "min": 6e4, "h": 36e5, "B": 1, "kB": 1e3, "MB": 1e6, "d": 864e5}


def _number(text: str) -> float:
    """Return the milliseconds or bytes that a text of the page says."""
    words = text.split()
    return sum(float(number) * UNITS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


def test_a_version_opens(page: Browser, shown: Served) -> None:
    """The row of a version has its reason and its stores, and each store its files; it stays open."""
    page.open(shown.url)
    page.evaluate("document.querySelector('[data-focus=\"version-35\"]').click()")
    page.wait("document.querySelector('#ss-history tr.inside') !== null")
    inside = "document.querySelector('#ss-history tr.inside')"
    assert page.evaluate(f"{inside}.querySelectorAll(':scope table tbody tr').length") == 12
    page.evaluate("document.querySelector('[data-focus=\"files-35-0/3/default\"]').click()")
    page.wait(f"{inside} && {inside}.querySelectorAll('table').length === 2")
    assert "Files of store 0/3/default at version 35" in page.evaluate(f"{inside}.innerText")
    assert "snapshot/" in page.evaluate(f"{inside}.innerText")
    assert page.evaluate("document.querySelector('[data-focus=\"version-35\"]').ariaExpanded") == "true"
    page.evaluate("document.querySelector('[data-focus=\"version-35\"]').click()")
    page.wait(f"{inside} === null")


def test_all_queries_are_seen_at_once_and_again(page: Browser, grown: QueryDirectory, tmp_path: Path) -> None:
    """The worst comes first; the list shows by itself what happens to another query than the chosen one."""
    good, other = grown.copied(tmp_path / "good"), grown.copied(tmp_path / "other")
    service = serving(good.location, other.location, every_s=0.5)
    cells = "[...row.cells].slice(0, 2).map((cell) => cell.innerText.trim())"
    verdicts = f"[...document.querySelectorAll('#ss-all tbody tr')].map((row) => {cells})"
    try:
        page.open(service.url)
        page.wait("document.querySelectorAll('#ss-all tbody tr').length === 2")
        assert page.evaluate(verdicts) == [["good", "fine"], ["other", "fine"]]
        for path in other.files(other.keys[0]):
            if path.parent.name == "delta":
                path.unlink()
        other.commit(rows(1, 2))
        page.wait(f"{verdicts}[0].join() === 'other,critical'")
        assert "cannot be restored" in page.evaluate("document.querySelector('#ss-all tbody tr').innerText")
        pictured(page, "checkpoints-queries", tmp_path, high=620)
        page.click("[data-focus='query-other']")
        page.wait("document.title.includes('other')")
        assert page.problems == []
    finally:
        service.stop()


def test_it_asks_its_own_service_only_and_breaks_no_rule_of_its_policy(page: Browser, shown: Served) -> None:
    page.open(shown.url)
    page.wait("document.querySelectorAll('#state-store .uplot canvas').length === 3")
    assert page.requested and all(url.startswith(shown.url) for url in page.requested)
    assert page.problems == []


def test_the_button_makes_a_full_checkpoint_and_the_page_shows_it(
    page: Browser, query: QueryDirectory, tmp_path: Path
) -> None:
    service = serving(query.location, every_s=1.0)
    try:
        page.open(service.url)
        before = page.evaluate("document.querySelectorAll('#ss-history .tag.full').length")
        page.click("#ss-full")
        page.wait("document.querySelector('#state-store').dataset.full === 'done'")
        status = page.evaluate("document.querySelector('#ss-status').textContent")
        assert status.startswith("Full checkpoint of version 12: 2 of 2 stores in ")
        page.wait(f"document.querySelectorAll('#ss-history .tag.full').length === {before + 1}")
        assert "full" in page.evaluate("document.querySelector('#ss-history tbody tr').innerText")
        pictured(page, "checkpoints-after-full", tmp_path, high=560)
        assert page.problems == []
    finally:
        service.stop()


def test_faults_are_shown_with_the_remedy(page: Browser, query: QueryDirectory, tmp_path: Path) -> None:
    for path in query.files(query.keys[0]):
        if path.parent.name == "delta":
            path.unlink()
    service = serving(query.location, objective_ms=1)
    try:
        page.open(service.url)
        text = page.evaluate("document.querySelector('#ss-verdict').innerText")
        assert text.index("cannot be restored") < text.index("state-store repair DIR")
        assert text.index("critical") < text.index("warning")
        address = page.evaluate("document.querySelector('#ss-verdict a').href")
        assert address == f"{service.url.rstrip('/')}/static/help.html#alert-statestoredamaged"
        helped = httpx.get(address).text
        assert 'id="alert-statestoredamaged"' in helped
        assert page.evaluate("document.title").startswith("(critical)")
        assert "cannot be restored" in page.evaluate(
            "document.querySelector('#ss-stores tbody tr').innerText"
        )
        pictured(page, "checkpoints-wrong", tmp_path, high=620)
    finally:
        service.stop()


def test_known_damage_is_red(page: Browser, query: QueryDirectory, tmp_path: Path) -> None:
    """A byte of the newest delta changed: no listing shows it, and a verification has found it."""
    path = max(path for path in query.files(query.keys[1]) if path.parent.name == "delta")
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    state_store.verify(query.location)
    service = serving(query.location)
    try:
        page.open(service.url)
        assert page.evaluate("document.querySelector('#ss-verdict').className").endswith("critical")
        said = "the delta of version 12 in store 0/1/default is damaged"
        assert said in page.evaluate("document.querySelector('#ss-verdict').innerText")
        first = page.evaluate("document.querySelector('#ss-stores tbody tr').innerText")
        assert first.startswith("0/1/default") and said in first
        assert "problems: 1" in page.evaluate("document.querySelector('#ss-figures').innerText")
        pictured(page, "checkpoints-damaged", tmp_path, high=620)
    finally:
        service.stop()


def test_a_full_checkpoint_is_as_old_as_it_is_and_never_if_there_is_none(
    page: Browser, query: QueryDirectory, tmp_path: Path
) -> None:
    """The card has the time at which the checkpoint was made, not that of the commit of its version."""
    cards = "[...document.querySelectorAll('#ss-figures .figure')].map((e) => e.innerText)"
    for path in (query.root / "commits").iterdir():
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 7200))
    service = serving(query.location)
    try:
        page.open(service.url)
        (card,) = [text for text in page.evaluate(cards) if text.startswith("Full checkpoint")]
        assert "of version 4" in card and " h ago" not in card, "the commit was two hours earlier"
    finally:
        service.stop()
    plain = QueryDirectory(tmp_path / "plain", tmp_path / "scratch")
    plain.commit(rows(1, 20))
    service = serving(plain.location)
    try:
        page.open(service.url)
        (card,) = [text for text in page.evaluate(cards) if text.startswith("Full checkpoint")]
        assert "never" in card
    finally:
        service.stop()


def test_a_failed_request_is_said(page: Browser, query: QueryDirectory) -> None:
    service = serving(query.location)
    try:
        page.open(service.url)
        for path in query.files(query.keys[0]):
            if path.parent.name == "delta":
                path.unlink()
        page.click("#ss-full")
        page.wait("document.querySelector('#state-store').dataset.full")
        assert "failed for 1 stores" in page.evaluate("document.querySelector('#ss-status').textContent")
    finally:
        service.stop()


def test_a_token_is_asked_for_and_kept_out_of_the_address(page: Browser, query: QueryDirectory) -> None:
    token = "0123456789abcdef-secret"
    service = serving(query.location, host="0.0.0.0", token=token, allowed_hosts=("127.0.0.1",))
    url = service.url.replace("0.0.0.0", "127.0.0.1")
    try:
        page.call("Page.navigate", url=url)
        page.wait("document.querySelector('#ss-token') !== null")
        page.evaluate(f"document.querySelector('#ss-token').value = '{token}'")
        page.click("#ss-verdict button")
        page.wait("document.querySelector('#state-store').dataset.ready")
        assert token not in page.evaluate("location.href")
        assert not any(token in requested for requested in page.requested)
        page.click("#ss-full")
        page.wait("document.querySelector('#state-store').dataset.full === 'done'")
    finally:
        service.stop()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("wide", "phone"), [(1280, False), (390, True)])
def test_it_is_accessible(page: Browser, shown: Served, dark: bool, wide: int, phone: bool) -> None:
    page.size(wide, 900, dark=dark, phone=phone)
    page.open(shown.url)
    page.wait("document.querySelectorAll('#state-store .uplot canvas').length === 3")
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    page.call("Runtime.evaluate", expression=axe)
    found = page.evaluate(
        "axe.run(document).then((r) => r.violations.map((v) => [v.id, v.nodes.map((n) => n.html)]))"
    )
    assert found == []


def test_it_can_be_used_with_the_keyboard_alone(page: Browser, shown: Served) -> None:
    page.open(shown.url)
    names = []
    for _ in range(30):
        page.press("Tab", 9)
        names.append(page.evaluate("document.activeElement.dataset.focus || document.activeElement.id"))
    assert names[0] == "ss-full"
    assert "sort-deltas" in names and "0/11/default" in names
    page.evaluate("document.querySelector('[data-focus=\"0/3/default\"]').focus()")
    page.press("Enter", 13)
    page.wait("document.querySelector('#ss-files-about').textContent.startsWith('Store 0/3/default')")
    assert page.evaluate("document.activeElement.id") == "ss-h-files"
    page.evaluate("document.querySelector('[data-focus=\"sort-deltas\"]').focus()")
    page.press("Enter", 13)
    page.wait("document.querySelector('#ss-stores th[aria-sort] button').dataset.focus === 'sort-deltas'")
    assert page.evaluate("document.activeElement.dataset.focus") == "sort-deltas", "focus stays"


def test_it_works_on_a_telephone(page: Browser, shown: Served, tmp_path: Path) -> None:
    page.size(390, 844, phone=True)
    page.open(shown.url)
    page.wait("document.querySelectorAll('#state-store .uplot canvas').length === 3")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing is wider than the screen"
    assert page.evaluate("document.querySelector('#ss-full').getBoundingClientRect().height") >= 44
    pictured(page, "checkpoints-telephone", tmp_path, high=1500)


def test_hostile_names_stay_texts(page: Browser, grown: QueryDirectory, tmp_path: Path) -> None:
    root = tmp_path / "<img src=x onerror=document.body.dataset.owned=1>"
    hostile = grown.copied(root)
    meta = root / "state/0/_metadata/metadata"
    name = "<script>document.body.dataset.owned=1</script>"
    meta.write_text(
        meta.read_text().replace("applyInPandasWithState", name).replace("flatMapGroupsWithState", name)
    )
    for path in hostile.files(hostile.keys[0]):
        if path.parent.name == "delta":
            path.unlink()
    hostile.merge(hostile.keys[1], FULL, Cause(name, 1, {"fullSchedule": name}))
    service = serving(str(root))
    try:
        page.open(service.url)
        text = page.evaluate("document.querySelector('#state-store').textContent")
        assert text.count(name) >= 3, "the operator's name, the reason of a checkpoint, an option"
        assert page.evaluate("document.body.dataset.owned") is None
        assert page.evaluate("document.querySelectorAll('#state-store img, #state-store script').length") == 0
    finally:
        service.stop()


def typed(page: Browser, text: str) -> None:
    """Put a text into the field of the partition."""
    page.evaluate(f"document.querySelector('#ss-filter').value = '{text}'")
    page.evaluate("document.querySelector('#ss-filter').dispatchEvent(new Event('input'))")


@pytest.mark.parametrize("text", ["-1", "1e1", "1.5", "99999999999999999999"])
def test_a_partition_that_is_no_number_hides_nothing(page: Browser, shown: Served, text: str) -> None:
    """The figures, and the field in which the number can be corrected, stay."""
    page.open(shown.url)
    rows_shown = "document.querySelectorAll('#ss-stores tbody tr').length"
    page.wait(f"{rows_shown} === 12")
    typed(page, "3")
    page.wait(f"{rows_shown} === 1")
    typed(page, text)
    page.wait("document.querySelector('#ss-stores').innerText.includes('partition')")
    assert page.evaluate("document.querySelector('#ss-body').hidden") is False
    typed(page, "")
    page.wait(f"{rows_shown} === 12")


def test_figures_are_not_shown_as_fresh_when_the_service_is_gone(
    page: Browser, query: QueryDirectory
) -> None:
    service = serving(query.location)
    try:
        page.open(service.url)
        page.wait("document.querySelectorAll('#ss-stores tbody tr').length === 2")
    finally:
        service.stop()
    page.wait("document.querySelector('#ss-verdict').innerText.includes('No newer figures')")
    facts = page.evaluate("document.querySelector('#ss-facts').innerText")
    assert facts.startswith("Everything below is as it was "), facts


def test_a_thousand_stores_are_paged(page: Browser, tmp_path: Path) -> None:
    query = QueryDirectory(tmp_path / "many", tmp_path / "scratch", partitions=1)
    for version in range(1, 9):
        query.commit(rows(version * 1000, 800 if version == 1 else 20))
        if version == 5:
            query.merge(query.keys[0], FULL)
    query.multiply(1000)
    service = serving(query.location)
    try:
        page.open(service.url)
        page.wait("document.querySelectorAll('#state-store .uplot canvas').length === 3")
        loaded = page.evaluate(
            "performance.getEntriesByType('resource').filter(entry => entry.name.includes('/v1/'))"
            ".reduce((bytes, entry) => bytes + entry.decodedBodySize, 0)"
        )
        all_stores = service.http.get("v1/queries/many/stores?limit=1000").content
        assert 0 < loaded < len(all_stores), "the page loads what it shows"
        assert page.evaluate("document.querySelectorAll('#ss-stores tbody tr').length") == 25
        assert page.evaluate("document.querySelector('#ss-pages').innerText").endswith("1 to 25 of 1,000")
        page.click("[data-focus='Next']")
        page.wait("document.querySelector('#ss-pages').innerText.endsWith('26 to 50 of 1,000')")
        typed(page, "777")
        page.wait("document.querySelectorAll('#ss-stores tbody tr').length === 1")
        assert "0/777/default" in page.evaluate("document.querySelector('#ss-stores').innerText")
        metrics = service.http.get("metrics").text
        assert 'partition="1' not in metrics
        assert metrics.count("\nstate_store_chain_deltas{") == 1, "aggregated above 500 stores"
    finally:
        service.stop()
