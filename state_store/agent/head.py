"""Knowledge of the agent about one store: its chain, the registry of files, its newest base.

One lock guards all of it, and each method leaves it consistent:

- The chain is that of the version committed or restored last. A base is the newest (the next merge starts
  from it) only while its version lies on that chain.
- The registry, if it is known, has each version that this process committed since it was read. It only says
  whether a clean-up may find something; nothing is deleted because of it. In doubt it is forgotten.
- Versions that clean-ups have yet to see are remembered beside it (`KnownRegistry`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from state_store.agent.messages import Ages
from state_store.core.checkpoint.lineage import Chain, ChainDelta
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.registry import Registry, StoredFile
from state_store.core.checkpoint.stored_documents import Manifest
from state_store.core.files.workspace import Workspace, discard
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.planning.policy import Due, Policy, StoreStatistics
from state_store.core.runtime import Runtime
from state_store.core.snapshots.context import LocalDatabase
from state_store.core.snapshots.merge import Published
from state_store.core.snapshots.restore import Restored
from state_store.errors import MissingError


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
        left, self._superseded_before = self._superseded_before, set()
        self._superseded |= {version for version in left if version >= floor}

    def retire_below(self, floor: int) -> Registry | None:
        """Retire the versions below `floor`, and return the registry."""
        if self._registry is not None:
            self._registry.retire_below(floor)
        return self._registry


MergeStart = tuple[LocalDatabase, Sequence[ChainDelta]]
"""Start of a merge: a base, and the deltas after it."""


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

    def ages(self) -> Ages:
        """Return the ages of the newest snapshot and of the newest full one."""
        now_ms = self._now_ms()
        with self._lock:
            return Ages(*self._statistics.ages_ms(now_ms))

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
        with self._lock:
            return self._policy.due(chain, self._statistics, self._now_ms())

    # ---- restore -----------------------------------------------------------------------------------------

    def restored(self, restored: Restored) -> None:
        """Note a restore: the store is at its version, and the JVM is about to open its base."""
        with self._lock:
            cost, phases, fetched = self._statistics.cost, restored.phases, restored.fetched
            archives = RestoreWork.of_chain(restored.chain).archives
            cost.observe_choice(phases["choose_ms"], archives, is_lazy=bool(restored.sparse))
            if not restored.sparse and not fetched.local_files:
                cost.observe_fetch(fetched.files, fetched.size_bytes, phases["fetch_ms"])
            files, size_bytes = len(restored.base.files) + len(restored.deltas), restored.chain.size_bytes
            if not (restored.thorough and restored.sparse):  # files came from storage for that
                cost.observe_verification(files, size_bytes, phases["verify_ms"], thorough=restored.thorough)
            if not restored.deltas:
                self._statistics.note_commit(restored.base.keys)
            chain = restored.chain
            self._statistics.note_snapshot(self._now_ms(), chain.snapshot, chain.full_snapshot)
            self._chain = restored.chain
            self._certain = restored.chain.version
            self._known.forget()
            self._restores += 1
            self._hold(restored.base)
            is_database = restored.base.snapshot is not None or not restored.deltas
            unused = self._adopt(restored.base if is_database else None)
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
            left = self._held.pop(directory, 0) - 1
            if left > 0:
                self._held[directory] = left
            used = left > 0 or (self._newest is not None and self._newest.directory == directory)
        if not used and self._workspace.owns(directory):
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
