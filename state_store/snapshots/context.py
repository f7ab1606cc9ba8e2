"""What the work on one store needs: its storage, its directories, its settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from state_store.engine.settings import DatabaseSettings
from state_store.files.bounded_storage import BoundedStorage
from state_store.files.deadline import NEVER, Deadline
from state_store.files.local_cache import StoreCache
from state_store.files.workspace import Workspace
from state_store.storage.contract import Storage


@dataclass(frozen=True)
class StoreContext:
    """Where a store's files are and are worked on.

    `has_checkpoint_ids` tells whether its versions have ids (checkpoint format 2), `deadline` when the
    operation that works with it has to end. Immutable; safe for any thread.
    """

    storage: Storage
    cache: StoreCache
    workspace: Workspace
    settings: DatabaseSettings
    has_checkpoint_ids: bool
    transfer_threads: int = 8
    deadline: Deadline = NEVER

    def bounded(self, deadline: Deadline) -> StoreContext:
        """The same for one operation that has to end in time: its steps, and each call of the storage but
        deletions, raise BusyError past the deadline."""
        return replace(self, storage=BoundedStorage(self.storage, deadline), deadline=deadline)
