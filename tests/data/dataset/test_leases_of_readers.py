"""The lease of a version that is opened as a table, where the storage or a clean-up is in its way."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import FaultyStorage, error_after, fail_at, once
from query_directory import QueryDirectory

from state_store.core.checkpoint.names import tombstone_path
from state_store.core.checkpoint.stored_documents import pack_tombstone
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.partitions import PinnedVersion
from state_store.errors import MissingError


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
