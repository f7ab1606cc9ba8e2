"""The lease of a version that is open as a table: renewed for as long as it is open.

At the end are storages and clean-ups that are in its way.
"""

from __future__ import annotations

import gc
import os
import shutil
import threading
import warnings
from pathlib import Path

import pytest
from faults import FaultyStorage, error_after, fail_at, once
from query_directory import QueryDirectory
from runtimes import AdjustedRuntime

from state_store.core.checkpoint.names import tombstone_path
from state_store.core.checkpoint.stored_documents import pack_tombstone
from state_store.core.deletion.lease import KeptLease, ReaderLease, keeper_of
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.partitions import PinnedVersion
from state_store.errors import MissingError

HALF_MS = 1_800_000


class Opened:
    """A version of a query that is open, and the time since."""

    def __init__(self, tmp_path: Path) -> None:
        query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
        query.commit({b"a": b"1"})
        (key,) = query.keys
        self.passed_ms = 0.0
        self.runtime = AdjustedRuntime(uptime_ms=lambda: self.passed_ms)
        self.root = tmp_path / "checkpoint"
        self.pin: PinnedVersion | None = PinnedVersion(
            key, query.store(key), 1, query.newest[key], runtime=self.runtime
        )

    def leases(self) -> set[Path]:
        return set(self.root.rglob("lease/*.json"))


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path)


def test_the_lease_is_renewed_until_the_version_is_released(opened: Opened) -> None:
    first = opened.leases()
    keeper = keeper_of(opened.runtime)
    assert keeper.look()
    assert opened.leases() == first
    opened.passed_ms = HALF_MS
    keeper.look()
    assert len(opened.leases()) == 1
    assert opened.leases() != first
    opened.pin.release()
    assert not opened.leases()
    assert not keeper.look()


def test_a_version_that_was_forgotten_is_renewed_no_more(opened: Opened) -> None:
    first = opened.leases()
    opened.pin = None
    gc.collect()
    opened.passed_ms = HALF_MS
    keeper_of(opened.runtime).look()
    assert opened.leases() == first


def test_a_removed_checkpoint_is_not_brought_back(opened: Opened) -> None:
    shutil.rmtree(opened.root)
    opened.passed_ms = HALF_MS
    keeper_of(opened.runtime).look()
    assert not opened.root.exists()
    opened.pin.release()


def test_an_error_that_nobody_expects_ends_the_renewal_of_no_lease(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened.leases()
    opened.passed_ms = HALF_MS
    keeper = keeper_of(opened.runtime)

    def fail(lease: KeptLease) -> None:
        raise RuntimeError("a storage of others")

    with monkeypatch.context() as broken:
        broken.setattr(KeptLease, "renew_if_due", fail)
        assert keeper.look()
    assert keeper.look()
    assert opened.leases() != first


def test_a_forked_process_renews_its_own_leases(opened: Opened) -> None:
    assert keeper_of(opened.runtime).look()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        try:
            KeptLease(ReaderLease(LocalStorage(opened.root), expiry_ms=1), opened.runtime)
            os._exit("leases" not in [thread.name for thread in threading.enumerate()])
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


class Stored:
    """A store with one version, through a storage that fails where it is told to."""

    def __init__(self, tmp_path: Path) -> None:
        self.query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
        self.query.commit({b"a": b"1"})
        (self.key,) = self.query.keys
        self.storage = FaultyStorage(LocalStorage(self.query.root / self.key.path))

    def pinned(self) -> PinnedVersion:
        return PinnedVersion(self.key, self.storage, 1, self.query.newest[self.key])

    def delta(self) -> str:
        (entry,) = self.storage.inner.list_files("delta")
        return f"delta/{entry.name}"


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def test_a_lease_of_which_nobody_knows_if_it_was_written_is_gone_without(stored: Stored) -> None:
    stored.storage.fault = once("write", "lease/", error_after)
    assert stored.delta() in stored.pinned().paths


def test_a_file_that_is_condemned_and_needed_after_all_is_read(stored: Stored) -> None:
    """Its cleaner found a lease, or a snapshot that names it, and left it. The tombstone stays, too."""
    stored.storage.write(tombstone_path("cleaner"), pack_tombstone([stored.delta()]))
    pin = stored.pinned()
    assert stored.delta() in pin.paths
    pin.release()


def test_a_file_that_is_gone_is_missing_although_the_lease_cannot_be_given_back(stored: Stored) -> None:
    delta = stored.delta()
    stored.storage.fault = lambda operation, path: (
        stored.storage.inner.delete(delta)
        if (operation, path) == ("list", "tombstone")
        else fail_at("delete", "lease/")(operation, path)
    )
    with pytest.raises(MissingError):
        stored.pinned()
