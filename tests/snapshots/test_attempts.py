"""Attempts at a version without Spark's ids: every interleaving of their steps, with a reader at each.

The real code of an attempt runs, one storage operation at a time; it may stop for ever after any of them, as
a process that dies does. When the query has accepted an attempt, a reader that knows nothing but the number
of the version gets that one, or one that began when it was there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from deletion.explorer import END, Files, Program, State, explore

from state_store.checkpoint import attempts
from state_store.checkpoint.attempts import AttemptId, Seen, next_ordinal
from state_store.checkpoint.lineage import Lineages
from state_store.checkpoint.listing import Listing
from state_store.checkpoint.names import DeltaName, VersionId, parent_of
from state_store.deletion.catalog import read_listing
from state_store.errors import ConflictError
from state_store.snapshots import attempt as attempt_module
from state_store.snapshots.attempt import look, refuse, store_attempt
from state_store.storage.contract import Storage

NOTHING = VersionId(0, None)
APPLICATION = "a" * 8


def run(storage: Storage, name: str, base: VersionId, seen: Seen, *, task: int, fails: bool) -> None:
    """One task: it begins with what it has seen, which its delta says, commits, and notes that it is done."""
    number = base.number + 1
    unique = f"{ord(name):08x}"
    id_ = str(AttemptId(next_ordinal(seen, number), APPLICATION, task, unique))
    delta = DeltaName(number, id_, parent_of(base), 0)
    at_version = sorted(str(one.checkpoint_id) for one in seen if one.number == number)
    store_attempt(storage, delta, seen, lambda: storage.write(delta.path, " ".join(at_version).encode()))
    if fails:
        refuse(storage, delta.version_id, "its task failed")
    else:
        storage.write(f"accepted/{number}-{id_}", b"")


def task(name: str, *, number: int = 0, fails: bool = False, seen: Seen | None = None) -> Program:
    """A task of the first batch. With `seen` it began when no more than that was there."""

    def program(storage: Storage, clock: Callable[[], float]) -> None:
        known = look(storage, 0).after(0) if seen is None else seen
        run(storage, name, NOTHING, known, task=number, fails=fails)

    return program


def next_task(name: str, *, number: int = 0, seen: Seen | None = None) -> Program:
    """A task of the second batch, which starts when the first batch is done; it restores that version."""

    def program(storage: Storage, clock: Callable[[], float]) -> None:
        if not storage.list_files("accepted"):
            return
        listing = read_listing(storage)
        base = listing.attempts.meant(1)
        if base is not None:
            run(
                storage,
                name,
                base,
                listing.attempts.after(1) if seen is None else seen,
                task=number,
                fails=False,
            )

    return program


def check(state: State) -> None:
    files = state.as_dict()
    listing = Listing.from_files(
        ((path, len(data)) for path, (data, _) in files.items()),
        {path: at_ms for path, (_, at_ms) in files.items()},
    )
    for number in (1, 2):
        check_version(files, listing, number)


def check_version(files: Files, listing: Listing, number: int) -> None:
    prefix = f"accepted/{number}-"
    accepted = {path.removeprefix(prefix) for path in files if path.startswith(prefix)}
    seen = {delta.checkpoint_id: set(files[delta.path][0].decode().split()) for delta in listing.deltas}
    for one, other in itertools.combinations(accepted, 2):
        assert one in seen[other] or other in seen[one], f"two tasks were accepted at once: {one}, {other}"
    if accepted:
        meant = listing.attempts.meant(number)
        assert meant is not None
        assert accepted <= {meant.checkpoint_id} | seen[meant.checkpoint_id], f"{accepted} became {meant}"
        assert meant in Lineages(listing.deltas, []).restorable(), f"version {meant} was taken away"


SEEN_NOTHING: Seen = frozenset()

PROGRAMS = {
    "two tasks": [task("A"), task("B")],
    "a task, and two that began before everything": [
        task("A"),
        task("Y", seen=SEEN_NOTHING),
        task("Z", seen=SEEN_NOTHING),
    ],
    "a task, and one that began before everything": [task("A"), task("Z", seen=SEEN_NOTHING)],
    "two that began before everything": [task("Y", seen=SEEN_NOTHING), task("Z", seen=SEEN_NOTHING)],
    "two tasks, and the next batch": [task("A"), task("B"), next_task("N")],
    "two tasks of the next batch": [task("A"), next_task("M"), next_task("N")],
    "a task that fails, and one that is run again": [task("A", fails=True), task("B")],
    "a late one while the next batch runs": [task("A"), task("Z", seen=SEEN_NOTHING), next_task("N")],
}

LONG = {
    "three tasks": [task("A"), task("B"), task("C")],
    "a task that fails, one that is run again, and a late one": [
        task("A", fails=True),
        task("B"),
        task("Z", seen=SEEN_NOTHING),
    ],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_interleaving(name: str) -> None:
    found = explore(PROGRAMS[name], {}, check, times_tell_order=True)
    assert found.states > 30
    assert any(path.startswith("accepted/") for end in found.ends for path, _ in end.files)


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_every_interleaving_of_more(name: str) -> None:
    explore(LONG[name], {}, check, times_tell_order=True)


def test_a_task_that_begins_late_is_refused_by_one_that_was_launched_after_it() -> None:
    """However late, and wherever it stops: what counts is what the task that was launched later has made."""
    lead = [(0, END)]
    found = explore([task("A", number=9), task("Z", number=4)], {}, check, lead=lead, times_tell_order=True)
    for end in found.ends:
        (delta,) = (path for path, _ in end.files if path.startswith("delta/"))
        assert "-9-" in delta


def test_a_task_that_runs_again_alone_is_accepted() -> None:
    """Wherever the one before has stopped: nothing that was left behind keeps the query from going on."""
    for stop in range(8):
        lead = [(0, after(stop)), (1, END)]
        found = explore([task("A"), task("B")], {}, check, lead=lead, times_tell_order=True)
        for end in found.ends:
            assert any(path.startswith("accepted/") and path.endswith("42") for path, _ in end.files)


def after(steps: int) -> Callable[[tuple[object, ...]], bool]:
    """Stops a program that has taken so many steps."""
    taken = itertools.count()
    return lambda operation: next(taken) >= steps


BREAKS = {
    "it does not look": (attempt_module.Attempts, "objection", lambda self, delta, seen: None),
    "ordinals do not count": (attempts, "next_ordinal", lambda seen, version: 0),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_exploration_finds_what_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, broken = BREAKS[name]
    monkeypatch.setattr(place, attribute, broken)
    if attribute == "next_ordinal":
        monkeypatch.setitem(globals(), attribute, broken)
    with pytest.raises((AssertionError, ConflictError)):
        for programs in PROGRAMS.values():
            explore(programs, {}, check, times_tell_order=True)
