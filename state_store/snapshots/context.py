"""What the work on one store needs: its storage, its directories, its settings."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.engine.settings import DatabaseSettings
from state_store.files.local_cache import StoreCache
from state_store.files.workspace import Workspace
from state_store.storage.contract import Storage


@dataclass(frozen=True)
class Site:
    """Where a store's files are and are worked on; `ids`: whether versions have ids (checkpoint format 2)."""

    storage: Storage
    cache: StoreCache
    workspace: Workspace
    settings: DatabaseSettings
    ids: bool
    transfer_threads: int = 8
