from __future__ import annotations

from state_store.core.checkpoint.manifest import FULL, FileEntry, Manifest
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.planning.chain import Chain, ChainDelta


def delta(version: int, id_: str, parent: str, size_bytes: int = 10) -> ChainDelta:
    return ChainDelta.from_listing(DeltaName(version, id_, parent, 7), size_bytes)


def chain(count: int) -> Chain:
    made = Chain()
    for version in range(1, count + 1):
        made = made.commit(delta(version, f"v{version}", f"v{version - 1}" if version > 1 else "empty"))
    return made


def snapshot(version: int) -> Manifest:
    at = VersionId(version, f"v{version}")
    file = FileEntry("000009.sst", f"shared/{version:020d}-00000000-9.sst", 100, "0" * 64, 6, version)
    return Manifest(version, at.checkpoint_id, FULL, None, at, 0, 0, 5, (file,))


def test_a_commit_made_again_changes_nothing() -> None:
    once = chain(3)
    assert once.commit(once.deltas[-1]) == once
    assert (once.delta_bytes, once.files, once.version) == (30, 3, VersionId(3, "v3"))


def test_a_commit_that_the_snapshot_has_changes_nothing() -> None:
    made = chain(3)
    merged = made.publish(snapshot(3))
    assert merged.commit(made.deltas[-1]) == merged


def test_another_size_replaces_the_last() -> None:
    again = chain(3).commit(delta(3, "v3", "v2", 25))
    assert (len(again.deltas), again.delta_bytes) == (3, 45)


def test_a_snapshot_replaces_the_deltas_up_to_it() -> None:
    made = chain(5).publish(snapshot(3))
    assert [delta.name.version for delta in made.deltas] == [4, 5]
    assert (made.delta_bytes, made.size_bytes, made.files) == (20, 120, 3)
    assert made.deltas_since_full == 2
    assert made.paths() == {entry.path for entry in snapshot(3).files} | {d.name.path for d in made.deltas}


def test_the_way_between_two_versions() -> None:
    made = chain(5).publish(snapshot(2))
    at = VersionId(2, "v2")
    between = made.between(at, VersionId(4, "v4"))
    assert between is not None
    assert [delta.name.version for delta in between] == [3, 4]
    assert made.between(VersionId(4, "v4"), VersionId(4, "v4")) == ()


def test_no_way_to_another_lineage_or_back() -> None:
    made = chain(5)
    assert made.between(VersionId(3, "other"), VersionId(5, "v5")) is None
    assert made.between(VersionId(5, "v5"), VersionId(3, "v3")) is None
    assert made.between(VersionId(5, "v5"), VersionId(6, "v6")) is None
    assert made.between(None, VersionId(5, "v5")) == made.deltas
