"""The open stores of an agent: made with the first call about them, gone with `close`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from state_store.agent.jvm_connections import FileConnections, StoreFiles
from state_store.agent.lazy.budget import HydrationBudget
from state_store.agent.lazy.hydrations import Hydrations
from state_store.agent.lazy.page_cache import PageCache
from state_store.agent.lazy.reader_leases import LeaseRounds, Readers
from state_store.agent.local_roots import KEPT, LocalRoots
from state_store.agent.log import AGENT, store_log
from state_store.agent.merges.scheduler import MergeScheduler
from state_store.agent.open_store import OpenStore, StoreHead, Suspicions
from state_store.agent.wire.requests import StoreFields
from state_store.core.checkpoint.names import SHARED_DIRECTORY
from state_store.core.deletion.retention import Retention
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.deadline import NEVER, BoundedStorage
from state_store.core.files.sparse import end_bytes
from state_store.core.files.transfer import PART_BYTES
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.planning.cost import CostModel, LazyPolicy, RemoteTransfers, RequestTimes
from state_store.core.planning.policy import Policy
from state_store.core.runtime import Runtime
from state_store.core.settings.options import FILES, ExecutorOptions, Options, parse
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.restore import MIN_SPARSE_DELTA_BYTES
from state_store.core.storage.contract import Storage
from state_store.core.storage.file_requests import FileSystemCalls
from state_store.errors import BusyError

WITHOUT_IDS = (
    "a query uses checkpoint format 1, under which Spark does not say which attempt at a version it took: "
    "each commit lists the store's deltas once to find out. Start new queries with "
    "spark.sql.streaming.stateStore.checkpointFormatVersion=2, as state_store.spark_conf() does"
)

DatabaseSettingsOf = Callable[[Options], DatabaseSettings]


class OpenStorage(Protocol):
    """Function from a store's location to its storage (`storage.open.open_storage`)."""

    def __call__(self, uri: str, *, jvm: FileSystemCalls) -> Storage: ...


def database_settings(options: Options) -> DatabaseSettings:
    """Return how merges write, as the options say."""
    share = options.max_delta_share or Options().max_delta_share
    return DatabaseSettings(
        compression=options.snapshot_compression,
        threads=options.merge_threads,
        size_amplification_percent=max(1, round(share * 100)),
        rate_limit_bytes=options.merge_rate_limit_bytes_per_s,
    )


class Stores:
    """All stores of one executor, by the instance number of their provider. Safe for any thread."""

    def __init__(
        self,
        directories: Sequence[Path],
        files: FileConnections,
        scheduler: MergeScheduler,
        settings: DatabaseSettingsOf,
        open_storage: OpenStorage,
        runtime: Runtime,
    ) -> None:
        self._files = files
        self._scheduler = scheduler
        self._settings = settings
        self._open_storage = open_storage
        self._runtime = runtime
        self._roots = LocalRoots(directories, runtime)
        self._changed = runtime.condition()
        self._opening: set[int] = set()
        self._executor = ExecutorOptions(runtime)
        self._suspicions = Suspicions(runtime)
        self._hydration = HydrationBudget(runtime)
        self._pages = PageCache(runtime)
        self._lease_rounds = LeaseRounds(runtime)
        self._request_times: dict[tuple[str, str], RequestTimes] = {}
        self._caches: dict[tuple[Path, int], LocalCache] = {}
        self._stores: dict[int, OpenStore] = {}
        self._closed: set[int] = set()
        self._warned_of_missing_ids = False

    def known(self, instance: int) -> OpenStore | None:
        """Return the store of a provider, or None if this process has not opened it yet."""
        return self._stores.get(instance)

    def of(self, fields: StoreFields) -> OpenStore:
        """Return the store that a call is about; open it if this process has not done so yet.

        Stores are opened side by side: a local disk that stands still delays the stores on it alone.

        Raises:
            OptionError: An option cannot be used.
            BusyError: The store is closed. The call came late, and nobody would close the store again.
            StateStoreError: The local disk or the storage fails.
        """
        instance = fields.instance
        with self._changed:
            while instance in self._opening:
                self._changed.wait()
            if instance in self._closed:
                raise BusyError("the store is closed")
            known = self._stores.get(instance)
            if known is not None:
                return known
            options, warnings = self._executor.settle(parse(fields.texts))
            self._opening.add(instance)
        opened: OpenStore | None = None
        try:
            for warning in warnings:
                AGENT.warning(warning)
            store = self._new(fields, options)
            self._scheduler.add(store)
            opened = store
            return store
        finally:
            with self._changed:
                self._opening.discard(instance)
                if opened is not None:
                    self._stores[instance] = opened
                elif not self._stores and not self._opening:
                    self._executor.forget()
                self._changed.notify_all()

    def close(self, fields: StoreFields) -> bool:
        """Close a store, and remove its local files, those that a dead predecessor of this agent left too.

        Returns:
            True if a merge is owed to the store: it is made first, and the event `closed` follows.

        Raises:
            BusyError: The store is closed already.
        """
        store = self.of(fields)
        with self._changed:
            self._stores.pop(fields.instance, None)
            self._closed.add(fields.instance)
            if not self._stores and not self._opening:
                self._executor.forget()
        owed = self._scheduler.remove(store)
        if not owed:
            store.close()
        return owed

    def all(self) -> list[OpenStore]:
        """Return the stores that are open, by the number of their provider."""
        with self._changed:
            return [self._stores[instance] for instance in sorted(self._stores)]

    def owned_directories(self) -> list[Path]:
        """Return the directories that are removed when the agent ends."""
        return self._roots.owned()

    def _new(self, fields: StoreFields, options: Options) -> OpenStore:
        store_id, runtime = fields.store_id, self._runtime
        if not store_id.has_checkpoint_ids and not self._warned_of_missing_ids:
            self._warned_of_missing_ids = True
            AGENT.warning(WITHOUT_IDS)
        root = self._roots.of(options, store_id.location)
        kept = root.parent / KEPT if options.local_dir else root / KEPT
        disks = 1 if options.local_dir else self._roots.disks
        cache = self._cache_of(kept, options.local_recovery_budget_bytes // disks)
        digest = _digest(store_id.run, store_id.location, str(fields.instance))
        workspace = Workspace(root / digest, runtime=runtime)
        workspace.open(held=fields.held)
        self._files.allow_background(options.transfer_threads)
        storage = self._open_storage(store_id.location, jvm=StoreFiles(self._files, fields.instance))
        # Without local recovery a provider reads no file that another one has kept, and leaves none.
        kept_files = cache.store(
            store_id.location if options.local_recovery else f"{store_id.location} {digest}",
            without=SHARED_DIRECTORY if options.page_cache_limit_bytes and not storage.is_local else None,
        )
        context = StoreContext(
            storage,
            kept_files,
            workspace,
            self._settings(options),
            options.transfer_threads,
            runtime=runtime,
        )
        cleanup_storage = BoundedStorage(storage, NEVER, bound_deletions=True)
        request_times = None if storage.is_local else self._times_of(store_id.location)
        policy = Policy(options, store_id.location)
        log = store_log(store_id.label)
        self._hydration.limit(
            disk_bytes=options.hydration_disk_budget_bytes,
            bytes_per_s=options.hydration_rate_limit_bytes_per_s,
        )
        self._pages.limit(options.page_cache_limit_bytes)
        hydrations = Hydrations(context, self._hydration, self._pages, log, self._settled)
        hydrations.take_over(fields.held)
        readers = Readers(
            context,
            options.lease_expiry_ms,
            hydrations,
            self._lease_rounds,
            partial(self._scheduler.move, fields.instance),
            log,
        )
        readers.take_over(fields.held)
        return OpenStore(
            instance=fields.instance,
            store_id=store_id,
            options=options,
            context=context,
            head=StoreHead(
                workspace,
                policy,
                runtime,
                _cost_model(options, storage, request_times),
            ),
            retention=Retention(
                cleanup_storage,
                store_id.retention(options),
                threads=options.transfer_threads,
                runtime=runtime,
            ),
            cleanup_storage=cleanup_storage,
            cleaning=runtime.lock(),
            log=log,
            prune=partial(cache.prune, kept_files),
            suspicions=self._suspicions,
            hydrations=hydrations,
            readers=readers,
            request_times=request_times,
        )

    def _settled(self) -> None:
        """Look for what waits until files are local: merges, and leases that are over."""
        self._scheduler.wake()
        self._lease_rounds.look()

    def _cache_of(self, kept: Path, budget_bytes: int) -> LocalCache:
        """Return the files kept on a disk, which all stores on it share."""
        made = LocalCache(kept, budget_bytes, runtime=self._runtime)
        return self._caches.setdefault((kept, budget_bytes), made)

    def _times_of(self, location: str) -> RequestTimes:
        """Return the times of requests to the service that has the location."""
        uri = urlsplit(location)
        service = uri.scheme, uri.netloc
        return self._request_times.setdefault(service, RequestTimes(self._runtime.lock()))


def _cost_model(options: Options, storage: Storage, request_times: RequestTimes | None) -> CostModel:
    threads, remote = options.transfer_threads, None
    if request_times is not None:
        remote = RemoteTransfers(request_times, threads, PART_BYTES, MIN_SPARSE_DELTA_BYTES)
    model = CostModel(
        thorough=options.restore_verification == FILES, is_local=storage.is_local, remote=remote
    )
    model.lazy_policy = LazyPolicy.of(options, end_bytes)
    return model


def _digest(*names: str) -> str:
    return sha256("\0".join(names).encode("utf-8")).hexdigest()[:16]
