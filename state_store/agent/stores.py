"""The open stores of an agent, made by the first call about them and gone with `close`, and their places.

Each directory has a file `owner`. The agent that works there has locked it as long as it lives, and has
written into it who it is and which JVM it belongs to. The last agent that wrote it is the owner: an agent
that was replaced, and wakes up late, finds another name there and removes nothing.

Below the option `localDir` each executor has a directory `agent-<digest>`. An agent that starts there removes
those whose lock is free and whose JVM is gone: an executor that was killed together with its agent leaves
nothing for long.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from state_store.agent.jvm_connections import FileConnections, StoreFiles
from state_store.agent.lazy.file_cache import FileCache
from state_store.agent.lazy.reader_leases import LeaseRounds, Readers
from state_store.agent.lazy.remote_bases import RemoteBases
from state_store.agent.merges.scheduler import MergeScheduler
from state_store.agent.messages import StoreFields
from state_store.agent.open_store import DamageReports, OpenStore, StoreHead, report_damage
from state_store.agent.supervision import AGENT, store_log
from state_store.core.checkpoint.names import SHARED_DIRECTORY
from state_store.core.deletion.retention import Retention
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.sparse import end_bytes
from state_store.core.files.transfer import PART_BYTES
from state_store.core.files.workspace import LocalCache, Workspace, make_private
from state_store.core.planning.cost import CostModel, LazyPolicy, RemoteTransfers, RequestTimes
from state_store.core.planning.policy import Policy
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import FILES, ExecutorOptions, Options, parse
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.restore import MIN_SPARSE_DELTA_BYTES
from state_store.core.storage.contract import NEVER, BoundedStorage, Storage
from state_store.core.storage.hadoop import FileSystemCalls
from state_store.errors import BusyError, OptionError, StateStoreError

OWNER = "owner"
KEPT = "kept"
"""Directory below `localDir` for files that survive an executor, for the next one."""

FOREIGN_LEASE_S = 86_400.0
"""Age at which the directory of an executor is removed whose processes cannot be seen from here: one in
another container on the same disk.
"""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of file systems without locks: Lustre without `-o flock`, NFS without lockd."""

_OPTION = f"{PREFIX}localDir"

_BELOW = "set localDir to a directory below it that does not exist, which is then made for this user alone"

WITHOUT_IDS = (
    "a query uses checkpoint format 1, under which Spark does not say which attempt at a version it took: "
    "each commit lists the store's deltas once to find out. Start new queries with "
    "spark.sql.streaming.stateStore.checkpointFormatVersion=2, as state_store.spark_conf() does"
)

DatabaseSettingsOf = Callable[[Options], DatabaseSettings]


class LocalRoots:
    """The directories for local files of this agent. Safe for any thread.

    There is one in each of `directories`, which are Spark's local disks, and one in each `localDir` that a
    query sets. An agent that replaces this one computes the same names, and uses the directories again.
    """

    def __init__(self, directories: Sequence[Path], runtime: Runtime = SYSTEM) -> None:
        self._directories = list(directories)
        self._runtime = runtime
        self._agent = runtime.unique()
        self._lock = runtime.lock()
        self._owned: dict[Path, int] = {}
        self._given = set(self._directories)

    @property
    def disks(self) -> int:
        """Number of directories among which stores are spread."""
        return len(self._directories)

    def of(self, options: Options, location: str) -> Path:
        """Return the directory for a store with these options; the same location always gets the same disk.

        Raises:
            OptionError: `localDir` cannot be used.
            OSError: The disk is full or fails.
        """
        if not options.local_dir:
            root = self._directories[zlib.crc32(location.encode("utf-8")) % len(self._directories)]
            self._own(root)
            return root
        parent = checked_local_dir(options.local_dir)
        digest = sha256(str(self._directories[0]).encode("utf-8")).hexdigest()[:16]
        root = parent / f"agent-{digest}"
        with self._lock:
            if root in self._owned and root.is_dir():
                return root
            make_private(parent)
            _refuse_exchangeable(parent)
            for directory in (root, parent / KEPT):
                make_private(directory)
                _keep_private(directory)
            self._own(root)
        _sweep(parent, root, self._runtime)
        return root

    def all(self) -> list[Path]:
        """Return all that were given out, and the directories of the agent."""
        with self._lock:
            return sorted(self._given)

    def owned(self) -> list[Path]:
        """Return the directories that no other agent has taken over: this agent removes them when it ends."""
        return [root for root in self.all() if _owner(root).get("agent", self._agent) == self._agent]

    def _own(self, root: Path) -> None:
        """Lock the file that names the owner of a directory until this process ends, and write it."""
        with self._lock:
            if root in self._owned and (root / OWNER).exists():
                return
            make_private(root)
            descriptor = os.open(root / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(descriptor)
                jvm = os.getppid()
                fields = {
                    "jvm": jvm,
                    "started": _start_time(jvm),
                    "space": _process_space(),
                    "agent": self._agent,
                }
                os.truncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(fields).encode("utf-8"), 0)
            except BaseException:
                os.close(descriptor)
                raise
            if root in self._owned:
                os.close(self._owned[root])
            self._owned[root] = descriptor
            self._given.add(root)


def checked_local_dir(text: str) -> Path:
    """Return the directory that `localDir` names.

    Raises:
        OptionError: It is a URI, a list, or not an absolute path. The directory would be made in another
            place than the user means.
    """
    if "://" in text or text.startswith("file:"):
        path = "/" + text.partition(":")[2].lstrip("/")
        raise OptionError(f"{_OPTION} is a path, not the URI '{text}': set it to '{path}'", option=_OPTION)
    if any(part.strip().startswith(("/", "~")) for part in text.split(",")[1:]):
        raise OptionError(
            f"{_OPTION} is one directory, not the list '{text}': to use several disks, leave it out and set "
            "spark.local.dir to the list",
            option=_OPTION,
        )
    if not text.startswith("/"):
        raise OptionError(
            f"{_OPTION} is '{text}', which is not an absolute path: write it out, without '~' or variables",
            option=_OPTION,
        )
    return Path(text)


def _owner(root: Path) -> dict[str, Any]:
    """Return what the owner of a directory wrote there, or nothing."""
    with contextlib.suppress(OSError, ValueError):
        fields = json.loads((root / OWNER).read_text("utf-8"))
        if isinstance(fields, dict):
            return fields
    return {}


def _refuse_exchangeable(parent: Path) -> None:
    """Refuse a directory in which another user could exchange files.

    Users who may write by a group that this process is in are trusted.

    Raises:
        OptionError: Another user than root owns it or the link that leads to it; or others may write there,
            and it has no sticky bit.
    """
    directory = parent.resolve()
    status = directory.lstat()
    if not {parent.lstat().st_uid, status.st_uid} <= {os.getuid(), 0}:
        raise _refusal(parent, "belongs to another user, who could exchange what is kept there", _BELOW)
    is_others = status.st_mode & stat.S_IWGRP and status.st_gid not in {os.getegid(), *os.getgroups()}
    if (status.st_mode & stat.S_IWOTH or is_others) and not status.st_mode & stat.S_ISVTX:
        fault = "may be written by other users, who could exchange what is kept there"
        raise _refusal(parent, fault, f"{_BELOW}, or 'chmod +t' it")


def _keep_private(directory: Path) -> None:
    """Make a directory that this user made private; raise OptionError if it is something else."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _refusal(directory, "is a link or a file, not a directory that an agent made", "remove it")
    if status.st_uid != os.getuid():
        raise _refusal(directory, "belongs to another user", "set localDir to a directory of this user's")
    if status.st_mode & 0o077:
        directory.chmod(0o700)


def _refusal(directory: Path, fault: str, remedy: str) -> OptionError:
    return OptionError(f"'{directory}' {fault}: {remedy}", file=str(directory), option=_OPTION)


def _sweep(parent: Path, own: Path, runtime: Runtime) -> None:
    for root in parent.glob("agent-*"):
        if root != own and _is_ours(root) and _is_abandoned(root, runtime):
            AGENT.info(f"'{root}' of an executor that is gone is removed")
            shutil.rmtree(root, ignore_errors=True)


def _is_ours(root: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return root.lstat().st_uid == os.getuid()
    return False  # another agent removed it


def _is_abandoned(root: Path, runtime: Runtime) -> bool:
    try:
        descriptor = os.open(root / OWNER, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return _age_s(root, runtime) > FOREIGN_LEASE_S
    try:
        return not _lock(descriptor) and _is_dead(root, descriptor, runtime)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # it is being made just now
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file, if the file system has locks. Return True if another agent that lives has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return False


def _is_dead(root: Path, descriptor: int, runtime: Runtime) -> bool:
    fields = json.loads(os.pread(descriptor, 4096, 0))
    if fields["space"] == _process_space():
        return bool(fields["started"] != _start_time(fields["jvm"]))
    return _age_s(root / OWNER, runtime) > FOREIGN_LEASE_S


def _start_time(process: int) -> str | None:
    """Return the start time of a process, as the kernel counts it, or None if there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _process_space() -> str:
    """Return a name of the boot and the container, inside which a process number means one process."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return "unknown"


def _age_s(path: Path, runtime: Runtime) -> float:
    with contextlib.suppress(OSError):
        return runtime.wall_ms() / 1000 - path.stat().st_mtime
    return 0.0


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
            while instance in self._opening:
                self._changed.wait()
            if instance in self._closed:
                raise BusyError("the store is closed")
            open_store = self._stores.get(instance)
            if open_store is not None:
                return open_store
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
        cache_directory = root.parent / KEPT if options.local_dir else root / KEPT
        disks = 1 if options.local_dir else self._roots.disks
        cache = self._cache_of(cache_directory, options.local_recovery_budget_bytes // disks)
        digest = _digest(store_id.run, store_id.location, str(fields.instance))
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

        bases = RemoteBases(context, self._local_files, log, found_damage, self._settled)
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

    def _settled(self) -> None:
        """Look for what waits until files are local: merges, and leases that are over."""
        self._scheduler.wake()
        self._lease_rounds.look()

    def _cache_of(self, kept: Path, budget_bytes: int) -> LocalCache:
        """Return the files kept on a disk, which all stores on it share."""
        cache = LocalCache(kept, budget_bytes, runtime=self._runtime)
        return self._caches.setdefault((kept, budget_bytes), cache)

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
