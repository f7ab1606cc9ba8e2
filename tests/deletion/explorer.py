"""Explores every interleaving of programs that share a storage, running their real code.

A program is a function of a storage and a clock, deterministic but for what these answer. One step is one
storage operation (or look at the clock). To take a program's next step, it is run anew from its start with
the answers that it has had so far, until it asks for more: so no threads are needed, a state is a value, and
states that were reached before, by whatever path, are not explored again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from state_store.errors import ConflictError, MissingError, StateStoreError
from state_store.storage.contract import Entry, Storage

Files = dict[str, tuple[bytes, int]]
Operation = tuple[Any, ...]
Program = Callable[[Storage, Callable[[], float]], Any]


class _Pause(BaseException):
    """The program asks for an answer that it has not had yet."""


@dataclass(frozen=True)
class State:
    """Files, by path their bytes and time; the time; and the place in its `_Course` of each program."""

    files: frozenset[tuple[str, tuple[bytes, int]]]
    time_ms: int
    places: tuple[int, ...]

    def as_dict(self) -> Files:
        return dict(self.files)


@dataclass
class Exploration:
    """What was seen: the number of states, and those in which all programs had ended."""

    states: int = 0
    ends: list[State] = field(default_factory=list)


def explore(
    programs: Iterable[Program],
    files: Files,
    check: Callable[[State], None],
    *,
    time_jumps_ms: tuple[int, ...] = (),
) -> Exploration:
    """Visits every state that the programs can reach from `files`, and calls `check` in each.

    With `time_jumps_ms`, time may pass by these amounts, one after the other, between any two steps.
    """
    courses = [_Course(program) for program in programs]
    start = (State(frozenset(files.items()), 0, (0,) * len(courses)), 0)
    seen = {start}
    stack = [start]
    found = Exploration()
    while stack:
        state, jumps = stack.pop()
        check(state)
        found.states += 1
        following = [(after, jumps) for after in _following(courses, state)]
        if not following:
            found.ends.append(state)
        elif jumps < len(time_jumps_ms):
            later = State(state.files, state.time_ms + time_jumps_ms[jumps], state.places)
            following.append((later, jumps + 1))
        for item in following:
            if item not in seen:
                seen.add(item)
                stack.append(item)
    return found


def run(program: Program, files: Files, time_ms: int = 0) -> Files:
    """The files after the program ran alone."""
    courses = [_Course(program)]
    state = State(frozenset(files.items()), time_ms, (0,))
    while after := list(_following(courses, state)):
        state = after[0]
    return state.as_dict()


def _following(courses: list[_Course], state: State) -> Iterator[State]:
    for number, course in enumerate(courses):
        place = state.places[number]
        operation = course.asked(place)
        if operation is not None:
            files, answer = _perform(state, operation)
            places = (*state.places[:number], course.after(place, answer), *state.places[number + 1 :])
            yield State(files, state.time_ms, places)


class _Course:
    """The places that one program can come to, each the answers it has had; found by running it anew."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._answers: list[tuple[Any, ...]] = []
        self._asked: list[Operation | None] = []
        self._after: dict[tuple[int, Any], int] = {}
        self._add(())

    def asked(self, place: int) -> Operation | None:
        """The operation that the program wants there; None when it has ended."""
        return self._asked[place]

    def after(self, place: int, answer: Any) -> int:
        """Where it comes to with the answer to that operation."""
        if (place, answer) not in self._after:
            self._after[place, answer] = self._add((*self._answers[place], answer))
        return self._after[place, answer]

    def _add(self, answers: tuple[Any, ...]) -> int:
        replay = _Replay(answers)
        with suppress(_Pause, ConflictError):
            self._program(replay, replay.clock_ms)
        self._answers.append(answers)
        self._asked.append(replay.asked)
        return len(self._answers) - 1


def _perform(state: State, operation: Operation) -> tuple[frozenset[tuple[str, tuple[bytes, int]]], Any]:
    """The files after the operation, and its answer: an exception's class where it fails."""
    kind, *arguments = operation
    if kind == "clock":
        return state.files, state.time_ms
    files = state.as_dict()
    path = arguments[0]
    if kind == "list":
        return state.files, tuple(
            Entry(name[len(path) + 1 :], len(data), at_ms)
            for name, (data, at_ms) in sorted(files.items())
            if name.startswith(path + "/")
        )
    if kind == "read":
        return state.files, files[path][0] if path in files else MissingError
    if kind == "write":
        if path in files and not arguments[2]:
            return state.files, ConflictError
        files[path] = (arguments[1], state.time_ms)
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

    def list(self, directory: str) -> list[Entry]:
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
        raise NotImplementedError

    def download(self, path: str, local: Path) -> None:
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError
