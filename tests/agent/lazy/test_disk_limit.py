"""The limit of the local disk: bases that fit are local as a whole, and others have pages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.harness import Job, contents
from agent.lazy.remote_storage import FailingStorage, reader, restored, wait_until_whole
from agent.lazy.test_page_cache import PageReader, cache_of, disk_bytes
from state_store.agent.lazy import file_cache
from state_store.agent.lazy.file_cache import PAGE_BYTES, FileCache

MIN_BYTES = 20 * PAGE_BYTES


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, sparse_deltas: None) -> None:
    monkeypatch.setattr(file_cache, "MIN_BYTES", MIN_BYTES)


def bytes_of(job: Job) -> int:
    """Return the bytes of the files of the newest version, of a snapshot and two deltas."""
    shared, deltas = (sorted(job.location.glob(f"{name}/*")) for name in ("shared", "delta"))
    return sum(path.stat().st_size for path in (*shared, *deltas[-2:]))


def limited(written: Job, directory: Path, limit_bytes: int, **options: str) -> Job:
    return reader(written, directory, localDiskLimit=str(limit_bytes), localRecovery="false", **options)


@pytest.mark.parametrize("mode", ["lazy", "eager"])
@pytest.mark.parametrize(("missing_bytes", "page_bytes"), [(0, 0), (1, PAGE_BYTES)])
def test_a_base_is_local_as_a_whole_if_it_takes_half_of_the_limit(
    written: Job, tmp_path: Path, mode: str, missing_bytes: int, page_bytes: int
) -> None:
    job = limited(written, tmp_path / "reader", 2 * bytes_of(written) - missing_bytes, restoreMode=mode)
    answer = job.restore_by_blocks(5)
    assert answer["page_bytes"] == page_bytes
    assert bool(answer["sparse"]) == (mode == "lazy" or page_bytes > 0)
    if page_bytes:
        assert PageReader(job, answer).rows(answer, tmp_path / "copy") == written.state
    else:
        if mode == "lazy":
            wait_until_whole(job, Path(answer["directory"]))
        assert contents(Path(answer["directory"])) == written.versions[3][1]
        assert cache_of(job)._whole == {Path(answer["directory"]): (str(job.location), bytes_of(written))}


def test_a_store_that_finds_no_room_has_pages_until_there_is(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader", 2 * bytes_of(written))
    first, _ = restored(job)
    other = Job(job.client, _copy(written, tmp_path / "other"), **job.store["options"])
    other.versions = dict(written.versions)
    assert other.restore_by_blocks(5)["page_bytes"] == PAGE_BYTES
    again = job.restore_by_blocks(5)
    assert again["page_bytes"] == 0, "a base that takes the place of another of its store has its room"
    for directory in (str(first), again["directory"]):
        job.call("damaged", directory=directory)
        job.call("release", directory=directory)
    assert other.restore_by_blocks(5)["page_bytes"] == 0


def _copy(job: Job, target: Path) -> Path:
    for path in job.location.rglob("*"):
        if path.is_file():
            copy = target / path.relative_to(job.location)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return target


def test_whole_bases_take_their_room_from_pages(written: Job, tmp_path: Path) -> None:
    limit_bytes = 4 * bytes_of(written)
    job = limited(written, tmp_path / "reader", limit_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileCache, "take", lambda *base: False)
        base = PageReader(job, job.restore_by_blocks(5))
        base.read_all()
    cache, size_bytes = cache_of(job), bytes_of(written)
    pages_bytes = cache.disk_bytes
    directories = [tmp_path / name for name in "ab"]
    for directory in directories:
        directory.mkdir()
    assert cache.take("a", directories[0], size_bytes)
    assert cache.take("b", directories[1], size_bytes)
    assert not cache.take("c", tmp_path, 1)
    assert cache.disk_bytes == pages_bytes
    reserved_bytes = 2 * size_bytes - pages_bytes * 3 // 4
    with cache.reserved(reserved_bytes):
        assert cache.disk_bytes <= limit_bytes - 2 * size_bytes - reserved_bytes < pages_bytes
    assert disk_bytes(base.directory) <= cache.disk_bytes + 4096 * 4 * len(base.names) + (64 << 10)
    directories[0].rmdir()
    assert cache.take("c", tmp_path, size_bytes)


def test_merges_of_a_base_that_fits_stay_local(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader", 3 * bytes_of(written))
    directory, _ = restored(job)
    wait_until_whole(job, directory)
    for kind in ("ingest", "incremental", "full"):
        job.commit({b"\0\0more": os.urandom(4)})
        job.client.reads.clear()
        job.client.downloads = 0
        made = job.merge(kind)
        assert (made["page_bytes"], made["sparse"]) == (0, [])
        assert contents(Path(made["directory"])) == job.state
        assert (job.client.reads, job.client.downloads) == ([], 0)
        job.call("release", directory=str(directory))
        directory = Path(made["directory"])


def test_a_base_that_outgrows_the_limit_gets_pages(written: Job, tmp_path: Path) -> None:
    size_bytes = bytes_of(written)
    job = limited(written, tmp_path / "reader", 2 * size_bytes)
    directory, _ = restored(job)
    wait_until_whole(job, directory)
    job.commit({b"\0\0more%d" % row: os.urandom(1000) for row in range(size_bytes // 4000)})
    made = job.merge("full")
    assert made["page_bytes"] == PAGE_BYTES
    assert PageReader(job, made).rows(made, tmp_path / "copy") == job.state


def test_an_agent_that_replaces_another_counts_whole_bases(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader", 2 * bytes_of(written))
    directory, _ = restored(job)
    wait_until_whole(job, directory)
    job.client = FailingStorage(tmp_path / "reader")
    job.client.call("open", store={**job.store, "held": [str(directory)]})
    other = Job(job.client, _copy(written, tmp_path / "other"), **job.store["options"])
    other.versions = dict(written.versions)
    assert other.restore_by_blocks(5)["page_bytes"] == PAGE_BYTES
