"""Context of the work on a store: its storage, its directories, its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from state_store.core.engine.settings import DatabaseSettings
from state_store.core.files.deadline import NEVER, BoundedStorage, Deadline
from state_store.core.files.local_cache import StoreCache
from state_store.core.files.transfer import Fetched, OnTail, Wanted, fetch, parallel, verify
from state_store.core.files.workspace import Workspace
from state_store.core.planning.request_costs import SMALL_AT_ONCE
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Storage

T = TypeVar("T")
R = TypeVar("R")

THREADS = 16
"""Number of transfers at a time, if no option sets it."""


@dataclass(frozen=True)
class StoreContext:
    """Storage, local files and directories of a store, and the settings of work on it.

    `deadline` is the end of the operation that uses the context. Immutable; safe for any thread.
    """

    storage: Storage
    cache: StoreCache
    workspace: Workspace
    settings: DatabaseSettings
    transfer_threads: int = THREADS
    deadline: Deadline = NEVER
    runtime: Runtime = SYSTEM

    def bounded(self, deadline: Deadline) -> StoreContext:
        """Return the context of an operation that has to end in time.

        Its steps, and each call of the storage but deletions, raise BusyError past the deadline.
        """
        return replace(self, storage=BoundedStorage(self.storage, deadline), deadline=deadline)

    def fetch(self, wanted: Sequence[Wanted]) -> Fetched:
        """Bring files to their targets, as `files.transfer.fetch` does."""
        return fetch(self.storage, self.cache, wanted, self.transfer_threads, runtime=self.runtime)

    def verify(
        self,
        wanted: Sequence[Wanted],
        *,
        thorough: bool = True,
        local: Collection[str] = (),
        on_tail: OnTail | None = None,
    ) -> list[str]:
        """Verify files at their targets, as `files.transfer.verify` does."""
        return verify(
            self.storage,
            self.cache,
            wanted,
            self.transfer_threads,
            thorough=thorough,
            local=local,
            on_tail=on_tail,
            runtime=self.runtime,
        )

    def parallel(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do `work` on each item, on as many at a time as there are threads for transfers."""
        return parallel(self.transfer_threads, work, items, runtime=self.runtime)

    def parallel_small(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do `work` on each item, on more at a time than `parallel`: for requests of few bytes."""
        return parallel(SMALL_AT_ONCE * self.transfer_threads, work, items, runtime=self.runtime)
