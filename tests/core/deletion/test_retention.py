"""Files that a clean-up keeps and deletes, and its requests if nothing is to be done."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from faults import fail_at
from runtimes import AdjustedRuntime

from deletion import made_up
from deletion.directory_store import A, B, C, Store, deltas
from state_store.core.checkpoint.names import lease_path, tombstone_path
from state_store.core.checkpoint.stored_documents import LeaseTerms, unpack_tombstone
from state_store.core.deletion.lease import Lease
from state_store.core.deletion.retention import Cleanup, Retention, RetentionPolicy
from state_store.core.storage.contract import MAX_FAILURES_IN_ROW
from state_store.errors import BusyError, StorageError

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000


class TestKeptFiles:
    def test_old_versions_go_with_what_only_they_needed(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [A, B]})
        cleanup = store.clean()
        assert cleanup.floor == 7
        assert store.files() == {A, B, made_up.snapshot(6).path, *deltas(7, 8)}
        assert set(cleanup.deleted) == {made_up.snapshot(3).path, *deltas(1, 2, 3, 4, 5, 6)}
        assert cleanup.deleted_bytes > 0
        assert cleanup.retained == (made_up.version(7), made_up.version(8))

    def test_files_that_the_newest_snapshot_took_over_stay(self, tmp_path: Path) -> None:
        taken = made_up.delta(5).path
        store = Store(tmp_path, 8, {6: [A, taken]})
        store.clean()
        assert store.files() == {A, taken, made_up.snapshot(6).path, *deltas(7, 8)}

    def test_without_a_snapshot_every_delta_is_needed(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8)
        assert store.clean().deleted == ()
        assert store.files() == deltas(*range(1, 9))

    def test_a_snapshot_of_a_version_in_the_window_does_not_free_older_ones(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 8: [B]})
        store.clean()
        assert store.files() == {
            A,
            B,
            made_up.snapshot(3).path,
            made_up.snapshot(8).path,
            *deltas(4, 5, 6, 7, 8),
        }

    def test_every_lineage_in_the_window_stays(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [A]})
        other = "delta/00000000000000000008_other_id-7_00000000.sst"
        old = "delta/00000000000000000004_other_id-3_00000000.sst"
        store.put(other)
        store.put(old)
        store.clean()
        assert other in store.files()
        assert old not in store.files()

    def test_spark_setting_is_honoured_and_ours_may_be_smaller(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B], 8: [C]})
        assert store.clean(batches=7).floor == 3
        assert store.clean(batches=7, checkpoints=5).floor == 5
        assert store.clean(batches=4, checkpoints=7).floor == 6

    def test_versions_before_a_full_snapshot_go_for_their_size(self, tmp_path: Path) -> None:
        older = {made_up.snapshot(3).path, A, *deltas(1, 2, 4, 5)}
        store = Store(tmp_path, 15, {3: [A], 6: [made_up.shared(6, 6)]})
        kept = store.files() - older - deltas(3)
        older_bytes = sum((store.directory / path).stat().st_size for path in older)
        assert store.clean(batches=100, older_bytes=older_bytes).deleted == ()
        cleanup = store.clean(batches=100, older_bytes=older_bytes - 1)
        assert (cleanup.floor, store.files()) == (6, kept)
        assert cleanup.retained == tuple(map(made_up.version, range(6, 16)))

    def test_ten_versions_stay_whatever_their_size(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 14, {6: [made_up.shared(6, 6)]})
        assert not store.retention(batches=100, older_bytes=1).is_due(store.registry(), store.newest)
        assert store.clean(batches=100, older_bytes=1).deleted == ()

    def test_a_snapshot_that_shares_files_is_no_cut(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 20, {6: [A, made_up.shared(6, 6)]})
        assert store.clean(batches=100, older_bytes=1).deleted == ()

    def test_the_newest_and_the_one_before_it_stay_whatever_is_asked(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {6: [B]})
        cleanup = store.clean(batches=1, checkpoints=1, age_ms=1)
        assert cleanup.retained == (made_up.version(8), made_up.version(9))

    def test_age_retires_what_the_number_would_keep(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        for number in range(1, 6):
            store.age(made_up.delta(number).path, 2 * DAY_MS)
        assert store.clean(batches=100, age_ms=DAY_MS).floor == 6
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(6, 7, 8, 9)}

    def test_a_clock_that_jumped_back_keeps_all(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        policy = RetentionPolicy(batches=100, age_ms=DAY_MS)
        past = Retention(store.storage, policy, runtime=AdjustedRuntime(wall_ms=lambda: NOW_MS - 10**12))
        assert past.cleanup(store.newest).deleted == ()

    def test_a_clock_that_jumped_ahead_retires_none_for_its_age(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        policy = RetentionPolicy(batches=100, age_ms=DAY_MS)
        future = Retention(store.storage, policy, runtime=AdjustedRuntime(wall_ms=lambda: NOW_MS + 10**12))
        assert future.cleanup(store.newest).deleted == ()

    def test_a_storage_whose_clock_is_behind_retires_none_for_its_age(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        for path in store.files():
            store.age(path, 2 * DAY_MS)
        assert store.clean(batches=100, age_ms=DAY_MS).deleted == ()

    def test_a_storage_whose_clock_went_back_retires_none_for_its_age(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        store.age(made_up.delta(9).path, 2 * DAY_MS)
        assert store.clean(batches=100, age_ms=DAY_MS).deleted == ()

    def test_a_new_file_from_the_future_retires_none_for_its_age(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        store.age(made_up.delta(9).path, -2 * DAY_MS)
        assert store.clean(batches=100, age_ms=DAY_MS).deleted == ()

    def test_files_that_are_not_ours_are_left_alone(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        foreign = {"delta/1.delta", "shared/notes.txt", "snapshot/1.zip", "lease/README", "_metadata/schema"}
        for path in foreign:
            store.put(path)
            store.age(path, 100 * DAY_MS)
        store.clean()
        assert foreign <= store.files()


class TestCosts:
    def test_a_young_store_is_not_looked_at(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [B]})
        store.clean(batches=8)
        store.clean(batches=100, checkpoints=8)
        assert store.storage.calls == []

    def test_a_due_clean_up_is_known_without_looking(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        registry, retention = store.registry(), store.retention()
        store.storage.calls.clear()
        assert retention.is_due(registry, store.newest)
        assert store.storage.calls == []
        registry.retire_below(retention.cleanup(store.newest).floor)
        assert not retention.is_due(registry, store.newest)

    def test_a_version_that_frees_nothing_is_not_due(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A]})
        registry = store.registry()
        registry.retire_below(5)
        assert not store.retention().is_due(registry, store.newest)

    def test_age_is_looked_up_once(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {6: [B]})
        retention = store.retention(batches=100, age_ms=DAY_MS)
        registry = store.registry()
        assert retention.is_due(registry, store.newest)
        retention.cleanup(store.newest)
        assert not retention.is_due(registry, store.newest)

    def test_nothing_is_written_when_nothing_goes(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8)
        store.clean()
        assert {operation for operation, _ in store.storage.calls} <= {"list", "read"}

    def test_archives_are_read_once(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        retention = store.retention()
        retention.cleanup(store.newest)
        store.put(made_up.delta(9).path)
        retention.cleanup(made_up.version(9))
        reads = [path for operation, path in store.storage.calls if operation == "read"]
        assert sorted(path for path in reads if path.startswith("snapshot/")) == [
            made_up.snapshot(3).path,
            made_up.snapshot(6).path,
        ]


class TestLeftovers:
    def test_unfinished_writes_go_by_age(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        old, young = (
            made_up.delta(1).path + ".00c0ffee.tmp",
            made_up.delta(8).path + ".00c0ffee.tmp",
        )
        store.put(old)
        store.put(young)
        store.age(old, 2 * DAY_MS)
        store.clean()
        assert old not in store.files()
        assert young in store.files()

    def test_shared_files_that_nobody_named_go_by_age(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [B]})
        old, young = made_up.shared(5, 1), made_up.shared(5, 2)
        store.put(old)
        store.put(young)
        store.age(old, 2 * DAY_MS)
        store.clean()
        assert old not in store.files()
        assert young in store.files()

    def test_a_live_lease_holds_and_a_dead_one_does_not(self, tmp_path: Path) -> None:
        held, loose = made_up.shared(2, 1), made_up.shared(2, 2)
        store = Store(tmp_path, 8, {3: [held, loose], 6: [B]})
        live, dead = lease_path("live"), lease_path("dead")
        now_ms = int(time.time() * 1000)
        store.put(live, LeaseTerms(frozenset([held]), HOUR_MS, now_ms).pack())
        store.put(dead, LeaseTerms(frozenset([loose]), HOUR_MS, now_ms - 2 * HOUR_MS).pack())
        store.age(dead, 2 * HOUR_MS)
        store.clean()
        assert {held, live} <= store.files()
        assert not {loose, dead} & store.files()

    def test_files_that_a_lease_held_go_when_it_is_given_back(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        lease = Lease(store.storage.inner, expiry_ms=HOUR_MS)
        assert lease.hold([A]) == frozenset()
        store.clean()
        assert A in store.files()
        lease.release()
        store.clean()
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}

    @pytest.mark.parametrize("said_ms", [HOUR_MS // 2, 6 * HOUR_MS])
    def test_a_lease_holds_as_long_as_it_says(self, tmp_path: Path, said_ms: int) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        path = lease_path("writer")
        written_ms = int(time.time() * 1000) - 2 * HOUR_MS
        store.put(path, LeaseTerms(frozenset([A]), said_ms, written_ms).pack())
        store.age(path, 2 * HOUR_MS)
        store.clean()
        assert (A in store.files()) == (path in store.files()) == (said_ms > 2 * HOUR_MS)

    @pytest.mark.parametrize("age_ms", [23 * HOUR_MS, 25 * HOUR_MS])
    def test_a_lease_from_the_future_runs_out_by_the_clock_of_the_storage(
        self, tmp_path: Path, age_ms: int
    ) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        path = lease_path("writer")
        written_ms = int(time.time() * 1000) + 20 * 365 * DAY_MS
        store.put(path, LeaseTerms(frozenset([A]), HOUR_MS, written_ms).pack())
        store.age(path, age_ms)
        cleanup = store.clean()
        is_held = age_ms < 24 * HOUR_MS
        assert (A in store.files()) == (path in store.files()) == is_held
        assert any("ms in the future" in warning for warning in cleanup.warnings) == is_held

    @pytest.mark.parametrize("whose", ["file", "storage", "cleaner"])
    def test_a_clock_that_is_ahead_makes_no_live_lease_old(self, tmp_path: Path, whose: str) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        lease = Lease(store.storage.inner, expiry_ms=HOUR_MS)
        assert lease.hold([A]) == frozenset()
        policy, clock_ms = RetentionPolicy(2), lambda: time.time() * 1000
        if whose == "file":
            store.age(made_up.delta(8).path, -2 * DAY_MS)
            store.put(made_up.shared(5, 1))
        elif whose == "storage":
            (path,) = (path for path in store.files() if path.startswith("lease/"))
            store.age(path, 2 * DAY_MS)
        else:
            clock_ms = lambda: (time.time() + 10**6) * 1000  # noqa: E731
        Retention(store.storage, policy, runtime=AdjustedRuntime(wall_ms=clock_ms)).cleanup(store.newest)
        assert A in store.files()
        if whose == "file":
            assert made_up.shared(5, 1) in store.files()  # an orphan of seconds

    @pytest.mark.parametrize("is_same", [True, False], ids=["same-machine", "other-machine"])
    def test_a_jump_of_the_clock_that_storage_and_machine_share_makes_no_lease_old_there(
        self, tmp_path: Path, is_same: bool
    ) -> None:
        """The clock since the machine's start does not jump; on another machine two clocks have to agree."""
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        writers = AdjustedRuntime(uptime_ms=lambda: 1000.0, boot="monday")
        assert Lease(store.storage.inner, expiry_ms=HOUR_MS, runtime=writers).hold([A]) == frozenset()
        (path,) = (path for path in store.files() if path.startswith("lease/"))
        store.age(path, 2 * DAY_MS)
        cleaner = AdjustedRuntime(
            wall_ms=lambda: time.time() * 1000 + 2 * DAY_MS,
            uptime_ms=lambda: 2000.0,
            boot="monday" if is_same else "tuesday",
        )
        Retention(store.storage, RetentionPolicy(2), runtime=cleaner).cleanup(store.newest)
        assert (A in store.files()) == is_same

    def test_a_lease_of_the_same_machine_runs_out_when_all_clocks_say_so(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        writers = AdjustedRuntime(uptime_ms=lambda: 1000.0, boot="monday")
        Lease(store.storage.inner, expiry_ms=HOUR_MS, runtime=writers).hold([A])
        (path,) = (path for path in store.files() if path.startswith("lease/"))
        store.age(path, 2 * HOUR_MS)
        later = AdjustedRuntime(
            wall_ms=lambda: time.time() * 1000 + 2 * HOUR_MS,
            uptime_ms=lambda: 2000.0 + HOUR_MS,
            boot="monday",
        )
        Retention(store.storage, RetentionPolicy(2), runtime=later).cleanup(store.newest)
        assert A not in store.files()

    def test_orphans_of_a_version_that_may_still_be_published_stay(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [B]})
        own, older = made_up.shared(6, 9), made_up.shared(5, 9)
        for path in (own, older):
            store.put(path)
            store.age(path, 2 * DAY_MS)
        store.clean()
        assert own in store.files()
        assert older not in store.files()

    def test_a_clean_up_that_died_is_finished_by_the_next(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})

        def stop(operation: str, path: str) -> None:
            if operation == "delete" and path == made_up.delta(3).path:
                raise BusyError("injected")

        store.storage.fault = stop
        with pytest.raises(BusyError, match="injected"):
            store.clean()
        assert any(path.startswith("tombstone/") for path in store.files())
        store.storage.fault = lambda operation, path: None
        store.clean()
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}

    @pytest.mark.parametrize("operation", ["list", "read", "write", "delete"])
    def test_nothing_needed_is_lost_by_a_failure_at_any_step(self, tmp_path: Path, operation: str) -> None:
        for nth in range(1, 20):
            store = Store(tmp_path / f"{nth}", 8, {3: [A], 6: [B]})
            store.storage.fault = fail_at(operation, "", nth=nth)
            try:
                failed = bool(store.clean().refused)
            except StorageError:
                failed = True
            assert {made_up.version(7), made_up.version(8)} <= set(store.registry().checkpoints())
            assert failed or nth > 1
            if not failed:
                break
            store.storage.fault = lambda operation, path: None
            store.clean()
            assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}

    def test_many_threads_delete_as_one(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 40, {38: [B]})
        Retention(store.storage, RetentionPolicy(batches=2), threads=8).cleanup(store.newest)
        assert store.files() == {B, made_up.snapshot(38).path, *deltas(39, 40)}


class TestRefusals:
    def held(self, store: Store, *paths: str) -> None:
        """Let the storage refuse to delete these files, and those below paths that end with a slash."""

        def refuse(operation: str, path: str) -> None:
            if operation == "delete" and any(
                path.startswith(held) if held.endswith("/") else path == held for held in paths
            ):
                raise StorageError(f"cannot delete '{path}': it is immutable", file=path)

        store.storage.fault = refuse

    def go_on(self, store: Store, retention: Retention, number: int) -> Cleanup:
        """Commit a version with a snapshot, and clean up."""
        store.put(made_up.delta(number).path)
        store.add_snapshot(number, [made_up.shared(number, number)])
        return retention.cleanup(made_up.version(number))

    def test_a_file_that_cannot_be_deleted_keeps_no_other(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        retention = store.retention()
        held = made_up.delta(1).path
        self.held(store, held)
        counts = set()
        for number in range(9, 30):
            cleanup = self.go_on(store, retention, number)
            assert set(cleanup.refused) == {held}
            assert held not in cleanup.deleted
            named = [
                warning for warning in cleanup.warnings if held in warning and "it is immutable" in warning
            ]
            assert len(named) == (number == 9), "each file is named once"
            counts.add(len(store.files()))
        assert max(counts) <= min(counts) + 1
        (tombstone,) = (path for path in store.files() if path.startswith("tombstone/"))
        assert unpack_tombstone((store.directory / tombstone).read_bytes(), file=tombstone) >= {held}
        self.held(store)
        self.go_on(store, retention, 30)
        assert not {held, tombstone} & store.files()

    def test_a_snapshot_whose_archive_stays_keeps_its_files(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        archive = made_up.snapshot(3).path
        self.held(store, archive)
        assert set(store.clean().refused) == {archive}
        assert store.files() - {B, made_up.snapshot(6).path, *deltas(7, 8)} == {
            A,
            archive,
            *(path for path in store.files() if path.startswith("tombstone/")),
        }
        self.held(store)
        store.clean()
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}

    def test_files_that_a_damaged_archive_may_name_stay_with_it(self, tmp_path: Path) -> None:
        loose = made_up.shared(2, 1)
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.put(made_up.snapshot(2).path, b"damaged")
        store.put(loose)
        store.age(loose, 2 * DAY_MS)
        self.held(store, made_up.snapshot(2).path)
        store.clean()
        assert loose in store.files()
        assert A not in store.files()
        self.held(store)
        store.clean()
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}

    @pytest.mark.parametrize("directory", ["delta/", "shared/", "snapshot/", "tombstone/", "lease/"])
    def test_a_storage_that_refuses_a_whole_directory_loses_nothing(
        self, tmp_path: Path, directory: str
    ) -> None:
        store = Store(tmp_path, 40, {3: [A], 30: [B], 38: [C]})
        self.held(store, directory)
        needed = {C, made_up.snapshot(38).path, *deltas(39, 40)}
        for _ in range(3):
            store.clean()
            assert needed <= store.files()
        self.held(store)
        store.clean()
        assert store.files() == needed

    def test_more_refused_files_than_are_tried_in_a_row_end_no_clean_up_for_good(
        self, tmp_path: Path
    ) -> None:
        store = Store(tmp_path, 60, {50: [A], 58: [B]})
        held = deltas(*range(1, 2 * MAX_FAILURES_IN_ROW + 5))
        retention = store.retention()
        self.held(store, *held)
        counts = []
        for number in range(61, 70):
            store.storage.calls.clear()
            self.go_on(store, retention, number)
            counts.append(len(store.files()))
            tried = [
                path for operation, path in store.storage.calls if operation == "delete" and path in held
            ]
            assert len(tried) <= 2 * MAX_FAILURES_IN_ROW, "new ones, then those of before"
        assert counts[-1] == counts[-2] == counts[-3]
        self.held(store)
        self.go_on(store, retention, 70)
        assert not held & store.files()

    def test_an_old_damaged_tombstone_that_stays_stops_nothing(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        damaged = tombstone_path("damaged")
        store.put(damaged, b"")
        store.age(damaged, 2 * HOUR_MS)
        self.held(store, damaged)
        cleanup = store.clean(lease_expiry_ms=HOUR_MS)
        assert damaged in cleanup.refused
        assert damaged not in cleanup.swept
        assert store.files() == {B, made_up.snapshot(6).path, damaged, *deltas(7, 8)}
