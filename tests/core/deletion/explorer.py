"""Explores the interleavings of programs that share a storage, running their real code.

A program is a function of a storage and a clock, deterministic but for what these answer. One step is one
storage operation (or look at the clock). To take a program's next step, it is run anew from its start with
the answers that it has had so far, until it asks for more: so no threads are needed, a state is a value, and
states that were reached before, by whatever path, are not explored again.

`explore` visits every state, from the start or from where a `lead` has brought the programs, or every state
that few switches between the programs lead to; `wander` takes random schedules, where there are too many.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from state_store.core.storage.contract import Entry, Storage
from state_store.errors import (
    BusyError,
    ConflictError,
    MissingError,
    StateStoreError,
    StorageError,
    UnknownOutcomeError,
)

Files = dict[str, tuple[bytes, int]]
Operation = tuple[Any, ...]
Program = Callable[[Storage, Callable[[], float]], Any]
Lead = Sequence[tuple[int, Callable[[Operation], bool]]]
"""Program by program: it runs until it is about to take a step that the condition holds for, or ends. With
`TIME` in the place of a program, time jumps."""

TIME = -1
NOBODY = -2

END: Callable[[Operation], bool] = lambda operation: False  # noqa: E731 -- a condition of a lead


@dataclass(frozen=True)
class State:
    """Files, by path their bytes and time; and the time."""

    files: frozenset[tuple[str, tuple[bytes, int]]]
    time_ms: int

    def as_dict(self) -> Files:
        return dict(self.files)


@dataclass
class Exploration:
    """Result of an exploration: the number of states, and those in which all programs had ended."""

    states: int = 0
    ends: list[State] = field(default_factory=list)


class _Place(NamedTuple):
    """A state by numbers: of its files (in `_World`), of the places of the programs, of the jumps taken; and
    how many calls may still fail, and by how much the storage's clock is ahead of the time.
    """

    files: int
    time_ms: int
    places: tuple[int, ...]
    jumps: int
    faults: int = 0
    ahead_ms: int = 0


class _Turn(NamedTuple):
    """A state and the number of the program that ran last, where that matters."""

    at: _Place
    running: int


def explore(
    programs: Iterable[Program],
    files: Files,
    check: Callable[[State], None],
    *,
    time_jumps_ms: tuple[int, ...] = (),
    storage_jump_ms: int = 0,
    faults: int = 0,
    lead: Lead = (),
    switches: int | None = None,
    times_tell_order: bool = False,
) -> Exploration:
    """Visits every state that the programs can reach once they were led, and calls `check` in each.

    With `switches`, every state that schedules lead to in which a program that could go on gives way to
    another at most this many times: that is where nearly all faults of a protocol show.

    With `time_jumps_ms`, time may pass by these amounts, one after the other, between any two steps. With
    `storage_jump_ms`, the storage's clock may jump ahead by that, once, at any moment. Up to `faults` calls
    of the storage fail, at any step: refused, without an effect, or with their effect, the answer lost. What
    `check` says may depend on the paths and bytes of the files, on nothing else; with `times_tell_order` also
    on their times, which then only say which file was written before which.
    """
    world = _World(programs, files, check, time_jumps_ms, times_tell_order=times_tell_order)
    world.storage_jump_ms = storage_jump_ms
    start = _Turn(world.led(lead)._replace(faults=faults), NOBODY)
    reached = {start: switches or 0}
    stack = [start]
    found = Exploration()
    while stack:
        turn = stack.pop()
        at, running = turn
        world.check(at)
        found.states += 1
        following = world.following(at)
        if not following:
            found.ends.append(world.state(at))
        left = reached[turn]
        yields = switches is not None and running != NOBODY and world.asked(at, running) is not None
        for number, after in following:
            left_then = left - (yields and number not in (running, TIME))
            if left_then < 0:
                continue
            then = _Turn(after, NOBODY if switches is None else running if number == TIME else number)
            if reached.get(then, -1) < left_then:
                reached[then] = left_then
                stack.append(then)
    return found


def wander(
    programs: Iterable[Program],
    files: Files,
    check: Callable[[State], None],
    *,
    seeds: Iterable[int],
    switches: int = 6,
    time_jumps_ms: tuple[int, ...] = (),
    faults: int = 0,
) -> Exploration:
    """Run a random schedule for each seed, with `check` in each state of it.

    Programs run by priority, and at `switches` random steps the running one falls behind all others. So a
    fault that needs few switches is found with a probability that does not depend on the length of the
    programs. Calls fail at `faults` random steps.
    """
    world = _World(programs, files, check, time_jumps_ms)
    found = Exploration()
    for seed in seeds:
        try:
            found.ends.append(world.state(_walk(world, random.Random(seed), switches, faults, found)))
        except AssertionError as error:
            raise AssertionError(f"{error} (seed {seed})") from error
    return found


def _walk(world: _World, chance: random.Random, switches: int, faults: int, found: Exploration) -> _Place:
    at = world.led(())
    order = list(range(len(at.places)))
    chance.shuffle(order)
    length = _STEPS
    falls = sorted(chance.randrange(length) for _ in range(switches))
    jumps = sorted(chance.randrange(length) for _ in range(world.jumps))
    failing = {chance.randrange(length) for _ in range(faults)}
    step = 0
    while True:
        world.check(at)
        found.states += 1
        if jumps and step >= jumps[0]:
            at = world.later(at)
            del jumps[0]
        running = [number for number in order if world.asked(at, number) is not None]
        if not running:
            return at
        if falls and step >= falls[0]:
            order.remove(running[0])
            order.append(running[0])
            del falls[0]
            continue
        if step in failing and (failures := world.failures(at, running[0])):
            at = world.failed(at, running[0], chance.choice(failures))
        else:
            at = world.step(at, running[0])
        step += 1


def run(program: Program, files: Files, time_ms: int = 0) -> Files:
    """Return the files after the program ran alone."""
    world = _World([program], files, lambda state: None, (), time_ms)
    return world.state(world.led([(0, END)])).as_dict()


_STEPS = 120
"""Approximate number of steps in a schedule of `wander`."""


class _World:
    """The programs and every set of files that they have come to, by number, so that states are small."""

    def __init__(
        self,
        programs: Iterable[Program],
        files: Files,
        check: Callable[[State], None],
        time_jumps_ms: tuple[int, ...],
        time_ms: int = 0,
        *,
        times_tell_order: bool = False,
    ) -> None:
        self._courses = [_Course(program) for program in programs]
        self._files: list[frozenset[tuple[str, tuple[bytes, int]]]] = []
        self._numbers: dict[frozenset[tuple[str, tuple[bytes, int]]], int] = {}
        self._performed: dict[tuple[int, int, int, int, int], tuple[int, Any]] = {}
        self._check = check
        self._checked: set[frozenset[Any]] = set()
        self._checked_files: set[int] = set()
        self._jumps_ms = time_jumps_ms
        self._times_tell_order = times_tell_order
        self.storage_jump_ms = 0
        self._start = _Place(self._number(frozenset(files.items())), time_ms, (0,) * len(self._courses), 0)

    @property
    def jumps(self) -> int:
        return len(self._jumps_ms)

    def led(self, lead: Lead) -> _Place:
        """Return the state that the programs reach by that lead."""
        at = self._start
        for number, stop in lead:
            if number == TIME:
                at = self.later(at)
                continue
            while (operation := self.asked(at, number)) is not None and not stop(operation):
                self.check(at)
                at = self.step(at, number)
        return at

    def state(self, at: _Place) -> State:
        return State(self._files[at.files], at.time_ms)

    def check(self, at: _Place) -> None:
        """Check the files there, unless the same were checked already."""
        if at.files in self._checked_files:
            return
        self._checked_files.add(at.files)
        contents: frozenset[Any] = self._files[at.files]
        if not self._times_tell_order:
            contents = frozenset((path, data) for path, (data, _) in contents)
        if contents not in self._checked:
            self._checked.add(contents)
            self._check(self.state(at))

    def asked(self, at: _Place, number: int) -> Operation | None:
        return self._courses[number].asked(at.places[number])

    def following(self, at: _Place) -> list[tuple[int, _Place]]:
        """Return the states after one more step, each with the number of its program, or `TIME`."""
        steps = [
            (number, self.step(at, number)) for number in range(len(at.places)) if self.asked(at, number)
        ]
        if steps and at.jumps < len(self._jumps_ms):
            steps.append((TIME, self.later(at)))
        if steps and at.ahead_ms < self.storage_jump_ms:
            steps.append((TIME, at._replace(ahead_ms=self.storage_jump_ms)))
        if at.faults:
            steps += [
                (number, self.failed(at._replace(faults=at.faults - 1), number, error))
                for number in range(len(at.places))
                for error in self.failures(at, number)
            ]
        return steps

    def later(self, at: _Place) -> _Place:
        return at._replace(time_ms=at.time_ms + self._jumps_ms[at.jumps], jumps=at.jumps + 1)

    def step(self, at: _Place, number: int) -> _Place:
        course, place = self._courses[number], at.places[number]
        known = (at.files, at.time_ms, at.ahead_ms, number, place)
        if known not in self._performed:
            files_before, now_ms = self._files[at.files], at.time_ms
            if self._times_tell_order:
                now_ms = 1 + max((at_ms for _, (_, at_ms) in files_before), default=0)
            files, answer = _perform(files_before, now_ms, at.ahead_ms, course.asked(place))
            self._performed[known] = self._number(files), course.after(place, answer)
        files_after, after = self._performed[known]
        places = (*at.places[:number], after, *at.places[number + 1 :])
        return at._replace(files=files_after, places=places)

    def failures(self, at: _Place, number: int) -> tuple[type[StateStoreError], ...]:
        """Return the ways in which the next call of the program may fail."""
        return _FAILURES.get((self.asked(at, number) or ("",))[0], ())

    def failed(self, at: _Place, number: int, error: type[StateStoreError]) -> _Place:
        """Return the state after a step of the program whose call fails so."""
        course, place = self._courses[number], at.places[number]
        files = self.step(at, number).files if error is UnknownOutcomeError else at.files
        places = (*at.places[:number], course.after(place, error), *at.places[number + 1 :])
        return at._replace(files=files, places=places)

    def _number(self, files: frozenset[tuple[str, tuple[bytes, int]]]) -> int:
        number = self._numbers.setdefault(files, len(self._files))
        if number == len(self._files):
            self._files.append(files)
        return number


class _Course:
    """The places that one program can come to, each the answers it has had; found by running it anew."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._answers: list[tuple[Any, ...]] = []
        self._asked: list[Operation | None] = []
        self._after: dict[tuple[int, Any], int] = {}
        self._add(())

    def asked(self, place: int) -> Operation | None:
        """Return the operation that the program wants there; None if it has ended."""
        return self._asked[place]

    def after(self, place: int, answer: Any) -> int:
        """Return the state of the program after the answer to that operation."""
        if (place, answer) not in self._after:
            self._after[place, answer] = self._add((*self._answers[place], answer))
        return self._after[place, answer]

    def _add(self, answers: tuple[Any, ...]) -> int:
        replay = _Replay(answers)
        with suppress(_Pause, ConflictError, BusyError, StorageError, UnknownOutcomeError):
            self._program(replay, replay.clock_ms)
        self._answers.append(answers)
        self._asked.append(replay.asked)
        return len(self._answers) - 1


class _Pause(BaseException):
    """The program asks for an answer that it has not had yet."""


_FAILURES: dict[str, tuple[type[StateStoreError], ...]] = {
    "list": (StorageError,),
    "read": (StorageError,),
    "write": (StorageError, UnknownOutcomeError),
    "delete": (StorageError, UnknownOutcomeError),
}
"""Ways in which a call may fail: refused, or with its effect. A read has no effect."""


def _perform(
    state: frozenset[tuple[str, tuple[bytes, int]]], time_ms: int, ahead_ms: int, operation: Operation
) -> tuple[frozenset[tuple[str, tuple[bytes, int]]], Any]:
    """Return the files after the operation, and its answer: an exception's class if it fails."""
    kind, *arguments = operation
    if kind == "clock":
        return state, time_ms
    files = dict(state)
    path = arguments[0]
    if kind == "list":
        return state, tuple(
            Entry(name[len(path) + 1 :], len(data), at_ms)
            for name, (data, at_ms) in sorted(files.items())
            if name.startswith(path + "/")
        )
    if kind == "read":
        return state, files[path][0] if path in files else MissingError
    if kind == "write":
        if path in files and not arguments[2]:
            return state, ConflictError
        files[path] = (arguments[1], time_ms + ahead_ms)
    else:
        files.pop(path, None)
    return frozenset(files.items()), None


class _Replay(Storage):
    """Gives the answers that are known; at the first question beyond them notes it and ends the program."""

    location = "model:/store"

    def __init__(self, answers: tuple[Any, ...]) -> None:
        self._answers = iter(answers)
        self.asked: Operation | None = None

    def _ask(self, *operation: Any) -> Any:
        if self.asked is not None:
            raise _Pause
        for answer in self._answers:
            if isinstance(answer, type) and issubclass(answer, StateStoreError):
                raise answer(f"model says so to {operation[:2]}")
            return answer
        self.asked = operation
        raise _Pause

    def clock_ms(self) -> float:
        return self._ask("clock")

    def list_files(self, directory: str) -> list[Entry]:
        return list(self._ask("list", directory))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        assert offset == 0
        assert length is None
        return self._ask("read", path)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._ask("write", path, data, overwrite)

    def delete(self, path: str) -> None:
        self._ask("delete", path)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self._ask("write", path, local.read_bytes(), overwrite)

    def download(self, path: str, local: Path) -> None:
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError
