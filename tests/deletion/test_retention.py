"""What a clean-up keeps and what it deletes, and what it costs when there is nothing to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from faults import FaultyStorage, fail_at

from deletion import stores
from state_store.checkpoint.file_list import pack_file_list
from state_store.checkpoint.names import lease_path
from state_store.checkpoint.registry import Registry
from state_store.deletion.inventory import Inventory
from state_store.deletion.lease import Lease
from state_store.deletion.retention import Cleanup, Retention, RetentionPolicy
from state_store.errors import DamagedError, FormatError, StorageError
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
        return Inventory.read(self.storage.inner, {}).registry(0)

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
        past = Retention(store.storage, policy, clock_ms=lambda: NOW_MS - 10**12)
        assert past.cleanup(store.newest).deleted == ()

    def test_a_clock_that_jumped_ahead_leaves_the_newest(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 9, {3: [A], 6: [B]})
        policy = RetentionPolicy(batches=100, age_ms=DAY_MS)
        future = Retention(store.storage, policy, clock_ms=lambda: NOW_MS + 10**12)
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
        of = stores.VersionId(4, None)
        storage.write("snapshot/00000000000000000004.zip", stores.archive(of, [A]))
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
        store.put(live, pack_file_list([held]))
        store.put(dead, pack_file_list([loose]))
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
        store = Store(tmp_path, 8, {3: [A], 6: [B], 8: [C]})
        store.put(stores.snapshot(8).path, b"PK")
        cleanup = store.clean()
        assert cleanup.skipped is not None
        assert stores.snapshot(8).path in cleanup.skipped
        assert C in store.files()

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

    def test_a_damaged_lease_stops_it_until_it_expires(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.put(lease_path("bad"), b"{")
        before = store.files()
        with pytest.raises(DamagedError, match=r"lease/bad\.json"):
            store.clean()
        assert before <= store.files()
        store.age(lease_path("bad"), 2 * HOUR_MS)
        store.put(stores.delta(9).path)
        store.newest = stores.version(9)
        store.clean()
        assert A not in store.files()
