"""The calls of docs/protocol.md: from the request of the JVM to the operation of a store, and back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from state_store import __version__
from state_store.agent.connection import CurrentJvm
from state_store.agent.log import log
from state_store.agent.store import OpenStore
from state_store.agent.store_id import StoreId
from state_store.checkpoint.names import VersionId
from state_store.engine.settings import DatabaseSettings
from state_store.errors import InternalError
from state_store.files.local_cache import LocalCache
from state_store.files.workspace import Workspace
from state_store.settings.executor import ExecutorOptions
from state_store.settings.options import Options, by_name, parse
from state_store.snapshots.context import StoreContext
from state_store.snapshots.merge import KINDS
from state_store.storage.open import open_storage


def database_settings(options: Options) -> DatabaseSettings:
    """How merges write, as the options say."""
    share = options.max_delta_share or Options().max_delta_share
    return DatabaseSettings(
        compression=options.snapshot_compression,
        threads=options.merge_threads,
        size_amplification_percent=max(1, round(share * 100)),
        rate_limit_bytes=options.merge_rate_limit_bytes_per_s,
    )


class Calls:
    """Serves all stores of one executor; `directory` is for local files. Any thread may call `handle`."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Callable[[Options], DatabaseSettings] = database_settings,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._stores: dict[tuple[str, str], OpenStore] = {}
        self._executor = ExecutorOptions()
        self._roots = {directory}
        self._merge_slots: dict[int, threading.Semaphore] = {}
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "ping": self._ping,
            "open": self._open,
            "restore": self._restore,
            "commit": self._commit,
            "merge": self._merge,
            "cleanup": lambda request: self._store(request).cleanup(_version(request)),
            "deltas": lambda request: self._store(request).deltas(_version(request), request["first"]),
            "release": lambda request: self._store(request).release(Path(request["directory"])),
            "status": lambda request: self._store(request).status(),
            "close": self._close,
        }

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one call. Raises StateStoreError."""
        operation = self._operations.get(str(request.get("op")))
        if operation is None:
            raise InternalError(
                f"there is no call {request.get('op')!r}; the agent has version {__version__}"
            )
        try:
            return operation(request)
        except KeyError as error:
            raise InternalError(f"the call {request['op']!r} lacks the argument {error}") from error

    def directories(self) -> list[Path]:
        """What goes when the agent ends."""
        return list(self._roots)

    def _ping(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"pid": os.getpid(), "version": __version__, "memory_bytes": _resident_bytes()}

    def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        store = self._store(request)
        return {
            "incoming": str(store.context.workspace.incoming),
            "memory_budget_bytes": store.options.memory_budget_bytes
            - _own_share(store.options.memory_budget_bytes),
            "options": by_name(store.options),
        }

    def _restore(self, request: dict[str, Any]) -> dict[str, Any]:
        start = None
        if request.get("from_version") is not None:
            start = VersionId(request["from_version"], request.get("from_id"))
        return self._store(request).restore(_version(request), start)

    def _commit(self, request: dict[str, Any]) -> dict[str, Any]:
        store = self._store(request)
        delta = store.store_id.delta(
            request["version"], request.get("id"), request.get("parent"), request["crc"]
        )
        return store.commit(delta, Path(request["path"]), request["bytes"], request["crc"], request["keys"])

    def _merge(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["kind"] not in KINDS:
            raise InternalError(
                f"there is no merge of kind {request['kind']!r}; kinds are {', '.join(KINDS)}"
            )
        return self._store(request).merge(
            _version(request), request["kind"], request.get("reason") or "asked"
        )

    def _close(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            store = self._stores.pop(_key(request["store"]), None)
            if not self._stores:
                self._executor.forget()
        return store.close() if store else {}

    def _store(self, request: dict[str, Any]) -> OpenStore:
        """The store that a call is about; made when this process has not seen it yet."""
        fields = request["store"]
        key = _key(fields)
        with self._lock:
            store = self._stores.get(key)
            if store is None:
                options, told = self._executor.settle(parse(fields["options"]))
                for sentence in told:
                    log("WARNING", "", sentence)
                store = self._stores[key] = self._new_store(fields, options)
        return store

    def _new_store(self, fields: dict[str, Any], options: Options) -> OpenStore:
        store_id = StoreId.from_fields(fields)
        root = self._root(options)
        cache = LocalCache(
            root.parent / "kept" if options.local_dir else root / "kept", options.local_recovery_budget_bytes
        )
        workspace = Workspace(root / _digest(*_key(fields)))
        workspace.open()
        context = StoreContext(
            open_storage(store_id.location, jvm=CurrentJvm()),
            cache.store(store_id.location),
            workspace,
            self._settings(options),
            store_id.has_checkpoint_ids,
            options.transfer_threads,
        )
        slots = self._merge_slots.setdefault(
            options.max_concurrent_merges, threading.Semaphore(options.max_concurrent_merges)
        )
        return OpenStore(store_id, options, context, slots, self._now_ms, cache.prune)

    def _root(self, options: Options) -> Path:
        """Where this agent works; its name is the same for an agent that replaces this one."""
        if not options.local_dir:
            return self._directory
        root = Path(options.local_dir) / f"agent-{_digest(str(self._directory))}"
        self._roots.add(root)
        return root


def _version(request: dict[str, Any]) -> VersionId:
    return VersionId(request["version"], request.get("id"))


def _key(fields: dict[str, Any]) -> tuple[str, str]:
    return fields["run"], fields["location"]


def _digest(*names: str) -> str:
    return sha256("\0".join(names).encode("utf-8")).hexdigest()[:16]


def _own_share(budget: int) -> int:
    """What this process takes of the memory budget: what it was measured to need, a quarter at most."""
    return min(40 << 20, budget // 4)


def _resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
