"""Local directories of an executor that others remove, and local disks that fail."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from driver import DriverError, Jvm, alive, gone
from waiting import paths_below

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]


def sockets(jvm: Jvm) -> list[Path]:
    return [path for path in paths_below(jvm.tmp) if path.is_socket()]


@pytest.mark.parametrize("removed", ["the socket", "its directory"])
def test_an_executor_goes_on_after_a_cleaner_removed_the_socket(
    own_jvm: Jvm, tmp_path: Path, removed: str
) -> None:
    """Cleaners remove old files in /tmp. A new connection is made when more tasks run than ever before."""
    own_jvm.provider("p", tmp_path / "p", callTimeout="60s")
    version, id = own_jvm.batch("p", 0, a="1")
    (socket,) = sockets(own_jvm)
    if removed == "the socket":
        socket.unlink()
    else:
        shutil.rmtree(socket.parent)
    version, id = own_jvm.batch("p", version, id, b="2")

    own_jvm.provider("slow", f"probe:{tmp_path}/slow")
    own_jvm("on_fs", operation="create", action="sleep", ms=500)
    own_jvm("begin", provider="slow", store="s", version=0)
    own_jvm("put", store="s", rows={"x": "1"})
    own_jvm("commit", store="s", thread="t")
    version, id = own_jvm.batch("p", version, id, c="3")
    own_jvm("await", thread="t")
    assert own_jvm.rows("p", version, id) == {"a": "1", "b": "2", "c": "3"}


@pytest.mark.parametrize("removed", ["sockets", "everything"])
def test_an_agent_that_died_is_replaced_after_a_cleaner_removed_its_directories(
    own_jvm: Jvm, tmp_path: Path, removed: str
) -> None:
    own_jvm.provider("p", tmp_path / "p")
    version, id = own_jvm.batch("p", 0, a="1")
    agent = own_jvm.agent() or 0
    directories = {socket.parent for socket in sockets(own_jvm)}
    if removed == "everything":
        directories |= set(own_jvm.tmp.iterdir())
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
    os.kill(agent, signal.SIGKILL)
    assert gone(lambda: alive(agent))
    version, id = own_jvm.batch("p", version, id, b="2")
    assert gone(lambda: own_jvm.agent() in (None, agent)), "nobody was told of the commit"
    own_jvm.provider("q", tmp_path / "p")
    assert own_jvm.rows("q", version, id) == {"a": "1", "b": "2"}
    loose = [path for path in own_jvm.tmp.rglob("*") if path.is_dir() and path.stat().st_mode & 0o077]
    assert [path for path in loose if "state-store" in str(path)] == [], "others may not read there"


def fail_disk(jvm: Jvm) -> Path:
    """Put files where the executor's local directories are: nothing can be written there."""
    (incoming,) = jvm.tmp.rglob("incoming")
    shutil.rmtree(incoming)
    incoming.write_bytes(b"")
    return incoming


def test_a_failing_disk_of_a_commit_is_named(own_jvm: Jvm, tmp_path: Path) -> None:
    own_jvm.provider("p", tmp_path / "p")
    version, id = own_jvm.batch("p", 0, a="1")
    incoming = fail_disk(own_jvm)
    with pytest.raises(DriverError, match=r"incremental state store \[storage\].*localDir") as failure:
        own_jvm.batch("p", version, id, b="2")
    assert str(incoming) in str(failure.value)
    assert "Remove the file that stands where a directory has to be" in str(failure.value)
    assert "Free space" not in str(failure.value)
    incoming.unlink()
    version, id = own_jvm.batch("p", version, id, b="2")
    assert own_jvm.rows("p", version, id) == {"a": "1", "b": "2"}


def test_a_failing_disk_of_rows_that_do_not_fit_into_memory_is_named(own_jvm: Jvm, tmp_path: Path) -> None:
    own_jvm.provider("p", tmp_path / "p", memoryBudget="16m")
    version, id = own_jvm.batch("p", 0, a="1")
    incoming = fail_disk(own_jvm)
    own_jvm("begin", provider="p", store="s", version=version, id=id)
    with pytest.raises(DriverError, match=r"incremental state store \[storage\].*localDir") as failure:
        own_jvm("fill", store="s", **{"from": 0, "until": 40_000}, value="x" * 1000)
    assert str(incoming / "spill") in str(failure.value)
    own_jvm("abort", store="s")
    incoming.unlink()
    own_jvm("begin", provider="p", store="s2", version=version, id=id)
    own_jvm("fill", store="s2", **{"from": 0, "until": 40_000}, value="x" * 1000)
    assert own_jvm("commit", store="s2")["version"] == version + 1
