"""When a clean-up does not know enough, it deletes nothing, or less."""

from __future__ import annotations

import time
import zlib
from pathlib import Path

import pytest
from faults import FAULTS, once
from runtimes import AdjustedRuntime

from deletion import made_up
from deletion.directory_store import A, B, C, Store, deltas
from state_store.core.checkpoint.names import lease_path, tombstone_path
from state_store.core.checkpoint.stored_documents import LeaseTerms, pack_tombstone
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.storage.contract import BoundedStorage, Deadline
from state_store.errors import BusyError, DamagedError, FormatError

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
OF_ANOTHER_FORMAT = LeaseTerms(frozenset(), 5, 6).pack().replace(b'"format":1', b'"format":3')
"""So a lease looks of whose first digit a bit has flipped."""


def sealed(text: bytes) -> bytes:
    return b'%s,"crc":"%08x"}' % (text[:-1], zlib.crc32(text))


class TestCaution:
    def test_a_version_that_cannot_be_restored_stops_it(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.storage.inner.delete(B)
        store.storage.inner.delete(made_up.delta(5).path)
        before = store.files()
        cleanup = store.clean()
        assert cleanup.skipped == "version 8 (id-8) cannot be restored from the files that are there"
        assert store.files() == before

    def test_the_older_chain_stays_while_the_newer_is_broken(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.storage.inner.delete(B)
        store.clean()
        assert {A, made_up.snapshot(3).path, *deltas(4, 5, 6, 7, 8)} <= store.files()

    @pytest.mark.parametrize("fault", ["damaged-read", "short-read"])
    def test_an_archive_that_is_read_wrongly_once_is_not_damaged(self, tmp_path: Path, fault: str) -> None:
        store = Store(tmp_path, 10, {3: [A], 6: [B], 9: [C]})
        store.storage.fault = once("read", made_up.snapshot(6).path, FAULTS[fault].fault)
        cleanup = store.clean(batches=4)
        assert cleanup.skipped is None
        assert [version.number for version in cleanup.retained] == [7, 8, 9, 10]
        assert {B, made_up.snapshot(6).path, *deltas(7, 8, 9, 10)} <= store.files()

    @pytest.mark.parametrize("directory", ["lease", "tombstone"])
    def test_a_claim_that_is_read_wrongly_once_is_not_damaged(self, tmp_path: Path, directory: str) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        now_ms = int(time.time() * 1000)
        packed = {"lease": LeaseTerms(frozenset(), HOUR_MS, now_ms).pack(), "tombstone": pack_tombstone([A])}
        store.put(f"{directory}/x.json", packed[directory])
        store.storage.fault = once("read", directory, FAULTS["damaged-read"].fault)
        cleanup = store.clean()
        assert (cleanup.skipped, cleanup.warnings) == (None, ())

    def test_the_newest_version_is_not_there(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        cleanup = store.retention().cleanup(made_up.version(12))
        assert cleanup.skipped == "version 12 (id-12) cannot be restored from the files that are there"
        assert cleanup.floor == 0

    def test_files_that_a_damaged_archive_may_name_stay(self, tmp_path: Path) -> None:
        taken_over = made_up.shared(5, 9)
        store = Store(tmp_path, 8, {3: [A], 6: [B], 8: [taken_over]})
        store.put(made_up.snapshot(8).path, b"PK")
        store.age(taken_over, 2 * DAY_MS)
        cleanup = store.clean()
        assert cleanup.skipped is None
        (warning,) = cleanup.warnings
        assert warning.startswith(f"snapshot '{made_up.snapshot(8).path}' counts as absent: ")
        assert "not a whole zip archive" in warning
        # What it may name stays; what nobody needs without it goes.
        assert store.files() == {
            B,
            taken_over,
            made_up.snapshot(6).path,
            made_up.snapshot(8).path,
            *deltas(7, 8),
        }

    def test_nothing_is_deleted_if_the_newest_version_cannot_be_restored(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B], 8: [C]})
        store.put(made_up.snapshot(6).path, b"PK")
        store.put(made_up.snapshot(3).path, b"PK")
        store.put(made_up.snapshot(8).path, b"PK")
        store.storage.inner.delete(made_up.delta(2).path)
        before = store.files()
        assert store.clean().skipped == "version 8 (id-8) cannot be restored from the files that are there"
        assert store.files() == before

    def test_an_archive_of_another_version_is_damaged(self, tmp_path: Path) -> None:
        """A backup that was put back under a wrong name: a restore refuses it, so nobody counts on it."""
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.put(made_up.snapshot(6).path, made_up.archive(made_up.version(3), [A]))
        store.clean()
        assert {A, made_up.snapshot(3).path, *deltas(4, 5, 6, 7, 8)} <= store.files()

    def test_a_damaged_archive_that_appears_meanwhile_stops_it_once(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})

        def appear(operation: str, path: str) -> None:
            if operation == "write" and path.startswith("tombstone/"):
                store.put(made_up.snapshot(7).path, b"PK")

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
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}

    def test_nothing_is_deleted_if_a_version_depends_on_a_condemned_file(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {6: [B], 8: [C]})
        for number in (1, 2):
            store.storage.inner.delete(made_up.delta(number).path)
        store.put(tombstone_path("cleaner"), pack_tombstone([B]))
        store.put(made_up.shared(5, 9))
        before = store.files()
        cleanup = store.clean()
        assert cleanup.skipped == (
            "version 7 (id-7) needs a snapshot of which another clean-up has condemned a file; the next "
            "merge ends that"
        )
        assert store.files() == before

    def test_a_snapshot_whose_archive_is_condemned_is_not_counted_on(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.put(tombstone_path("cleaner"), pack_tombstone([made_up.snapshot(6).path]))
        store.clean()
        assert {A, made_up.snapshot(3).path, *deltas(4, 5, 6, 7, 8)} <= store.files()

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
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}

    def test_a_damaged_archive_below_the_window_goes(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        store.put(made_up.snapshot(3).path, b"PK")
        store.clean()
        assert made_up.snapshot(3).path not in store.files()

    def test_a_newer_format_stops_it(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 8, {3: [A], 6: [B]})
        before = store.files()
        store.put(lease_path("newer"), sealed(b'{"format":2,"files":"?"}'))
        with pytest.raises(FormatError, match=r"lease/newer\.json.*format 2"):
            store.clean()
        store.age(lease_path("newer"), 30 * DAY_MS)
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
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}

    @pytest.mark.parametrize("content", [b"", b"{", OF_ANOTHER_FORMAT])
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
        assert store.files() == {B, made_up.snapshot(6).path, *deltas(7, 8)}
