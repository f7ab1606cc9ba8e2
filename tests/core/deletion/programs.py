"""Writers, cleaners and readers of one store as programs to interleave, and what must hold in every state.

The store at the start: snapshots of versions 2 and 4, deltas 3 to 6. Two versions are retained, so version
2's snapshot, its file A and delta 3 are nobody's. Meanwhile late writers, which merged from the snapshot of
version 2, publish snapshots that share A and take over delta 3, or bring their own copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from runtimes import AdjustedRuntime

from deletion import made_up
from deletion.explorer import END, TIME, Exploration, Files, Lead, Operation, Program, State, explore, run
from state_store.core.checkpoint.lineage import Lineages
from state_store.core.checkpoint.registry import restorable_snapshots
from state_store.core.deletion.lease import Lease, ReaderLease, find_under_lease, read_archive, read_listing
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files.transfer import sha256_of
from state_store.core.files.workspace import StoreCache, Workspace
from state_store.core.snapshots.context import DatabaseFile, LocalDatabase, StoreContext
from state_store.core.snapshots.merge import publish
from state_store.core.storage.contract import Storage
from state_store.errors import MissingError

NEWEST = 6
EXPIRY_MS = 1000
SWITCHES = 3
"""Number of switches between programs, if all schedules would take long. No known break needs more."""

WALL_MS = 10**9
"""Time on the clock of every cleaner: all leases are old to it, so that the storage's clock decides."""
A, B, C = made_up.shared(2, 1), made_up.shared(2, 2), made_up.shared(4, 3)
DELTA_3 = made_up.delta(3).path


def start(deltas_from: int = 3) -> Files:
    deltas = [made_up.delta(number).path for number in range(deltas_from, NEWEST + 1)]
    files = {path: made_up.content(path) for path in (A, B, C, *deltas)}
    files[made_up.snapshot(2).path] = made_up.archive(made_up.version(2), [A, B])
    files[made_up.snapshot(4).path] = made_up.archive(made_up.version(4), [B, C])
    return {path: (data, 0) for path, data in files.items()}


class ModelRuntime(AdjustedRuntime):
    """The names that it makes begin with a prefix; its wall clock stands, the other is the model's."""

    def __init__(self, prefix: str, wall_ms: int, uptime_ms: Callable[[], float]) -> None:
        super().__init__(wall_ms=lambda: wall_ms, uptime_ms=uptime_ms)
        self._names = (f"{prefix}-{number}" for number in count(1))
        self._chance = Random(prefix)

    def unique(self, count: int = 8) -> str:
        return next(self._names)

    def random_32(self) -> int:
        return self._chance.getrandbits(32)

    def monotonic_s(self) -> float:
        return 0.0


def writer(
    number: int, version: int = 5, kind: type[Lease] = Lease, shares: tuple[str, ...] = (A, DELTA_3)
) -> Program:
    """Publish the snapshot of that version, sharing these files where it may, with one new one."""

    def program(storage: Storage, clock_ms: Callable[[], float]) -> None:
        fresh = (made_up.shared(version, 100 * number + sst, sst) for sst in count(1))
        with kind(storage, expiry_ms=EXPIRY_MS, runtime=ModelRuntime(f"w{number}", 0, clock_ms)) as lease:
            paths = set(shares)
            lost = lease.hold(paths)
            new = 1
            while True:
                added = [next(fresh) for _ in range(len(lost) + new)]
                lease.announce(added)
                for path in added:
                    storage.write(path, made_up.content(path))
                paths = (paths - lost) | set(added)
                lost = lease.publish(
                    made_up.snapshot(version), made_up.archive(made_up.version(version), paths)
                )
                new = 0
                if not lost:
                    return

    return program


def cleaner(
    number: int, kind: type[Retention] = Retention, newest: int = NEWEST, wall_ms: int = WALL_MS
) -> Program:
    def program(storage: Storage, clock_ms: Callable[[], float]) -> None:
        policy = RetentionPolicy(batches=2, lease_expiry_ms=EXPIRY_MS, temporary_expiry_ms=EXPIRY_MS)
        cleaner = kind(storage, policy, runtime=ModelRuntime(f"c{number}", wall_ms, clock_ms))
        cleaner.cleanup(made_up.version(newest))

    return program


def full_writer(number: int, version: int = 4) -> Program:
    """Publish a full snapshot of that version in the place of the one that there is."""

    def program(storage: Storage, clock_ms: Callable[[], float]) -> None:
        with Lease(storage, expiry_ms=EXPIRY_MS, runtime=ModelRuntime(f"w{number}", 0, clock_ms)) as lease:
            new = made_up.shared(version, 100 * number)
            lease.announce([new])
            storage.write(new, made_up.content(new))
            archive = made_up.archive(made_up.version(version), [new])
            lease.publish(made_up.snapshot(version), archive, overwrite=True)

    return program


def reader(
    number: int, version: int = 3, kind: type[ReaderLease] = ReaderLease, renewals: int = 0
) -> Program:
    """Find the files of that version and read them for a while; a file in `reading/` says which meanwhile.

    Files that are condemned, and that nothing has replaced, are not read: nobody promises that they stay.
    """

    def program(storage: Storage, clock_ms: Callable[[], float]) -> None:
        runtime = ModelRuntime(f"r{number}", 0, clock_ms)

        def find() -> frozenset[str]:
            listing = read_listing(storage)
            plan = Lineages(listing.deltas, listing.snapshots).plan(made_up.version(version))
            files = [] if plan.snapshot is None else read_archive(storage, plan.snapshot).manifest.files
            return frozenset({entry.path for entry in files} | {delta.path for delta in plan.deltas})

        def new_lease() -> ReaderLease:
            return kind(storage, expiry_ms=EXPIRY_MS, runtime=runtime)

        try:
            files, lease, lost = find_under_lease(find, lambda found: found, lambda found: None, new_lease)
        except MissingError:
            return
        assert lease is not None
        if not lost:
            storage.write(f"reading/{number}", "\n".join(sorted(files)).encode())
            for _ in range(renewals):
                lease.renew()
            storage.delete(f"reading/{number}")
        lease.release()

    return program


def committer(storage: Storage, clock_ms: Callable[[], float]) -> None:
    """The query goes on: newer files show the storage's time."""
    for number in (NEWEST + 1, NEWEST + 2):
        storage.write(made_up.delta(number).path, b"")


def everybody(kind: type[Retention] = Retention) -> list[Program]:
    writers = [writer(1, 5, shares=(A,)), writer(2, 6), full_writer(3)]
    return [*writers, cleaner(1, kind), cleaner(2, kind), cleaner(3, kind, newest=5), committer]


class WithoutSweep(Retention):
    def _sweep(self, expired, unfinished, before_ms):
        """Nothing: it touches only what is expired, and multiplies the states."""
        return {}


def about_to(kind: str, prefix: str = "") -> Callable[[Operation], bool]:
    """Return the condition of a lead: before an operation of that kind on a path that begins so."""
    return lambda operation: operation[0] == kind and (not prefix or operation[1].startswith(prefix))


def replaced_while_a_cleaner_reads(kind: type[Retention]) -> None:
    """Replace the snapshot of version 4 by a full one, which a cleaner has read, and another counts on."""
    explore(
        [writer(1, 6), full_writer(2), cleaner(1, kind), cleaner(2, kind)],
        start(),
        retained_can_be_restored,
        lead=[(0, END), (2, about_to("list", "tombstone")), (1, END), (3, END)],
    )


def broken_while_a_cleaner_reads() -> Exploration:
    """A snapshot appears, a file of it is about to go as its lease ran out, and a cleaner has just begun."""
    return explore(
        [writer(1, shares=(A,)), cleaner(1, WithoutSweep), cleaner(2, WithoutSweep)],
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
    complete = restorable_snapshots(made_up.listing(held), made_up.manifests(held))
    return frozenset(Lineages(made_up.listing(held).deltas, complete).restorable())


@functools.lru_cache(None)
def _broken(files: frozenset[tuple[str, bytes]]) -> tuple:
    return tuple(made_up.broken_snapshots(dict(files)))


def _bytes(state: State) -> frozenset[tuple[str, bytes]]:
    return frozenset((path, data) for path, (data, _) in state.files)


def broken_snapshots(state: State) -> tuple:
    """Return the snapshots in that state of which a file is gone."""
    return _broken(_bytes(state))


def retained_can_be_restored(state: State) -> None:
    missing = {made_up.version(5), made_up.version(6)} - _restorable(_bytes(state))
    assert not missing, f"cannot be restored: {missing}"


def what_is_read_is_there(state: State) -> None:
    retained_can_be_restored(state)
    files = state.as_dict()
    for path, (data, _) in files.items():
        if path.startswith("reading/"):
            gone = set(data.decode().split()) - files.keys()
            assert not gone, f"are read, and gone: {gone}"


def and_snapshots_are_whole(state: State) -> None:
    retained_can_be_restored(state)
    broken = [name for name in broken_snapshots(state) if name != made_up.snapshot(2)]
    assert not broken, f"files are gone of {broken}"


def leaves_nothing(state: State) -> None:
    """Once the query has gone on and made one more snapshot, only what retained versions need is there."""
    files = state.as_dict()
    for number in range(7, 10):
        files[made_up.delta(number).path] = (b"", state.time_ms)
    complete = made_up.shared(8, 1000)
    files[complete] = (made_up.content(complete), state.time_ms)
    files[made_up.snapshot(8).path] = (
        made_up.archive(made_up.version(8), [complete]),
        state.time_ms,
    )
    left = run(cleaner(9, newest=9), files, state.time_ms)
    assert left.keys() == {
        complete,
        made_up.snapshot(8).path,
        made_up.delta(8).path,
        made_up.delta(9).path,
    }


def different(states: list[State]) -> list[State]:
    """Return a state of each set with the same files."""
    return list({(state.files, state.time_ms): state for state in states}.values())


def publisher(directory: Path, number: int, version: int = 5, *, full: bool = False) -> Program:
    """`publish` itself, of a base in `directory` that shares A and takes over delta 3, with a new table."""
    directory.mkdir()
    for name, data in (("CURRENT", b"MANIFEST-000005\n"), ("MANIFEST-000005", b""), ("OPTIONS-000007", b"")):
        (directory / name).write_bytes(data)
    files = {}
    for name, path in (("000010.sst", A), ("000011.sst", DELTA_3), ("000012.sst", None)):
        data = made_up.content(path or name)
        (directory / name).write_bytes(data)
        files[name] = DatabaseFile(path, len(data), sha256_of(directory / name), 2, 6)
    base = LocalDatabase(directory, made_up.version(version), files, 0, {}, None)

    def program(storage: Storage, clock_ms: Callable[[], float]) -> None:
        runtime = ModelRuntime(f"w{number}", 0, clock_ms)
        context = StoreContext(
            storage,
            StoreCache(directory / "kept"),
            Workspace(directory / "work", runtime=runtime),
            DatabaseSettings(),
            transfer_threads=1,
            runtime=runtime,
        )
        publish(context, base, Lease(storage, expiry_ms=EXPIRY_MS, runtime=runtime), full=full)

    return program


def recovers(state: State) -> None:
    """Check that the next clean-up after the expiry of leases finds everything that stopped programs left."""
    leaves_nothing(State(state.files, state.time_ms + 10 * EXPIRY_MS))
