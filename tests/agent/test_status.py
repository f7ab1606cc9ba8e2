"""The answers by which tools see a running agent: `status`, `full`, and the prediction in `commit`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.harness import AgentProcess, InProcess, Job
from state_store.errors import MissingError, StorageError


def rows(count: int = 20) -> dict[bytes, bytes | None]:
    return {b"\0\0" + os.urandom(4): os.urandom(20) for _ in range(count)}


def test_the_status_of_a_real_agent_has_its_stores(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        client = agent.connect()
        assert client.call("status") == {"stores": []}
        jobs = [Job(client, tmp_path / f"state-{number}", maxDeltas="7") for number in range(2)]
        jobs[0].commit(rows())
        answer = jobs[0].commit(rows())
        first, second = client.call("status")["stores"]
        assert [first["store"], second["store"]] == [job.store["instance"] for job in jobs]
        assert first["location"] == str(jobs[0].location)
        assert first["newest"] == {"version": 2, "id": jobs[0].versions[2][0]}
        assert first["certain"] == {"version": 1, "id": jobs[0].versions[1][0]}
        assert first["chain"] == answer["chain"]
        assert first["predicted_restore_ms"] == pytest.approx(answer["predicted_restore_ms"])
        assert first["options"] is None
        assert second["newest"] is second["certain"] is None
        (only,) = client.call("status", instances=[second["store"]], options=True)["stores"]
        assert (only["store"], only["options"]["maxDeltas"]) == (second["store"], 7)


def test_a_commit_predicts_the_restore_of_its_version(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", restoreObjective="3s")
    first, second = job.commit(rows()), job.commit(rows())
    assert 0 < first["predicted_restore_ms"] < second["predicted_restore_ms"]
    assert second["restore_objective_ms"] == 3000


def test_a_full_checkpoint_by_hand_waits_in_the_queue_and_is_of_a_committed_version(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    job.commit(rows())
    with pytest.raises(MissingError, match="version 7 is not among those"):
        job.call("full", version=7)
    job.commit(rows())
    asked = job.call("full", version=1, reason="an operator asked")
    assert asked == {"version": 1, "id": job.versions[1][0], "state": "queued"}
    (event,) = job.events()
    assert (event["merged"]["kind"], event["merged"]["base"]["version"]) == ("full", 1)
    assert event["merged"]["reason"] == "an operator asked"
    (status,) = job.client.call("status")["stores"]
    made = status["merges"]["last_made"]
    assert (made["version"], made["kind"], made["reason"]) == (1, "full", "an operator asked")
    assert made["error"] is None and made["ended_ms_ago"] >= 0 and made["took_ms"] > 0
    assert status["merges"]["running"] is None and status["merges"]["waiting"] == []


def test_two_requests_by_hand_are_joined(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", minPauseBetweenMerges="1h", maxDeltas="1")
    job.commit(rows())
    job.commit(rows())
    job.events(1)  # from now on the next merge waits for an hour
    job.commit(rows())
    asked = [job.call("full", version=2)["version"] for _ in range(2)]
    assert asked == [2, 2]
    (status,) = job.client.call("status", options=False)["stores"]
    (waiting,) = status["merges"]["waiting"]
    assert (waiting["kind"], waiting["version"]) == ("full", 2)
    assert "minPauseBetweenMerges" in waiting["why"]
    assert 3_000_000 < waiting["ready_in_ms"] <= 3_600_000


def test_a_failed_merge_is_in_the_status_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = InProcess(tmp_path / "local")

    def refuse(*arguments: object) -> None:
        raise StorageError("the disk refuses", file="shared/x")

    monkeypatch.setattr(agent.calls.scheduler, "_merge", refuse)
    job = Job(agent, tmp_path / "state", maxDeltas="1")
    job.commit(rows())
    job.commit(rows())
    job.events(1)
    (status,) = job.client.call("status")["stores"]
    failed = status["merges"]["last_failed"]
    assert failed["error"] == {"kind": "storage", "message": "the disk refuses", "file": "shared/x"}
    assert (failed["version"], status["merges"]["failures_in_row"]) == (1, 1)
    (waiting,) = status["merges"]["waiting"]
    assert "after 1 failures in a row" in waiting["why"]
    assert json.dumps(status)
