"""Knowledge of one store beyond its chain: ages of its snapshots, its size, the cost of its work."""

from __future__ import annotations

from state_store.core.checkpoint.stored_documents import FULL, Manifest
from state_store.core.planning.chain import Chain
from state_store.core.planning.cost import CostModel
from state_store.core.planning.restore_work import RestoreWork


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

    def note_chain_start(self, at_ms: int) -> None:
        """Note when the oldest file of the chain was written."""
        self._begun_ms = at_ms

    def note_commit(self, keys: int) -> None:
        """Note the number of keys of the newest version."""
        self.keys = keys

    def note_snapshot(self, snapshot: Manifest | None, full: Manifest | None = None) -> None:
        """Note the newest snapshot of the chain, as read from storage.

        Args:
            snapshot: the newest snapshot.
            full: the full one that it names; None if that is gone. The size of the live state is then that
                of the oldest sorted run, unless a better one is known.
        """
        if snapshot is None:
            return
        self.snapshot_ms = snapshot.created_ms
        if snapshot.kind == FULL:
            full = snapshot
        if full is not None:
            self.full_ms = full.created_ms
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
