"""Policy that decides when to merge and when to cut the chain with a full checkpoint.

A merge trades bytes uploaded against the time of a restore and space. The cost of each delta in a restore
is measured (cost.py). The cheapest schedule that keeps `restoreObjective` lets deltas accumulate until they
are a good part of the oldest sorted run. Only then a rewrite pays: each changed byte is uploaded once in a
delta and little more than once by merges.

Decisions depend on values alone; nothing is read or written here. The caller locks.
"""

from __future__ import annotations

from dataclasses import dataclass

from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, Manifest
from state_store.core.engine.database import DatabaseSettings
from state_store.core.planning.chain import Chain
from state_store.core.planning.restore_work import RestoreWork
from state_store.core.planning.schedule import Schedule, jitter
from state_store.core.planning.statistics import StoreStatistics, oldest_run_bytes
from state_store.core.settings.options import Options

GROWTH_LEAST_BYTES = 4 << 20
GROWTH_LEAST_DELTAS = 8
AMPLIFICATION_LEAST_DELTAS = 8
"""Below these numbers a rewrite saves nothing noticeable."""
OBJECTIVE_LEAST_DELTAS = 4

LONGER_BEFORE_REWRITE = 2
"""Times `maxDeltas` that a large chain may have where a rewrite of everything is near."""

LARGE_BYTES = 1 << 30

FULL_LEAST_SAVING = 0.5
"""Bytes that a full checkpoint for `restoreObjective` has to save for each byte that it uploads."""


@dataclass(frozen=True)
class Due:
    """A merge that is due: its kind, `incremental` or `full`, and the reason, for people."""

    kind: str
    reason: str


class Policy:
    """Decisions for one store.

    Args:
        options: the options of the store's query.
        names: tell the store from others; the jitter depends on them.
    """

    def __init__(self, options: Options, *names: object) -> None:
        self._options = options
        self._jitter_ms = jitter(options.full_schedule_jitter_ms, *names)
        self._max_deltas = _spread(options.full_after_deltas, options, *names)
        self._max_merges = _spread(options.full_after_merges, options, *names)
        self._schedule = (
            Schedule(options.full_schedule, options.full_schedule_time_zone)
            if options.full_schedule
            else None
        )

    def due(self, chain: Chain, statistics: StoreStatistics, now_ms: int) -> Due | None:
        """Return the merge to make after a commit, or None; a full one if both kinds are due."""
        if not chain.deltas:
            return None
        full = self._full(chain, statistics, now_ms)
        if full is not None:
            return Due(FULL, full)
        incremental = self._incremental(chain)
        if incremental is not None:
            return Due(INCREMENTAL, incremental)
        return self._by_objective(chain, statistics)

    def _full(self, chain: Chain, statistics: StoreStatistics, now_ms: int) -> str | None:
        reasons = (
            self._full_by_length(chain),
            self._full_by_files(chain, statistics),
            self._full_by_space(chain, statistics),
            self._full_by_interval(statistics, now_ms),
            self._full_by_schedule(statistics, now_ms),
        )
        return next((reason for reason in reasons if reason is not None), None)

    def _full_by_length(self, chain: Chain) -> str | None:
        if self._max_deltas and chain.deltas_since_full >= self._max_deltas:
            return f"{chain.deltas_since_full} deltas since the last full checkpoint (fullAfterDeltas)"
        if self._max_merges and chain.merges_since_full >= self._max_merges:
            return f"{chain.merges_since_full} merges since the last full checkpoint (fullAfterMerges)"
        return None

    def _full_by_files(self, chain: Chain, statistics: StoreStatistics) -> str | None:
        limit = self._options.full_after_files
        if not limit or chain.files <= limit:
            return None
        snapshot = chain.snapshot
        live, total = statistics.live_bytes(), chain.size_bytes
        # A full checkpoint of this size may itself need that many files; it must at least halve them.
        if snapshot is not None and live is not None and total:
            expected = files_when_full(snapshot, live)
            if expected * 2 > chain.files:
                return None
        return f"{chain.files} files (fullAfterFiles)"

    def _full_by_space(self, chain: Chain, statistics: StoreStatistics) -> str | None:
        limit, live = self._options.full_space_amplification, statistics.live_bytes()
        if not limit or not live or chain.deltas_since_full < AMPLIFICATION_LEAST_DELTAS:
            return None
        factor = chain.size_bytes / live
        if factor <= limit:
            return None
        return f"the files take {factor:.1f} times the live state (fullSpaceAmplification)"

    def _full_by_interval(self, statistics: StoreStatistics, now_ms: int) -> str | None:
        interval_ms = self._options.full_interval_ms
        if not interval_ms or statistics.since_ms is None:
            return None
        age_ms = now_ms - statistics.since_ms
        if age_ms < interval_ms + self._jitter_ms:
            return None
        return f"the last full checkpoint is {age_ms // 1000} s old (fullInterval)"

    def _full_by_schedule(self, statistics: StoreStatistics, now_ms: int) -> str | None:
        if self._schedule is None or statistics.since_ms is None:
            return None
        at_ms = self._schedule.last_ms(now_ms - self._jitter_ms)
        if at_ms is None or at_ms + self._jitter_ms <= statistics.since_ms:
            return None
        options = self._options
        return f"scheduled at '{options.full_schedule}' {options.full_schedule_time_zone} (fullSchedule)"

    def _incremental(self, chain: Chain) -> str | None:
        deltas = len(chain.deltas)
        if deltas >= self._longest(chain):
            return f"{deltas} deltas (maxDeltas)"
        if self._has_outgrown(chain):
            return f"{deltas} deltas of {chain.delta_bytes >> 20} MiB in all (maxDeltaShare)"
        return None

    def _by_objective(self, chain: Chain, statistics: StoreStatistics) -> Due | None:
        """Return the cheapest merge that brings a restore within `restoreObjective`, or None.

        An incremental merge saves the ingestion of deltas; a full checkpoint also saves duplicate bytes.
        Neither is made if it would not be enough. A full checkpoint uploads the whole state, so it must also
        save a good share of the bytes that it uploads. This bounds the cost of the objective. The price: the
        objective is missed by up to that share if the live state alone takes almost as long.
        """
        objective_ms = self._options.restore_objective_ms
        if not objective_ms or len(chain.deltas) < OBJECTIVE_LEAST_DELTAS:
            return None
        predicted_ms = statistics.predict_restore_ms(chain)
        if predicted_ms <= objective_ms:
            return None
        reason = f"a restore would take {predicted_ms:.0f} ms (restoreObjective)"
        live = min(statistics.live_bytes() or chain.size_bytes, chain.size_bytes)
        for kind, size_bytes in ((INCREMENTAL, chain.size_bytes), (FULL, live)):
            after_ms = statistics.cost.predict_restore_ms(
                RestoreWork(chain.snapshot_files + 1, size_bytes, 0)
            )
            if after_ms <= objective_ms and (
                kind != FULL or chain.size_bytes - live >= live * FULL_LEAST_SAVING
            ):
                return Due(kind, reason)
        return None

    def _longest(self, chain: Chain) -> int:
        """Return the number of deltas from which a merge is due.

        Where the rewrite for `maxDeltaShare` is half-way, a merge of what it rewrites soon would be wasted.
        In a small store it costs little, and shortens restores.
        """
        longest = self._options.max_deltas
        is_near = chain.size_bytes >= LARGE_BYTES and self._has_grown_to(0.5, chain)
        return LONGER_BEFORE_REWRITE * longest if is_near else longest

    def _has_outgrown(self, chain: Chain) -> bool:
        return self._has_grown_to(1.0, chain)

    def _has_grown_to(self, part: float, chain: Chain) -> bool:
        """Return True if the young runs have grown to this part of `maxDeltaShare`."""
        share = self._options.max_delta_share
        enough = len(chain.deltas) >= GROWTH_LEAST_DELTAS and chain.delta_bytes >= GROWTH_LEAST_BYTES
        return bool(share) and enough and young_share(chain) >= share * part


def _spread(limit: int, options: Options, *names: object) -> int:
    """Return `limit` less a part of its own for each store, at most a tenth.

    So partitions that begin together do not cut their chains in the same batch. `fullScheduleJitter` 0
    switches this off.
    """
    return limit - jitter(limit // 10, limit, *names) if options.full_schedule_jitter_ms else limit


def young_share(chain: Chain) -> float:
    """Return the bytes of all but the oldest sorted run, per byte of the oldest.

    Without a snapshot the largest delta counts as the oldest run.
    """
    snapshot = chain.snapshot
    if snapshot is None or not snapshot.files:
        largest = max(delta.size_bytes for delta in chain.deltas)
        return (chain.size_bytes - largest) / max(1, largest)
    oldest = oldest_run_bytes(snapshot)
    return (chain.size_bytes - oldest) / max(1, oldest)


def files_when_full(snapshot: Manifest, live_bytes: int) -> int:
    """Return the number of files of a full snapshot, estimated from the largest file of this one.

    In a large state they are at least as large as merges make them now.
    """
    largest = max((entry.size_bytes for entry in snapshot.files), default=1)
    largest = max(largest, DatabaseSettings(file_bytes=1).for_store(live_bytes).file_bytes)
    return max(1, -(-live_bytes // largest))
