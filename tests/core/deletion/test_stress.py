"""Real processes on one directory, some of them killed again and again: no needed file is ever deleted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from owned_processes import started
from runtimes import AdjustedRuntime

from deletion import made_up, stress
from state_store.core.deletion.lease import StoreContents
from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.storage.local import LocalStorage

_KILLS = 10
_VERSIONS = 60
_PATIENCE_S = 600


def _start(owned: ExitStack, role: str, number: int, directory: Path) -> subprocess.Popen[str]:
    """Return a process, which is at work; it ends with `owned`."""
    tests = Path(__file__).parents[2]
    path = os.pathsep.join(map(str, (tests / "core", tests, tests.parent)))
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-m", "deletion.stress", role, str(number), str(directory)]
    pipe = subprocess.PIPE
    process = owned.enter_context(started(command, env=environment, stdout=pipe, stderr=pipe, text=True))
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n", process.communicate()
    return process


def _finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, errors
    return output


@pytest.mark.tier("more")
def test_processes_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    with ExitStack() as owned:
        _kill_and_compare(owned, tmp_path / "store")


def _kill_and_compare(owned: ExitStack, directory: Path) -> None:
    steady = [_start(owned, role, 1, directory) for role in ("committer", "cleaner", "checker", "writer")]
    victims = (("writer", 2), ("writer", 3), ("cleaner", 2))
    mortal = {victim: _start(owned, *victim, directory) for victim in victims}
    chance = random.Random(7)
    kills = 0
    until = time.monotonic() + _PATIENCE_S
    while kills < _KILLS or stress.newest(LocalStorage(directory)) < _VERSIONS:
        time.sleep(chance.random() / 4)
        victim = chance.choice(list(mortal))
        if any(process.poll() is not None for process in (*steady, *mortal.values())):
            break  # it failed
        mortal[victim].send_signal(signal.SIGKILL)
        mortal[victim].communicate()
        mortal[victim] = _start(owned, *victim, directory)
        kills += 1
        assert time.monotonic() < until
    stress.over(directory).touch()
    reports = [_finish(process) for process in (*steady, *mortal.values())]
    _assert_in_order(LocalStorage(directory), reports)


def _assert_in_order(storage: LocalStorage, reports: list[str]) -> None:
    top = stress.newest(storage)
    assert top > 3 * stress.KEEP, reports
    names = [entry.name for entry in storage.list_files("delta")]
    assert len(names) < top / 2, f"hardly anything was ever deleted: {reports}"
    retained = [
        version.number
        for version in StoreContents.read(storage).registry(top - stress.KEEP + 1).checkpoints()
    ]
    assert retained == list(range(top - stress.KEEP + 1, top + 1))
    _after_the_dead_are_gone(storage, top)


def _after_the_dead_are_gone(storage: LocalStorage, top: int) -> None:
    """A later snapshot and a clean-up that knows all leases expired leave just what is needed."""
    for number in range(top + 1, top + 4):
        storage.write(made_up.delta(number).path, b"")
    fresh = made_up.shared(top + 2, 1)
    storage.write(fresh, made_up.content(fresh))
    name = made_up.snapshot(top + 2)
    storage.write(name.path, made_up.archive(name.version_id, [fresh]))
    later = time.time() + 3600
    os.utime(storage.directory / made_up.delta(top + 3).path, (later, later))
    for lease in (storage.directory / "lease").iterdir():
        os.utime(lease, (later - 7200, later - 7200))
    policy = RetentionPolicy(batches=2, lease_expiry_ms=1000, temporary_expiry_ms=1000)
    Retention(storage, policy, runtime=AdjustedRuntime(wall_ms=lambda: later * 1000)).cleanup(
        made_up.version(top + 3)
    )
    files = {
        str(path.relative_to(storage.directory)) for path in storage.directory.rglob("*") if path.is_file()
    }
    expected = {fresh, name.path, made_up.delta(top + 2).path, made_up.delta(top + 3).path}
    assert files == expected
