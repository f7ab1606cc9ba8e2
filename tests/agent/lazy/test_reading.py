"""Lazy restores: ends of files come at once, other parts as they are read, and merges wait for the rest."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from agent.harness import InProcess, Job, contents, rows_of
from agent.lazy.remote_storage import (
    damage,
    five_versions,
    held_back,
    merged_when_let_go,
    missing,
    reader,
    restored,
    slow,
    wait_until_whole,
)
from state_store.agent.lazy import prefetch
from state_store.agent.lazy.remote_bases import LIST_NAME
from state_store.core.files.sparse import PAGE_BYTES, end_bytes
from state_store.errors import DamagedError, InternalError


def test_only_the_ends_are_there_at_first(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    assert sorted(sparse) == sorted(path.name for path in directory.glob("*.sst"))
    stored = sum(path.stat().st_size for path in written.location.glob("shared/*"))
    fetched = sum(length for _, length in job.client.reads)
    assert fetched < stored / 2
    assert sum(path.stat().st_size for path in directory.glob("*.sst")) == stored
    with pytest.raises(DamagedError):
        contents(directory)


def test_ranges_come_to_their_places(written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    for name in sparse:
        size = (directory / name).stat().st_size
        for offset in range(0, size, 50_000):
            answer = job.call("ranges", directory=str(directory), ranges=[[name, offset, 50_000]])
            assert answer["bytes"] == min(50_000, size - offset)
    assert contents(directory) == written.versions[3][1]
    answer = job.commit({b"\0\0more": b"1"})
    sizes = [(directory / name).stat().st_size for name in sparse]
    assert answer["hydration"]["on_demand_bytes"] == sum(sizes)
    assert answer["hydration"]["left_bytes"] == 0
    with pytest.raises(InternalError):
        job.call("ranges", directory=str(directory), ranges=[["CURRENT", 0, 1]])


def test_ranges_that_lie_close_together_come_with_one_request(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    names, before = sorted(sparse)[:2], len(job.client.reads)
    ranges = [[name, offset, 100] for offset in (40_000, 0, 9_000) for name in names]
    assert job.call("ranges", directory=str(directory), ranges=ranges)["bytes"] == 100 * len(ranges)
    assert sorted(job.client.reads[before:]) == [(0, 10 * PAGE_BYTES)] * len(names)
    stored = {(data := path.read_bytes())[-1000:]: data for path in written.location.glob("*/*.sst")}
    for name in names:
        local = (directory / name).read_bytes()
        right = stored[local[-1000:]]
        for offset in (0, 9_000, 40_000):
            assert local[offset : offset + 100] == right[offset : offset + 100]
        assert not any(local[PAGE_BYTES : 2 * PAGE_BYTES] + local[3 * PAGE_BYTES : 9 * PAGE_BYTES])


def test_whole_files_come_in_the_background(written: Job, tmp_path: Path) -> None:
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    wait_until_whole(job, directory)
    assert contents(directory) == written.versions[3][1]
    progress = job.commit({b"\0\0more": b"1"})["hydration"]
    assert (progress["left_bytes"], progress["on_demand_bytes"]) == (0, 0)
    assert progress["hydrated_bytes"] == missing((directory / name).stat().st_size for name in sparse)
    again = reader(written, tmp_path / "reader")
    again.client = job.client
    answer = again.restore_by_blocks(5)
    assert (answer["sparse"], answer["fetched_files"]) == ([], 0)


def test_no_byte_comes_twice_and_no_part_is_tiny(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "PART_BYTES", 50_000)
    job = reader(written, tmp_path / "reader")
    directory, sparse = restored(job)
    wait_until_whole(job, directory)
    sizes = [(directory / name).stat().st_size for name in sparse]
    assert sum(length or 0 for _, length in job.client.reads) == sum(sizes)
    ends = {size - end_bytes(size) for size in sizes}
    assert min(length or 0 for offset, length in job.client.reads if offset not in ends) >= 25_000


def test_a_file_that_came_with_its_end_is_there(tmp_path: Path) -> None:
    job = reader(five_versions(tmp_path, 50_000), tmp_path / "reader")
    directory, sparse = restored(job)
    ends = [length for _, length in job.client.reads]
    wait_until_whole(job, directory)
    assert len(ends) == len(job.client.reads) == len(sparse) > 10
    assert contents(directory) == job.versions[3][1]


def test_files_that_are_read_come_first(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader", transferThreads="1")
    directory, sparse = restored(job)
    listed = json.loads((directory / LIST_NAME).read_text("utf-8"))["files"]
    stored = {file["name"]: file["path"] for file in listed}
    names = random.sample(sparse, len(sparse))
    for name in names:
        job.call("ranges", directory=str(directory), ranges=[[name, 0, 10]])
    job.client.read_paths.clear()
    go_on()
    wait_until_whole(job, directory)
    assert len(names) > 3
    assert list(dict.fromkeys(job.client.read_paths)) == [stored[name] for name in reversed(names)]


@pytest.mark.usefixtures("sparse_deltas")
def test_large_deltas_have_only_their_ends_at_first(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    job = reader(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    directory = Path(answer["directory"])
    deltas = [str(Path(delta["path"]).relative_to(directory)) for delta in answer["loose_deltas"]]
    assert len(deltas) == 2
    assert set(deltas) < set(answer["sparse"])
    assert sum(length for _, length in job.client.reads) < (64 * 1024 + PAGE_BYTES) * len(answer["sparse"])
    with pytest.raises(DamagedError):
        rows_of(answer)
    for name in answer["sparse"]:
        size = (directory / name).stat().st_size
        call = job.call("ranges", directory=str(directory), ranges=[[name, 0, size + 1000]])
        assert call["bytes"] == size
    assert rows_of(answer) == written.state


@pytest.mark.usefixtures("sparse_deltas")
def test_large_deltas_come_in_the_background_and_merges_wait_for_them(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    job.commit({b"\0\0more": b"1"})
    merged = merged_when_let_go(job, go_on)
    assert contents(merged["directory"]) == job.state
    assert rows_of(answer) == written.state
    again = reader(written, tmp_path / "reader")
    again.client = job.client
    assert again.restore_by_blocks(5)["fetched_files"] == 0


@pytest.mark.usefixtures("sparse_deltas")
def test_a_merge_of_deltas_alone_fetches_none_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = Job(InProcess(tmp_path / "writer"), tmp_path / "state")
    for version in range(1, 4):
        young.commit({b"\0\0%02d-%05d" % (version, row): os.urandom(100) for row in range(2500)})
    go_on = held_back(monkeypatch)
    job = reader(young, tmp_path / "reader")
    answer = job.restore_by_blocks(3)
    assert len(answer["sparse"]) == 3
    job.client.reads.clear()
    job.client.downloads = 0
    merged = merged_when_let_go(job, go_on)
    assert contents(merged["directory"]) == young.state
    stored = missing(path.stat().st_size for path in young.location.glob("delta/*"))
    assert sum(length for _, length in job.client.reads) == stored
    assert job.client.downloads == 0


def test_a_merge_waits_for_the_files_that_it_builds_on(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    restored(job)
    job.commit({b"\0\0more": b"1"})
    assert contents(merged_when_let_go(job, go_on)["directory"]) == job.state


def test_the_background_does_not_replace_bytes_that_the_jvm_has_verified(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored files change after the JVM has read from them: damage of storage, as it may happen."""
    go_on = held_back(monkeypatch)
    job = reader(written, tmp_path / "reader")
    directory, _ = restored(job)
    listed = json.loads((directory / LIST_NAME).read_text("utf-8"))["files"][0]
    name, stored = listed["name"], written.location / listed["path"]
    right = stored.read_bytes()
    job.call("ranges", directory=str(directory), ranges=[[name, 50, 1000]])
    damage(stored)
    go_on()
    wait_until_whole(job, directory)
    assert (directory / name).read_bytes() == right
