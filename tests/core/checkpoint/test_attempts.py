"""Attempts: the one that a number stands for, and those that may count."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_store.core.checkpoint.lineage import AttemptId, Attempts, next_ordinal
from state_store.core.checkpoint.names import (
    EMPTY_PARENT,
    DeltaName,
    RefusedName,
    SnapshotName,
    VersionId,
    parent_of,
)
from state_store.errors import ConflictError

NOTHING = VersionId(0, None)


def attempt(ordinal: int, *, task: int = 0, unique: int = 0, application: str = "0" * 8) -> str:
    return str(AttemptId(ordinal, application, task, f"{unique:08x}"))


def delta(number: int, id_: str, before: VersionId = NOTHING) -> DeltaName:
    return DeltaName(number, id_, parent_of(before), 0)


A1 = delta(1, attempt(0, unique=1))
A2 = delta(2, attempt(0, unique=2), A1.version_id)
B2 = delta(2, attempt(1, unique=3), A1.version_id)
C2 = delta(2, attempt(0, unique=4), A1.version_id)
REFUSED_A2 = RefusedName(*A2.version_id)


@settings(max_examples=20)
@given(st.integers(0, 10**9), st.from_regex(r"[0-9a-f]{8}", fullmatch=True), st.integers(0, 10**12))
def test_ids_are_read_as_they_are_written(ordinal: int, eight: str, task: int) -> None:
    attempt_id = AttemptId(ordinal, eight, task, eight[::-1])
    assert AttemptId.parse(str(attempt_id)) == attempt_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a0",
        "a01-00000000-0-00000000",
        "a-00000000-0-00000000",
        "a0-00000000-0-0000000g",
        "a0-00000000-00-00000000",
        "a0-00000000-0-00000000-",
        "006cb0bc-64a3-49bd-b827-df8717429ae9",
        "a1234567-64a3-49bd-b827-df8717429ae9",
    ],
)
def test_other_ids_are_sparks(text: str) -> None:
    assert AttemptId.parse(text) is None


class TestMeaning:
    def test_it_is_the_highest_ordinal(self) -> None:
        assert Attempts([A1, A2, B2]).resolve(2) == B2.version_id
        assert Attempts([A1, delta(2, attempt(9)), delta(2, attempt(10))]).resolve(2) == (2, attempt(10))

    def test_ids_of_spark_are_not_meant(self) -> None:
        uuid = "006cb0bc-64a3-49bd-b827-df8717429ae9"
        assert Attempts([delta(2, uuid)], snapshots=[SnapshotName(2, uuid)]).resolve(2) is None
        assert Attempts([delta(2, uuid), A2]).resolve(2) == A2.version_id

    def test_a_refused_attempt_is_not_meant(self) -> None:
        assert Attempts([A1, A2, B2], [RefusedName(*B2.version_id)]).resolve(2) == A2.version_id
        assert Attempts([A1, A2], [REFUSED_A2]).resolve(2) is None

    def test_nothing_is_meant_where_nothing_is(self) -> None:
        assert Attempts([A1]).resolve(2) is None
        assert Attempts([]).resolve(0) is None

    def test_a_snapshot_is_enough(self) -> None:
        assert Attempts([], snapshots=[SnapshotName(*A2.version_id)]).resolve(2) == A2.version_id

    def test_the_attempt_that_the_query_went_on_from_counts_among_equals(self) -> None:
        later = delta(3, attempt(0), C2.version_id)
        times = {A2: 1, C2: 2}
        assert Attempts([A1, A2, C2, later], written_ms=times).resolve(2) == C2.version_id
        assert Attempts([A1, A2, C2], (), [SnapshotName(*C2.version_id)], times).resolve(2) == C2.version_id

    def test_the_attempt_that_was_written_first_counts_among_equals(self) -> None:
        assert Attempts([A1, A2, C2], written_ms={A2: 2, C2: 1}).resolve(2) == C2.version_id
        assert Attempts([A1, A2, C2], written_ms={A2: 1, C2: 2}).resolve(2) == A2.version_id

    def test_both_attempts_are_named_if_nothing_decides(self) -> None:
        with pytest.raises(ConflictError, match="remove the one") as failure:
            Attempts([A1, A2, C2], written_ms={A2: 1, C2: 1}).resolve(2)
        first, second = sorted([A2.path, C2.path])
        assert f"'{first}' and '{second}'" in failure.value.message
        assert failure.value.file == first


class TestOrdinals:
    def test_the_first_has_none_before_it(self) -> None:
        assert next_ordinal([], 3) == 0
        assert next_ordinal([A1.version_id, B2.version_id], 3) == 0

    def test_the_next_is_above_all_that_were_there(self) -> None:
        assert next_ordinal([B2.version_id, A2.version_id], 2) == 2

    def test_the_seen_attempts_are_those_at_later_versions(self) -> None:
        assert Attempts([A1, A2, B2]).after(1) == {A2.version_id, B2.version_id}


class TestObjections:
    def test_there_is_none_against_the_only_one(self) -> None:
        assert Attempts([A1, A2]).why_refused(A2, frozenset()) is None
        assert Attempts([A1]).why_refused(A1, frozenset()) is None

    def test_there_is_none_because_of_what_was_known(self) -> None:
        old = frozenset([A2.version_id, VersionId(3, attempt(0))])
        stored = [A1, A2, B2, delta(3, attempt(0), A2.version_id)]
        assert Attempts(stored).why_refused(B2, old) is None

    def test_an_attempt_at_the_same_time_is_refused_from_either_side(self) -> None:
        stored = Attempts([A1, A2, C2])
        for mine, other in ((A2, C2), (C2, A2)):
            assert f"another attempt committed it meanwhile ('{other.path}')" == stored.why_refused(
                mine, frozenset()
            )

    def test_a_later_one_is_not_refused_because_of_an_earlier_one(self) -> None:
        stored = Attempts([A1, A2, B2])
        assert stored.why_refused(B2, frozenset()) is None
        assert stored.why_refused(A2, frozenset()) is not None

    def test_the_query_has_gone_on(self) -> None:
        stored = Attempts([A2, delta(5, attempt(0), VersionId(4, attempt(0)))])
        assert "the query has gone on to version 5" in str(stored.why_refused(A2, frozenset()))

    def test_the_version_before_was_committed_anew(self) -> None:
        mine = delta(3, attempt(0), A2.version_id)
        assert "was committed anew" in str(Attempts([A1, A2, B2, mine]).why_refused(mine, frozenset()))
        mine = delta(3, attempt(0), B2.version_id)
        assert Attempts([A1, A2, B2, mine]).why_refused(mine, frozenset()) is None

    def test_the_version_before_was_given_up(self) -> None:
        mine = delta(3, attempt(0), A2.version_id)
        stored = Attempts([A1, A2, mine], [REFUSED_A2])
        assert "which it builds on, was given up" in str(stored.why_refused(mine, frozenset()))

    def test_it_was_given_up_itself(self) -> None:
        assert Attempts([A1, A2], [REFUSED_A2]).why_refused(A2, frozenset()) == "it was given up"

    def test_a_refused_attempt_is_in_the_way_at_its_version(self) -> None:
        """A third attempt may have seen it, and have a higher ordinal because of it."""
        assert Attempts([A1, A2, C2], [REFUSED_A2]).why_refused(C2, frozenset()) is not None

    def test_a_refused_attempt_is_not_in_the_way_of_the_next_version(self) -> None:
        mine = delta(3, attempt(0), C2.version_id)
        marked = RefusedName(*B2.version_id)
        assert Attempts([A1, B2, C2, mine], [marked]).why_refused(mine, frozenset()) is None

    def test_a_version_before_whose_delta_is_not_needed_any_more_is_fine(self) -> None:
        mine = delta(3, attempt(0), A2.version_id)
        assert Attempts([mine]).why_refused(mine, frozenset()) is None

    def test_an_attempt_with_an_id_of_spark_is_in_the_way(self) -> None:
        sparks = DeltaName(2, "006cb0bc-64a3-49bd-b827-df8717429ae9", EMPTY_PARENT, 0)
        assert Attempts([A1, A2, sparks]).why_refused(A2, frozenset()) is not None


class TestLaunchOrder:
    def overtaken(self, mine: str, *seen: str) -> str | None:
        return Attempts([]).superseded_by(
            VersionId(2, mine), frozenset(VersionId(2, checkpoint_id) for checkpoint_id in seen)
        )

    def test_a_task_that_was_launched_later_counts_more(self) -> None:
        assert "launched later" in str(self.overtaken(attempt(1, task=4), attempt(0, task=9)))
        assert self.overtaken(attempt(1, task=9), attempt(0, task=4)) is None
        assert self.overtaken(attempt(1, task=9), attempt(0, task=9)) is None

    def test_tasks_of_another_application_have_no_order(self) -> None:
        assert self.overtaken(attempt(1, task=4), attempt(0, task=9, application="1" * 8)) is None

    def test_other_versions_and_other_ids_do_not_matter(self) -> None:
        seen = frozenset([VersionId(3, attempt(0, task=9)), VersionId(2, "sparks-own")])
        assert Attempts([]).superseded_by(VersionId(2, attempt(1, task=4)), seen) is None
