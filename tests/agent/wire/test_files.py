"""Files through the JVM: transfers at the same time, commits before merges, connections that break."""

from __future__ import annotations

import os
import select
import socket
import statistics
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from runtimes import AdjustedRuntime
from waiting import awaited

from agent.harness import PATIENCE_S, AgentProcess, InProcess, Job, rows_of
from state_store.core.storage import hadoop
from state_store.core.storage.contract import BoundedStorage, Deadline, Span
from state_store.core.storage.hadoop import FileConnections, background, read_frame, write_frame
from state_store.core.storage.local import LocalStorage
from state_store.errors import BusyError, StorageError, UnknownOutcomeError


def rows(number: int, count: int = 100) -> dict[bytes, bytes | None]:
    return {b"\0\0%d-%05d" % (number, row): os.urandom(40) for row in range(count)}


class Together:
    """Keeps requests of one kind until this many are there at once."""

    def __init__(self, operation: str, count: int) -> None:
        self._operation, self._missing = operation, count
        self._lock, self._go_on = threading.Lock(), threading.Event()
        self.met = False

    def __call__(self, header: dict[str, Any]) -> None:
        if header["fs"] != self._operation:
            return
        with self._lock:
            self._missing -= 1
            if self._missing == 0:
                self.met = True
                self._go_on.set()
        self._go_on.wait(PATIENCE_S)
        self._go_on.set()  # they will not meet any more


def test_transfers_of_one_operation_overlap(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        job = Job(agent.connect(remote=tmp_path), "remote:/state")
        for number in range(12):
            job.commit(rows(number))
    with AgentProcess() as agent:
        client = agent.connect(remote=tmp_path, lend=4)
        reader = Job(client, "remote:/state")
        reader.versions = job.versions
        downloads = Together("download", 4)
        for server in client.files:
            server.before = downloads
        assert rows_of(reader.restore(12)) == job.state
        assert downloads.met


def test_a_commit_does_not_wait_for_what_a_merge_writes(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        quick = agent.connect(remote=tmp_path, lend=3)
        job = Job(quick, "remote:/state", transferThreads="2", maxDeltas="2")
        other = Job(quick, "remote:/other", transferThreads="2")
        job.commit(rows(0))
        job.commit(rows(1))
        other.commit(rows(0))
        writing, committed = threading.Event(), threading.Event()
        gave_up: list[str] = []

        def before(header: dict[str, Any]) -> None:
            if header["fs"] == "write" and "/delta/" not in header["path"]:
                writing.set()
                if not committed.wait(PATIENCE_S):
                    gave_up.append(header["path"])

        for server in quick.files:
            server.before = before
        job.commit(rows(2))  # makes the merge of version 2 due
        assert writing.wait(PATIENCE_S)
        for number in range(1, 3):
            other.commit(rows(number))
        committed.set()
        assert job.events()[0]["event"] == "merged"
        assert gave_up == [], "the commits waited for the merge"


def test_a_merge_that_is_slow_ends_in_time_and_takes_its_uploads_back(tmp_path: Path) -> None:
    """MergeTimeout covers uploads; the agent answers others meanwhile, and lives on."""
    with AgentProcess() as agent:
        client = agent.connect(remote=tmp_path)
        job = Job(client, "remote:/state", mergeTimeout="3s", snapshotCompression="none")
        job.commit(rows(0))
        for server in client.files:
            server.delay_s = 1.0
        answers: list[BaseException] = []

        def merge() -> None:
            try:
                job.merge("full")
            except BusyError as error:
                answers.append(error)

        thread = threading.Thread(target=merge)
        thread.start()
        while thread.is_alive():
            assert agent.connect().call("ping")["pid"] == agent.process.pid
            time.sleep(0.05)
        (error,) = answers
        assert "took longer than 3000 ms" in error.message
        assert error.option.endswith("mergeTimeout")
        for server in client.files:
            server.delay_s = 0.0
        assert not list(tmp_path.glob("state/shared/*"))
        assert not list(tmp_path.glob("state/lease/*"))
        assert not list(tmp_path.glob("state/snapshot/*"))
        # A machine may be so busy that no merge ends within that limit.
        assert job.reopened().merge("full")["kind"] == "full"


def test_a_clean_up_that_is_slow_ends_in_time_and_is_gone_on_with(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        client = agent.connect(remote=tmp_path)
        job = Job(client, "remote:/state", retain=2, cleanupTimeout="3s", transferThreads="1")
        for number in range(8):
            job.commit(rows(number, 5))
        job.merge("full")
        job.commit(rows(9, 5))
        job.commit(rows(10, 5))
        for server in client.files:
            server.delay_s = 0.5
        with pytest.raises(BusyError, match=r"clean-up took longer than 3000 ms.*cleanupTimeout"):
            job.cleanup()
        for server in client.files:
            server.delay_s = 0.0
        job = job.reopened()  # without that limit
        assert job.cleanup()["deleted_files"] > 0
        assert len(list(tmp_path.glob("state/delta/*"))) <= 3
        assert rows_of(job.restore()) == job.state


def test_a_listing_comes_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from storage.test_hadoop import _SCHEME, _Calls

    monkeypatch.setattr(hadoop, "PAGE_ENTRIES", 3)
    calls = _Calls(tmp_path)
    storage = hadoop.HadoopStorage(f"{_SCHEME}/store", calls)
    names = [f"{number:02d}" for number in range(10)]
    for name in names:
        storage.write(f"delta/{name}", b"x")
    calls.operations.clear()
    assert [entry.name for entry in storage.list_files("delta")] == names
    assert calls.operations == ["list"] * 4


# ---- the pool -------------------------------------------------------------------------------------------


def lent(connections: FileConnections) -> socket.socket:
    ours, theirs = socket.socketpair()
    connections.lend(ours)
    return theirs


def test_a_connection_that_breaks_says_whether_something_may_have_been_written() -> None:
    connections = FileConnections(lend_timeout_s=0.1)
    for operation, kind in (("read", StorageError), ("write", UnknownOutcomeError)):
        lent(connections).close()
        with pytest.raises(kind, match="broke"):
            connections.ask({"fs": operation, "path": "p"}, b"")
    assert connections.lent == 0
    with pytest.raises(StorageError, match="lent no connection"):
        connections.ask({"fs": "read", "path": "p"}, b"")


def test_background_work_leaves_connections_free() -> None:
    runtime = AdjustedRuntime()
    connections = FileConnections(runtime=runtime)
    connections.allow_background(1)
    ends = [lent(connections) for _ in range(2)]
    done: list[str] = []

    def ask(name: str) -> None:
        connections.ask({"fs": "read", "path": name}, b"")
        done.append(name)

    def in_background() -> None:
        with background():
            ask("background")

    threads = [threading.Thread(target=in_background, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    awaited(lambda: len(runtime.waiting) + sum(readable(end, 0) for end in ends) >= 3, "all have asked")
    front = threading.Thread(target=ask, args=("front",), daemon=True)
    front.start()
    asked = [read_frame(end)[0]["path"] for end in ends]
    assert sorted(asked) == ["background", "front"]
    for end in ends:
        write_frame(end, {"ok": {}})
    front.join(PATIENCE_S)
    for _ in range(2):
        end = next(end for end in ends * 20 if readable(end))
        read_frame(end)
        write_frame(end, {"ok": {}})
    for thread in threads:
        thread.join(PATIENCE_S)
    assert done.count("background") == 3


def readable(end: socket.socket, wait_ms: int = 2000) -> bool:
    poll = select.poll()  # takes descriptors above 1,023, which a long run of tests comes to
    poll.register(end, select.POLLIN)
    return bool(poll.poll(wait_ms))


# ---- deadlines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound_deletions", [False, True])
def test_nothing_begins_past_a_deadline_but_what_takes_back(tmp_path: Path, bound_deletions: bool) -> None:
    stored, local = LocalStorage(tmp_path / "state"), tmp_path / "local"
    local.write_bytes(b"x")
    stored.write("delta/a", b"a")
    deadline = Deadline("a test", None)
    deadline.cancel("it is over")
    storage = BoundedStorage(stored, deadline, bound_deletions=bound_deletions)
    for begin in (
        lambda: storage.list_files("delta"),
        lambda: storage.read("delta/a"),
        lambda: storage.write("delta/b", b"b"),
        lambda: storage.upload(local, "delta/c"),
        lambda: storage.download("delta/a", tmp_path / "copy"),
        lambda: storage.download_spans([Span("delta/a", local, ((0, 1),))]),
        lambda: storage.exists("delta/a"),
    ):
        with pytest.raises(BusyError, match="a test was cancelled: it is over"):
            begin()
    assert [entry.name for entry in stored.list_files("delta")] == ["a"]
    if bound_deletions:
        with pytest.raises(BusyError):
            storage.delete("delta/a")
    else:
        storage.delete("delta/a")
    assert stored.exists("delta/a") == bound_deletions


def test_uploads_of_a_merge_that_is_given_up_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_ms = [0.0]
    client = InProcess(tmp_path / "local", uptime_ms=lambda: clock_ms[0])
    job = Job(client, tmp_path / "state", mergeTimeout="1s")
    job.commit(rows(0))
    storage = job.open_store.context.storage
    upload, uploaded = storage.upload, []

    def slow(local: Path, path: str, *, overwrite: bool = False) -> None:
        upload(local, path, overwrite=overwrite)
        uploaded.append(path)
        clock_ms[0] += 1100

    with monkeypatch.context() as patch:
        patch.setattr(storage, "upload", slow)
        with pytest.raises(BusyError, match="mergeTimeout"):
            job.merge("full")
    assert uploaded
    assert not list(job.location.glob("shared/*"))
    assert not list(job.location.glob("lease/*"))
    assert job.merge("full")["kind"] == "full"


def test_requests_take_turns(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    connections, served = FileConnections(), []

    def answer() -> None:
        while (frame := read_frame(theirs)) is not None:
            served.append(frame[0]["path"])
            write_frame(theirs, {"ok": {}})

    threading.Thread(target=answer, daemon=True).start()
    connections.lend(ours)
    stop = threading.Event()

    def hog(name: str) -> None:
        while not stop.is_set():
            connections.ask({"fs": "read", "path": name}, b"")

    hogs = [threading.Thread(target=hog, args=(name,), daemon=True) for name in ("one", "two")]
    for thread in hogs:
        thread.start()
    for _ in range(20):
        connections.ask({"fs": "write", "path": "writer"}, b"")
    stop.set()
    for thread in hogs:
        thread.join(PATIENCE_S)
    turns = [place for place, path in enumerate(served) if path == "writer"]
    assert len(turns) == 20
    waits = [later - earlier for earlier, later in pairwise(turns)]
    assert statistics.median(waits) <= 8, waits  # not the longest: the writer may be slow to ask
    theirs.close()
