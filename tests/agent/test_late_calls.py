"""Calls about a store that the agent does not have open: late ones, and the first ones to a new agent.

An agent takes the place of a dead one, and knows none of the stores that are closed. A store that such a call
opened would stay open until the executor ends.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from state_store.errors import BusyError

from .harness import InProcess, Job

ROWS = {b"\0\0a": b"1"}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    job.commit(ROWS)
    return job


@pytest.fixture
def new_agent(tmp_path: Path) -> InProcess:
    """An agent that has opened no store."""
    return InProcess(tmp_path / "other")


def test_a_release_to_a_new_agent_opens_no_store(job: Job, new_agent: InProcess, tmp_path: Path) -> None:
    directory = job.restore()["directory"]
    job.close()
    assert new_agent.call("release", store=job.store, directory=directory) == {}
    assert new_agent.calls.stores.all() == []
    assert not (tmp_path / "other").exists() or not list((tmp_path / "other").rglob("incoming"))


def test_a_release_to_a_new_agent_removes_the_directory(job: Job, new_agent: InProcess) -> None:
    """The provider goes on: it has given back what the dead agent made."""
    directory = Path(job.restore()["directory"])
    new_agent.call("release", store=job.store, directory=str(directory))
    assert not directory.exists()


@pytest.mark.parametrize("name", ["incoming", "base-1/SSTs", "../kept", "scratch-1"])
def test_nothing_else_is_removed_for_a_store_that_is_not_open(
    job: Job, new_agent: InProcess, name: str
) -> None:
    directory = Path(job.opened["incoming"]).parent / name
    directory.mkdir(parents=True, exist_ok=True)
    new_agent.call("release", store=job.store, directory=str(directory))
    assert directory.is_dir()


def test_a_directory_of_another_store_is_not_removed(job: Job, new_agent: InProcess) -> None:
    directory = Path(job.restore()["directory"])
    new_agent.call("release", store={**job.store, "instance": 99}, directory=str(directory))
    assert directory.is_dir()


def test_damage_reported_to_a_new_agent_opens_no_store_and_counts(job: Job, new_agent: InProcess) -> None:
    job.close()
    assert new_agent.call("damaged", store=job.store, directory="base-1") == {}
    assert new_agent.calls.stores.all() == []
    assert reports(new_agent, job) == 1


def test_damage_counts_although_the_provider_that_found_it_is_closed(job: Job) -> None:
    """Spark closes it with the query that has failed, and the report comes from another thread."""
    directory = job.restore()["directory"]
    job.close()
    assert job.call("damaged", directory=directory) == {}
    assert reports(job.client, job) == 1
    with pytest.raises(BusyError):
        job.restore()


def reports(client: InProcess, job: Job) -> int:
    """Return the damage that the next restore of the store knows of."""
    after = Job(client, job.location)
    return after.open_store.damage_reports.of(after.store["location"])
