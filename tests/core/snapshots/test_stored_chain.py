"""The chain of a store as a process reads it that takes the store over."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_store.core.checkpoint.lineage import Chain
from state_store.core.checkpoint.names import SnapshotName, VersionId
from state_store.core.planning.policy import StoreStatistics
from state_store.core.snapshots.restore import read_chain, restore
from state_store.core.storage.local import LocalStorage
from state_store.data.embedded import EmbeddedStore


@pytest.fixture
def versions(tmp_path: Path) -> list[VersionId]:
    """Five versions: a full snapshot of the second, an incremental one of the fourth."""
    made = []
    with EmbeddedStore(LocalStorage(tmp_path / "state"), tmp_path / "local") as store:
        for version in range(1, 6):
            for row in range(2000 if version == 1 else 5):
                store.put(b"%d-%06d" % (version, row), b"v" * 50)
            made.append(store.commit())
            if version in (2, 4):
                store.checkpoint(full=version == 2)
    return made


def test_the_full_snapshot_is_known_again(tmp_path: Path, versions: list[VersionId]) -> None:
    storage = LocalStorage(tmp_path / "state")
    chain, warnings = read_chain(storage, versions[4])
    assert warnings == []
    assert chain.snapshot is not None and chain.full_snapshot is not None
    assert (chain.snapshot.version, chain.snapshot.kind) == (4, "incremental")
    assert (chain.full_snapshot.version, chain.full_snapshot.kind) == (2, "full")
    with EmbeddedStore(storage, tmp_path / "other") as store:
        assert restore(store._context, versions[4]).chain == chain
    statistics = StoreStatistics()
    statistics.note_snapshot(chain.snapshot.created_ms, chain.snapshot, chain.full_snapshot)
    assert statistics.full_ms == chain.full_snapshot.created_ms


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"PK")], ids=["gone", "damaged"])
def test_nothing_fails_if_an_archive_cannot_be_read(tmp_path: Path, versions: list[VersionId], harm) -> None:
    harm(tmp_path / "state" / SnapshotName(*versions[1]).path)
    chain, _ = read_chain(LocalStorage(tmp_path / "state"), versions[4])
    assert chain.snapshot is not None and chain.full_snapshot is None
    assert chain.publish(chain.snapshot).full_snapshot is None


def test_a_full_snapshot_is_its_own(tmp_path: Path, versions: list[VersionId]) -> None:
    chain, _ = read_chain(LocalStorage(tmp_path / "state"), versions[2])
    assert chain.snapshot is not None
    assert chain.full_snapshot == chain.snapshot
    assert Chain().publish(chain.snapshot).full_snapshot == chain.snapshot
