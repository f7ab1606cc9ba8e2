"""Snapshots keep the reason for them, the expected time of a restore, and the options in force."""

from __future__ import annotations

import os
from pathlib import Path

from agent.harness import InProcess, Job
from state_store.core.checkpoint.stored_documents import Cause, Manifest
from state_store.core.deletion.lease import StoreContents
from state_store.core.storage.local import LocalStorage


def rows(count: int) -> dict[bytes, bytes | None]:
    return {b"\0\0" + os.urandom(4): os.urandom(20) for _ in range(count)}


def snapshots(job: Job) -> list[Manifest]:
    """Return the manifests in storage, oldest first."""
    found = StoreContents.read(LocalStorage(job.location)).manifests.values()
    return sorted(found, key=lambda manifest: manifest.version)


def made(job: Job) -> Cause:
    """Return the cause of the newest snapshot."""
    job.events()
    cause = snapshots(job)[-1].cause
    assert cause is not None
    return cause


def test_a_merge_that_was_due_says_why_and_by_which_options(tmp_path: Path) -> None:
    options = {"maxDeltas": "2", "restoreObjective": "7s", "logLevel": "WARNING"}
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", **options)
    for _ in range(3):
        job.commit(rows(10))
    cause = made(job)
    assert cause.reason == "2 deltas (maxDeltas)"
    pause = {"minPauseBetweenMerges": "0ms"}  # of every job
    assert cause.options == {**pause, "maxDeltas": "2", "restoreObjective": "7000ms", "logLevel": "WARNING"}


def test_a_requested_one_says_who_asked_however_long_his_words(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="100")
    job.commit(rows(10))
    job.call("full", version=1, reason="requested by ops " + "x" * 10_000)
    cause = made(job)
    assert cause.reason.startswith("requested by ops xxx") and len(cause.reason) == 500


def test_the_prediction_is_that_of_the_version_before_the_merge(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="100")
    predicted = [job.commit(rows(10))["predicted_restore_ms"] for _ in range(30)]
    assert predicted[4] < predicted[-1]
    job.call("full", version=30, reason="asked")
    assert made(job).predicted_restore_ms == round(predicted[-1])
