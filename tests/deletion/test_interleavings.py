"""No needed file is ever deleted: every interleaving of writers and cleaners, on their real code.

The store at the start: snapshots of versions 2 and 4, deltas 3 to 6. Two versions are retained, so version
2's snapshot, its file A and delta 3 are nobody's. Meanwhile late writers, which merged from the snapshot of
version 2, publish snapshots that share A and take over delta 3, or bring their own copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from runtimes import AdjustedRuntime

from deletion import stores
from deletion.explorer import (
    END,
    TIME,
    Exploration,
    Files,
    Lead,
    Operation,
    Program,
    State,
    explore,
    run,
    wander,
)
from state_store.checkpoint.archive import unpack
from state_store.checkpoint.lineage import Lineages
from state_store.checkpoint.registry import whole_snapshots
from state_store.deletion import catalog, contents, retention
from state_store.deletion.contents import StoreContents
from state_store.deletion.judgement import Judgement
from state_store.deletion.lease import Lease
from state_store.deletion.markers import Tombstones
from state_store.deletion.retention import Retention, RetentionPolicy
from state_store.errors import BusyError
from state_store.storage.contract import Storage

NEWEST = 6
EXPIRY_MS = 1000
WALL_MS = 10**9
"""What the clock of every cleaner shows: to it all leases are old, so that the storage's clock decides."""
A, B, C = stores.shared(2, 1), stores.shared(2, 2), stores.shared(4, 3)
DELTA_3 = stores.delta(3).path


def start(deltas_from: int = 3) -> Files:
    deltas = [stores.delta(number).path for number in range(deltas_from, NEWEST + 1)]
    files = {path: stores.content(path) for path in (A, B, C, *deltas)}
    files[stores.snapshot(2).path] = stores.archive(stores.version(2), [A, B])
    files[stores.snapshot(4).path] = stores.archive(stores.version(4), [B, C])
    return {path: (data, 0) for path, data in files.items()}


@pytest.fixture(autouse=True)
def _think_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are run again and again: let them parse equal bytes once, and judge equal contents once."""

    @functools.lru_cache(None)
    def once(data: bytes, file: str):
        return unpack(data, file=file)

    monkeypatch.setattr(catalog, "unpack", lambda data, *, file: once(data, file))
    monkeypatch.setattr(retention, "Judgement", remembered(Judgement))


def remembered(kind: type[Judgement]) -> Callable[..., Judgement]:
    """Makes judgements of that kind, one of equal contents."""
    made: dict[Any, Judgement] = {}

    def judge(contents: StoreContents, newest, floor: int) -> Judgement:
        archives = frozenset((name, id(read.manifest)) for name, read in contents.snapshots.items())
        entries = frozenset(contents.entries.items())
        key = (archives, entries, frozenset(contents.tombstones.files.items()), newest, floor)
        if key not in made:
            made[key] = kind(contents, newest, floor)
        return made[key]

    return judge


class ModelRuntime(AdjustedRuntime):
    """The names that it makes begin with a prefix; its wall clock stands, the other is the model's."""

    def __init__(self, prefix: str, wall_ms: int, uptime_ms: Callable[[], float]) -> None:
        super().__init__(wall_ms=lambda: wall_ms, uptime_ms=uptime_ms)
        self._names = (f"{prefix}-{number}" for number in count(1))

    def unique(self, count: int = 8) -> str:
        return next(self._names)


def writer(
    number: int, of: int = 5, kind: type[Lease] = Lease, shares: tuple[str, ...] = (A, DELTA_3)
) -> Program:
    """Publishes the snapshot of version `of`, sharing these files where it may, with one new one."""

    def program(storage: Storage, clock_ms: Callable[[], float]) -> None:
        fresh = (stores.shared(of, 100 * number + sst, sst) for sst in count(1))
        with kind(storage, expiry_ms=EXPIRY_MS, runtime=ModelRuntime(f"w{number}", 0, clock_ms)) as lease:
            paths = set(shares)
            lost = lease.hold(paths)
            new = 1
            while True:
                added = [next(fresh) for _ in range(len(lost) + new)]
                lease.announce(added)
                for path in added:
                    storage.write(path, stores.content(path))
                paths = (paths - lost) | set(added)
                lost = lease.publish(stores.snapshot(of), stores.archive(stores.version(of), paths))
                new = 0
                if not lost:
                    return

    return program


def cleaner(number: int, kind: type[Retention] = Retention, newest: int = NEWEST) -> Program:
    def program(storage: Storage, clock_ms: Callable[[], float]) -> None:
        policy = RetentionPolicy(batches=2, lease_expiry_ms=EXPIRY_MS, temporary_expiry_ms=EXPIRY_MS)
        one = kind(storage, policy, runtime=ModelRuntime(f"c{number}", WALL_MS, clock_ms))
        one.cleanup(stores.version(newest))

    return program


def full_writer(number: int, of: int = 4) -> Program:
    """Publishes a full snapshot of version `of` in the place of the one that there is."""

    def program(storage: Storage, clock_ms: Callable[[], float]) -> None:
        with Lease(storage, expiry_ms=EXPIRY_MS, runtime=ModelRuntime(f"w{number}", 0, clock_ms)) as lease:
            new = stores.shared(of, 100 * number)
            lease.announce([new])
            storage.write(new, stores.content(new))
            archive = stores.archive(stores.version(of), [new])
            lease.publish(stores.snapshot(of), archive, overwrite=True)

    return program


def committer(storage: Storage, clock_ms: Callable[[], float]) -> None:
    """The query goes on: newer files show the storage's time."""
    for number in (NEWEST + 1, NEWEST + 2):
        storage.write(stores.delta(number).path, b"")


def everybody(kind: type[Retention] = Retention) -> list[Program]:
    writers = [writer(1, 5, shares=(A,)), writer(2, 6), full_writer(3)]
    return [*writers, cleaner(1, kind), cleaner(2, kind), cleaner(3, kind, newest=5), committer]


def about_to(kind: str, prefix: str = "") -> Callable[[Operation], bool]:
    """The condition of a lead: before an operation of that kind on a path that begins so."""
    return lambda operation: operation[0] == kind and (not prefix or operation[1].startswith(prefix))


def replaced_while_a_cleaner_reads(kind: type[Retention]) -> None:
    """One cleaner has read the snapshots, a full one replaces that of version 4, another cleaner counts on
    it."""
    explore(
        [writer(1, 6), full_writer(2), cleaner(1, kind), cleaner(2, kind)],
        start(),
        retained_can_be_restored,
        lead=[(0, END), (2, about_to("list", "tombstone")), (1, END), (3, END)],
    )


def broken_while_a_cleaner_reads() -> Exploration:
    """A snapshot appears, a file of it is about to go as its lease ran out, and a cleaner has just begun."""
    return explore(
        [writer(1, shares=(A,)), cleaner(1, _WithoutSweep), cleaner(2, _WithoutSweep)],
        start(deltas_from=4),
        retained_can_be_restored,
        time_jumps_ms=(EXPIRY_MS + 1,),
        lead=[
            (0, about_to("write", "snapshot/")),
            (1, about_to("list", "snapshot")),
            (2, about_to("write", "tombstone/")),
            (TIME, END),
            (2, about_to("delete")),
            (0, about_to("clock")),
        ],
    )


LATE: Lead = [(0, about_to("write", "snapshot/")), (2, about_to("write", "tombstone/"))]
RANDOM: dict[str, Any] = {"switches": 8, "time_jumps_ms": (EXPIRY_MS // 2, EXPIRY_MS + 1)}


@functools.lru_cache(None)
def _restorable(files: frozenset[tuple[str, bytes]]) -> frozenset:
    held = dict(files)
    whole = whole_snapshots(stores.listing(held), stores.manifests(held))
    return frozenset(Lineages(stores.listing(held).deltas, whole).restorable())


@functools.lru_cache(None)
def _broken(files: frozenset[tuple[str, bytes]]) -> tuple:
    return tuple(stores.broken_snapshots(dict(files)))


def _bytes(state: State) -> frozenset[tuple[str, bytes]]:
    return frozenset((path, data) for path, (data, _) in state.files)


def retained_can_be_restored(state: State) -> None:
    missing = {stores.version(5), stores.version(6)} - _restorable(_bytes(state))
    assert not missing, f"cannot be restored: {missing}"


def and_snapshots_are_whole(state: State) -> None:
    retained_can_be_restored(state)
    broken = [name for name in _broken(_bytes(state)) if name != stores.snapshot(2)]
    assert not broken, f"files are gone of {broken}"


def leaves_nothing(state: State) -> None:
    """Once the query has gone on and made one more snapshot, only what retained versions need is there."""
    files = state.as_dict()
    for number in range(7, 10):
        files[stores.delta(number).path] = (b"", state.time_ms)
    whole = stores.shared(8, 1000)
    files[whole] = (stores.content(whole), state.time_ms)
    files[stores.snapshot(8).path] = (stores.archive(stores.version(8), [whole]), state.time_ms)
    left = run(cleaner(9, newest=9), files, state.time_ms)
    assert left.keys() == {whole, stores.snapshot(8).path, stores.delta(8).path, stores.delta(9).path}


def different(states: list[State]) -> list[State]:
    """One of each set of states with the same files."""
    return list({(state.files, state.time_ms): state for state in states}.values())


class TestNoNeededFileIsDeleted:
    def test_a_writer_and_a_cleaner(self) -> None:
        found = explore([writer(1), cleaner(1)], start(), and_snapshots_are_whole)
        for state in different(found.ends):
            leaves_nothing(state)
            assert stores.snapshot(5).path in state.as_dict()

    def test_two_cleaners(self) -> None:
        found = explore([cleaner(1), cleaner(2)], start(), and_snapshots_are_whole)
        for state in different(found.ends):
            leaves_nothing(state)

    def test_a_cleaner_that_does_not_know_the_newest_versions(self) -> None:
        explore([writer(1), cleaner(1, newest=5)], start(), and_snapshots_are_whole)

    def test_two_writers(self) -> None:
        found = explore([writer(1, 5), writer(2, 6)], start(), and_snapshots_are_whole)
        assert all(stores.snapshot(6).path in state.as_dict() for state in found.ends)

    def test_two_writers_of_one_snapshot(self) -> None:
        explore([writer(1, 5), writer(2, 5)], start(), and_snapshots_are_whole)

    def test_a_lease_that_may_run_out_at_any_moment(self) -> None:
        found = explore(
            [writer(1), cleaner(1)], start(), retained_can_be_restored, time_jumps_ms=(EXPIRY_MS + 1,)
        )
        for state in different(found.ends):
            leaves_nothing(state)

    def test_a_full_checkpoint_that_replaces_a_snapshot(self) -> None:
        programs = [full_writer(1), cleaner(1, _WithoutSweep), committer]
        explore(programs, start(), retained_can_be_restored, time_jumps_ms=(EXPIRY_MS + 1,))

    def test_a_snapshot_that_is_replaced_while_a_cleaner_reads(self) -> None:
        replaced_while_a_cleaner_reads(Retention)

    def test_a_snapshot_that_breaks_while_a_cleaner_reads(self) -> None:
        assert broken_while_a_cleaner_reads().ends

    def test_a_late_snapshot_and_two_cleaners(self) -> None:
        """All that can follow once the snapshot of a lease that may run out is visible, one cleaner has made
        up its mind without it, and another has not begun."""
        explore(
            [writer(1, shares=(A,)), cleaner(1, _WithoutSweep), cleaner(2, _WithoutSweep)],
            start(deltas_from=4),
            retained_can_be_restored,
            time_jumps_ms=(EXPIRY_MS + 1,),
            lead=[*LATE, (0, about_to("clock"))],
        )

    def test_random_schedules_of_everybody(self) -> None:
        wander(everybody(), start(), retained_can_be_restored, seeds=range(60), **RANDOM)

    @pytest.mark.long
    def test_many_random_schedules_of_everybody(self) -> None:
        wander(everybody(), start(), retained_can_be_restored, seeds=range(60, 2000), **RANDOM)

    @pytest.mark.slow
    def test_a_writer_and_two_cleaners(self) -> None:
        programs = [writer(1, shares=(A,)), cleaner(1, _WithoutSweep), cleaner(2, _WithoutSweep)]
        explore(programs, start(deltas_from=4), and_snapshots_are_whole)

    @pytest.mark.slow
    def test_two_writers_and_a_cleaner(self) -> None:
        programs = [writer(1, 5, shares=(A,)), writer(2, 6, shares=(A,)), cleaner(1, _WithoutSweep)]
        explore(programs, start(deltas_from=4), and_snapshots_are_whole)


class _WithoutSweep(Retention):
    def _sweep(self, expired, unfinished, before_ms) -> None:
        """Nothing: it touches only what is expired, and multiplies the states."""


class _ChecksBeforeItHolds(Lease):
    def _renew_and_check(self) -> frozenset[str]:
        lost = self._lost()
        self._write(self._existing | self._announced)
        self._valid_from_ms = self._runtime.uptime_ms()
        return lost


class _LooksAtFilesBeforeTombstones(Lease):
    def _lost(self) -> frozenset[str]:
        existing = {
            f"{at}/{entry.name}" for at in ("delta", "shared") for entry in self._storage.list_files(at)
        }
        condemned = Tombstones.read(self._storage).condemned()
        held = self._existing | self._announced
        return frozenset(path for path in held if path in condemned or path not in existing)


class _IgnoresTombstones(Lease):
    def _lost(self) -> frozenset[str]:
        existing = {
            f"{at}/{entry.name}" for at in ("delta", "shared") for entry in self._storage.list_files(at)
        }
        return frozenset((self._existing | self._announced) - existing)


class _LetsGoBeforeItPublishes(Lease):
    def publish(self, snapshot, archive: bytes, *, overwrite: bool = False) -> frozenset[str]:
        self.release()
        self._storage.write(snapshot.path, archive)
        return frozenset()


class _TakesALateSnapshotBack(Lease):
    def publish(self, snapshot, archive: bytes, *, overwrite: bool = False) -> frozenset[str]:
        try:
            return super().publish(snapshot, archive, overwrite=overwrite)
        except BusyError:
            self._storage.delete(snapshot.path)
            raise


class _NeverLooksAgain(Lease):
    def _age_ms(self) -> float:
        return 0


class _ReadsSnapshotsBeforeLeases(_WithoutSweep):
    def _write_tombstone(self, paths: set[str]) -> str | None:
        written = super()._write_tombstone(paths)
        self._early = super()._referenced_files(
            StoreContents({}, Tombstones({}), {}), {stores.snapshot(2).path}
        )
        return written

    def _referenced_files(self, contents: StoreContents, candidates: set[str]) -> set[str]:
        return self._early


class _TakesTombstonesBack(_WithoutSweep):
    def _delete_finished_tombstones(self, judgement, written, condemned, deleted) -> None:
        for path in [*judgement.contents.tombstones.files, *([written] if written else [])]:
            self._storage.delete(path)


class _DoesNotLookAgain(_WithoutSweep):
    def _referenced_files(self, contents: StoreContents, candidates: set[str]) -> set[str]:
        return set()


class _DoesNotAskForLeases(_WithoutSweep):
    def _expired(self, leases, written) -> set[str]:
        return set(leases)


class _DoesNotCondemn(_WithoutSweep):
    def _write_tombstone(self, paths: set[str]) -> None:
        return None


class _DeletesWhatWasReplaced(Retention):
    def _referenced_files(self, contents: StoreContents, candidates: set[str]) -> set[str]:
        return super()._referenced_files(contents, candidates) - {name.path for name in contents.snapshots}


def _in_order(*directories: str) -> type[StoreContents]:
    """A reading of the directories in that order."""

    class Reading(StoreContents):
        @classmethod
        def read(cls, storage: Storage, known=None) -> StoreContents:
            entries, snapshots, tombstones = {}, {}, Tombstones({})
            for directory in directories:
                if directory == "tombstone":
                    tombstones = Tombstones.read(storage)
                    continue
                found = storage.list_files(directory)
                entries |= {f"{directory}/{entry.name}": entry for entry in found}
                if directory == "snapshot":
                    snapshots = contents._read_snapshots(storage, found, known or {})
            return cls(snapshots, tombstones, entries)

    return Reading


class _NeverDoubts(Judgement):
    @property
    def certain(self):
        return self.contents.whole


class _SweepsYoungOrphans(Judgement):
    def _orphans(self, orphaned_before_ms: float) -> set[str]:
        entries = self.contents.entries
        shared = {name.path for name in self.contents.listing.shared}
        return {path for path in shared if entries[path].modified_ms < orphaned_before_ms}


class TestTheExplorationHasTeeth:
    """Each change to the protocol that looks harmless, and is not, is found."""

    @pytest.mark.parametrize(
        "kind",
        [
            _ChecksBeforeItHolds,
            _LooksAtFilesBeforeTombstones,
            _IgnoresTombstones,
            _LetsGoBeforeItPublishes,
        ],
    )
    def test_writers(self, kind: type[Lease]) -> None:
        with pytest.raises(AssertionError, match="files are gone"):
            explore([writer(1, kind=kind), cleaner(1)], start(), and_snapshots_are_whole)

    @pytest.mark.parametrize(
        "kind", [_ReadsSnapshotsBeforeLeases, _DoesNotLookAgain, _DoesNotAskForLeases, _DoesNotCondemn]
    )
    def test_cleaners(self, kind: type[Retention]) -> None:
        with pytest.raises(AssertionError, match="files are gone"):
            explore([writer(1), cleaner(1, kind)], start(), and_snapshots_are_whole)

    def test_a_tombstone_taken_back(self) -> None:
        programs = [writer(1), cleaner(1, _TakesTombstonesBack), cleaner(2, _TakesTombstonesBack)]
        with pytest.raises(AssertionError, match="files are gone"):
            explore(programs, start(), and_snapshots_are_whole)

    @pytest.mark.parametrize(
        "order",
        [
            ("snapshot", "delta", "shared", "tombstone"),
            ("delta", "shared", "snapshot", "tombstone"),
            ("tombstone", "snapshot", "delta", "shared"),
        ],
        ids="-".join,
    )
    def test_another_order_of_reading(self, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]) -> None:
        monkeypatch.setattr(retention, "StoreContents", _in_order(*order))
        with pytest.raises(AssertionError, match="cannot be restored"):
            broken_while_a_cleaner_reads()

    def test_a_late_snapshot_taken_back(self) -> None:
        programs = [
            writer(1, kind=_TakesALateSnapshotBack, shares=(A,)),
            cleaner(1, _WithoutSweep),
            cleaner(2, _WithoutSweep),
        ]
        lead = [*LATE, (0, about_to("clock"))]
        with pytest.raises(AssertionError, match="cannot be restored"):
            explore(
                programs,
                start(deltas_from=4),
                retained_can_be_restored,
                time_jumps_ms=(EXPIRY_MS + 1,),
                lead=lead,
            )

    def test_a_snapshot_in_doubt_that_is_counted_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(retention, "Judgement", remembered(_NeverDoubts))
        programs = [writer(1, shares=(A,)), cleaner(1, _WithoutSweep), cleaner(2, _WithoutSweep)]
        with pytest.raises(AssertionError, match="cannot be restored"):
            explore(
                programs,
                start(deltas_from=4),
                retained_can_be_restored,
                time_jumps_ms=(EXPIRY_MS + 1,),
                lead=LATE,
            )

    def test_files_of_a_full_checkpoint_that_are_taken_for_orphans(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retention, "Judgement", remembered(_SweepsYoungOrphans))
        with pytest.raises(AssertionError, match="cannot be restored"):
            explore(
                [full_writer(1), cleaner(1, _WithoutSweep), committer],
                start(),
                retained_can_be_restored,
                time_jumps_ms=(EXPIRY_MS + 1,),
            )

    def test_a_snapshot_that_was_replaced_is_deleted_for_the_older_one(self) -> None:
        with pytest.raises(AssertionError, match="cannot be restored"):
            replaced_while_a_cleaner_reads(_DeletesWhatWasReplaced)

    def test_a_writer_that_trusts_an_old_lease(self) -> None:
        found = explore(
            [writer(1, kind=_NeverLooksAgain), cleaner(1)],
            start(),
            retained_can_be_restored,
            time_jumps_ms=(EXPIRY_MS + 1,),
        )
        assert any(_broken(_bytes(state)) for state in found.ends)
