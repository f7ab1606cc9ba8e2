"""The tables of engines in `docs/compare.md`, each between a comment with its name and one that ends it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from benchmarks.page.page_parts import ENGINE_COLUMNS, Row, engine_restarts, engine_waits, engines, table
from benchmarks.results import Results

PAGE = "docs/compare.md"
_BLOCK = re.compile(r"(?s)(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)")
_RESTARTS = """\
| | keys | first output after a first start, s | after a kill, s | difference, s |
| name | keys ,.0f | cold_s .1f | again_s .1f | recovery_s .1f |"""
_AIMS = """\
| this project's form, beside | rows a key | keys | rows a second | less CPU | aim | |
| pair | rows_a_key g | keys ,.0f | speed .2g x | cpu .2g x | aim g x | outcome |"""
AIMS = (
    ("processor", "thread-rocksdb", 20, 12),
    ("processor", "bytewax", 20, 1),
    ("per_group", "bytewax", 20, 1.5),
    ("vectorized", "bytewax", 20, 5),
    ("processor", "thread-rocksdb", 2, 6),
)
"""Forms, peers, rows a key, and how often the peer's rows a second were aimed at."""


def filled(page: str, results: Results) -> str:
    """Return a page with its tables of engines; one without figures says so."""
    tables = {
        **{name: table(engines(results, name), ENGINE_COLUMNS) for name in ("counter", "frames", "sessions")},
        "aims": table(aims(results), _AIMS),
        "restarts": table(engine_restarts(results), _RESTARTS),
        "waits": table(engine_waits(results)),
    }
    return _BLOCK.sub(lambda match: f"{match[1]}{_text(tables[match[2]])}{match[3]}", page)


def _text(text: str) -> str:
    return f"\n{text or 'It has not been measured yet.' + chr(10)}\n"


def aims(results: Results) -> Iterator[Row]:
    """Yield the ratios of rows a second and of CPU beside their aims, with the most keys up to 20,000."""
    runs: dict[tuple[Any, ...], Any] = {
        (run["form"], run["rows_a_key"], run["asked_keys"]): run
        for run in engines(results, "counter")
        if "form" in run
    }
    for form, peer, per_key, aim in AIMS:
        shared = [
            keys
            for name, rows, keys in runs
            if (name, rows) == (form, per_key) and (peer, per_key, keys) in runs and keys <= 20_000
        ]
        if shared:
            keys = max(shared)
            own, other = runs[form, per_key, keys], runs[peer, per_key, keys]
            speed = own["rows_a_second"] / other["rows_a_second"]
            yield {
                **own,
                "pair": f"{own['name'].removeprefix('this project, ')}, {other['name']}",
                "speed": speed,
                "cpu": other["cpu_us_a_row"] / own["cpu_us_a_row"],
                "aim": aim,
                "outcome": "met" if speed >= aim else "missed",
            }
