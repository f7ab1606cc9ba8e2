"""When an executor cleans up, and what it asks the storage for."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.harness import InProcess, Job
from state_store.core.storage.contract import Deadline, Entry
from state_store.core.storage.local import LocalStorage


def stored_versions(job: Job) -> list[int]:
    """Return the versions that have deltas."""
    return sorted(int(path.name[:20]) for path in Path(job.location).glob("delta/*.sst"))


def test_deltas_that_a_merge_made_superfluous_go_with_the_next_clean_up(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local", max_runs=2), tmp_path / "state", retain=2)
    for number in range(6):
        job.commit({b"\0\0%d" % number: b"1"})
    job.cleanup()
    assert stored_versions(job) == [1, 2, 3, 4, 5, 6]
    job.merge("full")
    for _ in range(2):
        job.commit({b"\0\0more": b"1"})
        job.cleanup()
    assert stored_versions(job) == [7, 8]


def test_a_commit_during_the_first_clean_up_costs_no_second_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(InProcess(tmp_path / "local", max_runs=2), tmp_path / "state", retain=3)
    for number in range(8):
        job.commit({b"\0\0%d" % number: b"1"})
    listed: list[str] = []
    list_files = LocalStorage.list_files

    def commit_meanwhile(storage: LocalStorage, directory: str) -> list[Entry]:
        found = list_files(storage, directory)
        listed.append(directory)
        if directory == "shared" and listed.count("shared") == 1:
            job.commit({b"\0\0meanwhile": b"1"})
        return found

    version, id_ = job.version, job.id
    monkeypatch.setattr(LocalStorage, "list_files", commit_meanwhile)
    job.call("cleanup", version=version, id=id_)
    assert listed.count("shared") == 1
    for _ in range(2):
        job.commit({b"\0\0after": b"1"})
        job.cleanup()
    assert listed.count("shared") == 1


def test_files_that_a_merge_made_superfluous_during_a_clean_up_go_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(InProcess(tmp_path / "local", max_runs=2), tmp_path / "state", retain=2)
    for number in range(4):
        job.commit({b"\0\0%d" % number: b"1"})
    job.merge("full")
    job.commit({b"\0\0five": b"2"})
    version, id_ = job.version, job.id
    job.commit({b"\0\0six": b"2"})
    list_files = LocalStorage.list_files
    listed: list[str] = []

    def merge_meanwhile(storage: LocalStorage, directory: str) -> list[Entry]:
        found = list_files(storage, directory)
        listed.append(directory)
        if listed.count("shared") == 1 and directory == "shared":
            job.call("snapshot", version=version, id=id_, kind="full", reason="test")
        return found

    monkeypatch.setattr(LocalStorage, "list_files", merge_meanwhile)
    job.cleanup()
    assert "shared" in listed
    job.cleanup()
    assert [int(path.name[:20]) for path in Path(job.location).glob("snapshot/*.zip")] == [version]


def test_no_clean_up_deletes_past_the_time_for_which_a_damaged_tombstone_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def noted(subject: str, limit_ms: float, **more: object) -> Deadline:
        limits.append(limit_ms)
        return Deadline(subject, limit_ms)

    monkeypatch.setattr("state_store.agent.open_store.Deadline", noted)
    options = {"leaseExpiry": "2min", "mergeTimeout": "1min"}
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", retain=2, **options)
    for number in range(4):
        job.commit({b"\0\0%d" % number: b"1"})
    job.cleanup()
    assert limits == [120_000]
