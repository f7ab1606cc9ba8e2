"""Agents whose machines' clocks are apart by an hour or days, and jump, take turns on one store."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agent.harness import InProcess, Job, rows_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize(
    ("first_ms", "second_ms"),
    [(-DAY_MS, DAY_MS), pytest.param(HOUR_MS, -HOUR_MS, marks=pytest.mark.tier("more"))],
)
def test_agents_whose_clocks_jump_keep_what_is_retained(
    tmp_path: Path, first_ms: int, second_ms: int
) -> None:
    """Both commit, merge and clean up; in the middle each clock jumps to where the other one was."""
    off_ms = [first_ms, second_ms]
    clients = [
        InProcess(tmp_path / "local-0", now_ms=lambda: int(time.time() * 1000) + off_ms[0]),
        InProcess(tmp_path / "local-1", now_ms=lambda: int(time.time() * 1000) + off_ms[1]),
    ]
    job = Job(clients[0], tmp_path / "state", retain=8, retainedAge="30m", maxDeltas="3")
    for number in range(12):
        if number == 6:
            off_ms.reverse()
        job.client = clients[number % 2]
        job.call("open")
        job.restore()
        job.commit({b"\0\0%03d" % number: os.urandom(50)})
        job.merge("full" if number % 4 == 3 else "incremental")
        job.cleanup()
    for version in range(5, 13):
        id_, state = job.versions[version]
        restored = job.call("restore", version=version, id=id_)
        assert rows_of(restored) == state
    assert len(list((tmp_path / "state" / "delta").iterdir())) < 12, "nothing was ever retired"


def test_full_checkpoints_go_on_after_a_clock_that_was_ahead_has_gone_back(tmp_path: Path) -> None:
    off_ms = 365 * DAY_MS
    client = InProcess(tmp_path / "local", now_ms=lambda: int(time.time() * 1000) + off_ms)
    job = Job(client, tmp_path / "state", fullInterval="1h", fullScheduleJitter="0")
    job.commit({b"\0\0a": b"1"})
    job.merge("full")
    off_ms = 0
    job.commit({b"\0\0a": b"2"})
    off_ms = 2 * HOUR_MS
    head = job.open_store.head
    due = head.due(head.chain)
    assert due is not None
    assert due.kind == "full"
