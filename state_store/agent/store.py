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
from state_store.agent.bases import Bases
from state_store.agent.identity import Identity
from state_store.agent.log import log
from state_store.agent.nice import run_nicely
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
from state_store.deletion.catalog import read_archive, read_listing
from state_store.deletion.inventory import Inventory
from state_store.deletion.lease import Lease
from state_store.deletion.retention import Cleanup, Retention
from state_store.errors import ConflictError, DamagedError, MissingError
from state_store.files.transfer import fetch, verify
from state_store.planning.chain import Chain, ChainDelta
from state_store.planning.policy import History, Policy
from state_store.settings.options import Options
from state_store.snapshots.context import Site
from state_store.snapshots.local_database import Base
from state_store.snapshots.merge import FULL, INCREMENTAL, INGEST, merge
from state_store.snapshots.publish import Published, publish
from state_store.snapshots.restore import Restored, restore, wanted_deltas


class OpenStore:
    """The operations of one store. `merge_slots` bounds the merges of the whole agent."""

    def __init__(
        self,
        identity: Identity,
        options: Options,
        site: Site,
        merge_slots: threading.Semaphore,
        now_ms: Callable[[], int],
        prune: Callable[[], object],
    ) -> None:
        self.identity = identity
        self.options = options
        self.site = site
        self._merge_slots = merge_slots
        self._now_ms = now_ms
        self._prune = prune
        policy = identity.retention(options)
        self._keep = policy.keep
        self._retention = Retention(
            site.storage,
            policy,
            clock_ms=now_ms,
            threads=options.transfer_threads,
        )
        self._rewinds = 0  # how often the store went back, or may have
        self._registry: Registry | None = None
        self._superseded: set[int] = set()  # versions whose deltas nobody needs since a merge
        self._policy = Policy(options, identity.location)
        self._history = History()
        self._lock = threading.RLock()
        self._merging = threading.Lock()
        self._chain: Chain | None = None
        self._bases = Bases(site.workspace)

    # ---- restore -----------------------------------------------------------------------------------------

    def restore(self, of: VersionId, start: VersionId | None) -> dict[str, Any]:
        restored = restore(self.site, of, start=start)
        predicted_ms = self._history.predict_restore_ms(restored.chain)
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
        if not self.identity.ids:
            self._rewind(delta.version)
        chain = self._chain_before(delta)
        found_ms = _elapsed_ms(start)
        start = time.perf_counter()
        self._store_delta(delta, path, size_bytes)
        stored_ms = _elapsed_ms(start)
        with self._lock:
            current = self._chain if self._chain is not None and self._chain.tip == chain.tip else chain
            self._chain = chain = current.commit(ChainDelta(delta, size_bytes, crc32))
            self._register(delta, size_bytes)
            self._history.committed(keys)
            due = self._policy.due(chain, self._history, self._now_ms())
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
            if chain is not None and chain.tip is not None and chain.tip.version >= version:
                self._chain, self._registry = None, None
            registry = self._registry
            if registry is not None and any(of.version >= version for of in registry.checkpoints()):
                self._registry = None  # a clean-up read what another attempt had left
            if base is not None and base.at.version >= version:
                self._bases.adopt(None)
            if self._chain is not chain:
                self._rewinds += 1
        for entry in self.site.storage.list(SNAPSHOT_DIRECTORY):
            name = SnapshotName.parse(entry.name)
            if name is not None and name.version >= version:
                self.site.storage.delete(name.path)

    def _chain_before(self, delta: DeltaName) -> Chain:
        """The chain that `delta` continues; read from storage when this process does not know it."""
        with self._lock:
            chain = self._chain or Chain()
        before = delta.builds_on
        if chain.tip == before or chain.tip == delta.of:
            return chain
        if before is None:
            self._found(Chain())
            return Chain()
        chain = self._read_chain(before)
        self._found(chain)
        with self._lock:
            self._chain = chain
        return chain

    def _read_chain(self, of: VersionId) -> Chain:
        listing = read_listing(self.site.storage)
        plan = Lineages(listing.deltas, listing.snapshots).plan(of)
        snapshot = None if plan.snapshot is None else read_archive(self.site.storage, plan.snapshot).manifest
        return Chain.found(
            of, snapshot, [ChainDelta.found(name, listing.deltas[name]) for name in plan.deltas]
        )

    def _store_delta(self, delta: DeltaName, path: Path, size_bytes: int) -> None:
        """One durable write by name; the same delta again is success."""
        storage, file = self.site.storage, f"{self.site.storage.location}/{delta.path}"
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
            storage.upload(path, delta.path, overwrite=not self.identity.ids)
        except ConflictError:
            if not self._is_stored(delta, size_bytes):
                raise
        self.site.cache.adopt(delta.path, path)

    def _register(self, delta: DeltaName, size_bytes: int) -> None:
        if self._registry is not None:
            try:
                self._registry.commit(delta, size_bytes)
            except MissingError:
                self._registry = None  # another lineage: the next clean-up reads the files

    def _is_stored(self, delta: DeltaName, size_bytes: int) -> bool:
        directory, _, name = delta.path.partition("/")
        return any(
            entry.name == name and entry.bytes == size_bytes for entry in self.site.storage.list(directory)
        )

    # ---- merge -------------------------------------------------------------------------------------------

    def merge(self, of: VersionId, kind: str, reason: str) -> dict[str, Any]:
        if not self._merging.acquire(blocking=False):
            return {"skipped": "a merge of this store is running"}
        try:
            if kind == INGEST:
                return self._merge(of, kind, reason)
            if not self._merge_slots.acquire(timeout=self.options.min_pause_between_merges / 1000 + 1):
                return {"skipped": f"{self.options.max_concurrent_merges} merges of other stores are running"}
            try:
                return self._merge(of, kind, reason)
            finally:
                self._merge_slots.release()
        finally:
            self._merging.release()

    def _merge(self, of: VersionId, kind: str, reason: str) -> dict[str, Any]:
        start = time.perf_counter()
        snapshot = self._known_chain().snapshot
        if kind == INCREMENTAL and snapshot is not None and snapshot.of == of:
            return _has_snapshot(of)
        try:
            return run_nicely(lambda: self._merge_nicely(of, kind, reason, start))
        except BaseException:
            if kind != INGEST:
                self._history.merge_failed(self._now_ms())
            raise

    def _merge_nicely(self, of: VersionId, kind: str, reason: str, start: float) -> dict[str, Any]:
        rewinds = self._rewinds
        if kind != INGEST:
            self._look_for_newer_snapshot()
        base, deltas = self._start_of_merge(of)
        end = time.monotonic() + self.options.merge_timeout / 1000
        try:
            if kind == INCREMENTAL and base.snapshot is not None and base.snapshot.of == of:
                return _has_snapshot(of)
            merged = merge(self.site, base, deltas, of, kind, deadline=lambda: time.monotonic() > end)
        finally:
            self._bases.take_back(base.directory)
        phases = dict(merged.phases)
        if kind == INGEST:
            self._offer(merged.base, None, rewinds)
            return answers.merged(merged.base, kind, None, self._known_chain(), phases)
        try:
            if not self.identity.ids:
                self._check_deltas(deltas)
            lease = Lease(self.site.storage, expiry_ms=self.options.lease_expiry)
            published = publish(self.site, merged.base, lease, full=kind == FULL, now_ms=self._now_ms)
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
            f"merged version {of} ({reason}): {manifest.kind}, {published.shared_files} files shared, "
            f"{published.new_files} new, {published.uploaded_bytes} bytes uploaded, "
            f"{_elapsed_ms(start):.0f} ms",
        )
        return answers.merged(published.base, manifest.kind, published, self._known_chain(), phases)

    def _start_of_merge(self, of: VersionId) -> tuple[Base, list[ChainDelta]]:
        """A base at or before `of` and the deltas between; the base is to be taken back afterwards."""
        with self._lock:
            base, chain = self._bases.borrow(), self._chain
        if base is not None:
            deltas = None if chain is None else chain.between(base.at, of)
            if deltas is not None:
                return base, list(deltas)
            self._bases.take_back(base.directory)
        restored = restore(self.site, of).base
        self._bases.hand_out(restored)
        return restored, []

    def _look_for_newer_snapshot(self) -> None:
        """Another process may have published one meanwhile (the command line a full one, say): go on from
        it."""
        with self._lock:
            chain = self._chain
        if chain is None:
            return
        mine = {delta.name.of for delta in chain.deltas} | ({chain.snapshot.of} if chain.snapshot else set())
        entries = self.site.storage.list(SNAPSHOT_DIRECTORY)
        names = [name for entry in entries if (name := SnapshotName.parse(entry.name)) and name.of in mine]
        if not names:
            return
        manifest = read_archive(self.site.storage, max(names, key=lambda name: name.version)).manifest
        with self._lock:
            if self._chain is None or self._chain.snapshot != chain.snapshot or manifest == chain.snapshot:
                return
            self._chain, self._registry = self._chain.publish(manifest), None
            self._history.found(manifest)
            self._bases.adopt(None)

    def _check_deltas(self, deltas: list[ChainDelta]) -> None:
        """Without ids another executor may have replaced a delta since this one committed it."""
        for delta in deltas:
            data = self.site.storage.read(delta.name.path)
            if delta.crc32 is not None and zlib.crc32(data) != delta.crc32:
                raise ConflictError(
                    f"'{delta.name.path}' was replaced by another executor since it was committed here",
                    file=delta.name.path,
                )

    def _withdraw_if_rewound(self, published: Published, rewinds: int) -> None:
        """Without ids a snapshot of an attempt that was given up meanwhile must not stay."""
        if self.identity.ids:
            return
        with self._lock:
            rewound = self._rewinds != rewinds
        if rewound:
            self.site.storage.delete(published.manifest.snapshot.path)
            raise ConflictError(f"version {published.manifest.of} was given up while it was merged")

    def _offer(self, base: Base, published: Published | None, rewinds: int) -> None:
        """Notes a merge's base, unless the store has gone another way; the JVM holds it from now on."""
        self._bases.hand_out(base)
        with self._lock:
            chain = self._chain
            if not self.identity.ids and rewinds != self._rewinds:
                return
            if chain is None and published is not None:
                chain = self._chain = Chain.found(base.at, published.manifest, [])
            if chain is not None and chain.tip is not None and chain.between(base.at, chain.tip) is not None:
                if published is not None:
                    self._chain = chain.publish(published.manifest)
                self._bases.adopt(base)

    def _learn_restore(self, restored: Restored) -> None:
        with self._lock:
            cost, phases = self._history.cost, restored.phases
            cost.observe_choice(phases["choose_ms"])
            if not restored.fetched.local_files:
                cost.observe_fetch(restored.fetched.files, restored.fetched.bytes, phases["fetch_ms"])
            cost.observe_verification(restored.base.bytes, phases["verify_ms"])
            cost.observe_ingestion(len(restored.chain.deltas), phases["ingest_ms"])
            self._history.committed(restored.base.keys)
        self._found(restored.chain)

    def _found(self, chain: Chain) -> None:
        """Notes how old a chain is that was read from storage; its oldest file tells where nothing else
        does."""
        history, options = self._history, self.options
        with self._lock:
            history.found(chain.snapshot)
            asked = bool(options.full_interval or options.full_schedule) and history.full_ms is None
        if not asked:
            return
        times = [
            entry.modified_ms
            for directory in (DELTA_DIRECTORY, SHARED_DIRECTORY)
            for entry in self.site.storage.list(directory)
            if f"{directory}/{entry.name}" in chain.paths()
        ]
        with self._lock:
            history.begun(min(times, default=self._now_ms()))

    def _learn_merge(self, published: Published, phases: dict[str, float], deltas: int) -> None:
        with self._lock:
            cost = self._history.cost
            cost.observe_fetch(published.new_files + 1, published.uploaded_bytes, phases["upload_ms"])
            cost.observe_ingestion(deltas, phases["ingest_ms"])
            self._history.merged(published.manifest, self._now_ms())
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
                or any(version <= newest.version - self._keep for version in self._superseded)
            )
        cleanup = self._retention.cleanup(newest) if due else Cleanup(newest.version - self._keep + 1)
        if cleanup.skipped:
            self._log("WARNING", f"nothing was deleted: {cleanup.skipped}")
        if registry is None:
            registry = Inventory.read(self.site.storage, {}).registry(cleanup.floor)
        with self._lock:
            registry.retire_below(cleanup.floor)
            self._superseded = {version for version in self._superseded if version >= cleanup.floor}
            self._registry = registry
            retained = registry.checkpoints()
        if due:
            if chain is not None and chain.tip == newest:
                self.site.cache.retain(chain.paths())
            self._prune()
        return answers.cleaned(cleanup, retained)

    # ---- the rest ----------------------------------------------------------------------------------------

    def deltas(self, of: VersionId, first: int) -> dict[str, Any]:
        listing = read_listing(self.site.storage)
        names = {name.of: name for name in listing.deltas}
        path: list[DeltaName] = []
        at: VersionId | None = of
        while at is not None and at.version >= first:
            if at not in names:
                Lineages(listing.deltas, []).plan(of)  # says what is missing
                break
            path.append(names[at])
            at = names[at].builds_on
        deltas = [ChainDelta.found(name, listing.deltas[name]) for name in reversed(path)]
        directory = self.site.workspace.new_base(of.version)
        wanted = wanted_deltas(deltas, directory)
        fetch(self.site.storage, self.site.cache, wanted, self.site.transfer_threads)
        verify(self.site.storage, self.site.cache, wanted, self.site.transfer_threads)
        return {
            "directory": str(directory),
            "files": [
                {"version": delta.name.version, "id": delta.name.id, "path": str(directory / delta.name.name)}
                for delta in deltas
            ],
        }

    def status(self) -> dict[str, Any]:
        now_ms = self._now_ms()
        with self._lock:
            snapshot_ms, full_ms = self._history.ages_ms(now_ms)
        return {
            "last_snapshot_ms": snapshot_ms,
            "last_full_ms": full_ms,
            "chain": self._known_chain().to_json(),
        }

    def close(self) -> dict[str, Any]:
        self.site.workspace.remove()
        if not self.options.local_recovery:
            self.site.cache.remove()
        self.site.storage.close()
        return {}

    def _known_chain(self) -> Chain:
        with self._lock:
            return self._chain or Chain()

    def _log(self, level: str, message: str) -> None:
        log(level, self.identity.label, message)


def _has_snapshot(of: VersionId) -> dict[str, Any]:
    return {"skipped": f"version {of} has a snapshot already"}


def _elapsed_ms(start: float) -> float:
    return (time.perf_counter() - start) * 1000
