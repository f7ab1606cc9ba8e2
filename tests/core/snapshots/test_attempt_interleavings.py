"""Attempts at a version without Spark's ids: every interleaving of their steps, with a reader at each.

The real code of an attempt runs, one storage operation at a time; it may stop for ever after any of them, as
a process that dies does. When the query has accepted an attempt, a reader that knows nothing but the number
of the version gets that one, or one that began when it was there.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial

import pytest
from deletion import made_up
from deletion.explorer import END, Files, Program, State, explore
from deletion.programs import ModelRuntime

from state_store.core.checkpoint import lineage
from state_store.core.checkpoint import lineage as attempt_module
from state_store.core.checkpoint.lineage import (
    AttemptId,
    Lineages,
    Listing,
    ObservedAttempts,
    list_attempts,
    next_ordinal,
    refuse,
    store_attempt,
)
from state_store.core.checkpoint.names import DeltaName, SnapshotName, VersionId, parent_of
from state_store.core.deletion.lease import read_listing
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.storage.contract import Storage
from state_store.data.embedded import newest_of
from state_store.errors import ConflictError, StorageError, UnknownOutcomeError

NOTHING = VersionId(0, None)
APPLICATION = "a" * 8


def run(
    storage: Storage,
    name: str,
    base: VersionId,
    seen: ObservedAttempts,
    *,
    task: int,
    fails: bool,
    again: bool = False,
) -> None:
    """A task: it begins with the attempts that it sees, which its delta names, commits, and notes its end.

    With `again` it repeats a commit that failed, as a JVM does that asks another agent.
    """
    number = base.number + 1
    unique = f"{ord(name):08x}"
    id_ = str(AttemptId(next_ordinal(seen, number), APPLICATION, task, unique))
    delta = DeltaName(number, id_, parent_of(base), 0)
    known = " ".join(sorted(str(version.checkpoint_id) for version in seen)).encode()

    def store() -> None:
        with contextlib.suppress(ConflictError):  # the same delta again
            storage.write(delta.path, known)

    try:
        try:
            store_attempt(storage, delta, seen, store)
        except (StorageError, UnknownOutcomeError):
            if not again:
                raise
            store_attempt(storage, delta, seen, store)
        if fails:
            refuse(storage, delta.version_id, "its task failed")
    except ConflictError:
        fails = True
    storage.write(f"{'failed' if fails else 'accepted'}/{number}-{id_}", b"")


def task(
    name: str,
    *,
    number: int = 0,
    fails: bool = False,
    again: bool = False,
    seen: ObservedAttempts | None = None,
) -> Program:
    """Return a task of the first batch. With `seen` it began when no more than that was there."""

    def program(storage: Storage, clock: Callable[[], float]) -> None:
        known = list_attempts(storage, 0).after(0) if seen is None else seen
        run(storage, name, NOTHING, known, task=number, fails=fails, again=again)

    return program


def later_task(name: str, after: int, *, seen: ObservedAttempts | None = None) -> Program:
    """A task of the batch after that one, which starts when that one is done; it restores that version."""

    def program(storage: Storage, clock: Callable[[], float]) -> None:
        if not is_done(storage, after):
            return
        listing = read_listing(storage)
        base = listing.attempts.resolve(after)
        if base is not None:
            known = listing.attempts.after(after) if seen is None else seen
            run(storage, name, base, known, task=0, fails=False)

    return program


def is_done(storage: Storage, batch: int) -> bool:
    return any(entry.name.startswith(f"{batch}-") for entry in storage.list_files("accepted"))


def full_writer(number: int) -> Program:
    """Publish a full snapshot of that version, once the query has committed it."""

    def program(storage: Storage, clock: Callable[[], float]) -> None:
        if not is_done(storage, number):
            return
        resolved = read_listing(storage).attempts.resolve(number)
        if resolved is not None:
            table = made_up.shared(number, 100)
            storage.write(table, made_up.content(table), overwrite=True)
            storage.write(SnapshotName(*resolved).path, made_up.archive(resolved, [table]), overwrite=True)

    return program


def cleaner(storage: Storage, clock: Callable[[], float]) -> None:
    """Retires the first version, once the query has committed the third."""
    if not is_done(storage, 3):
        return
    newest = read_listing(storage).attempts.resolve(3)
    assert newest is not None
    policy = RetentionPolicy(batches=2, lease_expiry_ms=10**6, temporary_expiry_ms=10**6)
    Retention(storage, policy, runtime=ModelRuntime("c", 0, clock)).cleanup(newest)


def check_later(state: State) -> None:
    """As `check`, without the first version."""
    files, listing = found(state)
    for number in (2, 3):
        check_version(files, listing, number)


def check(state: State) -> None:
    files, listing = found(state)
    for number in (1, 2):
        check_version(files, listing, number)


def found(state: State) -> tuple[Files, Listing]:
    files = state.as_dict()
    listing = Listing.from_files(
        ((path, len(data)) for path, (data, _) in files.items()),
        {path: at_ms for path, (_, at_ms) in files.items()},
    )
    return files, listing


def check_version(files: Files, listing: Listing, number: int) -> None:
    accepted, failed = of_version(files, "accepted", number), of_version(files, "failed", number)
    seen = {delta.checkpoint_id: set(files[delta.path][0].decode().split()) for delta in listing.deltas}
    for attempt, other in itertools.combinations(accepted, 2):
        assert attempt in seen[other] or other in seen[attempt], (
            f"two tasks were accepted at once: {attempt}, {other}"
        )
    if accepted:
        resolved = listing.attempts.resolve(number)
        assert resolved is not None
        assert accepted <= {resolved.checkpoint_id} | seen[resolved.checkpoint_id], (
            f"{accepted} became {resolved}"
        )
        assert resolved.checkpoint_id not in failed, f"{resolved} was refused"
        assert resolved in Lineages(listing.deltas, listing.snapshots).restorable(), (
            f"version {resolved} was taken away"
        )

    parents = {delta.checkpoint_id: delta.builds_on for delta in listing.deltas if delta.version == number}
    for attempt in accepted & parents.keys():
        base = parents[attempt].checkpoint_id if parents[attempt] else None
        for other in of_version(files, "accepted", number - 1) & seen.keys():
            is_later = other != base and base in seen[other] and attempt not in seen[other]
            assert not is_later, f"{attempt} was accepted on {base}, in whose place {other} had been accepted"


def of_version(files: Files, ended: str, number: int) -> set[str]:
    """Return the attempts that ended so, by their ids."""
    prefix = f"{ended}/{number}-"
    return {path.removeprefix(prefix) for path in files if path.startswith(prefix)}


SEEN_NOTHING: ObservedAttempts = frozenset()

PROGRAMS = {
    "two tasks": [task("A"), task("B")],
    "a task, and one that began before everything": [task("A"), task("Z", seen=SEEN_NOTHING)],
    "two that began before everything": [task("Y", seen=SEEN_NOTHING), task("Z", seen=SEEN_NOTHING)],
    "two tasks, and the next batch": [task("A"), task("B"), later_task("N", 1)],
    "two tasks of the next batch": [task("A"), later_task("M", 1), later_task("N", 1)],
    "a task that fails, and one that is run again": [task("A", fails=True), task("B")],
    "a late one while the next batch runs": [task("A"), task("Z", seen=SEEN_NOTHING), later_task("N", 1)],
    "two tasks that make their commits again": [task("A", again=True), task("B", again=True)],
    "a task that makes its commit again, and a late one that does": [
        task("A", again=True),
        task("Z", again=True, seen=SEEN_NOTHING),
    ],
    "two tasks, and a full checkpoint": [task("A"), task("B"), full_writer(1)],
}

LONG = {
    "a task, and two that began before everything": [
        task("A"),
        task("Y", seen=SEEN_NOTHING),
        task("Z", seen=SEEN_NOTHING),
    ],
    "three tasks": [task("A"), task("B"), task("C")],
    "a task that fails, one that is run again, and a late one": [
        task("A", fails=True),
        task("B"),
        task("Z", seen=SEEN_NOTHING),
    ],
    "two tasks, a full checkpoint, and the next batch": [
        task("A"),
        task("B"),
        full_writer(1),
        later_task("N", 1),
    ],
    "a late one, a full checkpoint, and the next batch": [
        task("A"),
        task("Z", seen=SEEN_NOTHING),
        full_writer(1),
        later_task("N", 1),
    ],
}

RETIRING = {
    "a late one": [task("Z", seen=SEEN_NOTHING), later_task("P", 2)],
    "two tasks of the third batch": [later_task("P", 2), later_task("Q", 2)],
    "a late one of the second batch": [later_task("Z", 1, seen=SEEN_NOTHING), later_task("P", 2)],
}
"""Tasks of which some begin when two batches are done."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_interleaving_is_right(name: str) -> None:
    """A call of the storage may fail."""
    found = explore(PROGRAMS[name], {}, check, times_tell_order=True, faults=1)
    assert found.states > 200
    assert any(path.startswith("accepted/") for end in found.ends for path, _ in end.files)


@pytest.mark.tier("more")
def test_every_interleaving_of_three_is_right() -> None:
    """There are few switches between the tasks."""
    programs = LONG["a task, and two that began before everything"]
    explore(programs, {}, check, times_tell_order=True, faults=1, switches=2)


@pytest.mark.tier("long")
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_interleaving_with_more_faults_is_right(name: str) -> None:
    explore(PROGRAMS[name], {}, check, times_tell_order=True, faults=2)


@pytest.mark.tier("long")
@pytest.mark.parametrize("name", LONG)
def test_every_interleaving_of_more_is_right(name: str) -> None:
    explore(LONG[name], {}, check, times_tell_order=True, faults=1)


@pytest.mark.tier("more")
@pytest.mark.parametrize("name", RETIRING)
def test_attempts_stay_right_while_the_first_version_is_retired(name: str) -> None:
    """There are few switches between the programs."""
    explore_retiring(name, switches=1)


@pytest.mark.tier("long")
@pytest.mark.parametrize("name", RETIRING)
def test_while_the_first_version_is_retired_and_a_call_fails(name: str) -> None:
    explore_retiring(name, switches=2, faults=1)


def explore_retiring(name: str, **how: int) -> None:
    programs = [task("A"), later_task("N", 1), *RETIRING[name], full_writer(2), cleaner]
    lead = [(0, END), (1, END)]
    found = explore(programs, {}, check_later, lead=lead, times_tell_order=True, **how)
    assert any(not any(path.startswith(f"delta/{1:020}") for path, _ in end.files) for end in found.ends)


def test_a_task_that_begins_late_is_refused_by_one_that_was_launched_after_it() -> None:
    """However late, and wherever it stops: what counts is what the task that was launched later has made."""
    lead = [(0, END)]
    found = explore([task("A", number=9), task("Z", number=4)], {}, check, lead=lead, times_tell_order=True)
    for end in found.ends:
        (delta,) = (path for path, _ in end.files if path.startswith("delta/"))
        assert "-9-" in delta


def test_a_task_that_runs_again_alone_is_accepted() -> None:
    """The task before may have stopped anywhere: nothing that it left keeps the query from going on."""
    for stop in range(8):
        lead = [(0, after(stop)), (1, END)]
        found = explore([task("A"), task("B")], {}, check, lead=lead, times_tell_order=True)
        for end in found.ends:
            assert any(path.startswith("accepted/") and path.endswith("42") for path, _ in end.files)


def after(steps: int) -> Callable[[tuple[object, ...]], bool]:
    """Stop a program that has taken this many steps."""
    taken = itertools.count()
    return lambda operation: next(taken) >= steps


def program(name: str, commits: int = 1) -> Program:
    """Return a program that opens the newest version, as `EmbeddedStore` does, and commits some more."""

    def commit(storage: Storage, clock: Callable[[], float]) -> None:
        listing = read_listing(storage)
        base = newest_of(listing)
        seen, at_parent = listing.attempts.after(base.number), listing.attempts.at(base.number)
        for number in range(base.number + 1, base.number + 1 + commits):
            delta = DeltaName(number, f"{name}{number}", parent_of(base), 0)
            for rival in sorted(at_parent - {base}):
                refuse(storage, rival, "")
            with contextlib.suppress(ConflictError):
                seen = store_attempt(
                    storage, delta, seen, partial(storage.write, delta.path, b""), at_parent or None
                )
                storage.write(f"accepted/{number}-{delta.checkpoint_id}", b"")
                base, at_parent = delta.version_id, frozenset()
                continue
            return

    return commit


def check_programs(state: State) -> None:
    """The newest version has all commits that succeeded."""
    files, listing = found(state)
    lineages = Lineages(listing.deltas, listing.snapshots)
    history = {version.checkpoint_id for version in lineages.history(newest_of(listing))}
    accepted = {path.partition("-")[2] for path in files if path.startswith("accepted/")}
    assert accepted <= history, f"of {accepted} only {history} are read"


OF_PROGRAMS = {
    "two": [program("A"), program("B")],
    "two that go on": [program("A", 2), program("B", 2)],
    "three": [program("A"), program("B"), program("C")],
    "three of which one goes on": [program("A", 2), program("B"), program("C")],
}


@pytest.mark.parametrize("name", ["two", "two that go on"])
def test_every_interleaving_of_programs_is_right(name: str) -> None:
    found = explore(OF_PROGRAMS[name], {}, check_programs, times_tell_order=True, faults=1)
    assert any(path.startswith("accepted/2") for end in found.ends for path, _ in end.files)


@pytest.mark.tier("more")
@pytest.mark.parametrize("name", ["three", "three of which one goes on"])
def test_every_interleaving_of_three_programs_is_right(name: str) -> None:
    explore(OF_PROGRAMS[name], {}, check_programs, times_tell_order=True, faults=1)


BREAKS = {
    "it does not look": (attempt_module.Attempts, "why_refused", lambda *_: None),
    "ordinals do not count": (lineage, "next_ordinal", lambda seen, version: 0),
    "nothing is marked": (attempt_module, "refuse", lambda storage, attempt, why: None),
    "the version before does not count": (
        attempt_module.Attempts,
        "_why_parent_refused",
        lambda self, delta: None,
    ),
    "times do not count": (attempt_module.Attempts, "_first_written", lambda self, found: found),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_exploration_finds_what_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, broken = BREAKS[name]
    monkeypatch.setattr(place, attribute, broken)
    if attribute in ("next_ordinal", "refuse"):
        monkeypatch.setitem(globals(), attribute, broken)
    with pytest.raises((AssertionError, ConflictError)):
        explore(PROGRAMS["two tasks, and the next batch"], {}, check, times_tell_order=True)


def _deleting(storage: Storage, attempt: VersionId, why: str) -> None:
    for delta in read_listing(storage).deltas:
        if delta.version_id == attempt:
            storage.delete(delta.path)


BREAKS_OF_PROGRAMS = {
    "it does not look": (attempt_module.Attempts, "why_refused", lambda *_: None),
    "what is refused is deleted": (attempt_module, "refuse", _deleting),
    "times do not count": (attempt_module.Attempts, "_first_written", lambda self, found: found),
    "the version before does not count": (attempt_module.Attempts, "at", lambda self, number: frozenset()),
}


@pytest.mark.parametrize("name", BREAKS_OF_PROGRAMS)
def test_the_exploration_of_programs_finds_what_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, broken = BREAKS_OF_PROGRAMS[name]
    monkeypatch.setattr(place, attribute, broken)
    with pytest.raises(AssertionError):
        explore(OF_PROGRAMS["three"], {}, check_programs, times_tell_order=True)
