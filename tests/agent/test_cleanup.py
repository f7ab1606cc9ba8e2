"""When an executor cleans up, and what it asks the storage for."""

from __future__ import annotations

from pathlib import Path

from agent.harness import InProcess, Job


def stored_versions(job: Job) -> list[int]:
    """The versions that deltas are there of."""
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
