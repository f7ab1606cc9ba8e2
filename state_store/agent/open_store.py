"""An open store of the agent: the knowledge about it, its commits and its clean-ups.

1. `StoreHead` knows the chain of the store, the registry of its files and its newest base. One lock guards
   all of it, and each method leaves it consistent:

   - The chain is that of the version committed or restored last. A base is the newest (the next merge starts
     from it) only while its version lies on that chain.
   - The registry, if it is known, has each version that this process committed since it was read. It only
     says whether a clean-up may find something; nothing is deleted because of it. In doubt it is forgotten.
   - Versions that clean-ups have yet to see are remembered beside it (`KnownRegistry`).

2. `OpenStore` has that knowledge, the identity of the store and its directories.
3. A commit makes a version in checkpoint storage of a delta that the JVM wrote.
4. A clean-up deletes files that no retained version needs, in checkpoint storage and on this machine.

The request and the answer of a call stand before it. They are named as in docs/protocol.md unless they say
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import LoggerAdapter
from pathlib import Path
from typing import Any

from state_store.agent.lazy.prefetch import Progress
from state_store.agent.lazy.reader_leases import Readers
from state_store.agent.lazy.remote_bases import RemoteBases
from state_store.core.checkpoint.lineage import (
    Chain,
    ChainDelta,
    ObservedAttempts,
    list_attempts,
    next_ordinal,
    store_attempt,
    touch,
)
from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    EMPTY_PARENT,
    SHARED_DIRECTORY,
    DeltaName,
    VersionId,
    version_order,
)
from state_store.core.checkpoint.registry import Registry, StoredFile
from state_store.core.checkpoint.stored_documents import Manifest
from state_store.core.codec import INLINE, JsonObject, Signed, json_names
from state_store.core.deletion.lease import StoreContents
from state_store.core.deletion.retention import Cleanup, Retention, RetentionPolicy
from state_store.core.files.transfer import crc32_of
from state_store.core.files.workspace import Workspace, discard
from state_store.core.planning.cost import CostModel, RequestTimes, RestoreWork
from state_store.core.planning.policy import Due, Policy, StoreStatistics
from state_store.core.runtime import Lock, Runtime
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import Options
from state_store.core.snapshots.context import LocalDatabase, StoreContext
from state_store.core.snapshots.merge import Published
from state_store.core.snapshots.restore import Restored, read_chain
from state_store.core.storage.contract import BoundedStorage, Deadline
from state_store.core.storage.hadoop import background
from state_store.errors import ConflictError, DamagedError, InternalError, MissingError

# ---- the knowledge about a store ------------------------------------------------------------------------


class KnownRegistry:
    """A registry that may be unknown. Not safe for threads: the lock of its `StoreHead` guards it."""

    def __init__(self) -> None:
        self._registry: Registry | None = None
        self._superseded: set[int] = set()
        self._superseded_before: set[int] = set()
        self._since_inventory: list[Callable[[Registry], object]] | None = None

    @property
    def registry(self) -> Registry | None:
        """The registry; None until an inventory has read it, and after `forget`."""
        return self._registry

    def forget(self) -> None:
        """Drop the registry, which may be wrong: the next clean-up reads the files."""
        self._registry = None

    def note(self, change: Callable[[Registry], object]) -> None:
        """Change the registry, and the one that is being read, too, as soon as it is there."""
        if self._since_inventory is not None:
            self._since_inventory.append(change)
        self._apply(change)

    def _apply(self, change: Callable[[Registry], object]) -> None:
        if self._registry is not None:
            try:
                change(self._registry)
            except MissingError:
                self.forget()  # another lineage

    def supersede(self, freed: Iterable[StoredFile]) -> None:
        """Note that the chain needs these files no more: a clean-up may find some to delete."""
        self._superseded |= {file.origin for file in freed}

    def superseded_below(self, floor: int) -> bool:
        """Return True if a version below `floor` has deltas that nobody needs since a merge."""
        return any(version < floor for version in self._superseded)

    def begin_inventory(self) -> None:
        """Begin to keep the changes that are noted while the registry is read."""
        self._since_inventory = []
        self._superseded_before, self._superseded = self._superseded, set()

    def end_inventory(self, registry: Registry | None, floor: int) -> None:
        """Take over the registry that was read, with the changes noted meanwhile; None keeps the old one.

        Versions superseded since `begin_inventory`, or not below `floor`, are left for the next clean-up.
        """
        noted, self._since_inventory = self._since_inventory or [], None
        if registry is not None:
            self._registry = registry
            for change in noted:
                self._apply(change)
        left_versions, self._superseded_before = self._superseded_before, set()
        self._superseded |= {version for version in left_versions if version >= floor}

    def retire_below(self, floor: int) -> Registry | None:
        """Retire the versions below `floor`, and return the registry."""
        if self._registry is not None:
            self._registry.retire_below(floor)
        return self._registry


MergeStart = tuple[LocalDatabase, Sequence[ChainDelta]]
"""Start of a merge: a base, and the deltas after it."""


@dataclass(frozen=True)
class SnapshotAges(JsonObject):
    """Milliseconds since the newest snapshot, and since the newest full one; None where there is none."""

    snapshot_age_ms: int | None
    full_age_ms: int | None


class StoreHead:
    """Knowledge of one store, as the module says. Safe for any thread; no method calls the storage."""

    def __init__(
        self, workspace: Workspace, policy: Policy, runtime: Runtime, cost: CostModel | None = None
    ) -> None:
        self._workspace = workspace
        self._policy = policy
        self._now_ms = runtime.wall_ms
        self._lock = runtime.lock()
        self._statistics = StoreStatistics(cost)
        self._chain: Chain | None = None
        self._known = KnownRegistry()
        self._certain: VersionId | None = None
        self._is_provider_closed = False
        self._restores = 0
        self._newest: LocalDatabase | None = None
        self._held: dict[Path, int] = {}

    # ---- what is known -----------------------------------------------------------------------------------

    @property
    def chain(self) -> Chain:
        """Chain of the version committed or restored last; empty if there is none yet."""
        with self._lock:
            return self._chain or Chain()

    @property
    def registry(self) -> Registry | None:
        """Registry of the files that versions need; None until a clean-up has read it."""
        with self._lock:
            return self._known.registry

    @property
    def restores(self) -> int:
        """Number of restores of the store so far."""
        with self._lock:
            return self._restores

    @property
    def certain(self) -> VersionId | None:
        """Newest version that Spark has committed for certain: it restored it, or built a commit on it."""
        with self._lock:
            return self._certain

    @property
    def is_provider_closed(self) -> bool:
        """True if the JVM has closed the provider; a merge that is owed to the store may go on."""
        return self._is_provider_closed

    def provider_closed(self) -> None:
        """Note that the JVM has closed the provider."""
        self._is_provider_closed = True

    def predict_restore_ms(self, chain: Chain) -> float:
        """Return the milliseconds that a restore of `chain` would take now, without any local file."""
        with self._lock:
            return self._statistics.predict_restore_ms(chain)

    def ages(self) -> SnapshotAges:
        """Return the ages of the newest snapshot and of the newest full one."""
        now_ms = self._now_ms()
        with self._lock:
            return SnapshotAges(*self._statistics.ages_ms(now_ms))

    def forecast(self) -> CostModel:
        """Return a copy of the cost model, which the next restore does not change."""
        with self._lock:
            return self._statistics.cost.frozen()

    def is_lazy(self, work: RestoreWork) -> bool:
        """Return True if a restore that has to fetch these files is lazy, by its predicted time."""
        with self._lock:
            return self._statistics.cost.is_lazy(work)

    def due(self, chain: Chain) -> Due | None:
        """Return the merge that the policy wants of the version that `chain` ends at, or None."""
        now_ms = self._now_ms()
        with self._lock:
            self._statistics.note_time(now_ms)
            return self._policy.due(chain, self._statistics, now_ms)

    # ---- restore -----------------------------------------------------------------------------------------

    def restored(self, result: Restored) -> None:
        """Note a restore: the store is at its version, and the JVM is about to open its base."""
        with self._lock:
            result.teach(self._statistics.cost)
            if not result.deltas:
                self._statistics.note_commit(result.base.keys)
            chain = result.chain
            self._statistics.note_snapshot(self._now_ms(), chain.snapshot, chain.full_snapshot)
            self._chain = result.chain
            self._certain = result.chain.version
            self._known.forget()
            self._restores += 1
            self._hold(result.base)
            is_database = result.base.snapshot is not None or not result.deltas
            unused = self._adopt(result.base if is_database else None)
        _remove(unused)

    # ---- commit ------------------------------------------------------------------------------------------

    def chain_before(self, delta: DeltaName) -> Chain | None:
        """Return the chain before `delta`, or with it if an earlier try of its commit has added it.

        None: storage has to be read.
        """
        before = delta.builds_on
        with self._lock:
            if before is None:
                return Chain()
            chain = self._chain or Chain()
            if chain.version in (before, delta.version_id):
                return chain
            return chain.back_to(before)

    def found(self, chain: Chain) -> None:
        """Note a chain that was read from storage."""
        with self._lock:
            self._statistics.note_snapshot(self._now_ms(), chain.snapshot, chain.full_snapshot)
            self._chain = chain

    @property
    def knows_full_age(self) -> bool:
        """True if the time of the last full checkpoint is known."""
        with self._lock:
            return self._statistics.full_ms is not None

    def note_chain_start(self, at_ms: int) -> None:
        """Note when the oldest file of the chain was written."""
        with self._lock:
            self._statistics.note_chain_start(at_ms)

    def committed(self, delta: ChainDelta, before: Chain, keys: int) -> Chain:
        """Note that `delta` is in storage, after the version that `before` ends at.

        Returns:
            The chain with the delta.
        """
        with self._lock:
            chain = self._chain
            if chain is not None and chain.version != before.version and before.version is not None:
                chain = chain.back_to(before.version)
            self._chain = (before if chain is None or chain.version != before.version else chain).commit(
                delta
            )
            self._known.note(lambda registry: registry.commit(delta.name, delta.size_bytes))
            self._certain = before.version
            self._statistics.note_commit(keys)
            return self._chain

    # ---- merge -------------------------------------------------------------------------------------------

    def begin_merge(self, version: VersionId) -> MergeStart | None:
        """Return the newest base, which is held until it is released, and the deltas from it to `version`.

        None: it is not known, or that version is not after it.
        """
        with self._lock:
            chain, base = self._chain, self._newest
            deltas = None if chain is None or base is None else chain.between(base.version, version)
            if base is None or deltas is None:
                return None
            self._hold(base)
            return base, deltas

    def hold(self, base: LocalDatabase) -> None:
        """Keep a base until it is released as often as it was held."""
        with self._lock:
            self._hold(base)

    def forget_directory(self, directory: Path) -> None:
        """Start no merge from the base in that directory any more: it may be damaged, or is given up."""
        with self._lock:
            is_newest = self._newest is not None and self._newest.directory == directory
            unused = self._adopt(None) if is_newest else None
        _remove(unused)

    def release(self, directory: Path) -> None:
        """Give up one hold on a base. The last hold removes it, unless it is the newest base.

        A directory that a dead agent made is known by its place alone.
        """
        with self._lock:
            holds = self._held.pop(directory, 0) - 1
            if holds > 0:
                self._held[directory] = holds
            is_used = holds > 0 or (self._newest is not None and self._newest.directory == directory)
        if not is_used and self._workspace.owns(directory):
            _remove(directory)

    def saw_snapshot(self, seen: Chain, manifest: Manifest) -> bool:
        """Let merges go on from a snapshot that another process published on the chain.

        Args:
            seen: The chain when the snapshot was looked for.
            manifest: The newest snapshot on it.

        Returns:
            True if the snapshot is new.
        """
        unused = None
        with self._lock:
            chain = self._chain
            newest = None if chain is None else chain.snapshot
            if chain is None or newest != seen.snapshot or manifest == newest:
                return False
            if newest is not None and manifest.version < newest.version:
                return False
            self._chain = chain.publish(manifest)
            self._statistics.note_snapshot(self._now_ms(), manifest)
            self._known.forget()
            unused = self._adopt(None)
        _remove(unused)
        return True

    def offer(self, base: LocalDatabase, published: Published | None) -> Chain:
        """Offer the base of a merge to the JVM, which holds it from now on.

        The next merge starts from it, unless the store has gone another way meanwhile.

        Args:
            base: The base that the merge made.
            published: Its snapshot; None if none was published.

        Returns:
            The chain after the merge.
        """
        unused = None
        with self._lock:
            self._hold(base)
            chain = self._chain
            if chain is None and published is not None:
                chain = Chain.from_listing(base.version, published.manifest, [])
            if (
                chain is not None
                and chain.version is not None
                and chain.between(base.version, chain.version) is not None
            ):
                self._chain = chain if published is None else chain.publish(published.manifest)
                unused = self._adopt(base)
            result = self._chain or Chain()
        _remove(unused)
        return result

    def published(self, published: Published, phases: dict[str, float]) -> None:
        """Learn the cost and the time of a snapshot, and which deltas nobody needs since."""
        manifest, size_bytes = published.manifest, published.archive_bytes
        with self._lock:
            cost = self._statistics.cost
            cost.observe_upload(published.new_files + 1, published.uploaded_bytes, phases["upload_ms"])
            self._statistics.note_merge(manifest, self._now_ms())
            self._known.note(lambda registry: self._known.supersede(registry.publish(manifest, size_bytes)))

    # ---- clean-up ----------------------------------------------------------------------------------------

    def superseded_below(self, floor: int) -> bool:
        """Return True if a version below `floor` has deltas that nobody needs since a merge."""
        with self._lock:
            return self._known.superseded_below(floor)

    def begin_inventory(self) -> int:
        """Note that a clean-up begins to read the registry. Changes made meanwhile are kept for it.

        Returns:
            The number of restores so far, which `end_inventory` wants.
        """
        with self._lock:
            self._known.begin_inventory()
            return self._restores

    def end_inventory(self, registry: Registry | None, floor: int, restores: int) -> Registry | None:
        """End a clean-up: retire the versions below `floor`, and take over the registry that it read.

        Files that a merge superseded since `begin_inventory` are left for the next clean-up.

        Args:
            registry: The registry that was read; None if none was. It is dropped if the store was restored
                meanwhile.
            floor: The lowest version that is retained.
            restores: The result of `begin_inventory`.

        Returns:
            The registry now, None if it is not known.
        """
        with self._lock:
            self._known.end_inventory(registry if restores == self._restores else None, floor)
            return self._known.retire_below(floor)

    def forget_registry(self) -> None:
        """Forget the registry: the next clean-up reads the files."""
        with self._lock:
            self._known.forget()

    def retire_below(self, floor: int) -> Registry | None:
        """Retire the versions below `floor` without a clean-up, and return the registry."""
        with self._lock:
            return self._known.retire_below(floor)

    # ---- under the lock ----------------------------------------------------------------------------------

    def _hold(self, base: LocalDatabase) -> None:
        self._held[base.directory] = self._held.get(base.directory, 0) + 1

    def _adopt(self, base: LocalDatabase | None) -> Path | None:
        """Make a base the newest one. Returns the directory of the one before if nobody holds that."""
        old, self._newest = self._newest, base
        unused = old is not None and old is not base and old.directory not in self._held
        return old.directory if old is not None and unused else None


def _remove(directory: Path | None) -> None:
    if directory is not None:
        discard(directory)


# ---- the store ------------------------------------------------------------------------------------------


class DamageReports:
    """Counts, by the location of a store, of blocks found damaged since its files were verified last.

    The next restore of such a store verifies every file as a whole. All providers of an executor share them:
    the provider that finds a damaged block is closed with its query, and the next one starts anew. Safe for
    any thread.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._counts: dict[str, int] = {}

    def of(self, location: str) -> int:
        """Return the number of damaged blocks that were reported since."""
        with self._lock:
            return self._counts.get(location, 0)

    def add(self, location: str) -> None:
        """Note that a block was found damaged."""
        with self._lock:
            self._counts[location] = self._counts.get(location, 0) + 1

    def clear(self, location: str, count: int) -> None:
        """Forget `count` reports, after which all files were verified, unless more have come since."""
        with self._lock:
            if self._counts.get(location) == count:
                del self._counts[location]


@json_names(has_checkpoint_ids="ids")
@dataclass(frozen=True)
class StoreId:
    """Identity of a store, as the JVM names it; `retain` is Spark's `minBatchesToRetain`."""

    location: str
    operator: Signed
    partition: Signed
    name: str
    run: str
    has_checkpoint_ids: bool
    retain: int

    @property
    def label(self) -> str:
        """Short name for the log."""
        return f"{self.operator}/{self.partition}/{self.name}"

    def retention(self, options: Options) -> RetentionPolicy:
        """Return the rule by which versions are retained."""
        return RetentionPolicy.of(options, self.retain)

    def delta(self, version: VersionId, parent: str | None, crc: int) -> DeltaName:
        """Return the name under which a delta of the JVM is committed.

        Raises:
            InternalError: The version has no id.
        """
        if version.checkpoint_id is None:
            raise InternalError(f"version {version} came without its id")
        return DeltaName(version.number, version.checkpoint_id, parent or EMPTY_PARENT, crc)


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
        damage_reports: The damage that the JVM has found, in all stores of the executor.
        bases: The bases that have sparse files.
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
    damage_reports: DamageReports
    bases: RemoteBases
    readers: Readers
    request_times: RequestTimes | None

    def close(self) -> None:
        """Remove the local directories of the store, but not the files that local recovery keeps."""
        self.bases.stop()
        self.context.workspace.remove()
        self.readers.close()
        if not self.options.local_recovery:
            self.context.cache.remove()
        self.context.storage.close()


# ---- a commit -------------------------------------------------------------------------------------------


@json_names(version=INLINE, size_bytes="bytes", crc32="crc", is_stored="stored", seen_pairs="seen")
@dataclass(frozen=True)
class CommitRequest:
    """Request to commit the delta at `path` as `version`, which follows the version of id `parent`.

    `seen_pairs` are the later versions that the attempt knew of when it began, without Spark's ids. With
    `memory_short` the data plane asks for an `ingest` merge, which gives memory back. With `is_stored` the
    data plane has stored the delta itself, durably and under its name, so that the version is committed.
    """

    version: VersionId
    parent: str | None
    path: Path
    size_bytes: int
    crc32: int
    keys: int
    memory_short: bool = False
    is_stored: bool = False
    seen_pairs: tuple[tuple[Any, ...], ...] = ()

    @property
    def seen(self) -> ObservedAttempts:
        """Later versions that the attempt knew of.

        Raises:
            InternalError: A member is not a pair of a number and an id.
        """
        if any(len(pair) != 2 or not isinstance(pair[0], int) for pair in self.seen_pairs):
            raise InternalError("the call 'commit' has a member in 'seen' that is not a pair [version, id]")
        return frozenset(VersionId(number, checkpoint_id) for number, checkpoint_id in self.seen_pairs)


@dataclass(frozen=True)
class SeenAttempts(JsonObject):
    """Attempts in storage above `version`, for the next commit on it where Spark gives no ids."""

    version: int
    seen: ObservedAttempts

    def to_json(self) -> dict[str, Any]:
        ordered = sorted(self.seen, key=version_order)
        return {
            "ordinal": next_ordinal(self.seen, self.version + 1),
            "seen": [[version.number, version.checkpoint_id] for version in ordered],
        }


@dataclass(frozen=True)
class Prediction(JsonObject):
    """Milliseconds that a restore of the newest version would take now on another machine.

    `restore_objective_ms` is the option `restoreObjective`; 0 means that there is no objective.
    """

    predicted_restore_ms: float
    restore_objective_ms: int


@json_names(restore=INLINE)
@dataclass(frozen=True)
class CommitAnswer(JsonObject):
    """Answer to `commit`: the chain with the new delta, and the attempts above it.

    `phases` has milliseconds; `hydration` is the progress of lazy restores.
    """

    chain: Chain
    restore: Prediction
    ages: SnapshotAges
    attempts: SeenAttempts
    phases: Mapping[str, float]
    hydration: Progress


def commit(store: OpenStore, request: CommitRequest) -> tuple[CommitAnswer, Chain]:
    """Store the delta under its name, whose appearance is the commit. The same commit again is fine.

    If the data plane has stored it already, this only learns of it.

    Returns:
        The answer, and the chain of the version before, which is certain now: Spark builds on it.

    Raises:
        DamagedError: The local file has other bytes than the JVM announced.
        MissingError: The local file or the version before does not exist.
        ConflictError: Another delta has that name; or, without Spark's ids, the attempt is refused (see
            `store_attempt`).
        StateStoreError: The storage failed.
    """
    clock_s = store.context.runtime.monotonic_s
    start_s = clock_s()
    delta = store.store_id.delta(request.version, request.parent, request.crc32)
    before = _chain_before(store, delta)
    _check_follows(delta, before)
    stored_from_s = clock_s()
    seen: ObservedAttempts = frozenset()
    if request.is_stored:
        pass
    elif store.store_id.has_checkpoint_ids:
        _store_delta(store, delta, request)
    else:
        touch(request.path)
        seen = store_attempt(
            store.context.storage, delta, request.seen, lambda: _store_delta(store, delta, request)
        )
    store.context.cache.adopt(delta.path, request.path)
    stored_until_s = clock_s()
    chain = store.head.committed(ChainDelta(delta, request.size_bytes, request.crc32), before, request.keys)
    phases = {
        "chain_ms": (stored_from_s - start_s) * 1000,
        "store_ms": (stored_until_s - stored_from_s) * 1000,
    }
    attempts = SeenAttempts(delta.version, seen)
    hydration = store.bases.progress()
    answer = CommitAnswer(chain, predict(store, chain), store.head.ages(), attempts, phases, hydration)
    return answer, before


def _chain_before(store: OpenStore, delta: DeltaName) -> Chain:
    chain_in_memory = store.head.chain_before(delta)
    if chain_in_memory is not None:
        if chain_in_memory.version is None:
            learn_age(store, chain_in_memory)
        return chain_in_memory
    before = delta.builds_on
    assert before is not None
    chain, warnings = read_chain(store.context.storage, before)
    for warning in warnings:
        store.log.warning(warning)
    store.head.found(chain)
    learn_age(store, chain)
    return chain


def learn_age(store: OpenStore, chain: Chain) -> None:
    """Learn the age of the chain from its oldest file, if full checkpoints depend on it and it is unknown."""
    options = store.options
    if not (options.full_interval_ms or options.full_schedule) or store.head.knows_full_age:
        return
    paths = chain.paths()
    times = [
        entry.modified_ms
        for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY)
        for entry in store.context.storage.list_files(directory)
        if f"{directory}/{entry.name}" in paths
    ]
    store.head.note_chain_start(min(times, default=store.context.runtime.wall_ms()))


def _check_follows(delta: DeltaName, before: Chain) -> None:
    """Raise InternalError unless the delta follows the chain: it must not become visible otherwise."""
    if before.version not in (delta.builds_on, delta.version_id):
        raise InternalError(
            f"'{delta.path}' was not stored: it builds on version {delta.builds_on}, and what the agent "
            f"knows leads to {before.version}. Run the batch again; please report this with the agent's log",
            file=delta.path,
        )


def _store_delta(store: OpenStore, delta: DeltaName, request: CommitRequest) -> None:
    """Write the delta durably under its name; the same delta again is a success."""
    storage, path, size_bytes, name = store.context.storage, request.path, request.size_bytes, delta.path
    try:
        received_bytes = path.stat().st_size
    except FileNotFoundError:
        if _is_stored(store, delta, size_bytes):
            return
        file = f"{storage.location}/{name}"
        raise MissingError(f"'{path}', which should become '{file}', does not exist", file=file) from None
    crc = crc32_of(path)
    if received_bytes != size_bytes or crc != request.crc32:
        file = f"{storage.location}/{name}"
        raise DamagedError(
            f"'{path}', which should become '{file}', has {received_bytes} bytes and CRC-32 {crc:08x} "
            f"instead of {size_bytes} and {request.crc32:08x}: run the batch again",
            file=file,
        )
    try:
        storage.upload(path, name)
    except ConflictError:
        if not _is_stored(store, delta, size_bytes):
            raise


def _is_stored(store: OpenStore, delta: DeltaName, size_bytes: int) -> bool:
    directory, _, name = delta.path.partition("/")
    entries = store.context.storage.list_files(directory)
    return any(entry.name == name and entry.size_bytes == size_bytes for entry in entries)


def predict(store: OpenStore, chain: Chain) -> Prediction:
    """Return the time that a restore of the last version of `chain` would take now, and its objective."""
    return Prediction(store.head.predict_restore_ms(chain), store.options.restore_objective_ms)


@dataclass(frozen=True)
class AttemptsRequest:
    """Request for the attempts above `version`, for an attempt that begins on it in memory."""

    version: int


def seen_attempts(store: OpenStore, request: AttemptsRequest) -> SeenAttempts:
    """Return the attempts above a version, from one listing."""
    return SeenAttempts(
        request.version, list_attempts(store.context.storage, request.version).after(request.version)
    )


# ---- a clean-up -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CleanupAnswer(JsonObject):
    """Answer to `cleanup`: the number and bytes of deleted files, and the versions that can be restored."""

    deleted_files: int
    deleted_bytes: int
    retained: Sequence[VersionId]


def clean_up_after_merge(store: OpenStore) -> CleanupAnswer:
    """Clean up after a merge, seen from the newest version that Spark has committed for certain.

    This retains more files than a clean-up that Spark asks for, whose version is newer. So Spark's next
    clean-up has to read the files again.

    Raises:
        StateStoreError: As `clean_up`.
    """
    certain = store.head.certain
    if certain is None:
        return CleanupAnswer(0, 0, [])
    try:
        return clean_up(store, certain)
    finally:
        store.head.forget_registry()


def clean_up(store: OpenStore, newest: VersionId) -> CleanupAnswer:
    """Delete the files that no retained version needs, seen from the newest version.

    If nothing is due, no request is made of checkpoint storage.

    Raises:
        BusyError: The time for clean-ups is over; the next one finds the remaining files.
        StateStoreError: As `Retention.cleanup`.
    """
    head, retention = store.head, store.retention
    registry = head.registry
    floor = newest.number - store.store_id.retention(store.options).keep
    due = registry is None or retention.is_due(registry, newest) or head.superseded_below(floor + 1)
    if not due:
        store.log.debug(f"clean-up at version {newest}: nothing is due, the storage is not asked")
        cleanup = Cleanup(floor + 1)
        registry = head.retire_below(cleanup.floor)
        return CleanupAnswer(0, 0, registry.checkpoints() if registry is not None else [])
    with store.cleaning, background():
        restores = head.begin_inventory()
        try:
            cleanup = _clean(store, newest)
            if cleanup.registry is None and head.registry is None:  # there are too few versions to decide on
                read = StoreContents.read(store.cleanup_storage).registry(cleanup.floor)
                cleanup = replace(cleanup, registry=read)
        except BaseException:
            head.end_inventory(None, 0, restores)
            raise
        registry = head.end_inventory(cleanup.registry, cleanup.floor, restores)
    for warning in cleanup.warnings:
        store.log.warning(warning)
    if cleanup.skipped:
        store.log.warning(f"nothing was deleted: {cleanup.skipped}")
    store.log.debug(
        f"clean-up at version {newest}: versions below {cleanup.floor} are retired, "
        f"{len(cleanup.deleted)} files deleted: {', '.join(cleanup.deleted)}"
    )
    if head.chain.version == newest:
        store.context.cache.retain(head.chain.paths())
    store.prune()
    retained = registry.checkpoints() if registry is not None else []
    return CleanupAnswer(len(cleanup.deleted), cleanup.deleted_bytes, retained)


def _clean(store: OpenStore, newest: VersionId) -> Cleanup:
    """Clean up within the time that `cleanupTimeout` allows.

    A lease's expiry bounds it, too: if the tombstone turns out to be damaged, it counts for that long, and a
    cleaner that stood still for longer must delete nothing more.
    """
    limit_ms = min(store.options.cleanup_timeout_ms, store.options.lease_expiry_ms)
    store.cleanup_storage.deadline = Deadline(
        "a clean-up", limit_ms, option=PREFIX + "cleanupTimeout", runtime=store.context.runtime
    )
    return store.retention.cleanup(newest)
