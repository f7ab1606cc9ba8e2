"""The directory of a task's temporary files: one task removes what another that was killed has left."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from state_store.core.files import workspace
from state_store.core.files.workspace import TASK_PREFIX, task_directory
from state_store.core.runtime import ScratchDirectory

TASK = """
import sys, tempfile, time
from state_store.core.files.workspace import task_directory
from state_store.core.runtime import ScratchDirectory

tempfile.tempdir = sys.argv[1]
with task_directory(), ScratchDirectory("state-store-") as directory:
    open(directory + "/rows", "w").write("many")
    print(directory, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def parent(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def started_task(parent: Path) -> tuple[subprocess.Popen, Path]:
    """Start a task that does not end; return its process and its file."""
    process = subprocess.Popen([sys.executable, "-c", TASK, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip()) / "rows"


def test_all_temporary_files_of_a_task_are_in_its_directory(parent):
    with task_directory():
        with ScratchDirectory("state-store-") as directory:
            (own,) = parent.glob(f"{TASK_PREFIX}*")
            assert Path(directory).parent == own
        (own / "forgotten").mkdir()
    assert not list(parent.iterdir()) and tempfile.gettempdir() == str(parent)
    with pytest.raises(ValueError, match="wrong"), task_directory():
        raise ValueError("wrong")
    assert not list(parent.iterdir()) and tempfile.gettempdir() == str(parent)


def test_a_task_removes_what_killed_tasks_have_left_and_nothing_else(parent):
    (parent / "state-store-of-a-command").mkdir()
    killed, rest = started_task(parent)
    living, rows = started_task(parent)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert rest.exists()
        with task_directory():
            assert not rest.parent.parent.exists() and rows.exists()
        assert (parent / "state-store-of-a-command").exists()
    finally:
        for process in (killed, living):
            process.kill()
            process.wait()
            process.stdout.close()
    assert rows.exists()


@pytest.mark.parametrize("moment", ["before it is opened", "before it is locked"])
def test_a_directory_that_another_task_takes_for_abandoned_is_made_anew(parent, monkeypatch, moment):
    """The other task looks between the steps by which this one makes its directory and locks it."""
    module, name = (os, "open") if moment == "before it is opened" else (fcntl, "flock")
    real = getattr(module, name)
    removed: list[Path] = []

    def late(*given, **named):
        own = [path for path in parent.glob(f"{TASK_PREFIX}*") if not removed]
        if own:
            removed.extend(own)
            monkeypatch.setattr(module, name, real)
            workspace._remove_abandoned(parent)
            monkeypatch.setattr(module, name, late)
            assert not own[0].exists()
        return real(*given, **named)

    monkeypatch.setattr(module, name, late)
    with task_directory():
        (own,) = parent.glob(f"{TASK_PREFIX}*")
        assert removed and own not in removed and tempfile.gettempdir() == str(own)


def test_a_directory_that_another_task_is_removing_is_not_taken(parent, monkeypatch):
    held: list[int] = []
    flock = fcntl.flock

    def late(descriptor, how):
        if not held:
            (own,) = parent.glob(f"{TASK_PREFIX}*")
            held.append(os.open(own, os.O_RDONLY))
            flock(held[0], how)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with task_directory():
        assert len(list(parent.glob(f"{TASK_PREFIX}*"))) == 2
    os.close(held[0])


def test_on_a_file_system_without_locks_nothing_is_removed(parent, monkeypatch):
    def refuse(descriptor, how):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (parent / f"{TASK_PREFIX}other").mkdir()
    with task_directory():
        assert len(list(parent.glob(f"{TASK_PREFIX}*"))) == 2
    assert [path.name for path in parent.iterdir()] == [f"{TASK_PREFIX}other"]


def test_a_directory_of_another_machine_stays(parent):
    """Its lock may be one that this machine does not see: that of a network's file system, say."""
    other = parent / TASK_PREFIX.replace("@", "-2@abandoned")
    own = parent / f"{TASK_PREFIX}abandoned"
    for directory in (other, own):
        directory.mkdir()
    with task_directory():
        assert other.exists() and not own.exists()
