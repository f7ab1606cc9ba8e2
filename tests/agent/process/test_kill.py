"""The agent is killed in every call, at many moments; another one finishes what the JVM asks for again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import awaited

from agent.harness import PATIENCE_S, AgentProcess, InProcess, Job, contents, rows_of


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Local files of the executor, which outlive the agents."""
    yield tmp_path / "local"


def kill_during(agent: AgentProcess, delay_s: float, call: object) -> bool:
    """Run `call`, and kill the agent after `delay_s`. Return True if the call ended before."""
    killer = threading.Timer(delay_s, agent.process.kill)
    killer.start()
    try:
        call()
    except (ConnectionError, OSError):
        return False
    finally:
        killer.join()
    return True


MOMENTS_S = [0.0, 0.002, 0.01, 0.05]


@pytest.mark.parametrize(
    "op",
    [
        *(
            pytest.param(op, marks=pytest.mark.dear("stands for agents that are killed"))
            for op in ("commit", "snapshot", "restore")
        ),
        *(
            pytest.param(op, marks=pytest.mark.tier("more"))
            for op in ("full", "blocks", "cleanup", "open", "ping", "deltas")
        ),
    ],
)
def test_the_call_can_be_made_again(op: str, tmp_path: Path, directory: Path) -> None:
    state = tmp_path / "state"
    with AgentProcess(directory) as first:
        job = Job(first.connect(), state, retain=3)
        for number in range(6):
            job.commit({b"\0\0%d-%d" % (number, row): os.urandom(30) for row in range(200)})
        job.merge()
        job.commit({b"\0\0one": b"more"})
        agent = first
        for delay_s in MOMENTS_S:
            arguments = job.write({b"\0\0last-%f" % delay_s: os.urandom(30)}) if op == "commit" else {}
            kill_during(agent, delay_s, lambda arguments=arguments: perform(job, op, arguments))
            agent.__exit__()
            agent = AgentProcess(directory)
            job.client = agent.connect()
            perform(job, op, arguments)
            if op == "commit":
                job.version, job.id, job.state = job.next
                job.versions[job.version] = (job.id, job.state)
        assert rows_of(job.restore()) == job.state
        assert contents(job.merge("full")["directory"]) == job.state
        agent.__exit__()
    fresh = Job(InProcess(tmp_path / "fresh"), state)
    fresh.versions = job.versions
    assert rows_of(fresh.restore(job.version)) == job.state


def perform(job: Job, op: str, arguments: dict) -> None:
    if op == "commit":
        job.call("commit", **arguments)
    elif op in ("snapshot", "full"):
        job.merge({"snapshot": "incremental"}.get(op, op))
    elif op == "restore":
        assert rows_of(job.restore()) == job.state
    elif op == "blocks":
        assert job.rows() == job.state
    elif op == "cleanup":
        job.cleanup()
    elif op == "deltas":
        job.call("deltas", version=job.version, id=job.id, first=job.version)
    elif op == "open":
        job.opened = job.call("open")
    else:
        job.call(op)


def test_calls_of_several_threads_survive_a_kill(tmp_path: Path, directory: Path) -> None:
    with AgentProcess(directory) as first:
        jobs = [Job(first.connect(), tmp_path / str(number)) for number in range(4)]
        threads = [threading.Thread(target=commit_until_dead, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        awaited(lambda: all(job.version for job in jobs), "each has committed")
        first.process.kill()
        for thread in threads:
            thread.join(PATIENCE_S)
    for number, job in enumerate(jobs):
        fresh = Job(InProcess(tmp_path / f"fresh{number}"), tmp_path / str(number))
        fresh.versions = job.versions
        assert rows_of(fresh.restore(job.version)) == job.state


def commit_until_dead(job: Job) -> None:
    try:
        while True:
            job.commit({b"\0\0%d" % job.version: b"x" * job.version})
            job.merge("incremental")
    except (ConnectionError, OSError):
        return
