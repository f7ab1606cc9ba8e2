"""Predicted and actual times of restores from remote storage, in simulated time.

A request takes its time, a stream carries a fixed number of bytes a second, and computation takes no time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import Call, FaultyStorage
from simulation.turns import Scheduler

from agent.harness import InProcess, Job
from state_store.agent import calls
from state_store.agent.calls import Calls
from state_store.agent.lazy import prefetch
from state_store.core.engine.database import DatabaseSettings
from state_store.core.files import sparse, transfer
from state_store.core.planning import cost
from state_store.core.snapshots import restore
from state_store.core.storage.local import LocalStorage

PART_BYTES, SPARSE_BYTES, STREAM_BYTES_PER_S = 38 * 4096, 50_000, 500_000
REQUESTS = {"list": 1, "read": 2, "download": 2}
"""Milliseconds of a call; a reader opens the file first."""


class SlowStorage(InProcess):
    """An agent of a simulated machine."""

    def __init__(self, directory: Path, scheduler: Scheduler, request_ms: float) -> None:
        self._scheduler, self._request_ms = scheduler, request_ms
        self.calls = Calls(
            directory,
            settings=lambda options: DatabaseSettings(threads=1),
            open_storage=lambda uri, jvm: FaultyStorage(LocalStorage(uri), self._slowly),
            runtime=scheduler.processes[-1].runtime,
        )

    def _slowly(self, operation: str, path: str) -> Callable[[Call], object]:
        def answer(call: Call) -> object:
            self._scheduler.sleep(REQUESTS.get(operation, 1) * self._request_ms / 1000)
            found = call()
            size_bytes = len(found) if isinstance(found, bytes) else 0
            if operation == "download":
                size_bytes = (Path(call.inner.location) / path).stat().st_size
            self._scheduler.sleep(size_bytes / STREAM_BYTES_PER_S)
            return found

        return answer


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and sparse deltas of a few rows, and sizes that differ by as little tell something."""
    monkeypatch.setattr(cost, "_PRIOR_WEIGHT", 0.001)
    monkeypatch.setattr(transfer, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(calls, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(prefetch, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(restore, "MIN_SPARSE_DELTA_BYTES", SPARSE_BYTES)
    monkeypatch.setattr(calls, "MIN_SPARSE_DELTA_BYTES", SPARSE_BYTES)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Job]:
    """Stores of different sizes: with a full snapshot and large deltas, with another after it and small ones,
    with one large delta alone.
    """
    root = tmp_path_factory.mktemp("written")

    def made(name: str, rows: list[int], merges: dict[int, str]) -> Job:
        job = Job(InProcess(root / f"{name}-writer", file_bytes=200_000), root / name)
        for version, count in enumerate(rows, 1):
            job.commit({b"\0\0%06d" % row: os.urandom(100) for row in range(count)})
            if version in merges:
                job.merge(merges[version])
        return job

    return [
        made("large-deltas", [6000, 3000, 1000, 1000], {2: "full"}),
        made("merged", [4000, 100, 100, *(20,) * 12], {2: "full", 4: "incremental"}),
        made("young", [9000, 50, 50], {}),
    ]


def restores(written: list[Job], directory: Path, request_ms: float, **options: str) -> list[dict[str, Any]]:
    """Return the answers to restores of all stores by one agent, each twice. `whole_ms`: until all files were
    there.
    """
    scheduler = Scheduler(1)
    answers: list[dict[str, Any]] = []

    def work() -> None:
        client = SlowStorage(directory, scheduler, request_ms)
        clock_s = scheduler.processes[-1].runtime.monotonic_s
        for origin in [*written, *written]:
            job = Job(client, origin.location, **options)
            job.versions = dict(origin.versions)
            from_s = clock_s()
            answers.append(job.restore_by_blocks(origin.version))
            while not job.open_store.bases.has_hydrated:
                scheduler.sleep(0.0002)
            answers[-1]["whole_ms"] = (clock_s() - from_s) * 1000
            job.call("close")
            scheduler.sleep(1000)  # what was under way ends

    scheduler.run(work)
    return answers


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("request_ms", [0, 20, 100])
@pytest.mark.parametrize("threads", [2, 8])
def test_a_prediction_agrees_with_what_is_measured(
    written: list[Job], tmp_path: Path, mode: str, request_ms: int, threads: int
) -> None:
    """Within 30 %, but for what a model expects to be computed, which takes no time here."""
    answers = restores(
        written,
        tmp_path,
        request_ms,
        restoreMode=mode,
        localRecovery="false",
        transferThreads=str(threads),
    )[len(written) :]
    measured = [(answer["predicted_ms"], sum(answer["phases"].values())) for answer in answers]
    assert all(bool(answer["sparse"]) == (mode == "lazy") for answer in answers)
    for predicted_ms, was_ms in measured:
        assert predicted_ms == pytest.approx(was_ms, rel=0.3, abs=8), measured


def test_ends_that_take_two_requests_are_predicted(
    written: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of short rows, whose index and filter are a larger share of a file."""
    monkeypatch.setattr(sparse, "_MIN_END_BYTES", 2048)
    monkeypatch.setattr(sparse, "_END_SHARE", 1 << 20)
    answers = restores(written, tmp_path, 100, restoreMode="lazy", localRecovery="false")[len(written) :]
    measured = [(answer["predicted_ms"], sum(answer["phases"].values())) for answer in answers]
    for predicted_ms, was_ms in measured:
        assert predicted_ms == pytest.approx(was_ms, rel=0.2, abs=8), measured


def test_a_lazy_restore_has_all_files_as_soon_as_an_eager_one(written: list[Job], tmp_path: Path) -> None:
    """They come while it still asks for the ends of others: with few threads, for long."""
    eager, lazy = (
        restores(
            written,
            tmp_path / mode,
            100,
            restoreMode=mode,
            localRecovery="false",
            transferThreads="2",
        )
        for mode in ("eager", "lazy")
    )
    for eagerly, lazily in zip(eager, lazy, strict=True):
        assert lazily["sparse"] and not eagerly["sparse"]
        assert lazily["whole_ms"] <= eagerly["whole_ms"], (eagerly["phases"], lazily["phases"])


def test_the_first_restore_of_an_executor_is_lazy_by_what_its_listings_took(
    written: list[Job], tmp_path: Path
) -> None:
    quick, slow = (
        restores(
            written[:1],
            tmp_path / str(request_ms),
            request_ms,
            restoreMode="auto",
            restoreObjective="1500ms",
            localRecovery="false",
        )
        for request_ms in (10, 1000)
    )
    assert not quick[0]["sparse"]
    assert slow[0]["sparse"]
