"""The agent is killed between the parts of a large file; the next one restores all, and nothing is left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.harness import PATIENCE_S, AgentProcess, Job, rows_of
from state_store.core.files.transfer import PART_BYTES

ROW_BYTES = 1 << 20
ROWS = 40
"""This many are five parts, or four tables that are a part each."""


class ThirdPart:
    """Lets two parts of files come, and no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._come = 0
        self.asked, self._over = threading.Event(), threading.Event()

    def __call__(self, header: dict[str, Any]) -> None:
        if header["fs"] != "spans":
            return
        with self._lock:
            self._come += 1
            if self._come <= 2:
                return
        self.asked.set()
        self._over.wait(PATIENCE_S)

    def end(self) -> None:
        self._over.set()


def holes(directory: Path) -> list[Path]:
    """Large files of which not all is there."""
    large = [path for path in directory.rglob("*.sst") if path.stat().st_size > PART_BYTES]
    return [path for path in large if path.stat().st_blocks * 512 < path.stat().st_size]


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    ("of", "restore"),
    [("a delta", Job.restore_by_blocks), ("a table", Job.restore)],
    ids=["a delta, by blocks", "a table, thorough"],
)
def test_a_kill_between_the_parts_of_a_file_leaves_no_other_base_and_no_wrong_row(
    tmp_path: Path, of: str, restore: Callable[[Job], dict[str, Any]]
) -> None:
    disk, third = tmp_path / "local", ThirdPart()
    with AgentProcess() as agent:
        writer = Job(agent.connect(remote=tmp_path), "remote:/state", snapshotCompression="none")
        writer.commit({b"\0\0%04d" % row: os.urandom(ROW_BYTES) for row in range(ROWS)})
        if of == "a table":
            writer.merge("full")
    with AgentProcess(disk) as agent, ThreadPoolExecutor(1) as pool:
        client = agent.connect(remote=tmp_path)
        for server in client.files:
            server.before = third
        job = Job(client, "remote:/state", transferThreads="2")
        job.versions = writer.versions
        restoring = pool.submit(restore, job, 1)
        try:
            assert third.asked.wait(PATIENCE_S)
            partial = holes(disk)
            assert partial
            agent.process.kill()
            with pytest.raises((ConnectionError, OSError)):
                restoring.result(PATIENCE_S)
        finally:
            third.end()
    assert all(path.exists() for path in partial), "nobody has tidied up yet"
    with AgentProcess(disk) as agent:
        job.client = agent.connect(remote=tmp_path)
        answer = restore(job, 1)
        assert not any(path.exists() for path in partial)
        assert holes(disk) == []
        root = Path(job.opened["incoming"]).parent
        assert [path.name for path in root.glob("base-*")] == [Path(answer["directory"]).name]
        assert rows_of(answer) == writer.state
