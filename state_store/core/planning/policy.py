"""Policy that decides when to merge and when to cut the chain with a full checkpoint.

It goes by the chain, by what a process knows of the store beyond it (`StoreStatistics`: ages of its
snapshots, its size, the cost of its work), and by times of day (`Schedule`: cron fields in a time zone). The
jitter of a store is a fixed share of the longest delay, a hash of its names. So partitions do not rewrite
their state all at once, and each keeps its own time.

A merge trades bytes uploaded against the time of a restore and space. The cost of each delta in a restore
is measured (cost.py). The cheapest schedule that keeps `restoreObjective` lets deltas accumulate until they
are a good part of the oldest sorted run. Only then a rewrite pays: each changed byte is uploaded once in a
delta and little more than once by merges.

Decisions depend on values alone; nothing is read or written here. The caller locks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from state_store.core.checkpoint.lineage import Chain
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, Manifest
from state_store.core.engine.database import DatabaseSettings
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.settings.option import Cron
from state_store.core.settings.options import Options

MIN_GROWTH_BYTES = 4 << 20
MIN_GROWTH_DELTAS = 8
MIN_AMPLIFICATION_DELTAS = 8
"""Below these numbers a rewrite saves nothing noticeable."""
MIN_OBJECTIVE_DELTAS = 4

LONGER_BEFORE_REWRITE = 2
"""Times `maxDeltas` that a large chain may have where a rewrite of everything is near."""

LARGE_BYTES = 1 << 30

MIN_FULL_SAVING = 0.5
"""Bytes that a full checkpoint for `restoreObjective` has to save for each byte that it uploads."""

_MINUTE_MS = 60_000
_MAX_MS = 366 * 5 * 24 * 60 * _MINUTE_MS


class StoreStatistics:
    """Knowledge of one process of one store: times (wall clock, ms), sizes, measured costs.

    Not safe for threads: the caller locks.
    """

    def __init__(self, cost: CostModel | None = None) -> None:
        self.cost = cost or CostModel()
        self.keys = 0
        self.snapshot_ms: int | None = None
        self.full_ms: int | None = None
        self._begun_ms: int | None = None
        self._live: tuple[int, int] | None = None

    @property
    def since_ms(self) -> int | None:
        """Time since which the chain grows: that of its last full checkpoint or first file; None: unknown."""
        return self._begun_ms if self.full_ms is None else self.full_ms

    def note_time(self, now_ms: int) -> None:
        """Note the time: what was noted as later by a clock that was ahead, and went back, counts as now."""
        if self.snapshot_ms is not None:
            self.snapshot_ms = min(self.snapshot_ms, now_ms)
        if self.full_ms is not None:
            self.full_ms = min(self.full_ms, now_ms)
        if self._begun_ms is not None:
            self._begun_ms = min(self._begun_ms, now_ms)

    def note_chain_start(self, at_ms: int) -> None:
        """Note when the oldest file of the chain was written."""
        self._begun_ms = at_ms

    def note_commit(self, keys: int) -> None:
        """Note the number of keys of the newest version."""
        self.keys = keys

    def note_snapshot(self, now_ms: int, snapshot: Manifest | None, full: Manifest | None = None) -> None:
        """Note the newest snapshot of the chain, as read from storage.

        One that a machine made whose clock was ahead counts as made now: else no full checkpoint would be due
        by time until that time has come.

        Args:
            now_ms: the time.
            snapshot: the newest snapshot.
            full: the full one that it names; None if that is gone. The size of the live state is then that
                of the oldest sorted run, unless a better one is known.
        """
        if snapshot is None:
            return
        self.snapshot_ms = min(snapshot.created_ms, now_ms)
        if snapshot.kind == FULL:
            full = snapshot
        if full is not None:
            self.full_ms = min(full.created_ms, now_ms)
            self._live = (full.total_bytes, full.keys)
        elif self._live is None:
            self._live = (oldest_run_bytes(snapshot), snapshot.keys)

    def note_merge(self, manifest: Manifest, now_ms: int) -> None:
        """Note that a snapshot was published."""
        self.snapshot_ms = now_ms
        if manifest.kind == FULL:
            self.full_ms = now_ms
            self._live = (manifest.total_bytes, manifest.keys)

    def ages_ms(self, now_ms: int) -> tuple[int | None, int | None]:
        """Return the ages of the newest snapshot and of the newest full one; None: unknown."""
        times = (self.snapshot_ms, self.full_ms)
        snapshot, full = (None if at_ms is None else max(0, now_ms - at_ms) for at_ms in times)
        return snapshot, full

    def live_bytes(self) -> int | None:
        """Return the size of the store without duplicates: that of the last full snapshot, scaled by keys.

        None if no snapshot is known; at least 1, so that it can be a divisor.
        """
        if self._live is None:
            return None
        size_bytes, keys = self._live
        return max(1, size_bytes * self.keys // keys if keys else size_bytes)

    def predict_restore_ms(self, chain: Chain) -> float:
        """Return the predicted time to restore the chain without local files."""
        return self.cost.predict_restore_ms(RestoreWork.of_chain(chain))


def oldest_run_bytes(snapshot: Manifest) -> int:
    """Return the bytes of the oldest sorted run of a snapshot, in which no key is twice.

    That is its deepest level, or the largest file if all are in level 0.
    """
    deepest = max((entry.level for entry in snapshot.files), default=0)
    if deepest == 0:
        return max((entry.size_bytes for entry in snapshot.files), default=0)
    return sum(entry.size_bytes for entry in snapshot.files if entry.level == deepest)


class Schedule:
    """The times that cron fields name in a time zone, in milliseconds since 1970 UTC.

    An hour that daylight saving skips does not occur; one that it repeats occurs twice. An answer is kept
    until the next time, so that asking costs nothing. Not safe for threads: the caller locks.
    """

    def __init__(self, cron: str, zone: str) -> None:
        """Parse the fields.

        Args:
            cron: five fields.
            zone: IANA name of a time zone.

        Raises:
            ValueError: if `cron` is not five fields.
        """
        self._cron = Cron.parse(cron)
        self._zone = ZoneInfo(zone)
        self._last_ms: int | None = None
        self._known_from_ms = self._known_until_ms = 0

    def last_ms(self, now_ms: int) -> int | None:
        """Return the latest time at or before `now_ms`, or None if there is none within five years."""
        if not self._known_from_ms <= now_ms < self._known_until_ms:
            self._last_ms = self._find_last(now_ms)
            self._known_from_ms = now_ms if self._last_ms is None else self._last_ms
            self._known_until_ms = self._find_next(now_ms)
        return self._last_ms

    def _find_last(self, now_ms: int) -> int | None:
        at_ms = now_ms - now_ms % _MINUTE_MS
        while at_ms > now_ms - _MAX_MS:
            local = self._local(at_ms)
            if not self._has_date(local):
                at_ms = self._midnight_ms(local.date()) - _MINUTE_MS
            elif local.hour not in self._cron.hours:
                at_ms -= (local.minute % 15 + 1) * _MINUTE_MS
            elif local.minute not in self._cron.minutes:
                at_ms -= _MINUTE_MS
            else:
                return at_ms
        return None

    def _find_next(self, now_ms: int) -> int:
        """Return the first time after `now_ms`, or a time five years later."""
        at_ms = now_ms - now_ms % _MINUTE_MS + _MINUTE_MS
        while at_ms < now_ms + _MAX_MS:
            local = self._local(at_ms)
            if not self._has_date(local):
                at_ms = self._midnight_ms(local.date() + timedelta(days=1))
            elif local.hour not in self._cron.hours:
                at_ms += (15 - local.minute % 15) * _MINUTE_MS
            elif local.minute not in self._cron.minutes:
                at_ms += _MINUTE_MS
            else:
                return at_ms
        return at_ms

    def _local(self, at_ms: int) -> datetime:
        return datetime.fromtimestamp(at_ms / 1000, self._zone)

    def _midnight_ms(self, day: date) -> int:
        return int(datetime(day.year, day.month, day.day, tzinfo=self._zone).timestamp() * 1000)

    def _has_date(self, local: datetime) -> bool:
        return self._cron.has_date(local.month, local.day, local.isoweekday() % 7)


def jitter(longest: int, *names: object) -> int:
    """Return a number from 0 to `longest` (excluded, unless 0) that depends on the names alone."""
    digest = hashlib.sha256("/".join(map(str, names)).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") * longest >> 64


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
        if not limit or not live or chain.deltas_since_full < MIN_AMPLIFICATION_DELTAS:
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

        An incremental merge saves the files of deltas; a full checkpoint also saves duplicate bytes.
        Neither is made if it would not be enough. A full checkpoint uploads the whole state, so it must also
        save a good share of the bytes that it uploads. This bounds the cost of the objective. The price: the
        objective is missed by up to that share if the live state alone takes almost as long.
        """
        objective_ms = self._options.restore_objective_ms
        if not objective_ms or len(chain.deltas) < MIN_OBJECTIVE_DELTAS:
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
                kind != FULL or chain.size_bytes - live >= live * MIN_FULL_SAVING
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
        enough = len(chain.deltas) >= MIN_GROWTH_DELTAS and chain.delta_bytes >= MIN_GROWTH_BYTES
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
