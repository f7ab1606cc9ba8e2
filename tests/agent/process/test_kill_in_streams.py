"""The agent is killed while a merge streams from storage to storage: nothing is lost."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.harness import PATIENCE_S, AgentProcess, Job

ROW_BYTES = 1 << 20
ROWS = 40
"""Every second is shortened: the others are three tables of a streamed merge."""


class Upload:
    """Holds back the upload of the n-th table."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._lock = threading.Lock()
        self.asked, self._over = threading.Event(), threading.Event()

    def __call__(self, header: dict[str, Any]) -> None:
        if header["fs"] != "write" or "/shared/" not in header["path"]:
            return
        with self._lock:
            self._left -= 1
            if self._left > 0:
                return
        self.asked.set()
        self._over.wait(PATIENCE_S)

    def end(self) -> None:
        self._over.set()


@pytest.mark.parametrize("number", [1, 2])
def test_killed_between_the_tables_of_a_merge(tmp_path: Path, number: int) -> None:
    disk, upload = tmp_path / "local", Upload(number)
    with AgentProcess() as agent:
        writer = Job(agent.connect(remote=tmp_path), "remote:/state", snapshotCompression="none")
        writer.commit({b"\0\0%04d" % row: os.urandom(ROW_BYTES) for row in range(ROWS)})
        writer.merge("full")
        writer.commit({b"\0\0%04d" % row: os.urandom(100) for row in range(0, ROWS, 2)})
    snapshots = set((tmp_path / "state/snapshot").iterdir())
    options = {"pageCacheLimit": "1", "localRecovery": "false", "restoreMode": "lazy"}
    with AgentProcess(disk) as agent, ThreadPoolExecutor(1) as pool:
        client = agent.connect(remote=tmp_path)
        for server in client.files:
            server.before = upload
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
            assert upload.asked.wait(PATIENCE_S)
            agent.process.kill()
            with pytest.raises((ConnectionError, OSError)):
                merging.result(PATIENCE_S)
        finally:
            upload.end()
    assert set((tmp_path / "state/snapshot").iterdir()) == snapshots
    with AgentProcess(disk) as agent:
        job.client = agent.connect(remote=tmp_path)
        root = Path(job.opened["incoming"]).parent
        answer = job.restore_by_blocks(2)
        assert [path.name for path in root.glob("base-*")] == [Path(answer["directory"]).name]
        made = job.merge("full")
        assert made["new_files"] >= 3
    with AgentProcess() as agent:
        reader = Job(agent.connect(remote=tmp_path), "remote:/state")
        reader.versions = writer.versions
        reader.restore(2)
        assert reader.rows(2) == writer.state
