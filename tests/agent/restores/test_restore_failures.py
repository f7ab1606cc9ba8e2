"""Restores that fail after their base was made: nothing is left, and the next one and merges go on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.harness import InProcess, Job
from agent.lazy.remote_storage import five_versions, reader
from state_store.agent import restores
from state_store.agent.lazy.remote_bases import RemoteBases
from state_store.agent.open_store import StoreHead
from state_store.agent.restores import RestoreAnswer

STEPS: list[tuple[Any, str]] = [
    (restores, "learn_age"),
    (restores, "_log"),
    (RemoteBases, "add"),
    (StoreHead, "restored"),
    (StoreHead, "ages"),
    (RestoreAnswer, "of"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return five_versions(tmp_path_factory.mktemp("written"), 200_000)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError()])
@pytest.mark.parametrize(("owner", "name"), STEPS, ids=lambda step: str(step).rpartition(".")[2])
def test_nothing_is_left_of_a_restore_that_fails_at_its_end(
    written: Job, tmp_path: Path, owner: Any, name: str, error: BaseException
) -> None:
    job = reader(written, tmp_path / "reader")
    root = Path(job.opened["incoming"]).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, _raise(error))
        with pytest.raises(type(error)):
            job.restore_by_blocks(5)
    assert not list(root.glob("base-*"))
    assert job.open_store.bases.has_hydrated
    job.restore_by_blocks(5)
    assert len(list(root.glob("base-*"))) == 1
    job.commit({b"\0\0more": b"1"})
    assert job.merge("full")["kind"] == "full"


def _raise(error: BaseException) -> Callable[..., Any]:
    def fails(*arguments: object, **named: object) -> None:
        raise error

    return fails


def test_an_answer_that_cannot_be_written_gives_its_base_back(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    job.commit({b"\0\0key": b"value"})
    answer = job.client.calls.handle(
        {"op": "restore", "store": job.store, "version": 1, "id": job.versions[1][0]}
    )
    assert answer.offered.directory.exists()
    job.client.calls.undelivered({"op": "restore", "store": job.store}, answer)
    job.commit({b"\0\0key": b"value"})
    job.restore()
    assert not answer.offered.directory.exists()
