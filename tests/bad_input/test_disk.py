"""Disks that are full, and directories that may not be written: told by name, and nothing is lost."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent.harness import AgentProcess, Job, contents, rows_of
from mounted_disks import mounted_disk

from state_store.core.storage.local import LocalStorage
from state_store.errors import StateStoreError, StorageError

ROWS = {b"\0\0%05d" % row: os.urandom(100) for row in range(1000)}
MORE = {b"\0\0more-%05d" % row: os.urandom(100) for row in range(3000)}


@contextmanager
def no_room(agent: AgentProcess, max_bytes: int) -> Iterator[None]:
    """Within it, no file that the agent writes may grow beyond that size: the system refuses the rest."""
    pid = agent.process.pid
    old = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (max_bytes, old[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, old)


def files(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): path.stat().st_size
        for path in directory.rglob("*")
        if path.is_file()
    }


class TestNoRoom:
    @pytest.mark.tier("more")
    def test_a_commit_without_room_fails(self, tmp_path: Path, other_disk: Path) -> None:
        with AgentProcess(other_disk / "agent") as agent:
            job = Job(agent.connect(), tmp_path / "state")
            job.commit(ROWS)
            before = files(job.location)
            arguments = job.write(MORE)
            with (
                no_room(agent, 64 << 10),
                pytest.raises(StorageError, match=r"delta/0*2_.*too large") as caught,
            ):
                job.call("commit", **arguments)
            assert "delta/" in str(caught.value.file)
            assert files(job.location) == before
            job.call("commit", **arguments)
            job.version, job.id, job.state = job.next
            assert rows_of(job.call("restore", version=2, id=job.id)) == job.state

    @pytest.mark.parametrize("kind", ["incremental", "full"])
    def test_a_merge_without_room_fails(self, tmp_path: Path, kind: str) -> None:
        with AgentProcess() as agent:
            job = Job(agent.connect(), tmp_path / "state")
            job.commit(ROWS)
            job.commit(MORE)
            before = files(job.location)
            with no_room(agent, 512):
                with pytest.raises(StateStoreError) as caught:
                    job.merge(kind)
                assert caught.value.kind in ("storage", "damaged")
                assert "File too large" in caught.value.message
            assert files(job.location) == before
            assert contents(job.merge(kind)["directory"]) == job.state
            assert rows_of(job.restore()) == job.state

    def test_a_restore_without_room_fails(self, tmp_path: Path) -> None:
        with AgentProcess() as agent:
            job = Job(agent.connect(), tmp_path / "state")
            job.commit(ROWS)
            job.merge("full")
            job.commit(MORE)
        with AgentProcess() as agent:
            job.client = agent.connect()
            job.call("open")
            with no_room(agent, 512), pytest.raises(StateStoreError, match="too large"):
                job.restore()
            assert rows_of(job.restore()) == job.state

    def test_a_full_file_system_is_named(self, tmp_path: Path) -> None:
        """The real thing: a file system of 1 MiB as checkpoint storage, until it is full."""
        with (
            mounted_disk(tmp_path / "small", "1m") as mounted,
            AgentProcess(tmp_path / "local") as agent,
        ):
            job = Job(agent.connect(), mounted / "state")
            with pytest.raises(StorageError, match="No space left on device"):
                for batch in range(100):
                    job.commit({b"\0\0%d-%d" % (batch, row): os.urandom(100) for row in range(500)})
            assert job.version > 2
            assert not list(job.location.rglob("*.tmp"))
            with pytest.raises(StorageError, match="No space left on device"):
                job.merge("full")
            assert not list(job.location.glob("snapshot/*"))
            assert rows_of(job.restore()) == job.state


def write_as_nobody(directory: Path) -> str:
    """Return the error of a process that gives up root and writes there without the right to."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            LocalStorage(directory).write("delta/x", b"")
        except BaseException as error:
            os.write(write, f"{type(error).__name__} {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        error = pipe.read()
    os.waitpid(child, 0)
    return error


def test_a_directory_without_permission_is_named_with_the_fix() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as room:
        Path(room).chmod(0o755)
        directory = Path(room) / "state"
        directory.mkdir(mode=0o555)
        error = write_as_nobody(directory)
        assert error.startswith(f"StorageError cannot write '{directory}/delta/x': Permission denied")
        assert "user must be allowed to list, read, write and delete" in error
        assert list(directory.iterdir()) == []


def test_a_file_in_place_of_the_directory_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"not a directory")
    with AgentProcess() as agent, pytest.raises(StateStoreError, match="state"):
        job = Job(agent.connect(), tmp_path / "state")
        job.commit(ROWS)
    assert (tmp_path / "state").read_bytes() == b"not a directory"
