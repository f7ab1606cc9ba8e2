from __future__ import annotations

from dataclasses import replace

from state_store.core.checkpoint.lineage import Chain, ChainDelta
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, FileEntry, Manifest
from state_store.core.planning.cost import RestoreWork


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


def test_a_chain_of_a_listing_has_its_files_and_the_full_snapshot_before() -> None:
    full, newest = snapshot(1), replace(snapshot(3), kind=INCREMENTAL)
    deltas = [delta(4, "v4", "v3", 11), delta(5, "v5", "v4", 12)]
    made = Chain.from_listing(VersionId(5, "v5"), newest, deltas, full)
    assert (made.version, made.snapshot, made.full_snapshot) == (VersionId(5, "v5"), newest, full)
    assert [(delta.size_bytes, delta.crc32) for delta in made.deltas] == [(11, 7), (12, 7)]
    assert made.delta_bytes == 23
    assert Chain.from_listing(VersionId(0, None), None, []).version is None


def test_a_restore_reads_the_archive_of_the_full_snapshot_if_it_is_another() -> None:
    full, newest = snapshot(1), replace(snapshot(3), kind=INCREMENTAL)
    at = VersionId(3, "v3")
    assert RestoreWork.of_chain(Chain.from_listing(at, newest, [], full)).archives == 2
    assert RestoreWork.of_chain(Chain.from_listing(at, newest, [])).archives == 1
    assert RestoreWork.of_chain(Chain.from_listing(at, snapshot(3), [], snapshot(3))).archives == 1
    assert RestoreWork.of_chain(chain(3)).archives == 0
    work = RestoreWork.of_chain(Chain.from_listing(at, newest, [delta(4, "v4", "v3", 11)], full))
    assert (work.files, work.deltas, work.size_bytes) == (2, 1, 111)


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


def test_new_bytes_are_those_of_the_snapshot_or_else_of_the_delta() -> None:
    made = chain(5)
    assert [made.new_bytes(VersionId(number, f"v{number}")) for number in (3, 5, 6)] == [10, 10, None]
    merged = made.publish(snapshot(3))
    assert [merged.new_bytes(VersionId(number, f"v{number}")) for number in (2, 3, 4)] == [None, 100, 10]
    shared = made.publish(replace(snapshot(3), files=snapshot(2).files))
    assert shared.new_bytes(VersionId(3, "v3")) is None


def test_the_deltas_between_two_versions_are_found() -> None:
    made = chain(5).publish(snapshot(2))
    at = VersionId(2, "v2")
    between = made.between(at, VersionId(4, "v4"))
    assert between is not None
    assert [delta.name.version for delta in between] == [3, 4]
    assert made.between(VersionId(4, "v4"), VersionId(4, "v4")) == ()


def test_no_deltas_lead_to_another_lineage_or_back() -> None:
    made = chain(5)
    assert made.between(VersionId(3, "other"), VersionId(5, "v5")) is None
    assert made.between(VersionId(5, "v5"), VersionId(3, "v3")) is None
    assert made.between(VersionId(5, "v5"), VersionId(6, "v6")) is None
    assert made.between(None, VersionId(5, "v5")) == made.deltas
