"""An open store of the agent: its identity, its directories, and the knowledge about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from logging import LoggerAdapter
from typing import Any

from state_store.agent.head import StoreHead
from state_store.agent.lazy.hydrations import Hydrations
from state_store.agent.lazy.reader_leases import Readers
from state_store.agent.wire.requests import StoreId
from state_store.core.deletion.retention import Retention
from state_store.core.files.deadline import BoundedStorage
from state_store.core.planning.cost import RequestTimes
from state_store.core.runtime import Lock, Runtime
from state_store.core.settings.options import Options
from state_store.core.snapshots.context import StoreContext


class Suspicions:
    """Stores, by their location, in which a block was found damaged since they were verified last.

    Their next restore verifies every file as a whole. All providers of an executor share them: the provider
    that finds a damaged block is closed with its query, and the next one starts anew. Safe for any thread.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._counts: dict[str, int] = {}

    def of(self, location: str) -> int:
        """Return the number of damaged blocks that were reported; 0 means no suspicion."""
        with self._lock:
            return self._counts.get(location, 0)

    def raised(self, location: str) -> None:
        """Note that a block was found damaged."""
        with self._lock:
            self._counts[location] = self._counts.get(location, 0) + 1

    def settled(self, location: str, count: int) -> None:
        """Forget `count` reports, after which all files were verified, unless more have come since."""
        with self._lock:
            if self._counts.get(location) == count:
                del self._counts[location]


@dataclass(frozen=True)
class OpenStore:
    """An open store, which every operation gets. Safe for any thread.

    Args:
        instance: The number of the provider in the JVM. A store that is opened again has another.
        store_id: The identity of the store.
        options: The options in force.
        context: Storage, local files and directories.
        head: The chain, the registry and the newest base.
        retention: The deletion of files, one clean-up at a time.
        cleanup_storage: The storage of clean-ups, on which they set their deadline.
        cleaning: The lock that a clean-up holds.
        log: The log of the store.
        prune: Bounds the local files that all stores keep.
        suspicions: The damage that the JVM has found, in all stores of the executor.
        hydrations: The lazy restores.
        readers: The leases on the files that they have not fetched.
        request_times: The times of requests to the service that has the checkpoint, shared by its stores;
            None if the storage is on this machine.
    """

    instance: int
    store_id: StoreId
    options: Options
    context: StoreContext
    head: StoreHead
    retention: Retention
    cleanup_storage: BoundedStorage
    cleaning: Lock
    log: LoggerAdapter[Any]
    prune: Callable[[], object]
    suspicions: Suspicions
    hydrations: Hydrations
    readers: Readers
    request_times: RequestTimes | None

    def close(self) -> None:
        """Remove the local directories of the store, but not the files that local recovery keeps."""
        self.hydrations.stop()
        self.context.workspace.remove()
        self.readers.close()
        if not self.options.local_recovery:
            self.context.cache.remove()
        self.context.storage.close()
