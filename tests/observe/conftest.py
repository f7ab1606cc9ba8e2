"""Queries with real files for the tests of observation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from query_directory import QueryDirectory, rows
from running_service import Served, serving

from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, Cause

CAUSE = Cause("4 deltas (maxDeltas)", 1234, {"maxDeltas": "4", "restoreObjective": "20000ms"})
"""The cause of the merges of the grown query; its older full checkpoint has none, as of an older release."""


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> QueryDirectory:
    """Return a query of two stores, 12 versions, a full checkpoint at 4 and a merge at 8; not to be
    changed.
    """
    root = tmp_path_factory.mktemp("grown")
    query = QueryDirectory(root / "flights", root / "scratch")
    (root / "flights/metadata").write_text('{"id":"0b7a4a3c-6f0e-4c7e-9a53-6b8f9a1d2c3e"}')
    for version in range(1, 13):
        query.commit(rows(version * 10_000, 8_000 if version == 1 else 60))
        for key in query.keys:
            if version == 4:
                query.merge(key, FULL)
            elif version == 8:
                query.merge(key, INCREMENTAL, CAUSE)
    return query


@pytest.fixture
def query(grown: QueryDirectory, tmp_path: Path) -> Iterator[QueryDirectory]:
    """Yield a copy of the grown query that a test may change."""
    yield grown.copied(tmp_path / "flights")
    shutil.rmtree(tmp_path / "flights", ignore_errors=True)


@pytest.fixture(scope="session")
def served(grown: QueryDirectory) -> Iterator[Served]:
    """Yield a service of the grown query, for tests that change nothing."""
    service = serving(grown.location)
    yield service
    service.stop()


@pytest.fixture
def changing(query: QueryDirectory) -> Iterator[Served]:
    """Yield a service of a copy of the grown query."""
    service = serving(query.location, every_s=1.0)
    yield service
    service.stop()
