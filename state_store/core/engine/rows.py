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
"""Bytes of the pages of all younger runs together, unless there are very many runs."""

_LEAST_PAGE_BYTES = 256 << 10


def rows(directory: Path, settings: DatabaseSettings, start: bytes, end: bytes) -> Iterator[Page]:
    """Yield the rows of a range of keys, without removals, in no order.

    They are in the order of their keys if there is one sorted run. The memory is that of a page of each run.

    Args:
        directory: the database; nobody else uses it.
        settings: how the database is opened.
        start: the first key, two bytes.
        end: the key after the last one, two bytes.

    Raises:
        DamagedError: If a file is damaged.
        FormatError: If a file has records or blocks of an unknown kind.
    """
    with Database(directory, settings) as database:
        runs = database.runs()
    few = min(PAGE_BYTES, max(_LEAST_PAGE_BYTES, _YOUNG_BYTES // max(1, len(runs))))
    yield from merged(
        [
            _of_run(
                directory, run, start, end, PAGE_BYTES if run is runs[-1] else few
            )  # the oldest has most rows
            for run in runs
        ]
    )


def _of_run(
    directory: Path, run: list[TableFile], start: bytes, end: bytes, page_bytes: int
) -> Iterator[Page]:
    for file in run:
        yield from pages(directory / file.name, start, end, page_bytes)
