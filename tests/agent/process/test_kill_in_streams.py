"""The agent is killed while a merge streams from storage to storage: nothing is lost."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.harness import PATIENCE_S, AgentProcess, Job
from state_store.core.checkpoint.stored_documents import unpack

ROW_BYTES = 1 << 20
ROWS = 40
"""Every second is shortened: the others are three tables of a streamed merge."""


class Request:
    """Holds back the n-th request of a kind, which is carried out when the agent has been killed."""

    def __init__(self, operation: str, directory: str, number: int) -> None:
        self._operation, self._directory, self._left = operation, directory, number
        self._lock = threading.Lock()
        self.asked, self._over = threading.Event(), threading.Event()

    def __call__(self, header: dict[str, Any]) -> None:
        if header["fs"] != self._operation or f"/{self._directory}/" not in header["path"]:
            return
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return
        self.asked.set()
        self._over.wait(PATIENCE_S)

    def end(self) -> None:
        self._over.set()


REQUESTS = {
    "while it reads": ("spans", "shared", 3),
    "before the first table is announced": ("write", "lease", 1),
    "before the first table": ("write", "shared", 1),
    "before the second table": ("write", "shared", 2),
    "before the archive, which comes late": ("write", "snapshot", 1),
    "after the archive": ("delete", "lease", 1),
}


LONG = {"while it reads", "before the first table is announced", "before the first table"}


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    "place",
    [pytest.param(name, marks=pytest.mark.tier("long" if name in LONG else "more")) for name in REQUESTS],
)
def test_a_kill_at_a_request_of_a_merge_loses_no_row(tmp_path: Path, place: str) -> None:
    disk, request = tmp_path / "local", Request(*REQUESTS[place])
    with AgentProcess() as agent:
        writer = Job(agent.connect(remote=tmp_path), "remote:/state", snapshotCompression="none")
        writer.commit({b"\0\0%04d" % row: os.urandom(ROW_BYTES) for row in range(ROWS)})
        writer.merge("full")
        writer.commit({b"\0\0%04d" % row: os.urandom(100) for row in range(0, ROWS, 2)})
    snapshots = set((tmp_path / "state/snapshot").iterdir())
    options = {"localDiskLimit": "1", "localRecovery": "false", "restoreMode": "lazy"}
    with AgentProcess(disk) as agent, ThreadPoolExecutor(1) as pool:
        client = agent.connect(remote=tmp_path)
        for server in client.files:
            server.before = request
        job = Job(client, "remote:/state", **options)
        job.versions, job.version, job.id, job.state = (
            writer.versions,
            writer.version,
            writer.id,
            writer.state,
        )
        job.restore_by_blocks(2)
        merging = pool.submit(job.merge, "full")
        try:
            assert request.asked.wait(PATIENCE_S)
            agent.process.kill()
            with pytest.raises((ConnectionError, OSError)):
                merging.result(PATIENCE_S)
        finally:
            request.end()
        for server in client.files:
            server.join()
    assert set((tmp_path / "state/snapshot").iterdir()) >= snapshots
    check_archives(tmp_path / "state")
    with AgentProcess(disk) as agent:
        job.client = agent.connect(remote=tmp_path)
        root = Path(job.opened["incoming"]).parent
        answer = job.restore_by_blocks(2)
        assert [path.name for path in root.glob("base-*")] == [Path(answer["directory"]).name]
        made = job.merge("full")
        assert made["new_files"] >= 3
    check_archives(tmp_path / "state")
    with AgentProcess() as agent:
        reader = Job(agent.connect(remote=tmp_path), "remote:/state")
        reader.versions = writer.versions
        reader.restore(2)
        assert reader.rows(2) == writer.state


def check_archives(store: Path) -> None:
    """Raise AssertionError unless the files that archives name are there."""
    for archive in (store / "snapshot").iterdir():
        manifest = unpack(archive.read_bytes(), file=archive.name).manifest
        missing = [entry.path for entry in manifest.files if not (store / entry.path).exists()]
        assert missing == [], archive.name
