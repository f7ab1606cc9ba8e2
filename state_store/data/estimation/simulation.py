"""A simulated store without rows and files: the planning code decides, and only sizes are kept.

Chain, policy, registry, retention and cost model are those of the agent. The result of a compaction is
computed (`lsm_model`). Merges take no time here: each ends before the next commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from state_store.core.checkpoint.names import (
    DELTA_DIRECTORY,
    EMPTY_PARENT,
    DeltaName,
    SharedName,
)
from state_store.core.checkpoint.registry import Registry, StoredFile, reason_of
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, FileEntry, Manifest
from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.engine.database import DatabaseSettings
from state_store.core.planning.chain import Chain, ChainDelta
from state_store.core.planning.cost import CostModel
from state_store.core.planning.policy import Policy, StoreStatistics
from state_store.core.settings.options import Options
from state_store.data.estimation.lsm_model import Run, compact_all, compact_runs, file_sizes, ingested
from state_store.data.estimation.prices import Requests, clean_up, commit, full_merge, incremental_merge
from state_store.data.estimation.workload import Workload

_ARCHIVE_BYTES, _ARCHIVE_ENTRY_BYTES = 5_000, 110
"""Bytes of an archive, and of each file that it names."""


@dataclass(frozen=True)
class Sample:
    """A partition after a batch.

    It has the files in storage (before and after a clean-up, if there was one) and their number by reason,
    the size and the predicted time of a restore of the newest version, the bytes uploaded for the batch, the
    requests, and the kind of the merge (None: there was none).
    """

    stored_bytes: int
    stored_files: int
    kept_bytes: int
    kept_files: int
    reasons: Mapping[str, tuple[int, int]]
    chain_bytes: int
    chain_files: int
    restore_ms: float
    uploaded_bytes: int
    delta_bytes: int
    requests: Requests
    merged: str | None


class SimulatedStore:
    """A partition of a workload, whose first batch writes all keys."""

    def __init__(
        self,
        workload: Workload,
        options: Options,
        retention: RetentionPolicy,
        cost: CostModel,
        *,
        maintenance_ms: float,
        settings: DatabaseSettings | None = None,
    ) -> None:
        self._keys = workload.keys_per_partition
        self._interval_ms = workload.interval_ms
        self._touches = workload.touches_per_partition()
        self._removals = workload.removals_per_partition
        self._delta_table = workload.deltas()
        self._merged_table = workload.merged(compressed=options.snapshot_compression != "none")
        self._settings = settings or DatabaseSettings()
        self._retention = retention
        self._batches_between_cleanups = max(1, round(maintenance_ms / workload.interval_ms))
        self._policy = Policy(options, "estimate")
        self._pause_ms = options.min_pause_between_merges_ms
        self._statistics = StoreStatistics(cost)
        self._statistics.note_chain_start(0)
        self._merged_ms, self._merging_bytes = -float("inf"), 0
        self._chain = Chain()
        self._registry = Registry()
        self._runs: list[Run] = []
        self._stored: dict[str, int] = {}
        self._stored_bytes = 0
        self._unneeded: dict[str, StoredFile] = {}
        self._version = 0
        self._tables = 0
        self._requests = Requests()
        self._unread_archives = 0

    def batch(self) -> Sample:
        """Run one more batch."""
        before = self._chain
        uploaded = delta_bytes = self._commit()
        self._requests = commit(delta_bytes)
        merged = None
        if before.version is not None:
            merged, size_bytes = self._merge(before)
            uploaded += size_bytes
        stored = self._stored_bytes, len(self._stored)
        if self._version % self._batches_between_cleanups == 0:
            self._clean_up()
        chain = self._chain
        return Sample(
            *stored,
            self._stored_bytes,
            len(self._stored),
            self._reasons(),
            chain.size_bytes,
            chain.files,
            self._statistics.predict_restore_ms(chain),
            uploaded,
            delta_bytes,
            self._requests,
            merged,
        )

    @property
    def _now_ms(self) -> int:
        return round(self._version * self._interval_ms)

    def _commit(self) -> int:
        self._version += 1
        first = self._version == 1
        puts = self._keys if first else self._touches.distinct(1)
        size_bytes = self._delta_table.of(puts, 0 if first else self._removals)
        parent = EMPTY_PARENT if first else _id(self._version - 1)
        name = DeltaName(self._version, _id(self._version), parent, 0)
        self._chain = self._chain.commit(ChainDelta(name, size_bytes))
        self._registry.commit(name, size_bytes)
        self._statistics.note_commit(round(self._keys))
        self._store(name.path, size_bytes)
        return size_bytes

    # ---- merges ------------------------------------------------------------------------------------------

    def _merge(self, chain: Chain) -> tuple[str | None, int]:
        """Return the kind and uploaded bytes of the merge that is due for the version before the new one."""
        due = self._policy.due(chain, self._statistics, self._now_ms)
        if due is None or self._now_ms - self._merged_ms < self._pause_ms:
            return None, 0
        self._merged_ms, self._merging_bytes = self._now_ms, chain.size_bytes
        runs = ingested(self._runs, [self._delta_entry(delta) for delta in chain.deltas])
        if due.kind == FULL:
            self._runs = compact_all(runs, self._merged)
        else:
            self._runs = compact_runs(runs, self._settings, self._merged)
        manifest = self._manifest(chain)
        archive_bytes = _ARCHIVE_BYTES + _ARCHIVE_ENTRY_BYTES * len(manifest.files)
        new = [file for file in manifest.files if file.path not in self._stored]
        for file in new:
            self._store(file.path, file.size_bytes)
        self._store(manifest.snapshot.path, archive_bytes)
        sizes = [file.size_bytes for file in new]
        self._requests += full_merge(sizes) if manifest.kind == FULL else incremental_merge(sizes)
        self._unread_archives += 1
        self._chain = self._chain.publish(manifest)
        self._statistics.note_merge(manifest, self._now_ms)
        self._forget(self._registry.publish(manifest, archive_bytes))
        return manifest.kind, sum(file.size_bytes for file in new) + archive_bytes

    def _delta_entry(self, delta: ChainDelta) -> FileEntry:
        return FileEntry(self._table_name(), delta.name.path, delta.size_bytes, "", 0, delta.name.version)

    def _merged(self, runs: Sequence[Run], level: int, oldest: bool) -> Run:
        """Merge neighbours into one run. The oldest has all keys once, others the last writes of each key."""
        batches = sum(run.batches for run in runs)
        puts, removals = (self._keys, 0.0) if oldest else self._last_changes(batches)
        table, settings = self._merged_table, self._settings.for_store(self._merging_bytes)
        sizes = file_sizes(table.of(puts, removals), level, settings, table.file_bytes)
        return Run(batches, level, tuple(self._new_file(size_bytes, level) for size_bytes in sizes))

    def _last_changes(self, batches: int) -> tuple[float, float]:
        """Return the puts and removals that remain of this many consecutive batches, each key once."""
        removals = self._removals * batches
        written = self._touches.distinct(batches)
        lifetime = self._keys / self._removals if self._removals else float("inf")
        young = self._removals * max(0.0, batches - lifetime)
        old = max(0.0, written - self._removals * batches) * min(1.0, batches / lifetime) / 2
        return max(0.0, min(written - young - old, self._keys)), removals

    def _new_file(self, size_bytes: int, level: int) -> FileEntry:
        name = self._table_name()
        path = SharedName(self._version, 0, self._tables).path
        return FileEntry(name, path, size_bytes, "", level, self._version)

    def _table_name(self) -> str:
        self._tables += 1
        return f"{self._tables:06d}.sst"

    def _manifest(self, chain: Chain) -> Manifest:
        files = tuple(file for run in reversed(self._runs) for file in run.files)
        assert chain.version is not None
        shares, before = any(file.path in self._stored for file in files), chain.snapshot
        full = chain.version if not shares else before.full if before else None
        merges = 1 + (before.merges_since_full if before else 0)
        return Manifest(
            chain.version.number,
            chain.version.checkpoint_id,
            INCREMENTAL if shares else FULL,
            None if before is None else before.version_id,
            full,
            merges if shares else 0,
            chain.version.number - (full.number if full else 0),
            round(self._keys),
            files,
            created_ms=self._now_ms,
        )

    # ---- files -------------------------------------------------------------------------------------------

    def _store(self, path: str, size_bytes: int) -> None:
        self._stored[path] = size_bytes
        self._stored_bytes += size_bytes

    def _forget(self, files: Sequence[StoredFile]) -> None:
        self._unneeded |= {file.path: file for file in files}

    def _clean_up(self) -> None:
        """Delete the files that `Retention` deletes when it is due, as no retained version needs them."""
        too_old = 0
        if self._retention.age_ms:
            too_old = self._version - int(self._retention.age_ms / self._interval_ms) - 1
        floor = self._retention.floor(self._version, self._registry, too_old)
        superseded = any(file.origin < floor for file in self._unneeded.values())
        freed = self._registry.retire_below(floor)
        if not freed and not superseded:
            return
        self._forget(freed)
        going = [
            file
            for file in self._unneeded.values()
            if file.origin < floor or not file.path.startswith(DELTA_DIRECTORY)
        ]
        for file in going:
            del self._unneeded[file.path]
            self._stored_bytes -= self._stored.pop(file.path, 0)
        self._requests += clean_up(len(going), self._unread_archives)
        self._unread_archives = 0

    def _reasons(self) -> dict[str, tuple[int, int]]:
        needed = self._chain.paths()
        if self._chain.snapshot is not None:
            needed.add(self._chain.snapshot.snapshot.path)
        found: dict[str, tuple[int, int]] = {}
        for path, size_bytes in self._stored.items():
            reason = reason_of(path, by_newest=path in needed, by_older=path not in self._unneeded)
            so_far_bytes, files = found.get(reason, (0, 0))
            found[reason] = so_far_bytes + size_bytes, files + 1
        return found


def _id(version: int) -> str:
    return f"v{version}"
