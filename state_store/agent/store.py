"""One open store of the agent: its chain, its newest base, and the operations of docs/protocol.md on them.

Any thread may call any operation. Merges of a store exclude each other; everything else runs beside them.
What an operation learns it notes under one lock, and only if the store has not moved to another lineage
meanwhile.
"""

from __future__ import annotations

import shutil
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from state_store.agent import answers
from state_store.agent.local_databases import LocalDatabases
from state_store.agent.log import log
from state_store.agent.priority import run_at_low_priority
from state_store.agent.store_id import StoreId
from state_store.checkpoint.lineage import Lineages
from state_store.checkpoint.names import (
    DELTA_DIRECTORY,
    SHARED_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    DeltaName,
    SnapshotName,
    VersionId,
)
from state_store.checkpoint.registry import Registry
from state_store.deletion.catalog import read_listing, read_newest_manifest
from state_store.deletion.contents import StoreContents
from state_store.deletion.lease import Lease
from state_store.deletion.retention import Cleanup, Retention
from state_store.errors import ConflictError, DamagedError, MissingError
from state_store.files.transfer import fetch, verify
from state_store.planning.chain import Chain, ChainDelta
from state_store.planning.policy import Policy
from state_store.planning.statistics import StoreStatistics
from state_store.settings.options import Options
from state_store.snapshots.context import StoreContext
from state_store.snapshots.local_database import LocalDatabase
from state_store.snapshots.merge import FULL, INCREMENTAL, INGEST, merge
from state_store.snapshots.publish import Published, publish
from state_store.snapshots.restore import Restored, restore, wanted_deltas
from state_store.snapshots.stored_chain import read_chain


class OpenStore:
    """The operations of one store. `merge_slots` bounds the merges of the whole agent."""

    def __init__(
        self,
        store_id: StoreId,
        options: Options,
        context: StoreContext,
        merge_slots: threading.Semaphore,
        now_ms: Callable[[], int],
        prune: Callable[[], object],
    ) -> None:
        self.store_id = store_id
        self.options = options
        self.context = context
        self._merge_slots = merge_slots
        self._now_ms = now_ms
        self._prune = prune
        policy = store_id.retention(options)
        self._keep = policy.keep
        self._retention = Retention(
            context.storage,
            policy,
            clock_ms=now_ms,
            threads=options.transfer_threads,
        )
        self._rewinds = 0  # how often the store went back, or may have
        self._registry: Registry | None = None
        self._superseded: set[int] = set()  # versions whose deltas nobody needs since a merge
        self._policy = Policy(options, store_id.location)
        self._statistics = StoreStatistics()
        self._lock = threading.RLock()
        self._merging = threading.Lock()
        self._chain: Chain | None = None
        self._bases = LocalDatabases(context.workspace)

    # ---- restore -----------------------------------------------------------------------------------------

    def restore(self, version: VersionId, start: VersionId | None) -> dict[str, Any]:
        restored = restore(self.context, version, start=start)
        predicted_ms = self._statistics.predict_restore_ms(restored.chain)
        self._learn_restore(restored)
        with self._lock:
            self._chain, self._registry = restored.chain, None
            self._rewinds += 1
        self._bases.hand_out(restored.base)
        self._bases.adopt(restored.base)
        for warning in restored.warnings:
            self._log("WARNING", warning)
        return answers.restored(restored, predicted_ms)

    def release(self, directory: Path) -> dict[str, Any]:
        self._bases.take_back(directory)
        return {}

    # ---- commit ------------------------------------------------------------------------------------------

    def commit(self, delta: DeltaName, path: Path, size_bytes: int, crc32: int, keys: int) -> dict[str, Any]:
        start = time.perf_counter()
        if not self.store_id.has_checkpoint_ids:
            self._rewind(delta.version)
        chain = self._chain_before(delta)
        found_ms = _elapsed_ms(start)
        start = time.perf_counter()
        self._store_delta(delta, path, size_bytes)
        stored_ms = _elapsed_ms(start)
        with self._lock:
            current = (
                self._chain if self._chain is not None and self._chain.version == chain.version else chain
            )
            self._chain = chain = current.commit(ChainDelta(delta, size_bytes, crc32))
            self._register(delta, size_bytes)
            self._statistics.note_commit(keys)
            due = self._policy.due(chain, self._statistics, self._now_ms())
        phases = {"chain_ms": found_ms, "store_ms": stored_ms}
        return {"merge": answers.due(due), "chain": chain.to_json(), "phases": phases}

    def _rewind(self, version: int) -> None:
        """Before a commit without ids: what was made of an earlier attempt at this version counts no more.

        Names cannot tell attempts apart there. The order is that of `_withdraw_if_rewound`: first this
        process forgets, then the snapshots go, so that one published meanwhile is either seen here or
        withdrawn there.
        """
        with self._lock:
            chain, base = self._chain, self._bases.newest
            if chain is not None and chain.version is not None and chain.version.number >= version:
                self._chain, self._registry = None, None
            registry = self._registry
            if registry is not None and any(kept.number >= version for kept in registry.checkpoints()):
                self._registry = None  # a clean-up read what another attempt had left
            if base is not None and base.version.number >= version:
                self._bases.adopt(None)
            if self._chain is not chain:
                self._rewinds += 1
        for entry in self.context.storage.list_files(SNAPSHOT_DIRECTORY):
            name = SnapshotName.parse(entry.name)
            if name is not None and name.version >= version:
                self.context.storage.delete(name.path)

    def _chain_before(self, delta: DeltaName) -> Chain:
        """The chain that `delta` continues; read from storage when this process does not know it."""
        with self._lock:
            chain = self._chain or Chain()
        before = delta.builds_on
        if chain.version == before or chain.version == delta.version_id:
            return chain
        if before is None:
            self._note_chain_age(Chain())
            return Chain()
        chain, warnings = read_chain(self.context.storage, before)
        for warning in warnings:
            self._log("WARNING", warning)
        self._note_chain_age(chain)
        with self._lock:
            self._chain = chain
        return chain

    def _store_delta(self, delta: DeltaName, path: Path, size_bytes: int) -> None:
        """One durable write by name; the same delta again is success."""
        storage, file = self.context.storage, f"{self.context.storage.location}/{delta.path}"
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            if self._is_stored(delta, size_bytes):
                return
            raise MissingError(f"'{path}', which should become '{file}', does not exist", file=file) from None
        if found != size_bytes:
            raise DamagedError(
                f"'{path}', which should become '{file}', has {found} bytes instead of {size_bytes}",
                file=file,
            )
        try:
            storage.upload(path, delta.path, overwrite=not self.store_id.has_checkpoint_ids)
        except ConflictError:
            if not self._is_stored(delta, size_bytes):
                raise
        self.context.cache.adopt(delta.path, path)

    def _register(self, delta: DeltaName, size_bytes: int) -> None:
        if self._registry is not None:
            try:
                self._registry.commit(delta, size_bytes)
            except MissingError:
                self._registry = None  # another lineage: the next clean-up reads the files

    def _is_stored(self, delta: DeltaName, size_bytes: int) -> bool:
        directory, _, name = delta.path.partition("/")
        return any(
            entry.name == name and entry.size_bytes == size_bytes
            for entry in self.context.storage.list_files(directory)
        )

    # ---- merge -------------------------------------------------------------------------------------------

    def merge(self, version: VersionId, kind: str, reason: str) -> dict[str, Any]:
        if not self._merging.acquire(blocking=False):
            return {"skipped": "a merge of this store is running"}
        try:
            if kind == INGEST:
                return self._merge(version, kind, reason)
            if not self._merge_slots.acquire(timeout=self.options.min_pause_between_merges_ms / 1000 + 1):
                return {"skipped": f"{self.options.max_concurrent_merges} merges of other stores are running"}
            try:
                return self._merge(version, kind, reason)
            finally:
                self._merge_slots.release()
        finally:
            self._merging.release()

    def _merge(self, version: VersionId, kind: str, reason: str) -> dict[str, Any]:
        start = time.perf_counter()
        snapshot = self._known_chain().snapshot
        if kind == INCREMENTAL and snapshot is not None and snapshot.version_id == version:
            return _has_snapshot(version)
        try:
            return run_at_low_priority(lambda: self._merge_at_low_priority(version, kind, reason, start))
        except BaseException:
            if kind != INGEST:
                self._statistics.note_failed_merge(self._now_ms())
            raise

    def _merge_at_low_priority(
        self, version: VersionId, kind: str, reason: str, start: float
    ) -> dict[str, Any]:
        rewinds = self._rewinds
        if kind != INGEST:
            self._look_for_newer_snapshot()
        base, deltas = self._start_of_merge(version)
        end = time.monotonic() + self.options.merge_timeout_ms / 1000
        try:
            if kind == INCREMENTAL and base.snapshot is not None and base.snapshot.version_id == version:
                return _has_snapshot(version)
            merged = merge(self.context, base, deltas, version, kind, deadline=lambda: time.monotonic() > end)
        except DamagedError:
            self._bases.adopt(None)  # the damage may be that of this database: the next merge restores
            raise
        finally:
            self._bases.take_back(base.directory)
        phases = dict(merged.phases)
        if kind == INGEST:
            self._offer(merged.base, None, rewinds)
            return answers.merged(merged.base, kind, None, self._known_chain(), phases)
        try:
            if not self.store_id.has_checkpoint_ids:
                self._check_deltas(deltas)
            lease = Lease(self.context.storage, expiry_ms=self.options.lease_expiry_ms)
            published = publish(self.context, merged.base, lease, full=kind == FULL, now_ms=self._now_ms)
            for warning in lease.warnings:
                self._log("WARNING", warning)
            self._withdraw_if_rewound(published, rewinds)
        except BaseException:
            shutil.rmtree(merged.base.directory, ignore_errors=True)
            raise
        phases |= published.phases
        self._offer(published.base, published, rewinds)
        self._learn_merge(published, phases, len(deltas))
        manifest = published.manifest
        self._log(
            "INFO",
            f"merged version {version} ({reason}): {manifest.kind}, {published.shared_files} files shared, "
            f"{published.new_files} new, {published.uploaded_bytes} bytes uploaded, "
            f"{_elapsed_ms(start):.0f} ms",
        )
        return answers.merged(published.base, manifest.kind, published, self._known_chain(), phases)

    def _start_of_merge(self, version: VersionId) -> tuple[LocalDatabase, list[ChainDelta]]:
        """A base at or before `version` and the deltas between; the base is to be taken back afterwards."""
        with self._lock:
            base, chain = self._bases.borrow(), self._chain
        if base is not None:
            deltas = None if chain is None else chain.between(base.version, version)
            if deltas is not None:
                return base, list(deltas)
            self._bases.take_back(base.directory)
        restored = restore(self.context, version).base
        self._bases.hand_out(restored)
        return restored, []

    def _look_for_newer_snapshot(self) -> None:
        """Another process may have published one meanwhile (the command line a full one, say): go on from
        it."""
        with self._lock:
            chain = self._chain
        if chain is None:
            return
        mine = {delta.name.version_id for delta in chain.deltas} | (
            {chain.snapshot.version_id} if chain.snapshot else set()
        )
        entries = self.context.storage.list_files(SNAPSHOT_DIRECTORY)
        names = [
            name for entry in entries if (name := SnapshotName.parse(entry.name)) and name.version_id in mine
        ]
        manifest, warnings = read_newest_manifest(self.context.storage, names)
        for warning in warnings:
            self._log("WARNING", warning)
        if manifest is None or (chain.snapshot is not None and manifest.version < chain.snapshot.version):
            return
        with self._lock:
            if self._chain is None or self._chain.snapshot != chain.snapshot or manifest == chain.snapshot:
                return
            self._chain, self._registry = self._chain.publish(manifest), None
            self._statistics.note_snapshot(manifest)
            self._bases.adopt(None)

    def _check_deltas(self, deltas: list[ChainDelta]) -> None:
        """Without ids another executor may have replaced a delta since this one committed it."""
        for delta in deltas:
            data = self.context.storage.read(delta.name.path)
            if delta.crc32 is not None and zlib.crc32(data) != delta.crc32:
                raise ConflictError(
                    f"'{delta.name.path}' was replaced by another executor since it was committed here",
                    file=delta.name.path,
                )

    def _withdraw_if_rewound(self, published: Published, rewinds: int) -> None:
        """Without ids a snapshot of an attempt that was given up meanwhile must not stay."""
        if self.store_id.has_checkpoint_ids:
            return
        with self._lock:
            rewound = self._rewinds != rewinds
        if rewound:
            self.context.storage.delete(published.manifest.snapshot.path)
            raise ConflictError(f"version {published.manifest.version_id} was given up while it was merged")

    def _offer(self, base: LocalDatabase, published: Published | None, rewinds: int) -> None:
        """Notes a merge's base, unless the store has gone another way; the JVM holds it from now on."""
        self._bases.hand_out(base)
        with self._lock:
            chain = self._chain
            if not self.store_id.has_checkpoint_ids and rewinds != self._rewinds:
                return
            if chain is None and published is not None:
                chain = self._chain = Chain.from_listing(base.version, published.manifest, [])
            if (
                chain is not None
                and chain.version is not None
                and chain.between(base.version, chain.version) is not None
            ):
                if published is not None:
                    self._chain = chain.publish(published.manifest)
                self._bases.adopt(base)

    def _learn_restore(self, restored: Restored) -> None:
        with self._lock:
            cost, phases = self._statistics.cost, restored.phases
            cost.observe_choice(phases["choose_ms"])
            if not restored.fetched.local_files:
                cost.observe_fetch(restored.fetched.files, restored.fetched.size_bytes, phases["fetch_ms"])
            cost.observe_verification(restored.base.size_bytes, phases["verify_ms"])
            cost.observe_ingestion(len(restored.chain.deltas), phases["ingest_ms"])
            self._statistics.note_commit(restored.base.keys)
        self._note_chain_age(restored.chain)

    def _note_chain_age(self, chain: Chain) -> None:
        """Notes how old a chain is that was read from storage; its oldest file tells where nothing else
        does."""
        statistics, options = self._statistics, self.options
        with self._lock:
            statistics.note_snapshot(chain.snapshot, chain.full_snapshot)
            asked = bool(options.full_interval_ms or options.full_schedule) and statistics.full_ms is None
        if not asked:
            return
        times = [
            entry.modified_ms
            for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY)
            for entry in self.context.storage.list_files(directory)
            if f"{directory}/{entry.name}" in chain.paths()
        ]
        with self._lock:
            statistics.note_chain_start(min(times, default=self._now_ms()))

    def _learn_merge(self, published: Published, phases: dict[str, float], deltas: int) -> None:
        with self._lock:
            cost = self._statistics.cost
            cost.observe_fetch(published.new_files + 1, published.uploaded_bytes, phases["upload_ms"])
            cost.observe_ingestion(deltas, phases["ingest_ms"])
            self._statistics.note_merge(published.manifest, self._now_ms())
            if self._registry is not None:
                freed = self._registry.publish(published.manifest, published.archive_bytes)
                self._superseded |= {file.origin for file in freed}

    # ---- cleanup -----------------------------------------------------------------------------------------

    def cleanup(self, newest: VersionId) -> dict[str, Any]:
        with self._lock:
            registry, chain = self._registry, self._chain
            due = (
                registry is None
                or self._retention.is_due(registry, newest)
                or any(version <= newest.number - self._keep for version in self._superseded)
            )
        cleanup = self._retention.cleanup(newest) if due else Cleanup(newest.number - self._keep + 1)
        for warning in cleanup.warnings:
            self._log("WARNING", warning)
        if cleanup.skipped:
            self._log("WARNING", f"nothing was deleted: {cleanup.skipped}")
        if registry is None:
            registry = cleanup.registry or StoreContents.read(self.context.storage).registry(cleanup.floor)
        with self._lock:
            registry.retire_below(cleanup.floor)
            self._superseded = {version for version in self._superseded if version >= cleanup.floor}
            self._registry = registry
            retained = registry.checkpoints()
        if due:
            if chain is not None and chain.version == newest:
                self.context.cache.retain(chain.paths())
            self._prune()
        return answers.cleaned(cleanup, retained)

    # ---- the rest ----------------------------------------------------------------------------------------

    def deltas(self, version: VersionId, first: int) -> dict[str, Any]:
        listing = read_listing(self.context.storage)
        names = {name.version_id: name for name in listing.deltas}
        path: list[DeltaName] = []
        at: VersionId | None = version
        while at is not None and at.number >= first:
            if at not in names:
                Lineages(listing.deltas, []).plan(version)  # says what is missing
                break
            path.append(names[at])
            at = names[at].builds_on
        deltas = [ChainDelta.from_listing(name, listing.deltas[name]) for name in reversed(path)]
        directory = self.context.workspace.new_base(version.number)
        wanted = wanted_deltas(deltas, directory)
        fetch(self.context.storage, self.context.cache, wanted, self.context.transfer_threads)
        verify(self.context.storage, self.context.cache, wanted, self.context.transfer_threads)
        return {
            "directory": str(directory),
            "files": [
                {
                    "version": delta.name.version,
                    "id": delta.name.checkpoint_id,
                    "path": str(directory / delta.name.name),
                }
                for delta in deltas
            ],
        }

    def status(self) -> dict[str, Any]:
        now_ms = self._now_ms()
        with self._lock:
            snapshot_ms, full_ms = self._statistics.ages_ms(now_ms)
        return {
            "last_snapshot_ms": snapshot_ms,
            "last_full_ms": full_ms,
            "chain": self._known_chain().to_json(),
        }

    def close(self) -> dict[str, Any]:
        self.context.workspace.remove()
        if not self.options.local_recovery:
            self.context.cache.remove()
        self.context.storage.close()
        return {}

    def _known_chain(self) -> Chain:
        with self._lock:
            return self._chain or Chain()

    def _log(self, level: str, message: str) -> None:
        log(level, self.store_id.label, message)


def _has_snapshot(version: VersionId) -> dict[str, Any]:
    return {"skipped": f"version {version} has a snapshot already"}


def _elapsed_ms(start: float) -> float:
    return (time.perf_counter() - start) * 1000
