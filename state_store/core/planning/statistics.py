"""What is known of one store beyond its chain: ages of its snapshots, its size, what its work costs."""

from __future__ import annotations

from state_store.core.checkpoint.manifest import FULL, Manifest
from state_store.core.planning.chain import Chain
from state_store.core.planning.cost import CostModel
from state_store.core.planning.restore_work import RestoreWork


class StoreStatistics:
    """What this process knows of one store beyond its chain: times
    (wall clock, ms), sizes, measured costs.
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
        """Since when the chain has grown: its last full checkpoint, or
        its beginning as far as that is known.
        """
        return self._begun_ms if self.full_ms is None else self.full_ms

    def note_chain_start(self, at_ms: int) -> None:
        """The oldest file of the chain was written then."""
        self._begun_ms = at_ms

    def note_commit(self, keys: int) -> None:
        """The newest version has this many keys."""
        self.keys = keys

    def note_snapshot(self, snapshot: Manifest | None, full: Manifest | None = None) -> None:
        """The chain was read from storage, with this newest snapshot.

        `full` is the full one that it names, None where that is gone: then the oldest sorted run tells how
        large the live state is, if nothing has told better.
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
        """A snapshot was published."""
        self.snapshot_ms = now_ms
        if manifest.kind == FULL:
            self.full_ms = now_ms
            self._live = (manifest.total_bytes, manifest.keys)

    def ages_ms(self, now_ms: int) -> tuple[int | None, int | None]:
        """How long ago the newest snapshot and the newest full one were made; None where not known."""
        times = (self.snapshot_ms, self.full_ms)
        snapshot, full = (None if at_ms is None else max(0, now_ms - at_ms) for at_ms in times)
        return snapshot, full

    def live_bytes(self) -> int | None:
        """Size of the store if nothing were in it twice: that of the last full snapshot, scaled by keys.

        None where no snapshot is known; at least 1, so that other sizes can be measured by it.
        """
        if self._live is None:
            return None
        size_bytes, keys = self._live
        return max(1, size_bytes * self.keys // keys if keys else size_bytes)

    def predict_restore_ms(self, chain: Chain) -> float:
        """Of the chain as it is, with no local files."""
        return self.cost.predict_restore_ms(RestoreWork.of_chain(chain))


def oldest_run_bytes(snapshot: Manifest) -> int:
    """Bytes of the oldest sorted run of a snapshot: its deepest level, or the largest file where all are in
    level 0. No key is in it twice.
    """
    deepest = max((entry.level for entry in snapshot.files), default=0)
    if deepest == 0:
        return max((entry.size_bytes for entry in snapshot.files), default=0)
    return sum(entry.size_bytes for entry in snapshot.files if entry.level == deepest)
