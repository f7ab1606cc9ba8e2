"""Lazy restores: what goes wrong with storage, files and agents, and what is right nevertheless."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.harness import PATIENCE_S, Job, contents
from agent.lazy.remote_storage import (
    FailingStorage,
    damage,
    held_back,
    missing,
    reader,
    restored,
    settled,
    slow,
    wait_until_whole,
)
from state_store.agent.lazy import hydration
from state_store.agent.lazy.hydration import Readiness
from state_store.errors import DamagedError, StorageError


def idle_threads(running: hydration.Hydration) -> None:
    """Wait until no thread fetches."""
    end_s = time.monotonic() + PATIENCE_S
    while running.threads:
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.usefixtures("sparse_deltas")
def test_a_delta_that_is_damaged_in_storage_is_found_before_it_is_kept(written: Job, tmp_path: Path) -> None:
    path = max(written.location.glob("delta/*"))
    damage(path)
    job = reader(written, tmp_path / "reader")
    restored(job)
    settled(job)
    with pytest.raises(DamagedError, match=path.name):
        job.restore_by_blocks(5)


def test_storage_that_fails_loses_nothing(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    job.client.is_down = True
    go_on()
    with pytest.raises(StorageError, match="it is down"):
        job.call("range", directory=str(directory), name=sparse[0], offset=0, length=10)
    job.commit({b"\0\0more": b"1"})
    assert job.open_store.hydrations.readiness(directory) is Readiness.COMING
    assert job.open_store.suspicions.of(str(written.location)) == 0
    job.client.is_down = False
    wait_until_whole(job, directory)
    assert contents(directory) == written.versions[3][1]
    assert contents(job.merge("full")["directory"]) == job.state


def test_a_file_goes_on_where_storage_failed(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hydration, "PART_BYTES", 10_000)
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    job.client.reads.clear()
    job.client.fails_at = 0
    go_on()
    wait_until_whole(job, directory)
    assert len(job.client.failed) == len(sparse)
    sizes = [(directory / name).stat().st_size for name in sparse]
    assert sum(length or 0 for _, length in job.client.reads) == missing(sizes)
    progress = job.commit({b"\0\0more": b"1"})["hydration"]
    assert (progress["left_bytes"], progress["hydrated_bytes"]) == (0, missing(sizes))
    assert contents(directory) == written.versions[3][1]


def test_an_agent_that_replaces_a_dead_one_goes_on(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    monkeypatch.undo()
    job.client = FailingStorage(tmp_path / "reader")
    job.store["held"] = [str(directory)]
    assert job.call("range", directory=str(directory), name=sparse[0], offset=0, length=10)["bytes"] == 10
    wait_until_whole(job, directory)
    assert contents(directory) == written.versions[3][1]


def test_a_file_that_is_damaged_in_storage_is_done_without(written: Job, tmp_path: Path) -> None:
    path = next(written.location.glob("shared/*"))
    damage(path)
    job = reader(written, tmp_path / "reader")
    restored(job)
    settled(job)
    answer = job.restore_by_blocks(5)
    assert (answer["sparse"], answer["snapshot_version"]) == ([], None)
    assert job.rows(5) == written.state


def test_a_file_that_is_gone_ends_the_wait(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, _ = restored(job)
    for path in written.location.glob("shared/*"):
        path.unlink()
    job.commit({b"\0\0more": b"1"})
    go_on()
    settled(job)
    assert job.open_store.hydrations.readiness(directory) is Readiness.FAILED
    assert contents(job.merge("full")["directory"]) == job.state


def test_what_is_released_is_fetched_no_more(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = reader(written, tmp_path / "reader", hydrationRateLimit="1k")
    directory, _ = restored(job)
    running = job.open_store.hydrations._running[directory]
    job.close()
    assert running.readiness is Readiness.FAILED
    idle_threads(running)
    assert not directory.exists()
