"""The lease of a version that is open as a table: renewed for as long as it is open."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import warnings
from pathlib import Path

import pytest
from query_directory import QueryDirectory
from runtimes import AdjustedRuntime

from state_store.core.deletion.lease import KeptLease, ReaderLease, keeper_of
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.partitions import PinnedVersion

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
