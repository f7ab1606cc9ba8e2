"""No needed file is ever deleted, and none stays, whatever call of the storage fails and whoever stops where.

Every interleaving again, of the protocol's parts and of `publish` as a whole, in which in addition up to one
or two calls fail at any step (refused, or with their effect and the answer lost), a process stops for good,
or a clock jumps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deletion.explorer import explore, wander
from deletion.programs import (
    EXPIRY_MS,
    RANDOM,
    A,
    WithoutSweep,
    and_snapshots_are_whole,
    cleaner,
    committer,
    everybody,
    full_writer,
    publisher,
    recovers,
    retained_can_be_restored,
    start,
    writer,
)

pytestmark = [pytest.mark.usefixtures("think_once"), pytest.mark.tier("more")]

JUMP_MS = EXPIRY_MS + 1


class TestACallFails:
    def test_a_call_of_publish_or_of_a_cleaner_fails(self, tmp_path: Path) -> None:
        programs = [publisher(tmp_path / "base", 1), cleaner(1)]
        found = explore(programs, start(), and_snapshots_are_whole, faults=1)
        assert len(found.ends) > 500

    def test_a_call_of_a_full_publish_or_of_a_cleaner_fails(self, tmp_path: Path) -> None:
        programs = [publisher(tmp_path / "base", 1, version=4, full=True), cleaner(1), committer]
        explore(programs, start(), retained_can_be_restored, faults=1)

    def test_a_call_of_two_cleaners_fails(self) -> None:
        explore([cleaner(1), cleaner(2)], start(), and_snapshots_are_whole, faults=2)

    def test_two_calls_fail(self) -> None:
        programs = [writer(1, shares=(A,)), cleaner(1, WithoutSweep)]
        explore(programs, start(deltas_from=4), and_snapshots_are_whole, faults=2)

    @pytest.mark.tier("long")
    def test_a_call_fails_while_a_lease_may_run_out(self) -> None:
        programs = [writer(1, shares=(A,)), cleaner(1, WithoutSweep)]
        explore(programs, start(deltas_from=4), retained_can_be_restored, time_jumps_ms=(JUMP_MS,), faults=1)

    def test_calls_fail_in_random_schedules(self) -> None:
        wander(everybody(), start(), retained_can_be_restored, seeds=range(30), faults=3, **RANDOM)

    @pytest.mark.tier("long")
    def test_calls_fail_in_many_random_schedules(self) -> None:
        wander(everybody(), start(), retained_can_be_restored, seeds=range(30, 2000), faults=3, **RANDOM)

    @pytest.mark.tier("long")
    def test_a_whole_cleaner_fails_while_a_lease_may_run_out(self) -> None:
        programs = [writer(1, shares=(A,)), cleaner(1)]
        explore(programs, start(), retained_can_be_restored, time_jumps_ms=(JUMP_MS,), faults=1)


class TestSomebodyStopsForGood:
    """In every state, at any step, the next clean-up after the leases have run out leaves nothing over."""

    def test_a_publisher_or_a_cleaner_stops(self, tmp_path: Path) -> None:
        explore([publisher(tmp_path / "base", 1), cleaner(1)], start(), recovers, faults=1)

    def test_a_cleaner_of_two_stops(self) -> None:
        explore([cleaner(1), cleaner(2)], start(), recovers, faults=1)

    def test_a_full_checkpoint_or_a_cleaner_stops(self) -> None:
        explore([full_writer(1), cleaner(1)], start(), recovers, faults=1)


class TestAClockJumps:
    def test_the_clock_of_the_storage_jumps_ahead(self) -> None:
        """The machines' clocks, which agree, keep the lease alive."""
        programs = [writer(1), cleaner(1, wall_ms=0)]
        explore(programs, start(), and_snapshots_are_whole, storage_jump_ms=JUMP_MS)

    @pytest.mark.parametrize("wall_ms", [-(10**9), 10**9], ids=["behind", "ahead"])
    def test_the_clock_of_a_cleaner_jumps(self, wall_ms: int) -> None:
        """The storage's clock, which is right, keeps the lease alive."""
        programs = [writer(1), cleaner(1, wall_ms=wall_ms)]
        explore(programs, start(), and_snapshots_are_whole)
