"""Checkpoints of a query that a release made are read and gone on with; tests/spark runs the query on."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent.harness import InProcess, Job, contents
from agent.harness import rows_of as restored_rows

from golden.write_query import CONDEMNED, FORMATS, HELD, stores
from state_store.cli.main import main

HERE = Path(__file__).resolve().parent
CHECKPOINTS = [(path, name) for path in sorted(HERE.glob("release-*")) for name in FORMATS]


@dataclass(frozen=True)
class Found:
    """A copy of a checkpoint: whether its versions have ids, and what those of each store hold."""

    checkpoint: Path
    ids: bool
    versions: dict[Path, list[dict[str, Any]]]

    def job(self, store: Path, local: Path, **options: Any) -> Job:
        """Return an executor that goes on from the newest version."""
        job = Job(InProcess(local), store, ids=self.ids, **options)
        job.versions |= {
            restored["version"]: (restored["id"], rows_of(restored)) for restored in self.versions[store]
        }
        job.restore(self.versions[store][-1]["version"])
        return job


def rows_of(version: dict[str, Any]) -> dict[bytes, bytes]:
    return {bytes.fromhex(key): bytes.fromhex(value) for key, value in version["rows"].items()}


@pytest.fixture(params=CHECKPOINTS, ids=[f"{path.name}-{name}" for path, name in CHECKPOINTS])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Found:
    path, name = request.param
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(path / name, checkpoint)
    expected = json.loads((path / "expected.json").read_text("utf-8"))[name]["stores"]
    return Found(checkpoint, name == "ids", {store: expected[store.name] for store in stores(checkpoint)})


def test_every_version_is_exact(found: Found, tmp_path: Path) -> None:
    assert len(found.versions) == 4
    for number, (store, versions) in enumerate(found.versions.items()):
        job = Job(InProcess(tmp_path / str(number)), store, ids=found.ids)
        assert len(versions) >= 6
        for version in versions:
            answer = job.call("restore", version=version["version"], id=version["id"])
            assert restored_rows(answer) == rows_of(version)
            assert answer["warnings"] == []


def test_the_command_line_finds_nothing_wrong(found: Found, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(found.checkpoint), "--all-versions", "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)["stores"]
    versions = {
        store.name: [restored["version"] for restored in held] for store, held in found.versions.items()
    }
    assert {report["name"]: [at["version"] for at in report["restorable"]] for report in reports} == versions
    assert {report["name"]: report["restored"]["version"] for report in reports} == {
        name: numbers[-1] for name, numbers in versions.items()
    }


def test_it_is_gone_on_with(found: Found, tmp_path: Path) -> None:
    store = next(iter(found.versions))
    job = found.job(store, tmp_path / "local")
    last = job.version
    job.commit({b"\0\0new": b"1", next(iter(job.state)): None})
    for kind in ("incremental", "full"):
        assert contents(job.merge(kind)["directory"]) == job.state
        job.commit({b"\0\0" + kind.encode(): b"2"})
    other = Job(InProcess(tmp_path / "other"), store, ids=found.ids)
    other.versions = job.versions
    for version in (last, job.version - 1, job.version):
        answer = other.restore(version)
        assert restored_rows(answer) == other.state
        assert answer["warnings"] == []


def test_its_leases_and_tombstones_count(found: Found, tmp_path: Path) -> None:
    store = next(iter(found.versions))
    old = time.time() - 7 * 86_400
    for path in store.glob("*/*"):
        os.utime(path, (old, old))
    (lease,) = store.glob("lease/*.json")
    os.utime(lease)
    job = found.job(store, tmp_path / "local", retain=2)
    for _ in range(3):
        job.commit({})
        job.merge("incremental")
    job.cleanup()
    assert not (store / CONDEMNED).exists()
    assert (store / HELD).exists()
    os.utime(lease, (old, old))
    for _ in range(2):
        job.commit({})
        job.merge("full")
        job.commit({})
        job.cleanup()
    assert not lease.exists()
    assert not (store / HELD).exists()
    other = Job(InProcess(tmp_path / "other"), store, ids=found.ids)
    other.versions = job.versions
    assert restored_rows(other.restore(job.version)) == job.state
