"""Full checkpoints: snapshots that depend on no older file, of a query that runs or is stopped.

Work on one store has a local directory of its own, without a cache that outlives it, and a share of the
file descriptors that the process may have.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from state_store.core.checkpoint.lineage import describe_restorable
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import Cause
from state_store.core.codec import INLINE, JsonObject, json_names
from state_store.core.deletion.lease import Lease
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.options import Options
from state_store.core.snapshots.context import StoreContext
from state_store.core.snapshots.merge import FULL, merge, publish
from state_store.core.snapshots.restore import restore
from state_store.core.storage import Storage
from state_store.core.storage.local_disk import temporary_directory
from state_store.data.dataset.checkpoints import FoundStore
from state_store.data.dataset.moments import table
from state_store.data.jobs import on_stores, workers
from state_store.data.query import Filter, Progress, ProgressOption, Query, StoreKey, reporting
from state_store.data.query.arguments import Location, check_number, check_text, counted
from state_store.errors import MissingError, OptionError, StateStoreError

MAX_STORES = 1024
"""Stores that are worked on at a time at most."""

_ENOUGH = 65_536
"""Descriptors that suffice for any work here; the soft limit is not raised above this number."""

_RESERVED = 48
"""Descriptors for the interpreter, its libraries and connections."""

_PER_STORE = 64
"""Descriptors that one store needs at least: its database's log, manifest and directories, and transfers."""

_TRANSFERS = 32
"""Descriptors of a store's share that its database does not get."""

MAX_OPEN_FILES = 4096
"""Tables that a database keeps open at most, however many descriptors the process may have."""

OnFailure = Literal["raise", "report"]
"""The treatment of stores that fail."""

COMPRESSIONS = ("none", "lz4")

STORES = 4
"""Stores that are worked on at a time by default."""

REQUESTED = "requested beside the query (state-store full)"
"""The reason that a full checkpoint keeps unless its caller gives another."""

_TRIES = 3
"""Attempts for a store while its query goes on and retires the version."""


@dataclass(frozen=True)
class Share:
    """Stores that are worked on at a time, and tables that the database of each may keep open."""

    stores: int
    open_files: int


def share(stores: int) -> Share:
    """Divide the descriptors of the process among stores.

    The soft limit of the process is raised to the hard limit first.

    Args:
        stores: stores that are to be worked on at a time; fewer are if descriptors are short.

    Raises:
        OptionError: `stores` is not a number from 1 to 1024.
    """
    check_number("stores", stores, minimum=1, maximum=MAX_STORES)
    available = _raise_limit() - _RESERVED
    at_once = max(1, min(stores, available // _PER_STORE))
    return Share(at_once, min(MAX_OPEN_FILES, max(available // at_once - _TRANSFERS, _TRANSFERS)))


def _raise_limit() -> int:
    """Raise the soft limit of open files as far as it helps and as this process may; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return _ENOUGH if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError):
        return soft
    return limit


@contextmanager
def temporary_context(
    storage: Storage, settings: DatabaseSettings, *, runtime: Runtime = SYSTEM
) -> Iterator[tuple[StoreContext, Path]]:
    """Yield the context of a store and a directory for other files, both below a new temporary directory.

    The directory is below `TMPDIR` and is removed at the end. A file that was fetched once is linked then.

    Raises:
        LocalDiskError: The directory cannot be made, or its disk is full or fails.
    """
    with temporary_directory("state-store-") as directory:
        cache = LocalCache(directory / "cache", budget_bytes=1 << 62).store(storage.location)
        workspace = Workspace(directory / "work", runtime=runtime)
        workspace.open()
        yield StoreContext(storage, cache, workspace, settings, runtime=runtime), directory


@json_names(key=INLINE, version=INLINE)
@dataclass(frozen=True)
class FullCheckpoint(JsonObject):
    """The full checkpoint of one store.

    Attributes:
        key: the store.
        version: the version that the checkpoint is of.
        keys: its keys, of all column families.
        files: its SST files, all of them new.
        bytes: bytes of these files.
        chain_files: files that a restore of the version read before.
        chain_bytes: bytes of those files.
        ms: milliseconds that the work took.
    """

    key: StoreKey
    version: VersionId
    keys: int
    files: int
    bytes: int
    chain_files: int
    chain_bytes: int
    ms: int


@json_names(key=INLINE)
@dataclass(frozen=True)
class Failure(JsonObject):
    """A store of which no full checkpoint was made, and the reason."""

    key: StoreKey
    error: StateStoreError


@dataclass(frozen=True)
class FullCheckpoints:
    """The full checkpoints of a query's stores. Notebooks show a table.

    Attributes:
        checkpoint: the query's checkpoint directory.
        made: the checkpoints that were made, in the order of the stores.
        failed: the stores of which none could be made.
    """

    checkpoint: str
    made: tuple[FullCheckpoint, ...]
    failed: tuple[Failure, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the results of all stores, in their order, as values for JSON."""
        outcomes: list[FullCheckpoint | Failure] = [*self.made, *self.failed]
        return {
            "checkpoint": self.checkpoint,
            "stores": [outcome.to_json() for outcome in sorted(outcomes, key=lambda outcome: outcome.key)],
        }

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        size_bytes = sum(snapshot.bytes for snapshot in self.made)
        return f"FullCheckpoints({counted(len(self.made), 'store')}, {size_bytes} bytes{failed})"

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [
            (
                snapshot.key,
                snapshot.version.number,
                snapshot.keys,
                snapshot.files,
                snapshot.bytes,
                snapshot.chain_bytes,
                "",
            )
            for snapshot in self.made
        ]
        rows += [(failure.key, *[None] * 5, failure.error.message) for failure in self.failed]
        headings = ("store", "version", "keys", "files", "bytes", "bytes before", "error")
        return table(repr(self), headings, rows)


def full_checkpoint(
    checkpoint: Location,
    operator: int | None = None,
    partition: int | None = None,
    store: str | None = None,
    *,
    stores: int = STORES,
    compression: str | None = None,
    on_failure: OnFailure = "raise",
    reason: str = REQUESTED,
    spark: Any = None,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> FullCheckpoints:
    """Make a full checkpoint of each store of a query, of the version that Spark committed last.

    Later checkpoints depend on no older file. The query may run meanwhile: it goes on from the new
    checkpoint. Needs local disk for twice the state of a partition in the directory of temporary files
    (`TMPDIR`), for each store that is worked on at a time. Any thread may call it, also several at a time.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: only the stores of this stateful operator.
        partition: only the stores of this partition.
        store: only this store: a side of a join, a state variable, or Spark's name of a store.
        stores: stores that are worked on at a time in a process; fewer if file descriptors are short.
        compression: `none` or `lz4`, the query's option `snapshotCompression`. Default: the compression of
            the store's newest snapshot.
        on_failure: `raise`: when all stores were tried, raise the first failure. `report`: return failures
            in `FullCheckpoints.failed`.
        reason: who wants them, for people: the checkpoints keep it.
        spark: a SparkSession, whose executors then do the work, a task a store; None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no such query or store, Spark has not committed a batch, or the version cannot
            be restored.
        OptionError: an argument is wrong, or another provider keeps the query's state.
        StateStoreError: as the files and the storage are.
    """
    if compression not in (None, *COMPRESSIONS):
        raise OptionError(f"compression is none or lz4, not {compression!r}", option="compression")
    if on_failure not in ("raise", "report"):
        raise OptionError(f"on_failure is 'raise' or 'report', not {on_failure!r}", option="on_failure")
    check_text("reason", reason, "'before the upgrade'")
    selection = Filter(operator, partition, store)
    resources, tasks = share(stores), workers(spark, runtime)
    query = Query.open(checkpoint)
    keys = query.stores(selection)

    def of_store(key: StoreKey, storage: Storage, meter: Progress | None) -> FullCheckpoint | Failure:
        return _of_newest(
            lambda: query.committed()[key],
            lambda version: store_full_checkpoint(
                key,
                storage,
                version,
                compression=compression,
                open_files=share(resources.stores).open_files,
                reason=reason,
                meter=meter,
                runtime=runtime,
            ),
        )

    with reporting(progress, "full checkpoints", len(keys)) as meter:
        outcomes = on_stores(
            query, keys, of_store, at_once=resources.stores, meter=meter, workers=tasks, otherwise=Failure
        )
    failed = tuple(outcome for outcome in outcomes if isinstance(outcome, Failure))
    if failed and on_failure == "raise":
        raise failed[0].error
    checkpoints = tuple(outcome for outcome in outcomes if isinstance(outcome, FullCheckpoint))
    return FullCheckpoints(query.location, checkpoints, failed)


def _of_newest(
    committed: Callable[[], VersionId], make: Callable[[VersionId], FullCheckpoint]
) -> FullCheckpoint:
    """Make the checkpoint of the version that Spark committed last.

    If the query goes on and retires that version meanwhile, a later version is taken.
    """
    for _ in range(_TRIES - 1):
        version = committed()
        try:
            return make(version)
        except MissingError:
            if committed() == version:
                raise
    return make(committed())


def store_full_checkpoint(
    key: StoreKey,
    storage: Storage,
    committed: VersionId,
    *,
    compression: str | None = None,
    open_files: int = MAX_OPEN_FILES,
    reason: str = REQUESTED,
    meter: Progress | None = None,
    runtime: Runtime = SYSTEM,
) -> FullCheckpoint:
    """Make a full checkpoint of exactly one version of one store, never of another version.

    Args:
        key: the store.
        storage: the store's directory.
        committed: the version; an id of None stands for the attempt that the number means.
        compression: `none`, `lz4`, or None: as in the snapshot that a restore of the version starts from.
        open_files: tables that the database keeps open at most.
        reason: who wants it.
        meter: receives the number of bytes that are going to be moved.
        runtime: clocks and threads.

    Raises:
        MissingError: the version cannot be restored.
        StateStoreError: as restore, merge and publish raise it.
    """
    began_s = runtime.monotonic_s()
    contents = FoundStore.read(key, storage)
    version = contents.restorable(committed)
    if version is None:
        raise MissingError(
            f"version {committed} of {storage.location}, which Spark committed last, cannot be restored; "
            f"{describe_restorable(contents.registry.checkpoints())}",
            file=storage.location,
        )
    settings = DatabaseSettings(compression=compression, max_open_files=open_files)
    if meter is not None:
        meter.expect(
            2 * sum(file.size_bytes for file in contents.registry.files(version) if not file.is_snapshot)
        )
    with temporary_context(storage, settings, runtime=runtime) as (context, _):
        result = restore(context, version)
        merged = merge(context, result.base, [], version, FULL)
        lease = Lease(storage, expiry_ms=Options().lease_expiry_ms, runtime=runtime)
        published = publish(context, merged.base, lease, full=True, cause=Cause(reason))
    return FullCheckpoint(
        key,
        version,
        published.manifest.keys,
        len(published.manifest.files),
        published.manifest.total_bytes,
        result.chain.files,
        result.chain.size_bytes,
        round((runtime.monotonic_s() - began_s) * 1000),
    )
