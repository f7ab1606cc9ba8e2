"""The control plane gets clocks, randomness and threads as a `Runtime` that is passed in, by no other way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import wings

HOME = "state_store.core.runtime"
"""The module that has the machine's own."""

FORBIDDEN = {
    "asyncio": set(),
    "concurrent": set(),
    "datetime": {"datetime.now", "datetime.today", "date.today"},
    "multiprocessing": set(),
    "os": {"getpid", "urandom"},
    "queue": set(),
    "random": set(),
    "secrets": set(),
    "threading": {"Barrier", "Condition", "Event", "Lock", "RLock", "Semaphore", "Thread", "Timer"},
    "time": set(),
    "uuid": set(),
}
"""Modules of Python that none may use, or what of them (where that is not all)."""

OUTSIDE = {"session", "cli", "functions", "testing", "observe"}
"""Rooms that are programs of people, or part of Spark's Python workers: no agent runs their code."""

OF_THE_MACHINE = {
    "state_store.agent.__main__": "it starts the process",
    "state_store.core.engine.database": "RocksDB compacts in threads of its own, by the system's clock",
    "state_store.core.storage.local_disk": "it is the local file system",
    "state_store.core.storage.objects": "a client of a service",
    "state_store.core.storage.webhdfs": "a client of a service",
}
"""Modules that name the system's runtime itself, and why no other can take its place."""


def machine_uses(source: str) -> Iterator[str]:
    """Yield the names that a module takes from the machine past any runtime."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from (name for name in names if FORBIDDEN.get(name.split(".")[0]) == set())
        elif isinstance(node, ast.ImportFrom):
            some = FORBIDDEN.get((node.module or "").split(".")[0])
            if some is not None:
                yield from (alias.name for alias in node.names if not some or alias.name in some)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if node.attr in FORBIDDEN.get(node.value.id, ()) or name in FORBIDDEN["datetime"]:
                yield name


def system_uses(source: str) -> Iterator[int]:
    """Yield the lines that name the system's runtime other than as the default of a parameter or field."""
    tree = ast.parse(source)
    defaults = {
        id(default)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AnnAssign)
        for default in (
            [node.value] if isinstance(node, ast.AnnAssign) else (*node.args.defaults, *node.args.kw_defaults)
        )
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "SYSTEM" and id(node) not in defaults:
            yield node.lineno


def modules(checkout: Path) -> dict[str, str]:
    found = {wings.module_of(path, checkout): path for path in wings.sources(checkout)}
    return {
        name: path.read_text(encoding="utf-8")
        for name, path in found.items()
        if wings.wing_of(name) not in OUTSIDE
    }


def test_nothing_is_taken_from_the_machine_past_the_runtime(checkout: Path) -> None:
    found = {name: sorted(set(machine_uses(source))) for name, source in modules(checkout).items()}
    assert {name: uses for name, uses in found.items() if uses and name not in {HOME, *OF_THE_MACHINE}} == {}


@pytest.mark.tier("more")
def test_the_runtime_is_passed_in(checkout: Path) -> None:
    found = {name for name, source in modules(checkout).items() if list(system_uses(source))}
    assert found - {HOME} <= OF_THE_MACHINE.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "import concurrent.futures",
        "import threading\nthreading.Lock()",
        "from threading import Thread",
        "import os\nos.getpid()",
        "from datetime import datetime\ndatetime.now()",
    ],
)
def test_every_way_to_the_machine_is_seen(source: str) -> None:
    assert list(machine_uses(source))


def test_code_that_does_not_reach_the_machine_is_not_found() -> None:
    assert not list(machine_uses("import threading\nthreading.local()\nthreading.get_native_id()"))
    assert not list(system_uses("def f(runtime=SYSTEM, *, other=SYSTEM):\n    return runtime"))
    assert list(system_uses("def f(a=SYSTEM):\n    return SYSTEM.lock()")) == [2]
