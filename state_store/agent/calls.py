"""The calls of docs/protocol.md: from the request of the JVM to the operation of a store, and back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from state_store import __version__
from state_store.agent.jvm_connections import FileConnections
from state_store.agent.merges.event_log import EventLog
from state_store.agent.merges.merge_queue import MergeRequest
from state_store.agent.merges.scheduler import MergeScheduler
from state_store.agent.open_store import OpenStore
from state_store.agent.store_operations import (
    clean_up,
    clean_up_after_merge,
    commit,
    fetch_deltas,
    found_damage,
    predict,
    read_range,
    read_ranges,
    restore_store,
    seen_attempts,
)
from state_store.agent.stores import DatabaseSettingsOf, OpenStorage, Stores, database_settings
from state_store.agent.wire.answers import (
    Ack,
    Answer,
    Cleaned,
    Closed,
    Committed,
    DeltaFiles,
    Events,
    FullAsked,
    MergedStore,
    Opened,
    Pong,
    ReadRange,
    RestoredStore,
    SeenAttempts,
    Skipped,
    Status,
    StoreStatus,
)
from state_store.agent.wire.requests import (
    AttemptsRequest,
    CommitRequest,
    DeltasRequest,
    DirectoryRequest,
    EventsRequest,
    FullRequest,
    RangeRequest,
    RangesRequest,
    RestoreRequest,
    SnapshotRequest,
    StatusRequest,
    StoreFields,
    VersionRequest,
    decode,
)
from state_store.core.codec import Mismatch, from_json
from state_store.core.planning.cost import SMALL_AT_ONCE
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.options import by_name, row_memory_bytes
from state_store.core.snapshots.attempt import refuse
from state_store.core.storage.hadoop import HadoopStorage
from state_store.core.storage.open import open_storage
from state_store.errors import BusyError, InternalError

EVENT_WAIT_S = 30.0
"""Seconds that the standing call for events waits before it answers that there are none."""


class Calls:
    """Operations of an agent, on all stores of one executor. Any thread may call `handle`.

    Args:
        directory: The directory for local files, or one on each disk.
        files: Connections for files through the JVM.
        settings: Makes the settings of databases from a store's options.
        open_storage: Opens the storage of a location.
        runtime: Clocks, randomness and threads.
    """

    def __init__(
        self,
        directory: Path | Sequence[Path],
        files: FileConnections | None = None,
        *,
        settings: DatabaseSettingsOf = database_settings,
        open_storage: OpenStorage = open_storage,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._runtime = runtime
        directories = [directory] if isinstance(directory, Path) else list(directory)
        self._files = files or FileConnections(runtime=runtime)
        self.events = EventLog(runtime)
        self.scheduler = MergeScheduler(self.events, clean=clean_up_after_merge, runtime=runtime)
        self.stores = Stores(directories, self._files, self.scheduler, settings, open_storage, runtime)
        self._operations: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "ping": self._ping,
            "events": self._events,
            "open": self._open,
            "restore": self._restore,
            "range": self._range,
            "ranges": self._ranges,
            "attempts": self._attempts,
            "commit": self._commit,
            "refuse": self._refuse,
            "snapshot": self._snapshot,
            "full": self._full,
            "status": self._status,
            "cleanup": self._cleanup,
            "deltas": self._deltas,
            "damaged": self._damaged,
            "release": self._release,
            "close": self._close,
        }

    def handle(self, request: dict[str, Any]) -> Answer:
        """Return the answer to one call.

        Raises:
            StateStoreError: The call failed; the JVM gets the error.
        """
        operation = self._operations.get(str(request.get("op")))
        if operation is None:
            raise InternalError(
                f"there is no call {request.get('op')!r}; the agent has version {__version__}"
            )
        return operation(request)

    def undelivered(self, request: dict[str, Any], answer: Answer) -> None:
        """Release the directories of an answer that the JVM did not wait for.

        The base of a merge is not released: the JVM takes it from the event.
        """
        if isinstance(answer, (RestoredStore, DeltaFiles)):
            self._released(request, answer.directory)

    def _ping(self, request: dict[str, Any]) -> Pong:
        return Pong(self._runtime.process_id(), __version__, _resident_bytes(), self._files.lent)

    def _events(self, request: dict[str, Any]) -> Events:
        fields = decode(EventsRequest, request)
        wait_s = EVENT_WAIT_S if fields.wait_ms is None else min(EVENT_WAIT_S, fields.wait_ms / 1000)
        self.scheduler.wake()  # a thread that could not be started is started now
        return Events(self.events.after(fields.after, wait_s=wait_s))

    def _open(self, request: dict[str, Any]) -> Opened:
        store = self._store(request)
        return Opened(
            store.context.workspace.incoming,
            row_memory_bytes(store.options.memory_budget_bytes),
            _file_connections(store),
            by_name(store.options),
        )

    def _restore(self, request: dict[str, Any]) -> RestoredStore:
        return restore_store(self._store(request), decode(RestoreRequest, request))

    def _range(self, request: dict[str, Any]) -> ReadRange:
        return read_range(self._store(request), decode(RangeRequest, request))

    def _ranges(self, request: dict[str, Any]) -> ReadRange:
        return read_ranges(self._store(request), decode(RangesRequest, request))

    def _attempts(self, request: dict[str, Any]) -> SeenAttempts:
        return seen_attempts(self._store(request), decode(AttemptsRequest, request))

    def _commit(self, request: dict[str, Any]) -> Committed:
        store, fields = self._store(request), decode(CommitRequest, request)
        result = commit(store, fields)
        self.scheduler.committed(store, result.before, memory_short=fields.memory_short)
        return result.answer

    def _refuse(self, request: dict[str, Any]) -> Ack:
        fields = decode(VersionRequest, request)
        refuse(self._store(request).context.storage, fields.version, "its task failed")
        return Ack()

    def _snapshot(self, request: dict[str, Any]) -> MergedStore | Skipped:
        fields = decode(SnapshotRequest, request)
        merge = MergeRequest(fields.version, fields.kind, fields.reason, by_name=True)
        return self.scheduler.merge_now(self._store(request), merge)

    def _full(self, request: dict[str, Any]) -> FullAsked:
        return self.scheduler.full(self._store(request), decode(FullRequest, request))

    def _status(self, request: dict[str, Any]) -> Status:
        fields = decode(StatusRequest, request)
        return Status(
            [
                self._store_status(store, with_options=fields.options)
                for store in self.stores.all()
                if fields.instances is None or store.instance in fields.instances
            ]
        )

    def _store_status(self, store: OpenStore, *, with_options: bool) -> StoreStatus:
        store_id, head = store.store_id, store.head
        chain = head.chain
        return StoreStatus(
            store=store.instance,
            location=store_id.location,
            operator=store_id.operator,
            partition=store_id.partition,
            name=store_id.name,
            run=store_id.run,
            newest=chain.version,
            certain=head.certain,
            chain=chain,
            ages=head.ages(),
            restore=predict(store, chain),
            hydration=store.hydrations.progress(),
            merges=self.scheduler.status(store),
            options=by_name(store.options) if with_options else None,
        )

    def _cleanup(self, request: dict[str, Any]) -> Cleaned:
        store = self._store(request)
        cleaned = clean_up(store, decode(VersionRequest, request).version)
        self.scheduler.cleaned(store)
        return cleaned

    def _deltas(self, request: dict[str, Any]) -> DeltaFiles:
        return fetch_deltas(self._store(request), decode(DeltasRequest, request))

    def _release(self, request: dict[str, Any]) -> Ack:
        self._released(request, decode(DirectoryRequest, request).directory)
        return Ack()

    def _damaged(self, request: dict[str, Any]) -> Ack:
        found_damage(self._store(request), decode(DirectoryRequest, request).directory)
        return Ack()

    def _close(self, request: dict[str, Any]) -> Closed:
        with contextlib.suppress(BusyError):  # it is closed already
            return Closed(owed=self.stores.close(_store_fields(request)))
        return Closed(owed=False)

    def _released(self, request: dict[str, Any], directory: Path) -> None:
        with contextlib.suppress(BusyError):  # the store is closed, and its directories are gone
            store = self._store(request)
            store.head.release(directory)
            store.readers.ask_for_look()

    def _store(self, request: dict[str, Any]) -> OpenStore:
        named = request.get("store")
        instance = named.get("instance") if isinstance(named, dict) else None
        known = self.stores.known(instance) if isinstance(instance, int) else None
        return known or self.stores.of(_store_fields(request))


def _store_fields(request: dict[str, Any]) -> StoreFields:
    """Return the store that a call names."""
    try:
        return from_json(StoreFields, request.get("store"))
    except Mismatch as mismatch:
        raise InternalError(f"the argument 'store' of the call {request['op']!r} {mismatch}") from mismatch


def _file_connections(store: OpenStore) -> int:
    """Return the number of connections for files that the JVM has to lend for a store.

    Small requests need so many that look-ups wait for no background transfer. Each task that may commit
    meanwhile needs another.
    """
    if not isinstance(store.context.storage, HadoopStorage):
        return 0
    return SMALL_AT_ONCE * store.options.transfer_threads + max(4, os.cpu_count() or 4)


def _resident_bytes() -> int:
    """Return the bytes of this process that are in RAM."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
