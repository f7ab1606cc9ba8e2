"""What the agent knows of one store: its chain, who needs which file, its newest base.

Everything here is behind one lock, and each method leaves it consistent:

- The chain is that of the version committed or restored last. A base is the newest (the next merge starts
  from it) only while its version lies on that chain.
- The registry, where it is known, has each version that this process committed since it was read. It is a
  hint for what a clean-up may find, never what is deleted by; when in doubt it is forgotten.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from state_store.agent.known_registry import KnownRegistry
from state_store.agent.wire.answers import Ages
from state_store.core.checkpoint.manifest import Manifest
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.registry import Registry
from state_store.core.files.workspace import Workspace
from state_store.core.planning.chain import Chain, ChainDelta
from state_store.core.planning.cost import CostModel
from state_store.core.planning.policy import Due, Policy, StoreStatistics
from state_store.core.planning.restore_work import RestoreWork
from state_store.core.runtime import Runtime
from state_store.core.snapshots.assembly import Restored
from state_store.core.snapshots.local_database import LocalDatabase
from state_store.core.snapshots.publish import Published


@dataclass(frozen=True)
class MergeStart:
    """From where a merge begins: the newest base and the deltas after it, when both are known."""

    chain: Chain | None
    base: LocalDatabase | None
    deltas: Sequence[ChainDelta]


class StoreHead:
    """See the module. Safe for any thread; no method calls the storage."""

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
        """The chain of the version committed or restored last; empty where there is none yet."""
        with self._lock:
            return self._chain or Chain()

    @property
    def registry(self) -> Registry | None:
        """Who needs which file; None until a clean-up has read it."""
        with self._lock:
            return self._known.registry

    @property
    def restores(self) -> int:
        """How often the store was restored."""
        with self._lock:
            return self._restores

    @property
    def certain(self) -> VersionId | None:
        """Newest version that Spark has committed for certain: it restored it, or built a commit on it."""
        with self._lock:
            return self._certain

    @property
    def is_provider_closed(self) -> bool:
        """Whether the JVM has closed the provider: a merge that is owed to the store may go on."""
        return self._is_provider_closed

    def provider_closed(self) -> None:
        """Note that the JVM has closed the provider."""
        self._is_provider_closed = True

    def predict_restore_ms(self, chain: Chain) -> float:
        """Return the milliseconds that a restore of `chain` would take now, without any local file."""
        with self._lock:
            return self._statistics.predict_restore_ms(chain)

    def ages(self) -> Ages:
        """How long ago the newest snapshot, and the newest full one, were made."""
        now_ms = self._now_ms()
        with self._lock:
            return Ages(*self._statistics.ages_ms(now_ms))

    def forecast(self) -> CostModel:
        """What restores are predicted by before the next one, which does not move it."""
        with self._lock:
            return self._statistics.cost.frozen()

    def is_lazy(self, work: RestoreWork) -> bool:
        """Whether a restore that has to fetch these files is lazy, by what that would take now."""
        with self._lock:
            return self._statistics.cost.is_lazy(work)

    def due(self, chain: Chain) -> Due | None:
        """The merge that the policy wants of the version that `chain` ends at."""
        with self._lock:
            return self._policy.due(chain, self._statistics, self._now_ms())

    # ---- restore -----------------------------------------------------------------------------------------

    def restored(self, restored: Restored) -> None:
        """The store is now at the version restored, and the JVM is about to open its base."""
        with self._lock:
            cost, phases, fetched = self._statistics.cost, restored.phases, restored.fetched
            cost.observe_choice(phases["choose_ms"], RestoreWork.of_chain(restored.chain).archives)
            if not restored.sparse and not fetched.local_files:
                cost.observe_fetch(fetched.files, fetched.size_bytes, phases["fetch_ms"])
            files, size_bytes = len(restored.base.files) + len(restored.deltas), restored.chain.size_bytes
            cost.observe_verification(files, size_bytes, phases["verify_ms"], thorough=restored.thorough)
            cost.observe_ingestion(len(restored.chain.deltas) - len(restored.deltas), phases["ingest_ms"])
            cost.ingests = bool(restored.chain.deltas) and not restored.deltas
            if not restored.deltas:
                self._statistics.note_commit(restored.base.keys)
            self._statistics.note_snapshot(restored.chain.snapshot, restored.chain.full_snapshot)
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
        """The chain that `delta` continues (or that has it already); None where storage has to be read."""
        before = delta.builds_on
        with self._lock:
            if before is None:
                return Chain()
            chain = self._chain or Chain()
            if chain.version in (before, delta.version_id):
                return chain
            return chain.back_to(before)

    def found(self, chain: Chain) -> None:
        """Notes a chain that was read from storage."""
        with self._lock:
            self._statistics.note_snapshot(chain.snapshot, chain.full_snapshot)
            self._chain = chain

    @property
    def knows_full_age(self) -> bool:
        """Whether it is known when the last full checkpoint was made."""
        with self._lock:
            return self._statistics.full_ms is not None

    def begun(self, at_ms: int) -> None:
        """The oldest file of the chain was written then."""
        with self._lock:
            self._statistics.note_chain_start(at_ms)

    def committed(self, delta: ChainDelta, before: Chain, keys: int) -> Chain:
        """Version `delta` is in storage, after the version that `before` ends at; the chain with it."""
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

    def begin_merge(self, version: VersionId) -> MergeStart:
        """From where to merge `version`; the base, where there is one, is held until it is released."""
        with self._lock:
            chain, base = self._chain, self._newest
            if base is not None and chain is not None:
                deltas = chain.between(base.version, version)
                if deltas is not None:
                    self._hold(base)
                    return MergeStart(chain, base, deltas)
            return MergeStart(chain, None, ())

    def hold(self, base: LocalDatabase) -> None:
        """A base of this store is in use until it is released, once for each time that it was held."""
        with self._lock:
            self._hold(base)

    def forget(self, base: LocalDatabase) -> None:
        """Merges do not start from this base any more: it may be damaged."""
        self.forget_directory(base.directory)

    def forget_directory(self, directory: Path) -> None:
        """As `forget`, of the base in that directory."""
        with self._lock:
            is_newest = self._newest is not None and self._newest.directory == directory
            unused = self._adopt(None) if is_newest else None
        _remove(unused)

    def release(self, directory: Path) -> None:
        """Nobody is left who holds it for this reason; the last removes it, unless it is the newest base. A
        directory that a dead agent made is known by its place alone.
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
            Whether the snapshot is new.
        """
        unused = None
        with self._lock:
            chain = self._chain
            known = None if chain is None else chain.snapshot
            if chain is None or known != seen.snapshot or manifest == known:
                return False
            if known is not None and manifest.version < known.version:
                return False
            self._chain = chain.publish(manifest)
            self._statistics.note_snapshot(manifest)
            self._known.forget()
            unused = self._adopt(None)
        _remove(unused)
        return True

    def offer(self, base: LocalDatabase, published: Published | None) -> Chain:
        """A merge made `base`, and `published` it; the JVM holds it from now on. The chain after that.

        Where the store has gone another way meanwhile, the base is not what the next merge starts from.
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

    def published(self, published: Published, deltas: int, phases: dict[str, float]) -> None:
        """Learns from a snapshot: what it cost, which versions' deltas nobody needs since, when it was."""
        manifest, size_bytes = published.manifest, published.archive_bytes
        with self._lock:
            cost = self._statistics.cost
            cost.observe_upload(published.new_files + 1, published.uploaded_bytes, phases["upload_ms"])
            cost.observe_ingestion(deltas, phases["ingest_ms"])
            self._statistics.note_merge(manifest, self._now_ms())
            self._known.note(lambda registry: self._known.supersede(registry.publish(manifest, size_bytes)))

    # ---- clean-up ----------------------------------------------------------------------------------------

    def superseded_below(self, floor: int) -> bool:
        """Whether a version below `floor` has deltas that nobody needs since a merge."""
        with self._lock:
            return self._known.superseded_below(floor)

    def begin_inventory(self) -> int:
        """A clean-up is about to read who needs which file; what is committed meanwhile is kept for it. How
        often the store was restored by now.
        """
        with self._lock:
            self._known.begin_inventory()
            return self._restores

    def end_inventory(self, registry: Registry | None, floor: int, restores: int) -> Registry | None:
        """Versions below `floor` are retired. `registry`, where it was read since `begin_inventory`, is who
        needs which file from now on, unless the store was restored since. What a merge superseded since then
        is left for the next clean-up. The registry now.
        """
        with self._lock:
            self._known.end_inventory(registry if restores == self._restores else None, floor)
            return self._known.retire_below(floor)

    def forget_registry(self) -> None:
        """Let the next clean-up read the files."""
        with self._lock:
            self._known.forget()

    def retire_below(self, floor: int) -> Registry | None:
        """Versions below `floor` are retired, without a clean-up. The registry now."""
        with self._lock:
            return self._known.retire_below(floor)

    # ---- under the lock ----------------------------------------------------------------------------------

    def _hold(self, base: LocalDatabase) -> None:
        self._held[base.directory] = self._held.get(base.directory, 0) + 1

    def _adopt(self, base: LocalDatabase | None) -> Path | None:
        """Makes it the newest; the directory of the one before, when nobody holds that."""
        old, self._newest = self._newest, base
        unused = old is not None and old is not base and old.directory not in self._held
        return old.directory if old is not None and unused else None


def _remove(directory: Path | None) -> None:
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
