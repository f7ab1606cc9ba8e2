"""The walk-through of shared state, step by step, against the files on disk: two checkpoints are retained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.harness import InProcess, Job, contents, rows_of
from state_store.core.checkpoint.names import VersionId, origin_of
from state_store.core.checkpoint.registry import Registry
from state_store.core.deletion.lease import StoreContents
from state_store.core.storage.local import LocalStorage


class Walk:
    """A store whose files are looked at after every step."""

    def __init__(self, root: Path) -> None:
        self.storage = LocalStorage(root / "state")
        client = InProcess(root / "local", max_runs=2, size_amplification_percent=1000)
        self.job = Job(client, root / "state", retain=2, localRecovery="false")

    def batch(self, number: int, rows: int) -> None:
        self.job.commit({b"\0\0%03d-%04d" % (number, row): os.urandom(60) for row in range(rows)})

    def merge(self, kind: str = "incremental") -> dict:
        answer = self.job.merge(kind)
        assert contents(answer["directory"]) == self.job.state
        self.job.call("release", directory=answer["directory"])
        return answer

    def cleanup(self) -> None:
        retained = self.job.cleanup()["retained"]
        newest = self.job.version
        assert [version["version"] for version in retained] == [newest - 1, newest][-newest:]
        assert self.kept_registry() == self.registry()

    def kept_registry(self) -> Registry:
        """Return the registry that the agent carries along from operation to operation."""
        return self.job.open_store.head.registry

    def registry(self) -> Registry:
        """Return the registry as the files tell it."""
        return StoreContents.read(self.storage).registry(max(1, self.job.version - 1))

    def counts(self) -> dict[str, int]:
        """Return the number of retained checkpoints that need each SST, by name: d<version>, m<version>."""
        registry = self.registry()
        return {
            f"{'d' if file.path.startswith('delta/') else 'm'}{file.origin}": registry.count(file.path)
            for file in registry.entries()
            if not file.is_snapshot
        }

    def on_disk(self) -> set[str]:
        """Return the SSTs there are, by the same names."""
        return {
            f"{directory[0].replace('s', 'm')}{origin_of(f'{directory}/{entry.name}')}"
            for directory in ("delta", "shared")
            for entry in self.storage.list_files(directory)
        }

    def snapshots_on_disk(self) -> list[int]:
        return [int(entry.name[:20]) for entry in self.storage.list_files("snapshot")]


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    return Walk(tmp_path)


def test_files_live_exactly_as_long_as_a_retained_checkpoint_needs_them(walk: Walk) -> None:
    # CP1 needs 1; CP2 adds 2: what CP1 needs now has two holders.
    walk.batch(1, 300)
    walk.cleanup()
    assert walk.counts() == {"d1": 1}
    walk.batch(2, 300)
    walk.cleanup()
    assert walk.counts() == {"d1": 2, "d2": 1}

    # CP3: 1, 2 and 3 are merged into (1,2,3); CP1 retires.
    walk.batch(3, 300)
    merged = walk.merge()
    assert merged["new_files"] == 1
    walk.cleanup()
    assert walk.counts() == {"d1": 1, "d2": 1, "m3": 1}
    assert walk.on_disk() == {"d1", "d2", "d3", "m3"}

    # CP4 keeps (1,2,3); CP2 retires, so that 1 and 2 go.
    walk.batch(4, 20)
    walk.cleanup()
    assert walk.counts() == {"m3": 2, "d4": 1}
    assert walk.on_disk() == {"d3", "d4", "m3"}

    # CP5 and CP6: 4, 5 and 6 are merged into (4,5,6), (1,2,3) is kept as it is.
    walk.batch(5, 20)
    walk.cleanup()
    walk.batch(6, 20)
    merged = walk.merge()
    assert (merged["kind"], merged["shared_files"], merged["new_files"]) == ("incremental", 1, 1)
    walk.cleanup()
    assert walk.counts() == {"m3": 2, "m6": 1, "d4": 1, "d5": 1}
    assert walk.on_disk() == {"d4", "d5", "d6", "m3", "m6"}
    assert walk.snapshots_on_disk() == [3, 6]

    # CP7, incremental on top.
    walk.batch(7, 20)
    walk.cleanup()
    assert walk.on_disk() == {"d6", "d7", "m3", "m6"}
    assert walk.counts() == {"m3": 2, "m6": 2, "d7": 1}
    assert walk.snapshots_on_disk() == [6]

    # CP8 is full, in the running job: it shares nothing with any before it.
    walk.batch(8, 20)
    merged = walk.merge("full")
    assert (merged["kind"], merged["shared_files"]) == ("full", 0)
    walk.cleanup()
    assert walk.counts() == {"m3": 1, "m6": 1, "d7": 1, "m8": 1}
    files = walk.registry().files(VersionId(8, walk.job.id))
    assert {file.origin for file in files} == {8}

    # CP9 builds on it; when all before the full one have retired, every file older than it is gone from disk.
    walk.batch(9, 20)
    walk.cleanup()
    assert walk.counts() == {"m8": 2, "d9": 1}
    assert walk.on_disk() == {"d8", "d9", "m8"}
    assert walk.snapshots_on_disk() == [8]
    for version in (8, 9):
        restored = walk.job.restore(version)
        assert rows_of(restored) == walk.job.state
        assert restored["snapshot_version"] == 8


def test_a_full_checkpoint_in_the_running_job_can_be_built_on(walk: Walk) -> None:
    for number in range(1, 6):
        walk.batch(number, 50)
    walk.merge("incremental")
    walk.merge("full")
    for number in range(6, 9):
        walk.batch(number, 50)
        walk.cleanup()
    assert all(int(name[1:]) >= 5 for name in walk.on_disk())
    assert rows_of(walk.job.restore()) == walk.job.state
