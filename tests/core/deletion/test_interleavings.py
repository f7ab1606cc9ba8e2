"""No needed file is ever deleted: every interleaving of writers and cleaners, on their real code."""

from __future__ import annotations

import pytest

from deletion import made_up
from deletion.explorer import explore, wander
from deletion.programs import (
    EXPIRY_MS,
    LATE,
    RANDOM,
    SWITCHES,
    A,
    WithoutSweep,
    about_to,
    and_snapshots_are_whole,
    broken_while_a_cleaner_reads,
    cleaner,
    committer,
    different,
    everybody,
    full_writer,
    leaves_nothing,
    replaced_while_a_cleaner_reads,
    retained_can_be_restored,
    start,
    writer,
)
from state_store.core.deletion.retention import Retention

pytestmark = pytest.mark.usefixtures("think_once")


few_switches_or_all = pytest.mark.parametrize(
    "switches",
    [
        pytest.param(SWITCHES, marks=pytest.mark.tier("more"), id="few-switches"),
        pytest.param(None, marks=pytest.mark.tier("long"), id="all"),
    ],
)


class TestNoNeededFileIsDeleted:
    def test_a_writer_and_a_cleaner_leave_whole_snapshots_and_nothing_else(self) -> None:
        found = explore([writer(1), cleaner(1)], start(), and_snapshots_are_whole)
        for state in different(found.ends):
            leaves_nothing(state)
            assert made_up.snapshot(5).path in state.as_dict()

    def test_two_cleaners_leave_whole_snapshots_and_nothing_else(self) -> None:
        found = explore([cleaner(1), cleaner(2)], start(), and_snapshots_are_whole)
        for state in different(found.ends):
            leaves_nothing(state)

    def test_a_cleaner_that_does_not_know_the_newest_versions_breaks_no_snapshot(self) -> None:
        explore([writer(1), cleaner(1, newest=5)], start(), and_snapshots_are_whole)

    def test_two_writers_both_publish_whole_snapshots(self) -> None:
        found = explore([writer(1, 5), writer(2, 6)], start(), and_snapshots_are_whole)
        assert all(made_up.snapshot(6).path in state.as_dict() for state in found.ends)

    def test_two_writers_of_one_snapshot_leave_it_whole(self) -> None:
        explore([writer(1, 5), writer(2, 5)], start(), and_snapshots_are_whole)

    @pytest.mark.tier("more")
    def test_retained_versions_survive_a_lease_that_may_run_out_at_any_moment(self) -> None:
        found = explore(
            [writer(1), cleaner(1)], start(), retained_can_be_restored, time_jumps_ms=(EXPIRY_MS + 1,)
        )
        for state in different(found.ends):
            leaves_nothing(state)

    @pytest.mark.tier("more")
    def test_retained_versions_survive_a_full_checkpoint_that_replaces_a_snapshot(self) -> None:
        programs = [full_writer(1), cleaner(1, WithoutSweep), committer]
        explore(programs, start(), retained_can_be_restored, time_jumps_ms=(EXPIRY_MS + 1,))

    def test_retained_versions_survive_the_replacement_of_a_snapshot_that_is_being_read(self) -> None:
        replaced_while_a_cleaner_reads(Retention)

    @pytest.mark.tier("more")
    def test_retained_versions_survive_damage_to_a_snapshot_that_is_being_read(self) -> None:
        assert broken_while_a_cleaner_reads().ends

    @few_switches_or_all
    def test_retained_versions_survive_a_late_snapshot_and_two_cleaners(self, switches: int | None) -> None:
        """All that can follow once the snapshot of a lease that may run out is visible, one cleaner has made
        up its mind without it, and another has not begun.
        """
        explore(
            [writer(1, shares=(A,)), cleaner(1, WithoutSweep), cleaner(2, WithoutSweep)],
            start(deltas_from=4),
            retained_can_be_restored,
            time_jumps_ms=(EXPIRY_MS + 1,),
            lead=[*LATE, (0, about_to("clock"))],
            switches=switches,
        )

    @pytest.mark.dear("stands for the interleavings")
    def test_retained_versions_survive_random_schedules(self) -> None:
        wander(everybody(), start(), retained_can_be_restored, seeds=range(60), **RANDOM)

    @pytest.mark.tier("long")
    def test_retained_versions_survive_many_random_schedules(self) -> None:
        wander(everybody(), start(), retained_can_be_restored, seeds=range(60, 2000), **RANDOM)

    @few_switches_or_all
    def test_a_writer_and_two_cleaners_leave_whole_snapshots(self, switches: int | None) -> None:
        programs = [writer(1, shares=(A,)), cleaner(1, WithoutSweep), cleaner(2, WithoutSweep)]
        explore(programs, start(deltas_from=4), and_snapshots_are_whole, switches=switches)

    @few_switches_or_all
    def test_two_writers_and_a_cleaner_leave_whole_snapshots(self, switches: int | None) -> None:
        programs = [writer(1, 5, shares=(A,)), writer(2, 6, shares=(A,)), cleaner(1, WithoutSweep)]
        explore(programs, start(deltas_from=4), and_snapshots_are_whole, switches=switches)
