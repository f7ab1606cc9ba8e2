"""The first call of a store opens it; stores are opened side by side, each once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtimes import AdjustedRuntime

from agent.harness import PATIENCE_S, InProcess, Job
from state_store.agent.calls import Calls
from state_store.core.engine.database import DatabaseSettings
from state_store.core.storage.local import LocalStorage
from state_store.errors import BusyError, OptionError, StorageError

STANDING = "standing"


class Standing(InProcess):
    """An agent for which the storage of one location stands still until `go`."""

    def __init__(self, directory: Path) -> None:
        self.is_reached, self.go = threading.Event(), threading.Event()
        self.opened = 0
        self.calls = Calls(
            directory,
            settings=lambda options: DatabaseSettings(threads=1),
            open_storage=lambda uri, jvm: self._open(uri),
            runtime=AdjustedRuntime(wall_ms=None),
        )

    def _open(self, uri: str) -> LocalStorage:
        if uri.endswith(STANDING):
            self.opened += 1
            self.is_reached.set()
            assert self.go.wait(PATIENCE_S)
        return LocalStorage(uri)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Standing]:
    standing = Standing(tmp_path / "local")
    yield standing
    standing.go.set()


class Opening:
    """A provider that opens its store in a thread of its own."""

    def __init__(self, agent: InProcess, location: Path, **options: str) -> None:
        self.job: Job | None = None
        self.thread = threading.Thread(target=self._run, args=(agent, location, options), daemon=True)
        self.thread.start()

    def _run(self, agent: InProcess, location: Path, options: dict[str, str]) -> None:
        self.job = Job(agent, location, **options)

    def wait(self) -> Job:
        self.thread.join(PATIENCE_S)
        assert self.job is not None
        return self.job


def in_thread(agent: InProcess, op: str, **arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=lambda: agent.call(op, **arguments), daemon=True)
    thread.start()
    return thread


def test_a_store_that_stands_still_delays_no_other(agent: Standing, tmp_path: Path) -> None:
    opening = Opening(agent, tmp_path / STANDING)
    assert agent.is_reached.wait(PATIENCE_S)

    other = Opening(agent, tmp_path / "other")
    other.thread.join(PATIENCE_S)
    assert other.job is not None, "another store is opened meanwhile"
    other.job.commit({b"\0\0k": b"v"})
    assert [store["store"] for store in agent.call("status")["stores"]] == [other.job.store["instance"]]
    other.job.close()

    assert opening.job is None
    agent.go.set()
    opening.wait().commit({b"\0\0k": b"v"})


def test_calls_of_one_store_open_it_once(agent: Standing, tmp_path: Path) -> None:
    opening = Opening(agent, tmp_path / STANDING)
    assert agent.is_reached.wait(PATIENCE_S)
    (instance,) = agent.calls.stores._opening
    store = {"instance": instance, "location": str(tmp_path / STANDING), "operator": 0, "partition": 0}
    store |= {"name": "default", "run": "r", "ids": True, "retain": 100, "options": {}, "held": []}
    second = in_thread(agent, "open", store=store)
    closing = in_thread(agent, "close", store=store)
    agent.go.set()
    for thread in (second, closing, opening.thread):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert agent.opened == 1
    with pytest.raises(BusyError, match="closed"):
        agent.call("open", store=store)
    assert agent.calls.stores.all() == []


def test_a_store_that_cannot_be_opened_leaves_its_options_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = InProcess(tmp_path / "local")
    with pytest.raises(OptionError):
        Job(agent, tmp_path / "state", localDir="relative", hydrationRateLimit="1m")
    job = Job(agent, tmp_path / "state", hydrationRateLimit="2m")
    assert job.open_store.options.hydration_rate_limit_bytes_per_s == 2 << 20

    def fails(*_: Any) -> None:
        raise StorageError("it cannot be reached")

    monkeypatch.setattr(agent.calls.stores, "_open_storage", lambda uri, jvm: fails())
    with pytest.raises(StorageError):
        Job(agent, tmp_path / "other")
    monkeypatch.undo()
    again = Job(agent, tmp_path / "other")
    assert again.commit({b"\0\0k": b"v"})["chain"]["deltas"] == 1
