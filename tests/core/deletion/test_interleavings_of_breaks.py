"""The exploration has teeth: each change to the protocol that looks harmless, and is not, is found."""

from __future__ import annotations

import pytest

from deletion import made_up
from deletion.explorer import explore
from deletion.programs import (
    EXPIRY_MS,
    LATE,
    SWITCHES,
    A,
    WithoutSweep,
    about_to,
    and_snapshots_are_whole,
    broken_snapshots,
    broken_while_a_cleaner_reads,
    cleaner,
    committer,
    full_writer,
    replaced_while_a_cleaner_reads,
    retained_can_be_restored,
    start,
    writer,
)
from deletion.remembered import remembered
from state_store.core.deletion import lease, retention
from state_store.core.deletion.lease import Lease, StoreContents, Tombstones
from state_store.core.deletion.retention import DeletionPlan, Retention
from state_store.core.storage.contract import Storage
from state_store.errors import BusyError

pytestmark = pytest.mark.usefixtures("think_once")


class _ChecksBeforeItHolds(Lease):
    def _renew_and_check(self) -> frozenset[str]:
        lost = self._lost()
        self._write(self._existing | self._announced)
        self._valid_from_ms = self._clocks_ms()
        return lost


class _LooksAtFilesBeforeTombstones(Lease):
    def _lost(self) -> frozenset[str]:
        existing = {
            f"{at}/{entry.name}" for at in ("delta", "shared") for entry in self._storage.list_files(at)
        }
        condemned = Tombstones.read(self._storage).condemned()
        held = self._existing | self._announced
        return frozenset(path for path in held if path in condemned or path not in existing)


class _IgnoresTombstones(Lease):
    def _lost(self) -> frozenset[str]:
        existing = {
            f"{at}/{entry.name}" for at in ("delta", "shared") for entry in self._storage.list_files(at)
        }
        return frozenset((self._existing | self._announced) - existing)


class _LetsGoBeforeItPublishes(Lease):
    def publish(self, snapshot, archive: bytes, *, overwrite: bool = False) -> frozenset[str]:
        self.release()
        self._storage.write(snapshot.path, archive)
        return frozenset()


class _TakesALateSnapshotBack(Lease):
    def publish(self, snapshot, archive: bytes, *, overwrite: bool = False) -> frozenset[str]:
        try:
            return super().publish(snapshot, archive, overwrite=overwrite)
        except BusyError:
            self._storage.delete(snapshot.path)
            raise


class _NeverLooksAgain(Lease):
    def _age_ms(self) -> float:
        return 0


class _ReadsSnapshotsBeforeLeases(WithoutSweep):
    def _write_tombstone(self, paths: set[str]) -> str | None:
        written = super()._write_tombstone(paths)
        self._early = super()._referenced_files(
            StoreContents({}, Tombstones({}), {}), {made_up.snapshot(2).path}
        )
        return written

    def _referenced_files(self, contents: StoreContents, candidates: set[str]) -> set[str]:
        return self._early


class _TakesTombstonesBack(WithoutSweep):
    def _delete_finished_tombstones(self, contents, plan, written, condemned, deleted):
        for path in [*contents.tombstones.files, *([written] if written else [])]:
            self._storage.delete(path)
        return {}


class _DoesNotLookAgain(WithoutSweep):
    def _referenced_files(self, contents: StoreContents, candidates: set[str]) -> set[str]:
        return set()


class _DoesNotAskForLeases(WithoutSweep):
    def _expired(self, leases, written) -> set[str]:
        return set(leases)


class _DoesNotCondemn(WithoutSweep):
    def _write_tombstone(self, paths: set[str]) -> None:
        return None


class _DeletesWhatWasReplaced(Retention):
    def _referenced_files(self, contents: StoreContents, candidates: set[str]) -> set[str]:
        return super()._referenced_files(contents, candidates) - {name.path for name in contents.snapshots}


def _in_order(*directories: str) -> type[StoreContents]:
    """Return a reading of the directories in that order."""

    class Reading(StoreContents):
        @classmethod
        def read(cls, storage: Storage, known=None) -> StoreContents:
            entries, snapshots, tombstones = {}, {}, Tombstones({})
            for directory in directories:
                if directory == "tombstone":
                    tombstones = Tombstones.read(storage)
                    continue
                found = storage.list_files(directory)
                entries |= {f"{directory}/{entry.name}": entry for entry in found}
                if directory == "snapshot":
                    snapshots = lease._read_snapshots(storage, found, known or {})
            return cls(snapshots, tombstones, entries)

    return Reading


class _NeverDoubts(DeletionPlan):
    @property
    def uncondemned_snapshots(self):
        return self.contents.restorable_snapshots


class _SweepsYoungOrphans(DeletionPlan):
    def _orphans(self, orphaned_before_ms: float) -> set[str]:
        entries = self.contents.entries
        shared = {name.path for name in self.contents.listing.shared}
        return {path for path in shared if entries[path].modified_ms < orphaned_before_ms}


class TestTheExplorationHasTeeth:
    """Each change to the protocol that looks harmless, and is not, is found; few switches are enough."""

    @pytest.mark.parametrize(
        "kind",
        [
            _ChecksBeforeItHolds,
            _LooksAtFilesBeforeTombstones,
            _IgnoresTombstones,
            _LetsGoBeforeItPublishes,
        ],
    )
    def test_broken_writers_are_caught(self, kind: type[Lease]) -> None:
        with pytest.raises(AssertionError, match="files are gone"):
            explore([writer(1, kind=kind), cleaner(1)], start(), and_snapshots_are_whole, switches=SWITCHES)

    @pytest.mark.parametrize(
        "kind", [_ReadsSnapshotsBeforeLeases, _DoesNotLookAgain, _DoesNotAskForLeases, _DoesNotCondemn]
    )
    def test_broken_cleaners_are_caught(self, kind: type[Retention]) -> None:
        with pytest.raises(AssertionError, match="files are gone"):
            explore([writer(1), cleaner(1, kind)], start(), and_snapshots_are_whole, switches=SWITCHES)

    def test_a_tombstone_that_is_taken_back_is_caught(self) -> None:
        programs = [writer(1), cleaner(1, _TakesTombstonesBack), cleaner(2, _TakesTombstonesBack)]
        with pytest.raises(AssertionError, match="files are gone"):
            explore(programs, start(), and_snapshots_are_whole, switches=SWITCHES)

    @pytest.mark.parametrize(
        "order",
        [
            ("snapshot", "delta", "shared", "tombstone"),
            ("delta", "shared", "snapshot", "tombstone"),
            ("tombstone", "snapshot", "delta", "shared"),
        ],
        ids="-".join,
    )
    def test_another_order_of_reading_is_caught(
        self, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
    ) -> None:
        monkeypatch.setattr(retention, "StoreContents", _in_order(*order))
        with pytest.raises(AssertionError, match="cannot be restored"):
            broken_while_a_cleaner_reads()

    @pytest.mark.tier("more")
    def test_a_late_snapshot_that_is_taken_back_is_caught(self) -> None:
        programs = [
            writer(1, kind=_TakesALateSnapshotBack, shares=(A,)),
            cleaner(1, WithoutSweep),
            cleaner(2, WithoutSweep),
        ]
        lead = [*LATE, (0, about_to("clock"))]
        with pytest.raises(AssertionError, match="cannot be restored"):
            explore(
                programs,
                start(deltas_from=4),
                retained_can_be_restored,
                time_jumps_ms=(EXPIRY_MS + 1,),
                lead=lead,
                switches=SWITCHES,
            )

    def test_counting_on_a_snapshot_in_doubt_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(retention, "DeletionPlan", remembered(_NeverDoubts))
        programs = [writer(1, shares=(A,)), cleaner(1, WithoutSweep), cleaner(2, WithoutSweep)]
        with pytest.raises(AssertionError, match="cannot be restored"):
            explore(
                programs,
                start(deltas_from=4),
                retained_can_be_restored,
                time_jumps_ms=(EXPIRY_MS + 1,),
                lead=LATE,
                switches=SWITCHES,
            )

    @pytest.mark.tier("more")
    def test_taking_files_of_a_full_checkpoint_for_orphans_is_found(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention, "DeletionPlan", remembered(_SweepsYoungOrphans))
        with pytest.raises(AssertionError, match="cannot be restored"):
            explore(
                [full_writer(1), cleaner(1, WithoutSweep), committer],
                start(),
                retained_can_be_restored,
                time_jumps_ms=(EXPIRY_MS + 1,),
                switches=SWITCHES,
            )

    def test_a_snapshot_that_was_replaced_is_deleted_for_the_older_one(self) -> None:
        with pytest.raises(AssertionError, match="cannot be restored"):
            replaced_while_a_cleaner_reads(_DeletesWhatWasReplaced)

    def test_trusting_an_old_lease_is_found(self) -> None:
        found = explore(
            [writer(1, kind=_NeverLooksAgain), cleaner(1)],
            start(),
            retained_can_be_restored,
            time_jumps_ms=(EXPIRY_MS + 1,),
            switches=SWITCHES,
        )
        assert any(broken_snapshots(state) for state in found.ends)
