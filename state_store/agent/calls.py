"""The calls of docs/protocol.md: from a frame on the agent's socket to the operation of a store, and back.

1. The socket accepts connections of the JVM alone. The first frame of a connection has the purpose: `calls`
   of the JVM, answered one after the other in a thread of its own, or `files`, lent to the agent for its own
   requests (docs/protocol.md).
2. A call names a store. The first call about a store opens it, `close` closes it.
3. Each call is an operation, which works on the store and returns the answer. The arguments are checked, and
   decoded to the request that the operation takes; the answer is written field by field (`core.codec`).

Requests and answers are named as in docs/protocol.md unless they say otherwise. They stand beside their
operations: here, in `open_store`, `restores` and `merges`.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from state_store import __version__
from state_store.agent.lazy.file_cache import FileCache
from state_store.agent.lazy.prefetch import Progress
from state_store.agent.lazy.reader_leases import LeaseRounds, Readers
from state_store.agent.lazy.remote_bases import RemoteBases
from state_store.agent.local_roots import KEPT, SHOW_USE_S, LocalRoots
from state_store.agent.merges.merging import (
    EventLog,
    Events,
    EventsRequest,
    MergedStore,
    MergeRequest,
    Skipped,
)
from state_store.agent.merges.scheduler import FullRequest, MergeScheduler, MergeStatus
from state_store.agent.open_store import (
    AttemptsRequest,
    CleanupAnswer,
    CommitAnswer,
    CommitRequest,
    DamageReports,
    OpenStore,
    Prediction,
    SnapshotAges,
    StoreHead,
    StoreId,
    clean_up,
    clean_up_after_merge,
    commit,
    predict,
    seen_attempts,
)
from state_store.agent.restores import (
    DeltaFiles,
    DeltasRequest,
    RangesRequest,
    RestoreAnswer,
    RestoreRequest,
    fetch_deltas,
    found_damage,
    read_ranges,
    report_damage,
    restore_store,
)
from state_store.agent.supervision import AGENT, as_state_store_error, store_log, try_to_start
from state_store.core.checkpoint.lineage import Chain, refuse
from state_store.core.checkpoint.names import DELTA_DIRECTORY, SHARED_DIRECTORY, VersionId
from state_store.core.codec import INLINE, JsonObject, Mismatch, Signed, from_json, json_names
from state_store.core.deletion.retention import Retention
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.sparse import end_bytes
from state_store.core.files.transfer import PART_BYTES
from state_store.core.files.workspace import LocalCache, Workspace, discard, is_base
from state_store.core.planning.cost import SMALL_AT_ONCE, CostModel, RemoteTransfers, RequestTimes
from state_store.core.planning.policy import Policy
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.options import (
    ExecutorOptions,
    Options,
    by_name,
    parse,
    row_memory_bytes,
)
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.restore import MIN_SPARSE_DELTA_BYTES
from state_store.core.storage.contract import NEVER, BoundedStorage, Storage
from state_store.core.storage.hadoop import (
    FileConnections,
    FileSystemCalls,
    HadoopStorage,
    ProtocolError,
    StoreFiles,
    read_frame,
    write_frame,
)
from state_store.core.storage.local import LocalStorage
from state_store.core.storage.open import open_storage
from state_store.errors import BusyError, InternalError, StateStoreError

FOR_CALLS = "calls"
FOR_FILES = "files"
_ACCEPT_PAUSE_S = 0.1
_MAX_GREETING_BYTES = 4096
_GREETING_TIMEOUT_S = 60.0

EVENT_WAIT_S = 30.0
"""Seconds that the standing call for events waits before it answers that there are none."""

WITHOUT_IDS = (
    "a query uses checkpoint format 1, under which Spark does not say which attempt at a version it took: "
    "each commit lists the store's deltas once to find out. Start new queries with "
    "spark.sql.streaming.stateStore.checkpointFormatVersion=2, as state_store.spark_conf() does"
)

T = TypeVar("T")

DatabaseSettingsOf = Callable[[Options], DatabaseSettings]


# ---- the socket -----------------------------------------------------------------------------------------


class Server:
    """A socket that listens at `path` from construction on. `serve` answers calls with `calls` for ever."""

    def __init__(
        self, path: str, token: str, calls: Calls, files: FileConnections, *, runtime: Runtime = SYSTEM
    ) -> None:
        self._path = Path(path)
        self._token = token
        self._calls = calls
        self._files = files
        self._runtime = runtime
        self._show_use_at_s = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        Path(path).chmod(0o600)
        self._socket.listen(128)

    def serve(self) -> None:
        """Accept connections for ever. If no descriptor is free, those that were accepted go on."""
        while True:
            try:
                channel, _ = self._socket.accept()
            except OSError as error:
                AGENT.warning(f"a connection of the JVM cannot be accepted: {error}")
                self._runtime.sleep(_ACCEPT_PAUSE_S)
                continue
            if not try_to_start(self._runtime, partial(self._serve, channel), name="connection"):
                channel.close()

    def _serve(self, channel: socket.socket) -> None:
        lent = False
        try:
            purpose = self._admit(channel)
            if purpose == FOR_FILES:
                self._files.lend(channel)
                lent = True
            elif purpose == FOR_CALLS:
                self._answer_all(channel)
        except (ProtocolError, OSError, MemoryError) as error:
            AGENT.debug(f"a connection ended: {error}")
        finally:
            if not lent:
                channel.close()

    def _admit(self, channel: socket.socket) -> str | None:
        """Return the purpose of a connection, or None if it is refused.

        The other side has to be a process of this user that knows the token. Nothing is read from a process
        of another user.
        """
        credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        if user != os.getuid() or not self._knows_token(greeting := self._greeting(channel)):
            AGENT.warning(f"a connection of user {user} was refused: wrong user or token")
            _refuse(channel, "the agent does not know this token, or this user")
            return None
        purpose = greeting.get("for", FOR_CALLS)
        if purpose not in (FOR_CALLS, FOR_FILES):
            _refuse(channel, f"a connection is for {FOR_CALLS} or {FOR_FILES}, not for {purpose!r}")
            return None
        write_frame(channel, {"ok": {}})
        return str(purpose)

    def _greeting(self, channel: socket.socket) -> dict[str, Any]:
        """Return the header of the first frame; refuse one that is large, or does not come soon."""
        channel.settimeout(_GREETING_TIMEOUT_S)
        frame = read_frame(channel, max_header_bytes=_MAX_GREETING_BYTES, max_body_bytes=0)
        channel.settimeout(None)
        return frame[0] if frame else {}

    def _knows_token(self, greeting: dict[str, Any]) -> bool:
        token = greeting.get("token")
        return isinstance(token, str) and hmac.compare_digest(
            token.encode("utf-8", "replace"), self._token.encode("utf-8")
        )

    def _answer_all(self, channel: socket.socket) -> None:
        while (frame := read_frame(channel)) is not None:
            request = frame[0]
            answer = self._answer(request)
            if isinstance(answer, StateStoreError):
                write_frame(channel, {"error": answer.to_json()})
                continue
            try:
                write_frame(channel, {"ok": answer.to_json()})
            except BaseException:
                self._calls.undelivered(request, answer)
                raise

    def _answer(self, request: dict[str, Any]) -> JsonObject | StateStoreError:
        if request.get("op") == "events":
            self._touch()
        try:
            return self._calls.handle(request)
        except Exception as error:
            failure = as_state_store_error(error)
            if failure is not error:
                AGENT.error(f"call {request.get('op')!r} failed: {failure}")
            return failure

    def _touch(self) -> None:
        """Show cleaners of temporary files that the socket and the local directories are in use."""
        for path in (self._path, self._path.parent):
            with contextlib.suppress(OSError):
                os.utime(path)
        now_s = self._runtime.monotonic_s()
        if now_s >= self._show_use_at_s:
            self._show_use_at_s = now_s + SHOW_USE_S
            # A disk that stands still keeps no event from the JVM.
            try_to_start(self._runtime, self._calls.stores.show_use, name="show-use")


def _refuse(channel: socket.socket, why: str) -> None:
    write_frame(channel, {"error": InternalError(why).to_json()})


# ---- the stores that calls are about --------------------------------------------------------------------


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


@json_names(store_id=INLINE, texts="options")
@dataclass(frozen=True)
class StoreFields:
    """The store that a call is about. `instance` is the number of its provider in the JVM.

    `texts` are the options as the query has them; `held` the bases that the JVM has open, for an agent that
    replaces another.
    """

    instance: int
    store_id: StoreId
    texts: Mapping[str, str]
    held: tuple[Path, ...] = ()


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
        self._damage_reports = DamageReports(runtime)
        self._local_files = FileCache(runtime)
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
            self._await_opening(instance)
            if instance in self._closed:
                raise BusyError("the store is closed")
            open_store = self._stores.get(instance)
            if open_store is not None:
                return open_store
            options, warnings = self._executor.in_force(parse(fields.texts))
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

    def release(self, fields: StoreFields, directory: Path) -> None:
        """Take back a directory that the JVM had from a store. No store is opened for that.

        If the store is not open, a dead predecessor of this agent has made the directory, or the call came
        late and the provider is closed: nobody would close the store again.
        """
        store_id, instance = fields.store_id, fields.instance
        store = self._if_open(instance)
        if store is not None:
            store.head.release(directory)
            store.readers.ask_for_look()
            return
        own = workspace_name(store_id.run, store_id.location, instance)
        if directory.parent.name == own and is_base(directory):
            discard(directory)

    def found_damage(self, fields: StoreFields, directory: Path) -> None:
        """Note that a database has a damaged block, also after its provider was closed for that."""
        store = self._if_open(fields.instance)
        if store is not None:
            found_damage(store, directory)
        else:
            self._damage_reports.add(fields.store_id.location)

    def _if_open(self, instance: int) -> OpenStore | None:
        """Return the store of a provider, or None if it is closed, or not open in this process yet."""
        with self._changed:
            self._await_opening(instance)
            return self._stores.get(instance)

    def _await_opening(self, instance: int) -> None:
        """Wait until no other call opens that store. The caller locks."""
        while instance in self._opening:
            self._changed.wait()

    def close(self, fields: StoreFields) -> bool:
        """Close a store, and remove its local files, those that a dead predecessor of this agent left too.

        Returns:
            True if a merge or a clean-up is owed to the store: it comes first, and then the event `closed`.

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

    def show_use(self) -> None:
        """Show that the local directories are in use. Raises nothing."""
        self._roots.show_use()

    def owned_directories(self) -> list[Path]:
        """Return the directories that are removed when the agent ends."""
        return self._roots.owned()

    def _new(self, fields: StoreFields, options: Options) -> OpenStore:
        store_id, runtime = fields.store_id, self._runtime
        if not store_id.has_checkpoint_ids and not self._warned_of_missing_ids:
            self._warned_of_missing_ids = True
            AGENT.warning(WITHOUT_IDS)
        root = self._roots.of(options, store_id.location)
        cache_directory = root.parent / KEPT if options.local_dir else root / KEPT
        disks = 1 if options.local_dir else self._roots.disks
        cache = self._cache_of(cache_directory, options.local_recovery_budget_bytes // disks)
        digest = workspace_name(store_id.run, store_id.location, fields.instance)
        workspace = Workspace(root / digest, runtime=runtime)
        workspace.open(held=fields.held)
        self._files.allow_background(options.transfer_threads)
        storage = self._open_storage(store_id.location, jvm=StoreFiles(self._files, fields.instance))
        # Without local recovery a provider reads no file that another one has kept, and leaves none.
        kept_files = cache.store(
            store_id.location if options.local_recovery else f"{store_id.location} {digest}",
            without=SHARED_DIRECTORY if options.local_disk_limit_bytes and not storage.is_local else None,
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
        self._local_files.threads.bytes_per_s = options.hydration_rate_limit_bytes_per_s
        self._local_files.limit(options.local_disk_limit_bytes)

        def found_damage(directory: Path, error: StateStoreError) -> None:
            report_damage(store, directory, error)

        bases = RemoteBases(context, self._local_files, log, found_damage, self._hydration_ended)
        readers = Readers(
            context,
            options.lease_expiry_ms,
            bases,
            self._lease_rounds,
            partial(self._scheduler.move, fields.instance),
            log,
        )
        store = OpenStore(
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
            damage_reports=self._damage_reports,
            bases=bases,
            readers=readers,
            request_times=request_times,
        )
        bases.take_over(fields.held)
        readers.take_over(fields.held)
        return store

    def _hydration_ended(self) -> None:
        """Look for what waits until files are local: merges, and leases that are over."""
        self._scheduler.wake()
        self._lease_rounds.look()

    def _cache_of(self, root: Path, budget_bytes: int) -> LocalCache:
        """Return the files kept on a disk, which all stores on it share."""
        cache = LocalCache(root, budget_bytes, runtime=self._runtime)
        return self._caches.setdefault((root, budget_bytes), cache)

    def _times_of(self, location: str) -> RequestTimes:
        """Return the times of requests to the service that has the location."""
        uri = urlsplit(location)
        service = uri.scheme, uri.netloc
        return self._request_times.setdefault(service, RequestTimes(self._runtime.lock()))


def _cost_model(options: Options, storage: Storage, request_times: RequestTimes | None) -> CostModel:
    threads, remote = options.transfer_threads, None
    if request_times is not None:
        remote = RemoteTransfers(request_times, threads, PART_BYTES, MIN_SPARSE_DELTA_BYTES)
    model = CostModel(is_local=storage.is_local, remote=remote)
    model.follow(options, end_bytes)
    return model


def workspace_name(run: str, location: str, instance: int) -> str:
    """Return the name of the directory that has the local files of a provider."""
    return sha256("\0".join((run, location, str(instance))).encode("utf-8")).hexdigest()[:16]


# ---- requests and answers -------------------------------------------------------------------------------


@json_names(version=INLINE)
@dataclass(frozen=True)
class VersionRequest:
    """Request about a version: the one to refuse, or the newest committed one that a clean-up retains."""

    version: VersionId


@json_names(version=INLINE)
@dataclass(frozen=True)
class SnapshotRequest:
    """Request for a snapshot of exactly `version`, now."""

    version: VersionId
    kind: Literal["incremental", "full"] = "incremental"
    reason: str = "asked"


@dataclass(frozen=True)
class DirectoryRequest:
    """Request about a directory that an answer or an event gave to the JVM."""

    directory: Path


@dataclass(frozen=True)
class StatusRequest:
    """Request for the stores of those providers (None: all), with their options in force if `options`."""

    instances: frozenset[int] | None
    options: bool = False


@dataclass(frozen=True)
class Pong(JsonObject):
    """Answer to `ping`: the process, its release, its resident memory and the connections lent to it."""

    pid: int
    version: str
    memory_bytes: int
    file_connections: int


@dataclass(frozen=True)
class Ack(JsonObject):
    """Answer to calls that return nothing: they are done."""


@dataclass(frozen=True)
class Closed(JsonObject):
    """Answer to `close`.

    With `owed` a merge of the store, or a clean-up after one, still has to be made, and the JVM serves its
    files until the event `closed`.
    """

    owed: bool


@dataclass(frozen=True)
class OpenAnswer(JsonObject):
    """Answer to `open`: the directory for new deltas, the data plane's share of the memory budget, options.

    `file_connections` is how many connections the JVM has to lend at least, over all stores. The JVM may
    store deltas in `delta_directory` itself; None: it may not.
    """

    incoming: Path
    delta_directory: Path | None
    memory_budget_bytes: int
    file_connections: int
    options: Mapping[str, Any]


@json_names(restore=INLINE)
@dataclass(frozen=True)
class StoreStatus:
    """A store as its agent sees it now.

    `newest` is the version committed or restored last, `certain` the newest one that Spark has committed for
    certain. `options` are the options in force by name, None unless they were asked for.
    """

    store: int
    location: str
    operator: Signed
    partition: Signed
    name: str
    run: str
    newest: VersionId | None
    certain: VersionId | None
    chain: Chain
    ages: SnapshotAges
    restore: Prediction
    hydration: Progress
    merges: MergeStatus
    options: Mapping[str, Any] | None


@dataclass(frozen=True)
class Status(JsonObject):
    """Answer to `status`: the stores that this agent has open."""

    stores: Sequence[StoreStatus]


# ---- the operations -------------------------------------------------------------------------------------


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
        self._of_agent: dict[str, Callable[[dict[str, Any]], JsonObject]] = {
            "ping": self._ping,
            "events": self._events,
            "status": self._status,
            "open": self._open,
            "release": self._release,
            "damaged": self._damaged,
            "close": self._close,
        }
        self._of_store: dict[str, tuple[type, Callable[[OpenStore, Any], JsonObject]]] = {
            "restore": (RestoreRequest, restore_store),
            "ranges": (RangesRequest, read_ranges),
            "attempts": (AttemptsRequest, seen_attempts),
            "commit": (CommitRequest, self._commit),
            "refuse": (VersionRequest, self._refuse),
            "snapshot": (SnapshotRequest, self._snapshot),
            "full": (FullRequest, self.scheduler.full),
            "cleanup": (VersionRequest, self._cleanup),
            "deltas": (DeltasRequest, fetch_deltas),
        }

    def handle(self, request: dict[str, Any]) -> JsonObject:
        """Return the answer to one call.

        Raises:
            StateStoreError: The call failed; the JVM gets the error.
        """
        name = str(request.get("op"))
        if name in self._of_store:
            fields, operation = self._of_store[name]
            return operation(self._store(request), decode(fields, request))
        if name in self._of_agent:
            return self._of_agent[name](request)
        raise InternalError(f"there is no call {request.get('op')!r}; the agent has version {__version__}")

    def undelivered(self, request: dict[str, Any], answer: JsonObject) -> None:
        """Release the directories of an answer that the JVM did not wait for.

        The base of a merge is not released: the JVM takes it from the event.
        """
        if isinstance(answer, (RestoreAnswer, DeltaFiles)):
            base = answer.offered if isinstance(answer, RestoreAnswer) else answer
            self.stores.release(_store_fields(request), base.directory)

    def _ping(self, request: dict[str, Any]) -> Pong:
        return Pong(self._runtime.process_id(), __version__, _resident_bytes(), self._files.lent)

    def _events(self, request: dict[str, Any]) -> Events:
        fields = decode(EventsRequest, request)
        wait_s = EVENT_WAIT_S if fields.wait_ms is None else min(EVENT_WAIT_S, fields.wait_ms / 1000)
        self.scheduler.wake()  # a thread that could not be started is started now
        return Events(self.events.after(fields.after, wait_s=wait_s))

    def _open(self, request: dict[str, Any]) -> OpenAnswer:
        store = self._store(request)
        return OpenAnswer(
            store.context.workspace.incoming,
            _delta_directory(store),
            row_memory_bytes(store.options.memory_budget_bytes),
            _file_connections(store),
            by_name(store.options),
        )

    def _commit(self, store: OpenStore, fields: CommitRequest) -> CommitAnswer:
        answer, before = commit(store, fields)
        self.scheduler.committed(store, before, memory_short=fields.memory_short)
        return answer

    def _refuse(self, store: OpenStore, fields: VersionRequest) -> Ack:
        refuse(store.context.storage, fields.version, "its task failed")
        return Ack()

    def _snapshot(self, store: OpenStore, fields: SnapshotRequest) -> MergedStore | Skipped:
        merge = MergeRequest(fields.version, fields.kind, fields.reason, by_name=True)
        return self.scheduler.merge_now(store, merge)

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
            hydration=store.bases.progress(),
            merges=self.scheduler.status(store),
            options=by_name(store.options) if with_options else None,
        )

    def _cleanup(self, store: OpenStore, fields: VersionRequest) -> CleanupAnswer:
        cleaned = clean_up(store, fields.version)
        self.scheduler.cleaned(store)
        return cleaned

    def _damaged(self, request: dict[str, Any]) -> Ack:
        directory = decode(DirectoryRequest, request).directory
        self.stores.found_damage(_store_fields(request), directory)
        return Ack()

    def _release(self, request: dict[str, Any]) -> Ack:
        self.stores.release(_store_fields(request), decode(DirectoryRequest, request).directory)
        return Ack()

    def _close(self, request: dict[str, Any]) -> Closed:
        with contextlib.suppress(BusyError):  # it is closed already
            return Closed(owed=self.stores.close(_store_fields(request)))
        return Closed(owed=False)

    def _store(self, request: dict[str, Any]) -> OpenStore:
        named = request.get("store")
        instance = named.get("instance") if isinstance(named, dict) else None
        store = self.stores.known(instance) if isinstance(instance, int) else None
        return store or self.stores.of(_store_fields(request))


def decode(kind: type[T], call: Mapping[str, Any]) -> T:
    """Return the arguments of a call as an instance of `kind`.

    Raises:
        InternalError: An argument is missing or is not of its type.
    """
    try:
        return from_json(kind, call)
    except Mismatch as mismatch:
        raise InternalError(f"the call {call.get('op')!r} {mismatch}") from mismatch


def _store_fields(request: dict[str, Any]) -> StoreFields:
    """Return the store that a call names."""
    try:
        return from_json(StoreFields, request.get("store"))
    except Mismatch as mismatch:
        raise InternalError(f"the argument 'store' of the call {request['op']!r} {mismatch}") from mismatch


def _delta_directory(store: OpenStore) -> Path | None:
    """Return the directory in which the JVM may store deltas itself; None if it may not.

    Without Spark's ids an attempt has to look whether it counts, and on other storage the way to a file is
    long, so the agent stores these deltas.
    """
    storage = store.context.storage
    if not isinstance(storage, LocalStorage) or not store.store_id.has_checkpoint_ids:
        return None
    return storage.directory / DELTA_DIRECTORY


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
