"""All rows of a range of keys of a local database, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from state_store.core.engine.database import Database, TableFile
from state_store.core.engine.page_reader import PAGE_BYTES, pages
from state_store.core.engine.pages import Page
from state_store.core.engine.settings import DatabaseSettings
from state_store.core.engine.sorted_runs import merged

_YOUNG_BYTES = 32 << 20
"""Of pages of younger runs, of all of them together, where there are not very many."""

_LEAST_PAGE_BYTES = 256 << 10


def rows(directory: Path, settings: DatabaseSettings, start: bytes, end: bytes) -> Iterator[Page]:
    """The rows with keys from `start` up to `end` (excluded), both of two bytes; no page has a removal.

    In no order; in that of their keys where there is one sorted run. Nobody else uses the directory. Memory
    is for a page of each run. Raises DamagedError for a damaged file, FormatError for one that is not known.
    """
    with Database(directory, settings) as database:
        runs = database.runs()
    few = min(PAGE_BYTES, max(_LEAST_PAGE_BYTES, _YOUNG_BYTES // max(1, len(runs))))
    yield from merged(
        [
            _of_run(directory, run, start, end, PAGE_BYTES if run is runs[-1] else few)  # it has most rows
            for run in runs
        ]
    )


def _of_run(
    directory: Path, run: list[TableFile], start: bytes, end: bytes, page_bytes: int
) -> Iterator[Page]:
    for file in run:
        yield from pages(directory / file.name, start, end, page_bytes)
