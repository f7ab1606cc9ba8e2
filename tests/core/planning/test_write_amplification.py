"""Cost of the policy: bytes uploaded for each byte of change, on a model of a store.

The model has the bytes of each sorted run alone, and merges them as RocksDB's universal compaction does.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from state_store.core.checkpoint.lineage import Chain, ChainDelta
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import FULL, FileEntry, Manifest
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.planning.policy import MIN_FULL_SAVING, Policy, StoreStatistics
from state_store.core.settings.options import parse

MIB = 1 << 20
FILE_BYTES = 8 * MIB
KEYS = 1_000_000


@dataclass
class SteadyCost(CostModel):
    """A storage that always takes the same time."""

    ms_per_mib: float

    def predict_restore_ms(self, work: RestoreWork) -> float:
        return 10 + work.size_bytes / MIB * self.ms_per_mib + work.deltas * 1.5 + work.files * 0.5


@dataclass
class Simulated:
    """A store of `live_bytes`, of which each batch overwrites `delta_bytes`."""

    live_bytes: int
    delta_bytes: int
    options: dict[str, str]
    ms_per_mib: float
    uploaded_bytes: int = 0

    def run(self, batches: int) -> float:
        """Bytes uploaded per byte of change."""
        policy, statistics = Policy(parse(self.options), "simulated"), StoreStatistics()
        statistics.cost = SteadyCost(self.ms_per_mib)
        runs = [self.live_bytes]  # of the snapshot, newest first
        chain = Chain().publish(self._manifest(1, FULL, runs, None))
        statistics.note_snapshot(0, chain.snapshot)
        for version in range(2, batches + 2):
            chain = chain.commit(ChainDelta(DeltaName(version, f"v{version}", "p", 0), self.delta_bytes))
            statistics.note_commit(KEYS)
            self.uploaded_bytes += self.delta_bytes
            due = policy.due(chain, statistics, version * 10_000)
            if due is None:
                continue
            if due.kind == FULL:
                runs = [self.live_bytes]
                self.uploaded_bytes += self.live_bytes
            else:
                runs = self._compact([self.delta_bytes] * len(chain.deltas) + runs)
            manifest = self._manifest(version, due.kind, runs, chain)
            chain = chain.publish(manifest)
            statistics.note_merge(manifest, version * 10_000)
        return self.uploaded_bytes / (batches * self.delta_bytes)

    def _compact(self, runs: list[int]) -> list[int]:
        while True:
            if sum(runs[:-1]) >= 0.8 * runs[-1]:
                self.uploaded_bytes += self.live_bytes
                return [self.live_bytes]
            picked = next(filter(None, (self._pick(runs, start) for start in range(len(runs) - 1))), None)
            if picked is None:
                return runs
            start, end = picked
            merged = min(sum(runs[start:end]), self.live_bytes)
            self.uploaded_bytes += merged
            runs = [*runs[:start], merged, *runs[end:]]

    def _pick(self, runs: list[int], start: int) -> tuple[int, int] | None:
        """Neighbours from `start` of which each is at most a fifth larger than those before it together."""
        end, together = start + 1, runs[start]
        while end < len(runs) and runs[end] <= together * 1.2:
            together += runs[end]
            end += 1
        return (start, end) if end - start >= 2 else None

    def _manifest(self, version: int, kind: str, runs: list[int], chain: Chain | None) -> Manifest:
        files = []
        for level, size_bytes in zip(range(6, -1, -1), reversed(runs), strict=False):
            for part in range(-(-size_bytes // FILE_BYTES)):
                name = f"{level * 100_000 + part:06d}.sst"
                size = min(FILE_BYTES, size_bytes - part * FILE_BYTES)
                files.append(FileEntry(name, f"shared/{version}-{name}", size, "", level, version))
        full, before = kind == FULL, chain and chain.snapshot
        return Manifest(
            version,
            f"v{version}",
            kind,
            previous=None,
            full=VersionId(version, None),
            merges_since_full=0 if full or before is None else before.merges_since_full + 1,
            deltas_since_full=0 if full or chain is None else chain.deltas_since_full,
            keys=KEYS,
            files=tuple(files),
        )


@pytest.mark.parametrize(
    ("live_mib", "ms_per_mib", "objective"),
    [
        pytest.param(1024, 10.0, "10s", id="the live state alone takes a little longer"),
        pytest.param(2048, 6.0, "10s", id="a larger state on a quicker storage"),
        pytest.param(1024, 10.0, "10500ms", id="a full checkpoint is just enough"),
        pytest.param(1024, 10.0, "1s", id="nothing is enough by far"),
    ],
)
def test_an_objective_costs_a_bounded_number_of_bytes(
    live_mib: int, ms_per_mib: float, objective: str
) -> None:
    """The saving of full checkpoints for an objective bounds the bytes that they upload."""
    costs = []
    for option in ("0", objective):
        store = Simulated(live_mib * MIB, 4 * MIB, {"restoreObjective": option}, ms_per_mib)
        costs.append(store.run(1000))
    without, with_objective = costs
    assert 2 < without < 4
    assert with_objective <= without + 1 / MIN_FULL_SAVING
