"""Measures the page of `state-store serve`, and the requests to storage behind it.

    python -m benchmarks.comparisons.observed_pages [--stores N]... [--seconds N] [--every N] [--json OUT]

A query has as many stores, each with eight versions and a full checkpoint. Chromium opens its page five
times: the time is from the navigation to the page with its figures and drawings. Then the query commits a
batch every ten seconds, and someone looks at the page: requests to storage are those of `/metrics`, in a
minute. They are counted before storage, so that those on a local disk are those on HDFS or S3.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from state_store.core.checkpoint.stored_documents import FULL

LOADS = 5
COMMIT_EVERY_S = 10.0
VERSIONS = 8

_TESTS = Path(__file__).resolve().parents[2] / "tests"
_DRAWN = "document.querySelectorAll('#state-store .uplot canvas').length === 3"
_LOADED = """(() => {
  const all = ['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type));
  return all.reduce((sum, each) => sum + each.transferSize, 0);
})()"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stores", type=int, action="append", help="stores of a query; default: 10 and 1000")
    parser.add_argument("--seconds", type=float, default=60.0, help="time of counting; default: 60")
    parser.add_argument(
        "--every", type=float, default=30.0, help="seconds between looks; default: 30, as on S3"
    )
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    figures = [measure(stores, options.seconds, options.every) for stores in options.stores or (10, 1_000)]
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    print(table(figures))


def measure(stores: int, seconds: float, every_s: float) -> dict[str, Any]:
    """Return the figures of a query."""
    with tempfile.TemporaryDirectory(prefix="observed-pages-") as room:
        query = _query(Path(room), stores)
        service = _of_tests("service").serving(query.location, every_s=every_s)
        browser = _of_tests("browser").Browser()
        try:
            browser.size(1280, 900)
            first = _requests(service)
            loads = [_load_ms(browser, service.url)]
            size = browser.evaluate(_LOADED)  # later ones come from the browser's cache in part
            loads += [_load_ms(browser, service.url) for _ in range(LOADS - 1)]
            counted = _counted(service, query, seconds)
        finally:
            browser.close()
            service.stop()
        shutil.rmtree(query.root)
    return {
        "stores": stores,
        "load_ms": loads,
        "page_bytes": size,
        "first_look": first,
        "a_minute": {kind: count * 60 / seconds for kind, count in counted.items()},
        "every_s": every_s,
    }


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures as Markdown, a line for each query."""
    lines = ["| stores | page, ms | each | KB | first look: lists, reads | a minute: lists, reads |"]
    lines.append("|---" * 6 + "|")
    for row in figures:
        cells = [f"{row['stores']:,}", f"{statistics.median(row['load_ms']):.0f}"]
        cells.append(", ".join(f"{value:.0f}" for value in row["load_ms"]))
        cells.append(f"{row['page_bytes'] / 1024:.0f}")
        cells += [", ".join(f"{row[of][kind]:,.0f}" for kind in ("list", "read")) for of in _COUNTS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


_COUNTS = ("first_look", "a_minute")


def _query(room: Path, stores: int) -> Any:
    """Return a query whose stores have a full checkpoint and deltas after it."""
    queries = _of_tests("query_directory")
    query = queries.QueryDirectory(room / "flights", room / "scratch", partitions=1)
    for version in range(1, VERSIONS + 1):
        query.commit(queries.rows(version * 1000, 800 if version == 1 else 20))
        if version == 5:
            query.merge(query.keys[0], FULL)
    query.multiply(stores)
    return query


def _load_ms(browser: Any, url: str) -> float:
    """Open the page, and return the milliseconds until its figures are drawn."""
    browser.call("Page.navigate", url="about:blank")
    began_s = time.monotonic()
    browser.open(url)
    browser.wait(_DRAWN)
    return (time.monotonic() - began_s) * 1000


def _counted(service: Any, query: Any, seconds: float) -> dict[str, float]:
    """Return the requests to storage while the query commits and somebody asks."""
    queries = _of_tests("query_directory")
    ended = threading.Event()

    def commit() -> None:
        while not ended.wait(COMMIT_EVERY_S):
            query.commit(queries.rows(query.version * 1000, 20))

    committing = threading.Thread(target=commit)
    before = _requests(service)
    committing.start()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        service.http.get("v1/queries")
        time.sleep(1)
    figures = _requests(service)
    ended.set()
    committing.join()
    return {kind: figures[kind] - before[kind] for kind in figures}


def _requests(service: Any) -> dict[str, float]:
    """Return the requests to storage so far, by kind."""
    lines = service.http.get("metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("state_store_storage_requests_total{")]
    return {line.split('kind="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in counted}


def _of_tests(name: str) -> Any:
    """Import a module that the tests share."""
    for directory in (_TESTS, _TESTS / "data", _TESTS / "observe"):
        if str(directory) not in sys.path:
            sys.path.append(str(directory))
    return importlib.import_module(name)


if __name__ == "__main__":
    main()
