"""`state_store.estimate`: what a store is going to take, from what its query writes and the options."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state_store.core.checkpoint.manifest import FULL
from state_store.core.checkpoint.reasons import REASONS
from state_store.core.deletion.policy import RetentionPolicy
from state_store.core.engine.settings import DatabaseSettings
from state_store.core.files.sparse import end_bytes
from state_store.core.planning.cost import CostModel, LazyPolicy
from state_store.core.settings.options import FILES
from state_store.core.settings.parsing import parse
from state_store.data.dataset.html import table
from state_store.data.estimation.memory import memory_for
from state_store.data.estimation.requests import Prices, Requests
from state_store.data.estimation.simulation import Sample, SimulatedStore
from state_store.data.estimation.workload import Workload
from state_store.errors import OptionError

RETAIN = 100
"""Spark's default of `minBatchesToRetain`."""

MAINTENANCE_MS = 60_000
"""Spark's default of `maintenanceInterval`."""

HIT_RATIO = 0.9
MOST_BATCHES = 12_000
_CYCLES = 8
"""From a full checkpoint to another, that are looked at."""

_MS_PER_HOUR = 3_600_000


@dataclass(frozen=True)
class Range:
    """The average over time, and the most."""

    average: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float], times: float = 1.0) -> Range:
        return cls(times * sum(values) / len(values), times * max(values))


@dataclass(frozen=True)
class Estimate:
    """What a workload takes once it is in its stride, all partitions together where nothing else is said.

    stored_bytes, stored_files: in checkpoint storage, the most before a clean-up. upload_bytes_per_s: to it.
    write_amplification: bytes uploaded for each byte of the deltas. merges_per_hour: those that are
    incremental; full_per_hour: full checkpoints. reasons: bytes and files by the reason for which
    they are there, on average. requests_per_minute: to storage, for commits, merges and clean-ups;
    name_node_operations_per_minute: what these are on HDFS; requests_dollars_per_month,
    storage_dollars_per_month: by the prices given. restore_bytes, restore_files, restore_ms: of one partition
    on a machine that has none of its files. memory_bytes: the memoryBudget with which `hit_ratio` of the
    look-ups find their row in memory, on each of `executors`. batches: this many were looked at, after others
    in which the store got there; is_steady: over whole cycles from one full checkpoint to another.
    """

    workload: Workload
    options: Mapping[str, str]
    retain: int
    stored_bytes: Range
    stored_files: Range
    reasons: Mapping[str, tuple[float, float]]
    upload_bytes_per_s: float
    write_amplification: float
    merges_per_hour: float
    full_per_hour: float
    requests_per_minute: Requests
    name_node_operations_per_minute: float
    requests_dollars_per_month: float
    storage_dollars_per_month: float
    restore_bytes: Range
    restore_files: Range
    restore_ms: Range
    hit_ratio: float
    executors: int
    memory_bytes: int
    batches: int
    is_steady: bool

    def rows(self) -> list[tuple[str, float, float | None]]:
        """Names with the average and the most (None: there is but one number), for tables."""
        return [
            ("bytes in storage", self.stored_bytes.average, self.stored_bytes.most),
            ("files in storage", self.stored_files.average, self.stored_files.most),
            *((f"bytes for {reason}", size_bytes, None) for reason, (size_bytes, _) in self.reasons.items()),
            ("bytes uploaded a second", self.upload_bytes_per_s, None),
            ("bytes uploaded per byte of change", self.write_amplification, None),
            ("incremental merges an hour", self.merges_per_hour, None),
            ("full checkpoints an hour", self.full_per_hour, None),
            ("requests to storage a minute", self.requests_per_minute.total, None),
            ("operations of a NameNode a minute", self.name_node_operations_per_minute, None),
            ("dollars a month for requests", self.requests_dollars_per_month, None),
            ("dollars a month for storage", self.storage_dollars_per_month, None),
            ("bytes a restore reads", self.restore_bytes.average, self.restore_bytes.most),
            ("files a restore reads", self.restore_files.average, self.restore_files.most),
            ("ms a restore takes", self.restore_ms.average, self.restore_ms.most),
            (f"memoryBudget for {self.hit_ratio:.0%} of look-ups", self.memory_bytes, None),
        ]

    def _repr_html_(self) -> str:
        """For notebooks."""
        shown = [
            (name, f"{average:,.6g}", "" if most is None else f"{most:,.6g}")
            for name, average, most in self.rows()
        ]
        return table(f"{self.workload}", ("", "on average", "at most"), shown)


def estimate(
    workload: Workload,
    options: Mapping[str, Any] | None = None,
    *,
    retain: int = RETAIN,
    hit_ratio: float = HIT_RATIO,
    executors: int = 1,
    maintenance_ms: float = MAINTENANCE_MS,
    cost: CostModel | None = None,
    settings: DatabaseSettings | None = None,
    batches: int = MOST_BATCHES,
    prices: Prices | None = None,
) -> Estimate:
    """Runs the agent's planning over the workload, on sizes alone, until it repeats itself.

        state_store.estimate(
            state_store.Workload(keys=50e6, key_bytes=24, value_bytes=120, updates_per_batch=200_000),
            {"restoreObjective": "5s"}, retain=20,
        )

    options: as a query has them, by name. retain: Spark's `minBatchesToRetain`, which `retainedCheckpoints`
    narrows. executors: among which partitions are spread. maintenance_ms: Spark's
    `stateStore.maintenanceInterval`, after which clean-ups run. cost: what restores are predicted by; as for
    storage of which nothing is known but that it is not of this machine, where it is not given. settings: of
    databases, for tests. batches: at most this many are looked at.
    prices: of storage; None: S3's list prices.

    Raises OptionError for options that do not exist and numbers that cannot be.
    """
    if not 0 < hit_ratio <= 1:
        raise OptionError(f"a ratio of hits is above 0 and at most 1, not {hit_ratio}")
    if retain < 1 or executors < 1 or batches < 10:
        raise OptionError("retain and executors are 1 or more, batches 10 or more")
    given = {name: str(value) for name, value in (options or {}).items()}
    parsed = parse(given)
    retention = RetentionPolicy(
        retain,
        parsed.retained_checkpoints,
        parsed.retained_age_ms,
        older_bytes=parsed.retained_older_bytes,
    )
    model = CostModel() if cost is None else copy.copy(cost)
    model.thorough = parsed.restore_verification == FILES
    model.lazy_policy = LazyPolicy.of(parsed, end_bytes)
    store = SimulatedStore(
        workload,
        parsed,
        retention,
        model,
        maintenance_ms=maintenance_ms,
        settings=settings,
    )
    samples = _sampled(store, retention.keep, batches)
    window, is_steady = _steady(samples, retention.keep)
    return _summed(
        workload,
        given,
        retain,
        window,
        is_steady=is_steady,
        hit_ratio=hit_ratio,
        executors=executors,
        prices=prices or Prices(),
    )


def _sampled(store: SimulatedStore, keep: int, most: int) -> list[Sample]:
    """The first batches: until enough cycles have gone by, or the most."""
    samples: list[Sample] = []
    left = _CYCLES + 1
    while left and len(samples) < most:
        samples.append(store.batch())
        left -= samples[-1].merged == FULL and len(samples) > keep
    return samples


def _steady(samples: Sequence[Sample], keep: int) -> tuple[Sequence[Sample], bool]:
    """The batches of whole cycles, after those in which the first versions were retained; the second half
    where there is no cycle.
    """
    fulls = [place for place, one in enumerate(samples) if one.merged == FULL and place >= keep]
    if len(fulls) < 2:
        return samples[len(samples) // 2 :], False
    return samples[fulls[0] : fulls[-1]], True


def _summed(
    workload: Workload,
    options: Mapping[str, str],
    retain: int,
    window: Sequence[Sample],
    *,
    is_steady: bool,
    hit_ratio: float,
    executors: int,
    prices: Prices,
) -> Estimate:
    partitions, uploaded = workload.partitions, sum(one.uploaded_bytes for one in window)
    hours = len(window) * workload.interval_ms / _MS_PER_HOUR
    merged = [one.merged for one in window if one.merged is not None]
    fulls = sum(kind == FULL for kind in merged)
    kept = Range.of([one.kept_bytes for one in window], partitions)
    files = Range.of([one.kept_files for one in window], partitions)
    per_minute = sum((one.requests for one in window), Requests()) * (partitions / 60 / hours)
    reasons = {
        reason: (
            partitions * sum(one.reasons.get(reason, (0, 0))[0] for one in window) / len(window),
            partitions * sum(one.reasons.get(reason, (0, 0))[1] for one in window) / len(window),
        )
        for reason in REASONS
    }
    return Estimate(
        workload,
        options,
        retain,
        Range(kept.average, partitions * max(one.stored_bytes for one in window)),
        Range(files.average, partitions * max(one.stored_files for one in window)),
        reasons,
        partitions * uploaded / (len(window) * workload.interval_ms / 1000),
        uploaded / max(1, sum(one.delta_bytes for one in window)),
        partitions * (len(merged) - fulls) / hours,
        partitions * fulls / hours,
        per_minute,
        per_minute.name_node_operations,
        prices.requests_a_month(per_minute),
        prices.storage_a_month(kept.average),
        Range.of([one.chain_bytes for one in window]),
        Range.of([one.chain_files for one in window]),
        Range.of([one.restore_ms for one in window]),
        hit_ratio,
        executors,
        memory_for(workload, hit_ratio, max(1.0, partitions / executors)),
        len(window),
        is_steady,
    )
