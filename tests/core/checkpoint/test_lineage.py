"""Files that make a version, and the errors for missing ones."""

from __future__ import annotations

import pytest

from state_store.core.checkpoint.lineage import Lineages, describe_restorable
from state_store.core.checkpoint.names import EMPTY_PARENT, DeltaName, SnapshotName, VersionId
from state_store.errors import ConflictError, MissingError


def delta(version: int, id_: str, parent: str = EMPTY_PARENT, crc: int = 0) -> DeltaName:
    return DeltaName(version, id_, parent, crc)


A1, A2, A3, A4 = delta(1, "a1"), delta(2, "a2", "a1"), delta(3, "a3", "a2"), delta(4, "a4", "a3")
B3, B4 = delta(3, "b3", "a2"), delta(4, "b4", "b3")
ALL = [A1, A2, A3, A4, B3, B4]


class TestPlans:
    def test_deltas_alone_make_a_version(self) -> None:
        plan = Lineages(ALL, []).plan(A3.version_id)
        assert plan.version == A3.version_id
        assert plan.snapshot is None
        assert plan.deltas == (A1, A2, A3)

    def test_a_plan_begins_with_the_newest_snapshot(self) -> None:
        lineages = Lineages(ALL, [SnapshotName(1, "a1"), SnapshotName(2, "a2")])
        assert lineages.plan(A4.version_id).version == A4.version_id
        assert lineages.plan(A4.version_id).snapshot == SnapshotName(2, "a2")
        assert lineages.plan(A4.version_id).deltas == (A3, A4)
        assert lineages.plan(A2.version_id).deltas == ()
        assert lineages.plan(A1.version_id).snapshot == SnapshotName(1, "a1")

    def test_a_snapshot_of_another_lineage_is_not_used(self) -> None:
        lineages = Lineages(ALL, [SnapshotName(2, "a2"), SnapshotName(3, "b3")])
        assert lineages.plan(A4.version_id).snapshot == SnapshotName(2, "a2")
        assert lineages.plan(B4.version_id).snapshot == SnapshotName(3, "b3")

    def test_a_snapshot_stands_in_for_deltas_that_are_gone(self) -> None:
        plan = Lineages([A4], [SnapshotName(3, "a3")]).plan(A4.version_id)
        assert plan.deltas == (A4,)

    def test_version_zero_is_empty(self) -> None:
        plan = Lineages([], []).plan(VersionId(0, None))
        assert (plan.snapshot, plan.deltas) == (None, ())

    def test_a_later_version_without_a_parent_is_planned_alone(self) -> None:
        fresh = delta(3, "c3", EMPTY_PARENT)
        assert Lineages([*ALL, fresh], []).plan(fresh.version_id).deltas == (fresh,)

    def test_a_plan_begins_with_a_given_snapshot(self) -> None:
        lineages = Lineages(ALL, [SnapshotName(1, "a1"), SnapshotName(3, "a3"), SnapshotName(3, "b3")])
        assert lineages.plan(A4.version_id, start=A1.version_id).deltas == (A2, A3, A4)
        with pytest.raises(MissingError, match="not on the lineage"):
            lineages.plan(A4.version_id, start=B3.version_id)
        with pytest.raises(MissingError, match=r"snapshot/0*2_a2\.zip.*does not exist.*1 \(a1\), 3 \(a3\)"):
            lineages.plan(A4.version_id, start=A2.version_id)
        with pytest.raises(MissingError, match="not on the lineage"):
            lineages.plan(A2.version_id, start=A3.version_id)


class TestMissingVersions:
    def test_a_version_that_is_missing_is_named(self) -> None:
        with pytest.raises(MissingError, match=r"version 5 \(a5\).*'delta/0*5_a5_\*\.sst'") as caught:
            Lineages(ALL, []).plan(VersionId(5, "a5"))
        assert "4 (a4), 4 (b4)" in caught.value.message
        assert "builds on" not in caught.value.message
        assert caught.value.file == "delta/00000000000000000005_a5_*.sst"

    def test_a_missing_version_below_is_named(self) -> None:
        with pytest.raises(MissingError, match=r"delta/0*2_a2_\*\.sst.*builds on.*be restored: 1$"):
            Lineages([A1, A3, A4], []).plan(A4.version_id)

    def test_nothing_is_left(self) -> None:
        with pytest.raises(MissingError, match="no version of this store can be restored"):
            Lineages([A3, A4], []).plan(A4.version_id)

    def test_two_deltas_of_one_version_conflict(self) -> None:
        other = delta(3, "a3", "a2", crc=1)
        with pytest.raises(ConflictError, match=f"'{A3.path}' and '{other.path}' both claim") as caught:
            Lineages([*ALL, other], []).plan(A4.version_id)
        assert caught.value.file == A3.path
        assert Lineages([*ALL, other], []).restorable() == [
            A1.version_id,
            A2.version_id,
            B3.version_id,
            B4.version_id,
        ]
        assert Lineages([*ALL, other], [SnapshotName(3, "a3")]).plan(A4.version_id).deltas == (A4,)


def test_restorable_versions_are_those_that_can_be_planned() -> None:
    lineages = Lineages([A1, A3, A4, B4], [SnapshotName(3, "b3")])
    assert lineages.restorable() == [A1.version_id, VersionId(3, "b3"), B4.version_id]
    assert lineages.history(B4.version_id) == [B4.version_id, VersionId(3, "b3")]
    assert Lineages(ALL, []).history(A3.version_id) == [A3.version_id, A2.version_id, A1.version_id]


def test_runs_of_versions_are_folded() -> None:
    versions = [VersionId(number, None) for number in (1, 2, 3, 7, 9, 10)]
    assert describe_restorable(versions) == "versions that can be restored: 1 to 3, 7, 9 to 10"
    many = [VersionId(number, None) for number in range(0, 40, 2)]
    assert describe_restorable(many).startswith("versions that can be restored: 0, ..., 22, 24")


def test_ids_of_versions_are_shown_where_attempts_share_a_number() -> None:
    known = [VersionId(1, "a"), VersionId(2, "b"), VersionId(3, "c"), VersionId(3, "d"), VersionId(4, "e")]
    assert describe_restorable(known) == "versions that can be restored: 1 to 2, 3 (c), 3 (d), 4"
