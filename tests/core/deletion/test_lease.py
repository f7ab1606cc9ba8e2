"""The writer's side alone: the answers that it gets, and the files that it leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from faults import FaultyStorage, error_before, fail_at
from runtimes import AdjustedRuntime

from deletion import made_up
from state_store.core.checkpoint.names import tombstone_path
from state_store.core.checkpoint.stored_documents import LeaseTerms, pack_tombstone
from state_store.core.deletion.lease import Lease, ReaderLease, find_under_lease
from state_store.core.storage.local import LocalStorage
from state_store.errors import BusyError, ConflictError, StorageError

A, B, NEW = made_up.shared(2, 1), made_up.shared(2, 2), made_up.shared(3, 3)
EXPIRY_MS = 1000


class Clock:
    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


@pytest.fixture
def storage(tmp_path: Path) -> FaultyStorage:
    storage = FaultyStorage(LocalStorage(tmp_path))
    for path in (A, B):
        storage.write(path, made_up.content(path))
    return storage


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lease(storage: FaultyStorage, clock: Clock) -> Lease:
    return Lease(storage, expiry_ms=EXPIRY_MS, runtime=AdjustedRuntime(uptime_ms=clock))


def held(storage: FaultyStorage) -> set[str]:
    """Return the files that the leases in storage name."""
    return {
        path
        for entry in storage.inner.list_files("lease")
        for path in LeaseTerms.unpack(storage.inner.read(f"lease/{entry.name}"), file=entry.name).files
    }


def publish(lease: Lease, *paths: str) -> frozenset[str]:
    return lease.publish(made_up.snapshot(3), made_up.archive(made_up.version(3), paths))


def test_claimed_files_are_held_until_they_are_published(storage: FaultyStorage, lease: Lease) -> None:
    assert lease.hold([A]) == frozenset()
    lease.announce([NEW])
    assert held(storage) == {A, NEW}
    assert publish(lease, A) == frozenset()
    assert held(storage) == set()
    assert storage.exists(made_up.snapshot(3).path)


def test_condemned_and_missing_files_are_refused(storage: FaultyStorage, lease: Lease) -> None:
    missing = made_up.shared(2, 9)
    storage.write(tombstone_path("cleaner"), pack_tombstone([B]))
    assert lease.hold([A, B, missing]) == {B, missing}


def test_a_young_lease_is_not_checked_again(storage: FaultyStorage, lease: Lease, clock: Clock) -> None:
    lease.hold([A])
    clock.now_ms = EXPIRY_MS / 2 - 1
    storage.calls.clear()
    publish(lease, A)
    assert [operation for operation, _ in storage.calls] == ["write", "delete"]


def test_an_old_one_is_renewed_and_checked(storage: FaultyStorage, lease: Lease, clock: Clock) -> None:
    lease.hold([A, B])
    clock.now_ms = EXPIRY_MS / 2
    storage.delete(A)
    assert publish(lease, A, B) == {A}
    assert not storage.exists(made_up.snapshot(3).path)
    assert publish(lease, B) == frozenset()
    assert held(storage) == set()


def test_a_machine_that_a_hypervisor_paused_publishes_nothing_that_was_deleted_meanwhile(
    storage: FaultyStorage, clock: Clock
) -> None:
    """The clock that never jumps stood still, and the wall clock was set right."""
    wall = Clock()
    runtime = AdjustedRuntime(uptime_ms=clock, wall_ms=wall)
    lease = Lease(storage, expiry_ms=EXPIRY_MS, runtime=runtime)
    lease.hold([A, B])
    wall.now_ms = 2 * EXPIRY_MS
    storage.delete(A)
    assert publish(lease, A, B) == {A}
    assert not storage.exists(made_up.snapshot(3).path)
    reader = ReaderLease(storage, expiry_ms=EXPIRY_MS, runtime=runtime)
    reader.hold([B])
    assert reader.renew_in_ms > 0
    wall.now_ms = 3 * EXPIRY_MS
    assert reader.renew_in_ms <= 0


def test_fresh_files_do_not_make_an_old_claim_young(
    storage: FaultyStorage, lease: Lease, clock: Clock
) -> None:
    lease.hold([A])
    clock.now_ms = EXPIRY_MS
    storage.delete(A)
    lease.announce([NEW])
    storage.write(NEW, b"")
    assert publish(lease, A, NEW) == {A}


def test_a_lease_names_files_in_storage_before_they_are_uploaded(
    storage: FaultyStorage, lease: Lease
) -> None:
    lease.hold([A])
    lease.announce([NEW])
    assert NEW in held(storage)


def test_a_lease_says_how_long_it_holds_and_since_when(storage: FaultyStorage) -> None:
    runtime = AdjustedRuntime(wall_ms=lambda: 12_345, uptime_ms=lambda: 678.9, boot="today")
    lease = Lease(storage, expiry_ms=EXPIRY_MS, runtime=runtime)
    lease.hold([A])
    (entry,) = storage.list_files("lease")
    found = LeaseTerms.unpack(storage.read(f"lease/{entry.name}"), file=entry.name)
    assert found == LeaseTerms(frozenset({A}), EXPIRY_MS, 12_345, "today", 678)


def test_while_a_damaged_tombstone_is_young_nothing_is_shared(
    storage: FaultyStorage, lease: Lease, tmp_path: Path
) -> None:
    damaged = tombstone_path("cleaner")
    storage.write(damaged, b"")
    assert lease.hold([A, B]) == {A, B}
    (warning,) = lease.warnings
    assert warning == (
        f"'{damaged}' is damaged, so it is not known which files it condemns: none is shared until it is "
        "1000 ms old"
    )
    lease.announce([NEW])
    storage.write(NEW, b"")
    assert publish(lease, NEW) == frozenset()


def test_an_old_damaged_tombstone_counts_as_absent(
    storage: FaultyStorage, lease: Lease, tmp_path: Path
) -> None:
    storage.write(tombstone_path("cleaner"), b"")
    old = tmp_path / tombstone_path("cleaner")
    at = old.stat().st_mtime - 2 * EXPIRY_MS / 1000
    os.utime(old, (at, at))
    assert lease.hold([A, B]) == frozenset()
    assert lease.warnings == []


@pytest.mark.parametrize("state", ["gone", "condemned"])
def test_a_snapshot_that_came_too_late_stays_and_is_not_trusted(
    storage: FaultyStorage, lease: Lease, clock: Clock, state: str
) -> None:
    """Another cleaner may count on it already: it is not taken back."""
    lease.hold([A])

    def sleep_in_the_write(operation: str, path: str) -> None:
        if operation == "write" and path.startswith("snapshot/"):
            clock.now_ms = EXPIRY_MS
            if state == "gone":
                storage.inner.delete(A)
            else:
                storage.inner.write(tombstone_path("cleaner"), pack_tombstone([A]))

    storage.fault = sleep_in_the_write
    with pytest.raises(BusyError, match=r"snapshot/.*took longer to write.*shared/.*condemned or gone"):
        publish(lease, A)
    assert storage.exists(made_up.snapshot(3).path)


def test_a_late_snapshot_all_of_whose_files_are_in_order_is_published(
    storage: FaultyStorage, lease: Lease, clock: Clock
) -> None:
    lease.hold([A])

    def sleep_in_the_write(operation: str, path: str) -> None:
        if operation == "write" and path.startswith("snapshot/"):
            clock.now_ms = EXPIRY_MS

    storage.fault = sleep_in_the_write
    assert publish(lease, A) == frozenset()
    assert held(storage) == set()


def test_renewal_never_reuses_a_name(storage: FaultyStorage, lease: Lease, clock: Clock) -> None:
    lease.hold([A])
    before = {entry.name for entry in storage.list_files("lease")}
    clock.now_ms = EXPIRY_MS
    storage.delete(A)
    publish(lease, A)
    written = [
        path for operation, path in storage.calls if operation == "write" and path.startswith("lease/")
    ]
    assert len(written) == len(set(written)) == 2
    assert before < {entry.name for entry in storage.list_files("lease")}


def test_an_existing_snapshot_stays_unless_it_is_to_be_replaced(storage: FaultyStorage, lease: Lease) -> None:
    storage.write(made_up.snapshot(3).path, b"theirs")
    with pytest.raises(ConflictError), lease:
        lease.hold([A])
        publish(lease, A)
    assert storage.read(made_up.snapshot(3).path) == b"theirs"
    assert held(storage) == set()
    lease.hold([A])
    assert lease.publish(made_up.snapshot(3), b"ours", overwrite=True) == frozenset()
    assert storage.read(made_up.snapshot(3).path) == b"ours"


def test_leaving_gives_it_back_and_hides_no_error(storage: FaultyStorage, lease: Lease) -> None:
    with pytest.raises(ZeroDivisionError), lease:
        lease.hold([A])
        storage.fault = fail_at("delete", "lease/")
        raise ZeroDivisionError
    storage.fault = lambda operation, path: None
    lease.release()
    assert held(storage) == set()


def test_a_lease_that_cannot_be_given_back_says_so(storage: FaultyStorage, lease: Lease) -> None:
    storage.fault = fail_at("delete", "lease/")
    with pytest.raises(StorageError, match="injected"), lease:
        lease.hold([A])


@pytest.mark.parametrize("refusals", [1, 1000])
def test_a_snapshot_is_published_although_its_lease_cannot_be_given_back(
    storage: FaultyStorage, lease: Lease, refusals: int
) -> None:
    """Storage may let nothing be deleted, and the lease runs out by itself: that makes no merge fail."""
    refused: list[str] = []

    def refusing(operation: str, path: str) -> object:
        if operation != "delete" or len(refused) == refusals:
            return None
        refused.append(path)
        return error_before

    with lease:
        lease.hold([A])
        storage.fault = refusing
        assert publish(lease, A) == frozenset()
    assert storage.read(made_up.snapshot(3).path)
    assert held(storage) == ({A} if refusals > 1 else set())
    assert [warning for warning in lease.warnings if refused[0] in warning] == lease.warnings
    assert bool(lease.warnings) == (refusals > 1)


def test_a_find_with_a_lost_file_is_given_up_although_its_lease_cannot_be_given_back(
    storage: FaultyStorage,
) -> None:
    """Otherwise the reader takes files for held that a cleaner has condemned, or deleted."""
    storage.write(tombstone_path("cleaner"), pack_tombstone([A]))
    storage.fault = fail_at("delete", "lease/")
    finds, given_up = iter([A, B]), list[str]()
    found, lease, lost = find_under_lease(
        lambda: next(finds),
        lambda path: frozenset([path]),
        given_up.append,
        lambda: ReaderLease(storage, expiry_ms=EXPIRY_MS, runtime=AdjustedRuntime(uptime_ms=Clock())),
    )
    assert (found, lost, given_up) == (B, frozenset(), [A])
    assert lease is not None and held(storage) == {A, B}


def test_a_lease_that_stays_keeps_no_other(storage: FaultyStorage, lease: Lease) -> None:
    lease.hold([A])
    lease.announce([NEW])
    newest = [path for operation, path in storage.calls if operation == "write"][-1]
    assert len(storage.list_files("lease")) > 1
    storage.fault = lambda operation, path: (operation, path) == ("delete", newest) and error_before
    with pytest.raises(StorageError, match=newest):
        lease.release()
    assert [f"lease/{entry.name}" for entry in storage.list_files("lease")] == [newest]
    storage.fault = lambda operation, path: None
    lease.release()
    assert storage.list_files("lease") == []


def test_a_full_snapshot_needs_no_claim(storage: FaultyStorage, lease: Lease) -> None:
    assert lease.hold([]) == frozenset()
    lease.announce([NEW])
    storage.write(NEW, b"")
    storage.calls.clear()
    publish(lease, NEW)
    assert [operation for operation, _ in storage.calls] == ["write", "delete"]


def test_a_lease_is_as_old_as_its_renewal_and_not_as_the_check_that_followed(
    lease: Lease, storage: FaultyStorage, clock: Clock
) -> None:
    """A slow listing takes half of the lease; to others it counts from its write on."""

    def slow_listing(operation: str, path: str) -> None:
        if (operation, path) == ("list", "shared"):
            clock.now_ms += EXPIRY_MS / 2

    storage.fault = slow_listing
    assert lease.hold([A, B]) == frozenset()
    storage.inner.delete(A)
    assert publish(lease, A, B) == {A}
    assert storage.inner.list_files("snapshot") == []
