"""The context in which a command works on one store: no long-lived cache, everything below one directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state_store.core.engine.settings import DatabaseSettings
from state_store.core.files.local_cache import LocalCache
from state_store.core.files.workspace import Workspace
from state_store.core.snapshots.context import StoreContext
from state_store.core.storage import Storage


@contextmanager
def store_context(storage: Storage, directory: Path, settings: DatabaseSettings) -> Iterator[StoreContext]:
    """The context of a store, below `directory` and gone afterwards; files fetched once are linked then."""
    cache = LocalCache(directory / "cache", budget_bytes=1 << 62).store(storage.location)
    workspace = Workspace(directory / "work")
    workspace.open()
    try:
        yield StoreContext(storage, cache, workspace, settings)
    finally:
        workspace.remove()
        cache.remove()
