"""Events of the agent: the ends of merges, in order, over broken connections."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.harness import PATIENCE_S, AgentProcess, InProcess, Job, contents
from state_store.agent.calls import Calls
from state_store.agent.merges.merging import EventLog, Events, MergeFailed
from state_store.agent.open_store import OpenStore
from state_store.core.checkpoint.names import VersionId
from state_store.core.storage.hadoop import MAX_HEADER_BYTES, read_frame, write_frame
from state_store.errors import StorageError


def rows(count: int = 20) -> dict[bytes, bytes | None]:
    return {b"\0\0" + os.urandom(4): os.urandom(20) for _ in range(count)}


def test_a_merge_that_is_due_is_made_of_the_version_before_and_told(tmp_path: Path) -> None:
    """The commit of a version proves the one before: only that is known to be Spark's."""
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="3")
    for _ in range(4):
        job.commit(rows())
    (event,) = job.events()
    merged = event["merged"]
    assert (event["event"], event["failures_in_row"]) == ("merged", 0)
    assert (merged["base"]["version"], merged["base"]["id"]) == (3, job.versions[3][0])
    assert event["ages"]["snapshot_age_ms"] < 60_000
    assert contents(merged["base"]["directory"]) == job.versions[3][1]
    assert [path.name for path in job.location.glob("snapshot/*")] == [f"{3:020d}_{job.versions[3][0]}.zip"]


def test_memory_that_is_short_gets_an_ingest(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    job.commit(rows())
    arguments = job.write(rows())
    job.call("commit", **arguments, memory_short=True)
    (event,) = job.events()
    assert (event["merged"]["kind"], event["merged"]["base"]["version"]) == ("ingest", 1)
    assert contents(event["merged"]["base"]["directory"]) == job.versions[1][1]
    assert not list(job.location.glob("snapshot/*"))


def test_events_stay_until_they_are_acknowledged(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        job = Job(agent.connect(), tmp_path / "state", maxDeltas="1")
        poller = agent.connect()
        write_frame(poller.channel, {"op": "events", "after": 0})
        for _ in range(2):
            job.commit(rows())
        assert read_frame(poller.channel) is not None
        poller.close()  # the answer has arrived, but nobody says so
        first = agent.connect().call("events", after=0)["events"]
        assert [event["event"] for event in first] == ["merged"]
        again = agent.connect().call("events", after=0)["events"]
        assert again == first
        assert agent.connect().call("events", after=first[-1]["number"], wait_ms=1)["events"] == []
        assert agent.connect().call("events", after=0, wait_ms=1)["events"] == []


def test_a_failure_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="1")
    job.commit(rows())

    def refused(*arguments: object, **named: object) -> None:
        raise StorageError("the disk refuses", file="shared/x")

    with monkeypatch.context() as patch:
        patch.setattr(job.open_store.context.storage, "write", refused)
        job.commit(rows())
        (event,) = job.events()
    assert event["event"] == "merge_failed"
    assert (event["version"], event["kind"], event["failures_in_row"]) == (1, "incremental", 1)
    assert event["error"]["kind"] == "storage"
    _, second = job.events(2)
    assert (second["event"], second["failures_in_row"]) == ("merged", 0), "nobody committed in between"


def test_a_batch_that_fails_again_and_again_leaves_no_snapshots(tmp_path: Path) -> None:
    """A crash loop at a version where a full merge is due: what each attempt committed is never merged."""
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", fullAfterDeltas="4", retain=2)
    for _ in range(3):
        job.commit(rows(200))
    version, id = job.version, job.id
    for _ in range(6):
        job.version, job.id, job.state = version, id, job.versions[version][1]
        job.commit(rows(200))
        wait_until(lambda: has_no_merge_left(job))
    assert not list(job.location.glob("snapshot/*"))
    newest = VersionId(job.version, job.id)
    job.commit(rows(200))  # which proves it
    wait_until(lambda: has_no_merge_left(job))
    (snapshot,) = job.location.glob("snapshot/*")
    assert snapshot.name == f"{newest.number:020d}_{newest.checkpoint_id}.zip"


def test_a_merge_that_runs_when_its_provider_is_closed_is_made_all_the_same(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        job = Job(agent.connect(), tmp_path / "state", maxDeltas="1", mergeRateLimit="1m")
        for number in range(2):
            job.commit({b"\0\0%d-%05d" % (number, row): os.urandom(60) for row in range(20_000)})
        root = Path(job.opened["incoming"]).parent
        while not list(root.glob("base-*")):
            time.sleep(0.01)
        job.close()
        assert not list(job.location.glob("snapshot/*")), "nobody waits for the merge"
        wait_until(lambda: not root.exists())
        (snapshot,) = job.location.glob("snapshot/*")
        assert snapshot.name == f"{1:020d}_{job.versions[1][0]}.zip"


def test_providers_that_live_for_one_batch_merge_and_clean_up(tmp_path: Path) -> None:
    """As with Spark's option `unloadOnCommit`: without merges of closed providers the chain grew for ever."""
    client = InProcess(tmp_path / "local")
    versions: dict[int, Any] = {0: (None, {})}
    chains = []
    for number in range(1, 40):
        job = Job(client, tmp_path / "state", maxDeltas="5", retain=3, run="one run")
        job.versions = versions
        if number > 1:
            job.restore(number - 1)
        chains.append(job.commit(rows(5))["chain"]["deltas"])
        job.close()
        wait_until(lambda: not client.calls.scheduler._entries)  # a batch takes longer than a merge
    assert max(chains) < 8, "merges keep up"
    assert len(list(job.location.glob("delta/*"))) < 20, "and what nothing needs is deleted"
    wait_until(lambda: not list((tmp_path / "local").glob("*/base-*")))


def test_jobs_of_one_batch_each_merge_and_clean_up(tmp_path: Path) -> None:
    """As a scheduler starts a query, in a process of its own: Spark never asks for a clean-up."""
    versions: dict[int, Any] = {0: (None, {})}
    location = tmp_path / "state"
    for number in range(1, 16):
        client = InProcess(tmp_path / f"process-{number}")
        job = Job(client, location, maxDeltas="2", retain=2)
        job.versions = versions
        if number > 1:
            job.restore(number - 1)
        job.commit(rows(5))
        job.close()
        wait_until(lambda: not client.calls.scheduler._entries)  # noqa: B023
    assert len(list(location.glob("delta/*"))) < 10, "what nothing needs is deleted"
    assert len(list(location.glob("snapshot/*"))) < 5
    reader = Job(InProcess(tmp_path / "reader"), location)
    reader.versions = versions
    assert reader.rows(15) == versions[15][1]


def test_a_merge_that_is_owed_is_given_up_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped query is left alone after `mergeTimeout`, whatever its merges met."""
    client = InProcess(tmp_path / "local")
    scheduler = client.calls.scheduler
    later_s = 0.0
    monkeypatch.setattr(scheduler, "_clock_s", lambda: time.monotonic() + later_s)
    tried = threading.Event()

    def fails(*_: Any) -> None:
        tried.set()
        raise StorageError("the storage is full")

    monkeypatch.setattr(scheduler, "_merge", fails)
    job = Job(client, tmp_path / "state", maxDeltas="1", mergeTimeout="5min")
    for _ in range(3):
        job.commit(rows())
    root = Path(job.opened["incoming"]).parent
    job.close()
    assert tried.wait(PATIENCE_S)
    later_s = 290.0
    scheduler.wake()
    assert scheduler._entries and root.exists()
    later_s = 301.0
    scheduler.wake()
    wait_until(lambda: not scheduler._entries and not root.exists())
    assert not list(job.location.glob("snapshot/*"))


@pytest.mark.parametrize("is_begun", [True, False], ids=["running", "waiting"])
def test_a_clean_up_that_is_owed_comes_before_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_begun: bool
) -> None:
    client = InProcess(tmp_path / "local")
    scheduler = client.calls.scheduler
    job = Job(client, tmp_path / "state", maxDeltas="100")
    job.commit(rows())
    root = Path(job.opened["incoming"]).parent
    begins, goes_on, looks = threading.Event(), threading.Event(), []
    clean = scheduler._clean
    assert clean is not None

    def slowly(store: OpenStore) -> None:
        begins.set()
        assert goes_on.wait(PATIENCE_S)
        clean(store)
        looks.append(root.exists())

    monkeypatch.setattr(scheduler, "_clean", slowly)
    with scheduler._changed:
        entry = scheduler._entries[job.store["instance"]]
        entry.owes_cleanup = True  # as after a snapshot
        scheduler._cleanups.append(entry)
        scheduler._wake()
        is_owed = None if is_begun else job.call("close")["owed"]
    assert begins.wait(PATIENCE_S)
    if is_begun:
        is_owed = job.call("close")["owed"]
    assert is_owed is True
    assert root.exists()
    goes_on.set()
    (event,) = job.events()
    assert event["event"] == "closed"
    assert looks == [True]
    assert not root.exists()
    assert not scheduler._entries
    assert "failed" not in caplog.text


def test_a_checkpoint_that_was_removed_does_not_come_back(tmp_path: Path) -> None:
    client = InProcess(tmp_path / "local")
    job = Job(client, tmp_path / "state", maxDeltas="1")
    with client.calls.scheduler._changed:  # no merge begins before the close
        for _ in range(2):
            job.commit(rows())
        job.close()
        shutil.rmtree(job.location)
    wait_until(lambda: not client.calls.scheduler._entries)
    assert not job.location.exists()


def has_no_merge_left(job: Job) -> bool:
    """Return True if no merge of the store runs or waits."""
    (store,) = job.client.call("status", instances=[job.store["instance"]])["stores"]
    return not store["merges"]["running"] and not store["merges"]["waiting"]


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_events_of_a_closed_store_are_dropped() -> None:
    calls = Calls(Path("/nowhere"))
    assert calls.handle({"op": "events", "after": 0, "wait_ms": 1}).to_json() == {"events": []}


def test_events_of_which_there_are_many_come_in_answers_that_fit_a_frame() -> None:
    log = EventLog()
    for store in range(20_000):
        failure = StorageError(
            "the storage does not answer " * 40, file="hdfs://nameservice/checkpoint/state"
        )
        log.add(MergeFailed(store, 7, "incremental", "100 deltas (maxDeltas)", failure, 3))
    after, stores = 0, []
    while events := log.after(after, wait_s=0):
        assert len(json.dumps(Events(events).to_json())) < MAX_HEADER_BYTES
        after = events[-1][0]
        stores += [event.store for _, event in events]
    assert stores == list(range(20_000))
