"""Files that are read stay: every interleaving of readers, writers and cleaners, on their real code."""

from __future__ import annotations

import pytest

from deletion import made_up
from deletion.explorer import END, TIME, explore
from deletion.programs import (
    EXPIRY_MS,
    SWITCHES,
    WithoutSweep,
    about_to,
    cleaner,
    different,
    full_writer,
    leaves_nothing,
    reader,
    start,
    what_is_read_is_there,
)
from state_store.core.deletion.lease import ReaderLease, Tombstones

pytestmark = pytest.mark.usefixtures("think_once")

few_switches_or_all = pytest.mark.parametrize(
    "switches",
    [pytest.param(SWITCHES, id="few-switches"), pytest.param(None, marks=pytest.mark.tier("long"), id="all")],
)


class TestReadFilesStay:
    def test_a_reader_and_a_cleaner_leave_nothing(self) -> None:
        """The reader wants a version that is retained no more, as a batch does that began before."""
        found = explore([reader(1), cleaner(1)], start(), what_is_read_is_there)
        for state in different(found.ends):
            leaves_nothing(state)

    def test_a_reader_that_renews_its_lease(self) -> None:
        explore([reader(1, renewals=2), cleaner(1)], start(), what_is_read_is_there)

    def test_a_lease_whose_time_passes_in_part(self) -> None:
        explore(
            [reader(1, renewals=1), cleaner(1)],
            start(),
            what_is_read_is_there,
            time_jumps_ms=(EXPIRY_MS // 2,),
        )

    def test_a_lease_that_ran_out_after_it_was_renewed(self) -> None:
        explore(
            [reader(1, renewals=1), cleaner(1)],
            start(),
            what_is_read_is_there,
            time_jumps_ms=(EXPIRY_MS, EXPIRY_MS // 2),
            lead=[(0, about_to("write", "lease/r1-2")), (TIME, END), (0, about_to("delete", "reading/"))],
        )

    @pytest.mark.tier("more")
    @few_switches_or_all
    def test_a_reader_whose_snapshot_is_replaced(self, switches: int | None) -> None:
        """A full snapshot makes the files that are read needless, and a cleaner sees it."""
        programs = [reader(1, version=6), full_writer(1, version=5), cleaner(1, WithoutSweep)]
        found = explore(programs, start(deltas_from=4), what_is_read_is_there, switches=switches)
        assert any(made_up.snapshot(4).path not in state.as_dict() for state in found.ends)

    @pytest.mark.tier("more")
    @pytest.mark.parametrize(
        "switches",
        [
            pytest.param(2, id="two-switches"),
            pytest.param(SWITCHES, marks=pytest.mark.tier("long"), id="few-switches"),
            pytest.param(None, marks=pytest.mark.tier("long"), id="all"),
        ],
    )
    def test_a_reader_and_two_cleaners(self, switches: int | None) -> None:
        programs = [reader(1, renewals=2), cleaner(1, WithoutSweep), cleaner(2, WithoutSweep)]
        explore(programs, start(), what_is_read_is_there, switches=switches)


class _LooksBeforeItHolds(ReaderLease):
    def _renew_and_check(self) -> frozenset[str]:
        lost = self._lost()
        self._write(self._existing)
        self._valid_from_ms = self._clocks_ms()
        return lost


class _IgnoresTombstones(ReaderLease):
    def _lost(self) -> frozenset[str]:
        existing = {
            f"{at}/{entry.name}" for at in ("delta", "shared") for entry in self._storage.list_files(at)
        }
        return frozenset(self._existing - existing)


class _LooksAtFilesBeforeTombstones(ReaderLease):
    def _lost(self) -> frozenset[str]:
        existing = {
            f"{at}/{entry.name}" for at in ("delta", "shared") for entry in self._storage.list_files(at)
        }
        condemned = Tombstones.read(self._storage).condemned()
        return frozenset(path for path in self._existing if path in condemned or path not in existing)


class _GivesBackTooEarly(ReaderLease):
    def hold(self, paths) -> frozenset[str]:
        lost = super().hold(paths)
        self.release()
        return lost


class _GivesTheLeaseBeforeBack(ReaderLease):
    def renew(self) -> frozenset[str]:
        before = list(self._written)
        lost = super().renew()
        for path in before:
            self._storage.delete(path)
        return lost


class _RenewsAfterItGaveBack(ReaderLease):
    def renew(self) -> frozenset[str]:
        held = set(self._existing)
        self.release()
        self._existing = held
        return super().renew()


class _HoldsNothingThatIsCondemned(ReaderLease):
    def renew(self) -> frozenset[str]:
        lost = super().renew()
        self._existing -= lost
        return lost


class TestTheExplorationHasTeeth:
    """Each change to the protocol of readers that looks harmless, and is not, is found."""

    @pytest.mark.parametrize(
        "kind", [_LooksBeforeItHolds, _IgnoresTombstones, _LooksAtFilesBeforeTombstones, _GivesBackTooEarly]
    )
    def test_broken_readers_are_caught(self, kind: type[ReaderLease]) -> None:
        with pytest.raises(AssertionError, match="are read, and gone"):
            explore([reader(1, kind=kind), cleaner(1)], start(), what_is_read_is_there, switches=SWITCHES)

    @pytest.mark.parametrize("kind", [_GivesTheLeaseBeforeBack, _RenewsAfterItGaveBack])
    def test_broken_renewals_are_caught(self, kind: type[ReaderLease]) -> None:
        programs = [reader(1, kind=kind, renewals=1), cleaner(1)]
        with pytest.raises(AssertionError, match="are read, and gone"):
            explore(programs, start(), what_is_read_is_there, switches=SWITCHES)

    @pytest.mark.tier("more")
    def test_a_reader_that_gives_up_what_is_condemned_is_caught(self) -> None:
        programs = [
            reader(1, kind=_HoldsNothingThatIsCondemned, renewals=2),
            cleaner(1, WithoutSweep),
            cleaner(2, WithoutSweep),
        ]
        with pytest.raises(AssertionError, match="are read, and gone"):
            explore(programs, start(), what_is_read_is_there, switches=2)
