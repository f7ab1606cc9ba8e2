"""Local directories for work on one store: no cache outlives the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.snapshots.context import StoreContext
from state_store.core.storage import Storage
from state_store.core.storage.local_disk import temporary_directory


@contextmanager
def temporary_context(
    storage: Storage, settings: DatabaseSettings, *, runtime: Runtime = SYSTEM
) -> Iterator[tuple[StoreContext, Path]]:
    """Yield the context of a store and a directory for other files, both below a new temporary directory.

    The directory is below `TMPDIR` and is removed at the end. A file that was fetched once is linked then.

    Raises:
        LocalDiskError: The directory cannot be made, or its disk is full or fails.
    """
    with temporary_directory("state-store-") as directory:
        cache = LocalCache(directory / "cache", budget_bytes=1 << 62).store(storage.location)
        workspace = Workspace(directory / "work", runtime=runtime)
        workspace.open()
        yield StoreContext(storage, cache, workspace, settings, runtime=runtime), directory
