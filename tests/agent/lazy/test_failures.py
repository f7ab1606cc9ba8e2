"""Lazy restores while storage, files or agents fail: the rows that are read are right, or the read fails."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from waiting import awaited

from agent import harness
from agent.harness import PATIENCE_S, AgentProcess, Job, contents
from agent.lazy.remote_storage import (
    FailingStorage,
    damage,
    held_back,
    idle,
    is_at_work,
    missing,
    reader,
    restored,
    settled,
    slow,
    wait_until_whole,
)
from state_store.agent.lazy import prefetch
from state_store.agent.lazy.reader_leases import Readers
from state_store.agent.lazy.remote_bases import LIST_NAME, RemoteBases
from state_store.core.files.sparse import INCOMING_PREFIX, PAGE_BYTES
from state_store.core.storage.local import LocalStorage
from state_store.errors import DamagedError, StorageError


def listed_files(directory: Path) -> list[dict[str, Any]]:
    """Return the files that a base lists for the next agent."""
    return json.loads((directory / LIST_NAME).read_text("utf-8"))["files"]


def idle_threads(running: prefetch.Prefetch) -> None:
    """Wait until no thread fetches."""
    end_s = time.monotonic() + PATIENCE_S
    while is_at_work(running):
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.usefixtures("sparse_deltas")
def test_a_delta_that_is_damaged_in_storage_is_found_before_it_is_kept(written: Job, tmp_path: Path) -> None:
    path = max(written.location.glob("delta/*"))
    damage(path)
    job = reader(written, tmp_path / "reader")
    restored(job)
    settled(job)
    with pytest.raises(DamagedError, match=path.name):
        job.restore_by_blocks(5)


def test_storage_that_fails_loses_nothing(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    job.client.is_down = True
    go_on()
    with pytest.raises(StorageError, match="it is down"):
        job.call("ranges", directory=str(directory), ranges=[[sparse[0], 0, 10]])
    job.commit({b"\0\0more": b"1"})
    assert job.open_store.bases.is_coming(directory)
    assert job.open_store.damage_reports.of(str(written.location)) == 0
    job.client.is_down = False
    wait_until_whole(job, directory)
    assert contents(directory) == written.versions[3][1]
    assert contents(job.merge("full")["directory"]) == job.state


def test_a_file_goes_on_where_storage_failed(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "PART_BYTES", 10_000)
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    job.client.reads.clear()
    job.client.fails_at = 0
    go_on()
    wait_until_whole(job, directory)
    assert len(job.client.failed) == len(sparse)
    sizes = [(directory / name).stat().st_size for name in sparse]
    assert sum(length or 0 for _, length in job.client.reads) == missing(sizes)
    progress = job.commit({b"\0\0more": b"1"})["hydration"]
    assert (progress["left_bytes"], progress["hydrated_bytes"]) == (0, missing(sizes))
    assert contents(directory) == written.versions[3][1]


def replace_agent(job: Job, files: Path, directory: Path) -> None:
    """Give a job another agent below `files`, which finds the base in `directory` open in the JVM."""
    job.client = FailingStorage(files)
    job.store["held"] = [str(directory)]


def test_an_agent_that_replaces_a_dead_one_goes_on(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    monkeypatch.undo()
    replace_agent(job, tmp_path / "reader", directory)
    assert job.call("ranges", directory=str(directory), ranges=[[sparse[0], 0, 10]])["bytes"] == 10
    wait_until_whole(job, directory)
    assert contents(directory) == written.versions[3][1]


def test_an_agent_that_replaces_another_fetches_nothing_that_is_whole(written: Job, tmp_path: Path) -> None:
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    wait_until_whole(job, directory)
    replace_agent(job, tmp_path / "reader", directory)
    job.call("ranges", directory=str(directory), ranges=[[sparse[0], 0, 10]])
    wait_until_whole(job, directory)
    assert job.client.reads == [(0, PAGE_BYTES)]
    assert job.commit({b"\0\0more": b"1"})["hydration"]["left_bytes"] == 0


def test_an_agent_that_replaces_another_replaces_no_bytes_that_the_jvm_has_verified(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored file changes between the agents: damage on the way looks the same to them."""
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    listed = {file["name"]: file["path"] for file in listed_files(directory)}
    name = sparse[0]
    job.call("ranges", directory=str(directory), ranges=[[name, 50, 1000]])
    verified = (directory / name).read_bytes()[50:1050]
    (directory / f"{INCOMING_PREFIX}of-the-dead").write_bytes(b"half")
    damage(written.location / listed[name], 50_000)
    damage(written.location / listed[name])  # the byte at 100
    monkeypatch.undo()
    replace_agent(job, tmp_path / "reader", directory)
    job.call("ranges", directory=str(directory), ranges=[[sparse[1], 0, 10]])
    settled(job)
    idle(job.open_store.bases._bases[directory].prefetch)
    assert (directory / name).read_bytes()[50:1050] == verified
    assert list(directory.glob(f"{INCOMING_PREFIX}*")) == []


def test_an_agent_that_replaces_another_takes_requests_at_once(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    monkeypatch.undo()
    replace_agent(job, tmp_path / "reader", directory)
    for owner in (RemoteBases, Readers):  # it is taken over with the first request
        monkeypatch.setattr(owner, "take_over", lambda self, directories: None)
    job.cleanup()
    add, has_begun = prefetch.Prefetch.add, threading.Event()
    readers: list[int] = []
    read_names: list[str] = []

    def has_second_come() -> bool:
        return sparse[1] in read_names or (len(readers) == 2 and readers[1] in job.client.runtime.waiting)

    def slowly(self: prefetch.Prefetch, *files: Any, **named: Any) -> None:
        if not has_begun.is_set():
            has_begun.set()
            awaited(has_second_come, "the second reads, or waits for the first")
        add(self, *files, **named)

    monkeypatch.setattr(prefetch.Prefetch, "add", slowly)

    def read(name: str) -> int:
        readers.append(threading.get_ident())
        try:
            return job.open_store.bases.read(directory, [(name, 0, 10)])
        finally:
            read_names.append(name)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(read, sparse[0])
        assert has_begun.wait(PATIENCE_S)
        second = pool.submit(read, sparse[1])
        assert (first.result(PATIENCE_S), second.result(PATIENCE_S)) == (10, 10)


ASKED_BYTES = 5000


@pytest.mark.tier("more")
def test_readers_of_a_base_see_right_bytes_while_agents_are_killed(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents are killed while they fetch. Parts that are fetched in the background are damaged on their way,
    but those of the first and the last agent. A range that was given right stays so, and all ranges come
    right when they are asked for.
    """
    kills, chance = 3, random.Random(1)
    right = {path.name: path.read_bytes() for path in written.location.glob("shared/*")}
    service = DamagingService()
    monkeypatch.setattr(harness, "serve", service.serve)
    job: Job | None = None
    given: dict[tuple[str, int], bytes] = {}
    for life in range(kills + 1):
        with AgentProcess(tmp_path / "local") as agent:
            service.is_damaging = 0 < life < kills
            client = agent.connect(tmp_path)
            if job is None:
                options = {"restoreMode": "lazy", "hydrationRateLimit": "20k"}
                job = Job(client, "remote:/state", **options)
                job.versions = dict(written.versions)
                directory = Path(job.restore_by_blocks(5)["directory"])
                files = listed_files(directory)
                expected = {directory / file["name"]: right[Path(file["path"]).name] for file in files}
                job.store["held"] = [str(directory)]
            else:
                job.client = client
            for _ in range(20):
                path = chance.choice(sorted(expected))
                offset = chance.randrange(len(expected[path]))
                ranges = [[path.name, offset, ASKED_BYTES]]
                count = job.call("ranges", directory=str(directory), ranges=ranges)["bytes"]
                given[path, offset] = expected[path][offset:][:count]
            if service.is_damaging:
                wait_for(service.has_damaged)
            elif life == kills:
                for path, data in expected.items():
                    for offset in range(0, len(data), ASKED_BYTES):
                        ranges = [[path.name, offset, ASKED_BYTES]]
                        job.call("ranges", directory=str(directory), ranges=ranges)
                        given[path, offset] = data[offset : offset + ASKED_BYTES]
            found = {path: path.read_bytes() for path in expected}
            for (path, offset), data in given.items():
                assert found[path][offset : offset + len(data)] == data, (life, path.name, offset)
            agent.process.kill()


class DamagingService:
    """Serves files, and turns all bits of those parts that no reader has asked for while `is_damaging`."""

    def __init__(self) -> None:
        self.is_damaging = False
        self._damaged: set[tuple[str, int]] = set()
        self._serve = harness.serve

    def has_damaged(self) -> bool:
        """Return True if something was damaged since the last call."""
        damaged, self._damaged = self._damaged, set()
        return bool(damaged)

    def serve(self, storage: LocalStorage, header: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
        answer = self._serve(storage, header, body)
        if self.is_damaging and header["fs"] == "spans" and header.get("background"):
            (span,) = header["spans"]
            offset, length = span["pieces"]
            with open(span["to"], "r+b") as file:
                file.seek(offset)
                data = file.read(length)
                file.seek(offset)
                file.write(bytes(255 - byte for byte in data))
            self._damaged.add((span["path"], offset))
        return answer


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_file_that_is_damaged_in_storage_is_done_without(written: Job, tmp_path: Path) -> None:
    path = next(written.location.glob("shared/*"))
    damage(path)
    job = reader(written, tmp_path / "reader")
    restored(job)
    settled(job)
    answer = job.restore_by_blocks(5)
    assert (answer["sparse"], answer["snapshot_version"]) == ([], None)
    assert job.rows(5) == written.state


def test_a_file_that_is_gone_ends_the_wait(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, _ = restored(job)
    for path in written.location.glob("shared/*"):
        path.unlink()
    job.commit({b"\0\0more": b"1"})
    go_on()
    wait_for(lambda: not job.open_store.bases.is_coming(directory))
    assert not job.open_store.damage_reports.of(str(job.location))
    assert contents(job.merge("full")["directory"]) == job.state


def test_a_released_base_is_fetched_no_more(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = reader(written, tmp_path / "reader", hydrationRateLimit="1k")
    directory, _ = restored(job)
    running = job.open_store.bases._bases[directory].prefetch
    job.close()
    assert not running.is_coming
    idle_threads(running)
    assert not directory.exists()
