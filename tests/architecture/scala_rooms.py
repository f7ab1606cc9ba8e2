"""The rooms of the data plane: the packages of the Scala sources, and which may use which.

Declared here once: a test compares it with the sources, and the table in docs/architecture.md with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGE = "org.apache.spark.sql.execution.streaming.state.incremental"
ROOT = "(root)"


class Room(NamedTuple):
    """A package: what it is for, and the other packages that it may use."""

    purpose: str
    may_use: frozenset[str]


def _room(purpose: str, may_use: str = "") -> Room:
    return Room(purpose, frozenset(may_use.split()))


ROOMS: Mapping[str, Room] = {
    "release": _room("what differs between the releases of Spark, under one set of names"),
    "settings": _room("options and reserved names, as the control plane declares them"),
    "checkpoint": _room("versions, column families, deltas, JSON: values", "settings"),
    "memory": _room(
        "memory outside the heap: the budget, arenas, records, hashes, orders of keys", "settings"
    ),
    "sst": _room(
        "SST files: those of RocksDB are read, and a batch's changes are written and read as one",
        "checkpoint memory",
    ),
    "base": _room("a RocksDB directory, read only", "checkpoint memory sst"),
    "recent": _room("memtables, and the index over those of recent versions", "checkpoint memory sst"),
    "transaction": _room(
        "the versions of a store, transactions and scans on them",
        "checkpoint memory sst base recent",
    ),
    "agent": _room("the agent's process and the calls to it", "release settings checkpoint"),
    "local": _room(
        "a store as an executor has it: its versions, its agent, its merges",
        "settings checkpoint memory base transaction agent",
    ),
    "rows": _room("Spark's rows to bytes and back", "release checkpoint memory transaction"),
    "observed": _room(
        "reports of stores to the driver; the tab in Spark's UI, its API and metrics",
        "release settings checkpoint agent local",
    ),
    ROOT: _room(
        "what Spark calls, under names that configurations and offset logs hold",
        "release checkpoint memory sst transaction agent local rows observed",
    ),
    "processors": _room(
        "`transformWithState`: Spark's operators on this store, and processors in Python in batches",
        f"release settings checkpoint {ROOT}",
    ),
    "migration": _room(
        "a program of its own: the rows of one state store into another",
        f"release checkpoint agent rows {ROOT}",
    ),
    "vectorized": _room(
        "vectorised functions: Spark's physical operator and its Python runner; the session extension",
        "release settings checkpoint processors lookahead placement",
    ),
    "lookahead": _room(
        "the keys of an operator's input, announced to a store that was restored lazily",
        f"release settings {ROOT}",
    ),
    "placement": _room(
        "the executors that stores are on: moves when executors join and leave",
        f"release settings agent {ROOT}",
    ),
}


def used_by(text: str) -> tuple[str, set[str]]:
    """The room that a Scala source is in, and the other rooms that it refers to.

    Raises ValueError when the source has no single package clause, or imports all that the root has.
    """
    code = _code(text)
    clauses = re.findall(r"^\s*package\s+([\w.]+)", code, flags=re.MULTILINE)
    if len(clauses) != 1 or not (clauses[0] + ".").startswith(PACKAGE + "."):
        raise ValueError(f"its package clauses are {clauses}, not one below {PACKAGE}")
    room = clauses[0][len(PACKAGE) + 1 :] or ROOT
    members = re.findall(re.escape(PACKAGE) + r"\s*\.\s*(\w+|\{)", code)
    if "{" in members or "_" in members:
        raise ValueError("it imports the root as a whole")
    rooms = {member if member[0].islower() else ROOT for member in members}
    return room, rooms - {room}


def violations(sources: Iterable[Path]) -> list[str]:
    """Return the violations of the declaration in these sources, a line for each."""
    found = []
    for source in sources:
        try:
            room, used = used_by(source.read_text(encoding="utf-8"))
        except ValueError as error:
            found.append(f"{source.name}: {error}")
            continue
        if room not in ROOMS:
            found.append(f"{source.name}: the room {room} is not declared")
            continue
        found += [
            f"{source.name}: {room} may not use {other}" for other in sorted(used - ROOMS[room].may_use)
        ]
        folder = source.parent.name
        if folder != (PACKAGE.rpartition(".")[2] if room == ROOT else room):
            found.append(f"{source.name}: it is in the folder {folder} and in the package of {room}")
    return found


_DEFINITION = re.compile(
    r"^(private(?:\[\w+\])? )?(?:final |abstract |sealed |case )*(?:class|object|trait)\s+(\w+)", re.MULTILINE
)


def needlessly_open(sources: Sequence[Path], tests: Sequence[Path]) -> set[str]:
    """The types, as `room.Name`, that other rooms may name and none does, nor tests outside the room.

    The root has no wall against the rooms below it, and `release` is files that replace each other.
    """
    texts = []
    for source in (*sources, *tests):
        code = _code(source.read_text(encoding="utf-8"))
        clause = re.search(r"^\s*package\s+([\w.]+)", code, flags=re.MULTILINE)
        texts.append((clause[1] if clause else "", code))
    open_types = set()
    for package, code in texts[: len(sources)]:
        room = package[len(PACKAGE) + 1 :]
        if room in ("", "release"):
            continue
        for modifier, name in _DEFINITION.findall(code):
            if modifier in ("", "private[incremental] ") and not any(
                other != package and re.search(rf"\b{name}\b", text) for other, text in texts
            ):
                open_types.add(f"{room}.{name}")
    return open_types


def _code(text: str) -> str:
    """Without comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def circle(rooms: Mapping[str, Room]) -> list[str]:
    """The rooms on a circle, and those that use one of them; none when there is no circle."""
    left = {name: set(room.may_use) for name, room in rooms.items()}
    while free := [name for name, used in left.items() if not used & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def table() -> str:
    """The declaration as docs/architecture.md shows it."""
    lines = ["| package | what | may use |", "|---|---|---|"]
    for name, room in ROOMS.items():
        used = ", ".join(_shown(other) for other in ROOMS if other in room.may_use)
        lines.append(f"| {_shown(name)} | {room.purpose} | {used} |")
    return "\n".join(lines)


def _shown(name: str) -> str:
    return "the root" if name == ROOT else f"`{name}`"
