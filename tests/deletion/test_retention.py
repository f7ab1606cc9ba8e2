"""What a clean-up keeps and what it deletes, and what it costs when there is nothing to do."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from faults import FaultyStorage, fail_at
from runtimes import AdjustedRuntime

from deletion import stores
from state_store.checkpoint.file_list import LeaseTerms, pack_tombstone
from state_store.checkpoint.names import lease_path, tombstone_path
from state_store.checkpoint.registry import Registry
from state_store.deletion.contents import StoreContents
from state_store.deletion.lease import Lease
from state_store.deletion.policy import Cleanup, RetentionPolicy
from state_store.deletion.retention import Retention
from state_store.errors import BusyError, DamagedError, FormatError, StorageError
from state_store.files.bounded_storage import BoundedStorage
from state_store.files.deadline import Deadline
from state_store.storage.local import LocalStorage

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000


class Store:
    """Versions 1 to `newest`, snapshots where told, on a real directory."""

    def __init__(self, tmp_path: Path, newest: int, snapshots: dict[int, list[str]] | None = None) -> None:
        self.storage = FaultyStorage(LocalStorage(tmp_path / "store"))
        self.directory = tmp_path / "store"
        for number in range(1, newest + 1):
            self.put(stores.delta(number).path)
        for number, paths in (snapshots or {}).items():
            self.add_snapshot(number, paths)
        self.newest = stores.version(newest)
        self.storage.calls.clear()

    def add_snapshot(self, number: int, paths: list[str]) -> None:
        for path in paths:
            self.put(path)
        self.put(stores.snapshot(number).path, stores.archive(stores.version(number), paths))

    def put(self, path: str, data: bytes | None = None) -> None:
        self.storage.inner.write(path, stores.content(path) if data is None else data, overwrite=True)

    def age(self, path: str, ms: int) -> None:
        file = self.directory / path
        at = file.stat().st_mtime - ms / 1000
        os.utime(file, (at, at))

    def clean(self, **policy: int) -> Cleanup:
        return self.retention(**policy).cleanup(self.newest)

    def retention(self, **policy: int) -> Retention:
        return Retention(self.storage, RetentionPolicy(**{"batches": 2, **policy}))

    def registry(self) -> Registry:
        return StoreContents.read(self.storage.inner).registry(0)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.is_file()}


A, B, C = (stores.shared(number, number) for number in (3, 6, 9))


def deltas(*numbers: int) -> set[str]:
    return {stores.delta(number).path for number in numbers}


class TestWhatIsKept:
    def test_old_versions_go_with_what_only_they_needed(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [A, B]})
        cleanup = store.clean()
        assert cleanup.floor == 7
        assert store.files() == {A, B, stores.snapshot(6).path, *deltas(7, 8)}
        assert set(cleanup.deleted) == {stores.snapshot(3).path, *deltas(1, 2, 3, 4, 5, 6)}
        assert cleanup.deleted_bytes > 0
        assert cleanup.retained == (stores.version(7), stores.version(8))

    def test_files_that_the_newest_snapshot_took_over_stay(self, tmp_path: Path) -> None:
        taken = stores.delta(5).path
        store = Store(tmp_path, 8, {6: [A, taken]})
        store.clean()
        assert store.files() == {A, taken, stores.snapshot(6).path, *deltas(7, 8)}

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
            stores.snapshot(3).path,
            stores.snapshot(8).path,
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

    def test_the_newest_and_the_one_before_it_stay_whatever_is_asked(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {6: [B]})
        cleanup = store.clean(batches=1, checkpoints=1, age_ms=1)
        assert cleanup.retained == (stores.version(8), stores.version(9))

    def test_age_retires_what_the_number_would_keep(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        for number in range(1, 6):
            store.age(stores.delta(number).path, 2 * DAY_MS)
        assert store.clean(batches=100, age_ms=DAY_MS).floor == 6
        assert store.files() == {B, stores.snapshot(6).path, *deltas(6, 7, 8, 9)}

    def test_a_clock_that_jumped_back_keeps_all(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        policy = RetentionPolicy(batches=100, age_ms=DAY_MS)
        past = Retention(store.storage, policy, runtime=AdjustedRuntime(wall_ms=lambda: NOW_MS - 10**12))
        assert past.cleanup(store.newest).deleted == ()

    def test_a_clock_that_jumped_ahead_leaves_the_newest(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        policy = RetentionPolicy(batches=100, age_ms=DAY_MS)
        future = Retention(store.storage, policy, runtime=AdjustedRuntime(wall_ms=lambda: NOW_MS + 10**12))
        assert future.cleanup(store.newest).retained == (stores.version(8), stores.version(9))

    def test_files_that_are_not_ours_are_left_alone(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        foreign = {"delta/1.delta", "shared/notes.txt", "snapshot/1.zip", "lease/README", "_metadata/schema"}
        for path in foreign:
            store.put(path)
            store.age(path, 100 * DAY_MS)
        store.clean()
        assert foreign <= store.files()

    def test_stores_without_ids(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path / "store")
        for number in range(1, 7):
            storage.write(f"delta/{number:020d}.sst", b"")
        storage.write(A, stores.content(A))
        at = stores.VersionId(4, None)
        storage.write("snapshot/00000000000000000004.zip", stores.archive(at, [A]))
        cleanup = Retention(storage, RetentionPolicy(batches=2)).cleanup(stores.VersionId(6, None))
        assert cleanup.retained == (stores.VersionId(5, None), stores.VersionId(6, None))
        assert [entry.name for entry in storage.list_files("delta")] == [
            f"{number:020d}.sst" for number in (5, 6)
        ]


class TestWhatItCosts:
    def test_a_young_store_is_not_looked_at(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [B]})
        store.clean(batches=8)
        store.clean(batches=100, checkpoints=8)
        assert store.storage.calls == []

    def test_what_is_due_is_known_without_looking(self, tmp_path: Path) -> None:
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
        store.put(stores.delta(9).path)
        retention.cleanup(stores.version(9))
        reads = [path for operation, path in store.storage.calls if operation == "read"]
        assert sorted(path for path in reads if path.startswith("snapshot/")) == [
            stores.snapshot(3).path,
            stores.snapshot(6).path,
        ]


class TestLeftovers:
    def test_unfinished_writes_go_by_age(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        old, young = stores.delta(1).path + ".00c0ffee.tmp", stores.delta(8).path + ".00c0ffee.tmp"
        store.put(old)
        store.put(young)
        store.age(old, 2 * DAY_MS)
        store.clean()
        assert old not in store.files()
        assert young in store.files()

    def test_shared_files_that_nobody_named_go_by_age(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [B]})
        old, young = stores.shared(5, 1), stores.shared(5, 2)
        store.put(old)
        store.put(young)
        store.age(old, 2 * DAY_MS)
        store.clean()
        assert old not in store.files()
        assert young in store.files()

    def test_a_live_lease_holds_and_a_dead_one_does_not(self, tmp_path: Path) -> None:
        held, loose = stores.shared(2, 1), stores.shared(2, 2)
        store = Store(tmp_path, 8, {3: [held, loose], 6: [B]})
        live, dead = lease_path("live"), lease_path("dead")
        store.put(live, LeaseTerms(frozenset([held])).pack())
        store.put(dead, LeaseTerms(frozenset([loose])).pack())
        store.age(dead, 2 * HOUR_MS)
        store.clean()
        assert {held, live} <= store.files()
        assert not {loose, dead} & store.files()

    def test_what_a_lease_held_goes_when_it_is_given_back(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        lease = Lease(store.storage.inner, expiry_ms=HOUR_MS)
        assert lease.hold([A]) == frozenset()
        store.clean()
        assert A in store.files()
        lease.release()
        store.clean()
        assert store.files() == {B, stores.snapshot(6).path, *deltas(7, 8)}

    @pytest.mark.parametrize("said_ms", [HOUR_MS // 2, 6 * HOUR_MS])
    def test_a_lease_holds_as_long_as_it_says(self, tmp_path: Path, said_ms: int) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        path = lease_path("writer")
        written_ms = int(time.time() * 1000) - 2 * HOUR_MS
        store.put(path, LeaseTerms(frozenset([A]), said_ms, written_ms).pack())
        store.age(path, 2 * HOUR_MS)
        store.clean()
        assert (A in store.files()) == (path in store.files()) == (said_ms > 2 * HOUR_MS)

    @pytest.mark.parametrize("whose", ["file", "storage", "cleaner"])
    def test_a_clock_that_is_ahead_makes_no_live_lease_old(self, tmp_path: Path, whose: str) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        lease = Lease(store.storage.inner, expiry_ms=HOUR_MS)
        assert lease.hold([A]) == frozenset()
        policy, clock_ms = RetentionPolicy(2), lambda: time.time() * 1000
        if whose == "file":
            store.age(stores.delta(8).path, -2 * DAY_MS)
            store.put(stores.shared(5, 1))
        elif whose == "storage":
            (path,) = (path for path in store.files() if path.startswith("lease/"))
            store.age(path, 2 * DAY_MS)
        else:
            clock_ms = lambda: (time.time() + 10**6) * 1000  # noqa: E731
        Retention(store.storage, policy, runtime=AdjustedRuntime(wall_ms=clock_ms)).cleanup(store.newest)
        assert A in store.files()
        if whose == "file":
            assert stores.shared(5, 1) in store.files()  # an orphan of seconds

    def test_orphans_of_a_version_that_may_still_be_published_stay(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [B]})
        own, older = stores.shared(6, 9), stores.shared(5, 9)
        for path in (own, older):
            store.put(path)
            store.age(path, 2 * DAY_MS)
        store.clean()
        assert own in store.files()
        assert older not in store.files()

    def test_a_clean_up_that_died_is_finished_by_the_next(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.storage.fault = fail_at("delete", "delta/", nth=3)
        with pytest.raises(StorageError, match="injected"):
            store.clean()
        assert any(path.startswith("tombstone/") for path in store.files())
        store.storage.fault = lambda operation, path: None
        store.clean()
        assert store.files() == {B, stores.snapshot(6).path, *deltas(7, 8)}

    @pytest.mark.parametrize("operation", ["list", "read", "write", "delete"])
    def test_wherever_it_fails_nothing_needed_is_lost(self, tmp_path: Path, operation: str) -> None:
        for nth in range(1, 20):
            store = Store(tmp_path / f"{nth}", 8, {3: [A], 6: [B]})
            store.storage.fault = fail_at(operation, "", nth=nth)
            try:
                store.clean()
            except StorageError:
                assert {stores.version(7), stores.version(8)} <= set(store.registry().checkpoints())
            else:
                assert nth > 1
                break
            store.storage.fault = lambda operation, path: None
            store.clean()
            assert store.files() == {B, stores.snapshot(6).path, *deltas(7, 8)}

    def test_many_threads_delete_as_one(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 40, {38: [B]})
        Retention(store.storage, RetentionPolicy(batches=2), threads=8).cleanup(store.newest)
        assert store.files() == {B, stores.snapshot(38).path, *deltas(39, 40)}


class TestCaution:
    def test_a_version_that_cannot_be_restored_stops_it(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.storage.inner.delete(B)
        store.storage.inner.delete(stores.delta(5).path)
        before = store.files()
        cleanup = store.clean()
        assert cleanup.skipped == "version 8 (id-8) cannot be restored from the files that are there"
        assert store.files() == before

    def test_the_older_chain_stays_while_the_newer_is_broken(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.storage.inner.delete(B)
        store.clean()
        assert {A, stores.snapshot(3).path, *deltas(4, 5, 6, 7, 8)} <= store.files()

    def test_the_newest_version_is_not_there(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        cleanup = store.retention().cleanup(stores.version(12))
        assert cleanup.skipped == "version 12 (id-12) cannot be restored from the files that are there"
        assert cleanup.floor == 0

    def test_a_damaged_archive_in_the_window(self, tmp_path: Path) -> None:
        taken_over = stores.shared(5, 9)
        store = Store(tmp_path, 8, {3: [A], 6: [B], 8: [taken_over]})
        store.put(stores.snapshot(8).path, b"PK")
        store.age(taken_over, 2 * DAY_MS)
        cleanup = store.clean()
        assert cleanup.skipped is None
        (warning,) = cleanup.warnings
        assert warning.startswith(f"snapshot '{stores.snapshot(8).path}' counts as absent: ")
        assert "not a whole zip archive" in warning
        # What it may name stays; what nobody needs without it goes.
        assert store.files() == {
            B,
            taken_over,
            stores.snapshot(6).path,
            stores.snapshot(8).path,
            *deltas(7, 8),
        }

    def test_a_damaged_archive_that_the_newest_version_hangs_on(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B], 8: [C]})
        store.put(stores.snapshot(6).path, b"PK")
        store.put(stores.snapshot(3).path, b"PK")
        store.put(stores.snapshot(8).path, b"PK")
        store.storage.inner.delete(stores.delta(2).path)
        before = store.files()
        assert store.clean().skipped == "version 8 (id-8) cannot be restored from the files that are there"
        assert store.files() == before

    def test_an_archive_of_another_version_is_damaged(self, tmp_path: Path) -> None:
        """A backup that was put back under a wrong name: a restore refuses it, so nobody counts on it."""
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.put(stores.snapshot(6).path, stores.archive(stores.version(3), [A]))
        store.clean()
        assert {A, stores.snapshot(3).path, *deltas(4, 5, 6, 7, 8)} <= store.files()

    def test_a_damaged_archive_that_appears_meanwhile_stops_it_once(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})

        def appear(operation: str, path: str) -> None:
            if operation == "write" and path.startswith("tombstone/"):
                store.put(stores.snapshot(7).path, b"PK")

        store.storage.fault = appear
        retention = store.retention()
        with pytest.raises(DamagedError, match=r"snapshot/.*just appeared"):
            retention.cleanup(store.newest)
        assert A in store.files()
        store.storage.fault = lambda operation, path: None
        assert retention.cleanup(store.newest).deleted
        assert A not in store.files()

    def test_an_archive_that_was_read_wrongly_once_counts_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        retention, read = store.retention(), store.storage.read
        with monkeypatch.context() as patched:
            patched.setattr(store.storage, "read", lambda path: read(path)[:-1])
            cleanup = retention.cleanup(store.newest)
        assert len(cleanup.warnings) == 2
        assert cleanup.deleted == ()
        retention.cleanup(store.newest)
        assert store.files() == {B, stores.snapshot(6).path, *deltas(7, 8)}

    def test_a_version_that_hangs_on_snapshots_in_doubt_alone(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [B], 8: [C]})
        for number in (1, 2):
            store.storage.inner.delete(stores.delta(number).path)
        store.put(tombstone_path("cleaner"), pack_tombstone([B]))
        store.put(stores.shared(5, 9))
        before = store.files()
        cleanup = store.clean()
        assert cleanup.skipped == (
            "version 7 (id-7) needs a snapshot of which another clean-up has condemned a file; the next "
            "merge ends that"
        )
        assert store.files() == before

    def test_a_snapshot_whose_archive_is_condemned_is_not_counted_on(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.put(tombstone_path("cleaner"), pack_tombstone([stores.snapshot(6).path]))
        store.clean()
        assert {A, stores.snapshot(3).path, *deltas(4, 5, 6, 7, 8)} <= store.files()

    def test_a_young_damaged_tombstone_stops_it_an_old_one_goes(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        bad = tombstone_path("bad")
        store.put(bad, b"")
        before = store.files()
        cleanup = store.clean()
        assert cleanup.skipped == (
            f"'{bad}' is damaged, so it is not known which files another clean-up is deleting; it counts "
            "until it is 3600000 ms old"
        )
        assert store.files() == before
        store.age(bad, 2 * HOUR_MS)
        cleanup = store.clean()
        assert cleanup.skipped is None
        assert cleanup.warnings == (
            f"tombstone '{bad}' is damaged: what it condemned may stay until it is condemned again",
        )
        assert store.files() == {B, stores.snapshot(6).path, *deltas(7, 8)}

    def test_a_damaged_archive_below_the_window_goes(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.put(stores.snapshot(3).path, b"PK")
        store.clean()
        assert stores.snapshot(3).path not in store.files()

    def test_a_newer_format_stops_it(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        before = store.files()
        store.put(lease_path("newer"), b'{"format":2,"files":"?"}')
        with pytest.raises(FormatError, match=r"lease/newer\.json.*format 2"):
            store.clean()
        assert before <= store.files()

    def test_a_cleaner_that_stood_still_deletes_nothing_more(self, tmp_path: Path) -> None:
        """Its tombstone may have been damaged meanwhile, and have run out."""
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        before = store.files()
        clock_ms = [0.0]
        deadline = Deadline("a clean-up", HOUR_MS, runtime=AdjustedRuntime(uptime_ms=lambda: clock_ms[0]))
        bounded = BoundedStorage(store.storage, deadline, bound_deletions=True)
        listings = 0

        def sleep_before_the_second_look(operation: str, path: str) -> None:
            nonlocal listings
            listings += (operation, path) == ("list", "snapshot")
            if listings == 2:
                clock_ms[0] = 2 * HOUR_MS

        store.storage.fault = sleep_before_the_second_look
        with pytest.raises(BusyError, match="a clean-up took longer"):
            Retention(bounded, RetentionPolicy(batches=2)).cleanup(store.newest)
        assert before <= store.files()
        store.storage.fault = lambda operation, path: None
        store.clean()
        assert store.files() == {B, stores.snapshot(6).path, *deltas(7, 8)}

    @pytest.mark.parametrize("content", [b"", b"{"])
    def test_a_damaged_lease_holds_everything_until_it_expires(self, tmp_path: Path, content: bytes) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        bad = lease_path("bad")
        store.put(bad, content)
        before = store.files()
        cleanup = store.clean()
        (warning,) = cleanup.warnings
        assert warning.startswith(f"'{bad}' is damaged, so it is not known which files its writer refers to")
        assert cleanup.deleted == ()
        assert before <= store.files()
        store.age(bad, 2 * HOUR_MS)
        cleanup = store.clean()
        assert cleanup.warnings == ()
        assert store.files() == {B, stores.snapshot(6).path, *deltas(7, 8)}
