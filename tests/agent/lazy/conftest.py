"""Stores that are restored lazily, and quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.harness import Job
from agent.lazy.remote_storage import five_versions
from state_store.agent.lazy import prefetch
from state_store.core.files.sparse import end_bytes
from state_store.core.snapshots import restore


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "RETRY_S", 0.02)


@pytest.fixture
def written(tmp_path: Path) -> Job:
    """Five versions, a full snapshot of the third, in files of some hundred KB."""
    job = five_versions(tmp_path, 200_000)
    assert len(list(job.location.glob("shared/*"))) > 2
    assert min(path.stat().st_size for path in job.location.glob("shared/*")) > end_bytes(1 << 20)
    return job


@pytest.fixture
def sparse_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas are read before they are there however small they are."""
    monkeypatch.setattr(restore, "MIN_SPARSE_DELTA_BYTES", 1)
