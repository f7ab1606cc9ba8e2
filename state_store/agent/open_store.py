"""One open store of the agent: who it is, where it works, what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from logging import LoggerAdapter
from typing import Any

from state_store.agent.head import StoreHead
from state_store.agent.lazy.hydrations import Hydrations
from state_store.agent.suspicion import Suspicions
from state_store.agent.wire.requests import StoreId
from state_store.core.deletion.retention import Retention
from state_store.core.files.bounded_storage import BoundedStorage
from state_store.core.planning.request_costs import RequestTimes
from state_store.core.runtime import Lock
from state_store.core.settings.options import Options
from state_store.core.snapshots.context import StoreContext


@dataclass(frozen=True)
class OpenStore:
    """What every operation on a store gets. Safe for any thread.

    `instance` numbers the providers of the JVM: a store that is opened again is another. `prune` bounds
    the local files that all stores keep; `suspicions` are those of all stores, too. `cleaning` is held by
    the one clean-up at a time that `retention` allows, which works with `cleanup_storage` and sets the
    deadline there. `request_times` are those of all stores of a process in one storage of another machine,
    None where storage is of this one.
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
    request_times: RequestTimes | None

    def close(self) -> None:
        """Its local directories go, save what local recovery keeps."""
        self.hydrations.stop()
        self.context.workspace.remove()
        if not self.options.local_recovery:
            self.context.cache.remove()
        self.context.storage.close()
