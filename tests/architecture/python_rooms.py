"""The rooms of the control plane: the sub-packages of `state_store`, and which may use which.

Declared here once: a test compares it with the sources, and the table in docs/architecture.md with it.
Imports count wherever they stand: at the top, in a function, and for types alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from scala_rooms import Room, circle

PACKAGE = "state_store"
FREE_FOR_ALL = {"__version__"}
"""What the package itself has for its parts. It collects its other names from the rooms, for users."""

OLDER_PYTHON = "older_python"
"""A module that is to every room as the standard library."""


def _room(purpose: str, may_use: str = "") -> Room:
    return Room(purpose, frozenset(may_use.split()))


ROOMS: Mapping[str, Room] = {
    "errors": _room("the errors that leave the package, each of one kind on the wire"),
    "runtime": _room("the clocks, the randomness and the threads of a process, which are passed in"),
    "checkpoint": _room("names, manifests, lineage, registry: values, no I/O", "errors"),
    "settings": _room(
        "the options, the pages written from them, what the data plane is told of both",
        "errors runtime checkpoint",
    ),
    "storage": _room(
        "one contract for checkpoint storage, its backends, a conformance kit", "errors runtime checkpoint"
    ),
    "files": _room(
        "verified transfers, the cache of local files, working directories", "errors runtime storage"
    ),
    "planning": _room(
        "the chain, what a restore costs, times of day, when to merge: values, no I/O",
        "settings checkpoint",
    ),
    "engine": _room("RocksDB; the only importer of `rocksdict`", "errors runtime checkpoint files"),
    "deletion": _room(
        "leases, what a directory holds, which checkpoints stay, clean-up",
        "errors runtime checkpoint storage files",
    ),
    "snapshots": _room(
        "local databases: restore, merge, publish",
        "errors runtime checkpoint storage engine files planning deletion",
    ),
    "jvm": _room(
        "the jar: for which Sparks, from what, how it is compiled, which one a session takes",
        "errors settings",
    ),
    "spark": _room("a session's configuration, a checkpoint's past", "errors settings storage jvm"),
    "rows": _room("Spark's rows and Arrow's columns: types, decoding, encoding, the hash", "errors"),
    "query": _room(
        "the stores of a query, found by what Spark wrote", "errors checkpoint storage files spark"
    ),
    "embedded": _room(
        "a store without Spark",
        "errors runtime checkpoint storage engine files deletion snapshots rows",
    ),
    "dataset": _room(
        "state as data: the stores of a query as Arrow tables",
        "errors runtime checkpoint storage engine files planning deletion snapshots rows query",
    ),
    "estimation": _room(
        "what a store is going to take: the planning of many batches, on sizes alone",
        "errors runtime settings checkpoint storage files engine planning deletion snapshots query dataset",
    ),
    "migration": _room(
        "a query moved from one state store to another",
        "errors settings checkpoint storage files deletion jvm query dataset",
    ),
    "agent": _room(
        "the process beside the executor: frames, calls, open stores",
        "errors runtime settings checkpoint storage engine files planning deletion snapshots",
    ),
    "cli": _room(
        "the command line, a module a command",
        "errors settings checkpoint storage engine files planning deletion snapshots jvm query dataset "
        "estimation migration",
    ),
    "vectorization": _room("vectorised functions: the Python side", "settings"),
}


def room_of(module: str) -> str:
    """The room of a module of the package, whose own room is `state_store`."""
    return [*module.split("."), module][1] if "." in module else module


def imported(source: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Each import of a name of the package in `source`: the module that it is from, and the name.

    The name is empty where a module is imported as a whole. `root` is the directory that has the package.
    """
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{source}: imports of this package are absolute"
            if node.module is not None and node.module.split(".")[0] == PACKAGE:
                for alias in node.names:
                    inner = root.joinpath(*node.module.split("."), alias.name)
                    if inner.is_dir() or inner.with_suffix(".py").is_file():
                        yield f"{node.module}.{alias.name}", ""
                    else:
                        yield node.module, alias.name


def module_of(source: Path, root: Path) -> str:
    """The name under which `source` is imported."""
    return ".".join(source.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def sources(root: Path) -> list[Path]:
    """The modules of the package below `root`, its own included, which only collects names."""
    return sorted((root / PACKAGE).rglob("*.py"))


def used_rooms(root: Path) -> dict[str, set[str]]:
    """The rooms that each room uses, as its sources say."""
    used: dict[str, set[str]] = {}
    for source in sources(root):
        room = room_of(module_of(source, root))
        if room not in (PACKAGE, OLDER_PYTHON):
            used.setdefault(room, set()).update(
                room_of(module)
                for module, name in imported(source, root)
                if room_of(module) not in (room, OLDER_PYTHON)
                and (module != PACKAGE or name not in FREE_FOR_ALL)
            )
    return used


def circles(root: Path) -> list[str]:
    """The modules on a circle of imports, and those that use one of them; none when there is no circle."""
    modules: dict[str, set[str]] = {}
    for source in sources(root):
        module = module_of(source, root)
        if module != PACKAGE:
            modules[module] = {used for used, _ in imported(source, root) if used not in (module, PACKAGE)}
    return circle({name: Room("", frozenset(used & modules.keys())) for name, used in modules.items()})


def table() -> str:
    """The declaration as docs/architecture.md shows it."""
    lines = ["| room | what | may use |", "|---|---|---|"]
    for name, room in ROOMS.items():
        used: Iterable[str] = (f"`{other}`" for other in ROOMS if other in room.may_use)
        lines.append(f"| `{name}` | {room.purpose} | {', '.join(used)} |")
    return "\n".join(lines)
