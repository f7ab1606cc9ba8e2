"""The cache of pages keeps its accounts while bases go, copies of a file lie side by side, and disks fail."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.harness import Job
from agent.lazy.test_full_disks import Clock, Disk, read_a_page
from agent.lazy.test_page_cache import PageReader, cache_of, disk_bytes, limited
from state_store.agent.lazy import file_cache
from state_store.agent.lazy.file_cache import PAGE_BYTES, FileCache
from state_store.core.files import sparse
from state_store.core.storage.local_disk import local_disk_error
from state_store.errors import LocalDiskError, StorageError

MIN_BYTES = 20 * PAGE_BYTES


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, sparse_deltas: None) -> None:
    monkeypatch.setattr(file_cache, "MIN_BYTES", MIN_BYTES)
    monkeypatch.setattr(file_cache.FileCache, "take", lambda *base: False)


def counted(cache: FileCache) -> int:
    """Return the pages that the files of the cache have, which has to be what it counts."""
    return sum(file.present.count(1) for file in cache._ring)


def two_copies(job: Job) -> tuple[PageReader, PageReader]:
    """Return two bases of a version: the second was restored after damage, and takes nothing of the first."""
    first = job.restore_by_blocks(5)
    job.call("damaged", directory=first["directory"])
    return PageReader(job, first), PageReader(job, job.restore_by_blocks(5))


def test_cached_files_take_no_descriptors_and_no_mappings(written: Job, tmp_path: Path) -> None:
    jobs = [limited(written, tmp_path / f"reader-{number}") for number in range(3)]
    for job in jobs:
        PageReader(job, job.restore_by_blocks(5)).read_all()
    names = [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()]
    assert not [name for name in names if ".uses" in name]
    assert ".uses" not in Path("/proc/self/maps").read_text("utf-8")


def test_pages_of_a_base_that_goes_while_they_are_fetched_are_not_counted(
    written: Job, tmp_path: Path
) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    base = PageReader(job, job.restore_by_blocks(5))
    cache = cache_of(job)

    def release() -> None:
        job.client.before_reads = lambda: None
        job.call("damaged", directory=str(base.directory))
        job.call("release", directory=str(base.directory))
        with cache._lock:
            cache._forget_gone()

    job.client.before_reads = release
    with contextlib.suppress(StorageError):
        read_a_page(base)
    assert not base.directory.exists()
    assert (cache._resident_pages, counted(cache), cache.disk_bytes) == (0, 0, 0)


def test_pages_of_a_fetch_that_failed_half_way_are_counted(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    base = PageReader(job, job.restore_by_blocks(5))
    cache = cache_of(job)
    before = cache._resident_pages
    fetch = file_cache.fetch_spans

    def broken(storage: Any, spans: Sequence[Any], runtime: Any) -> None:
        fetch(storage, spans, runtime)
        raise StorageError("the connection broke after the last byte")

    monkeypatch.setattr(file_cache, "fetch_spans", broken)
    with pytest.raises(StorageError, match="broke"):
        base.job.call("ranges", directory=str(base.directory), ranges=[[base.names[0], 0, 40_000]])
    assert cache._resident_pages == counted(cache) == before + 10


def test_a_copy_of_a_file_that_goes_leaves_the_other_to_later_bases(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    first, second = two_copies(job)
    job.call("release", directory=str(first.directory))
    cache = cache_of(job)
    with cache._lock:
        cache._forget_gone()
    path = job.open_store.bases._bases[second.directory].files[second.names[0]].key[1]
    assert cache.link(str(job.location), path, tmp_path / "linked")
    assert cache._resident_pages == counted(cache)


def test_holes_are_made_in_the_copy_that_has_the_pages(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    _, second = two_copies(job)
    second.read_all()
    full_bytes = disk_bytes(second.directory)
    cache_of(job).limit(1)
    assert disk_bytes(second.directory) < full_bytes / 2
    second.asked = 0
    second.read_all()
    assert second.asked > 0


def test_a_file_whose_uses_cannot_be_linked_is_not_linked(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader")
    base = PageReader(job, job.restore_by_blocks(5))
    name = base.names[0]
    (base.directory / f"{name}.uses").unlink()
    path = job.open_store.bases._bases[base.directory].files[name].key[1]
    assert not cache_of(job).link(str(job.location), path, tmp_path / "linked")
    assert not (tmp_path / "linked").exists()


def test_a_page_that_was_read_stays_when_its_neighbours_go(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    base = PageReader(job, job.restore_by_blocks(5))
    base.read(base.names[0], 0, 4 * PAGE_BYTES)
    cache = cache_of(job)
    file = job.open_store.bases._bases[base.directory].files[base.names[0]]
    with (base.directory / f"{base.names[0]}.uses").open("r+b") as uses:
        uses.write(b"\0\1\0\0")
    cache._hand = (cache._ring.index(file), 0)
    cache._evict(3)
    assert file.present[:4] == b"\0\1\0\0"
    assert (base.directory / f"{base.names[0]}.uses").read_bytes()[1] == 0


def test_another_limit_forgets_that_the_disk_was_full(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = limited(written, tmp_path / "reader", limit="1g", uptime_ms=Clock())
    base = PageReader(job, job.restore_by_blocks(5))
    base.read_all()
    cache = cache_of(job)
    pages = cache._resident_pages
    disk = Disk(monkeypatch, job, size_bytes=cache.disk_bytes + PAGE_BYTES)
    disk.fill()
    read_a_page(base)
    assert cache._page_limit() < pages
    cache.limit(1 << 30)
    assert cache._page_limit() < pages, "the same limit changes nothing"
    cache.limit(1 << 31)
    assert cache._page_limit() > pages


def test_pages_that_cannot_be_evicted_fail_neither_reads_nor_limits(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = limited(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    base = PageReader(job, answer)
    open_file = os.open

    def refused(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return open_file(path, flags, *more)

    for module in (sparse, file_cache):
        monkeypatch.setattr(module.os, "open", refused)
    with pytest.raises(LocalDiskError, match="Read-only"):
        sparse.punch_hole(base.directory / base.names[0], 0, PAGE_BYTES)
    cache = cache_of(job)
    for name in base.names:
        job.call("ranges", directory=str(base.directory), ranges=[[name, 0, 1 << 20]])
    cache.limit(2)
    assert cache._resident_pages == counted(cache) > MIN_BYTES // PAGE_BYTES
    assert caplog.text.count("above localDiskLimit") == 1
    monkeypatch.undo()
    monkeypatch.setattr(file_cache, "MIN_BYTES", MIN_BYTES)
    cache.limit(1)
    assert cache._resident_pages <= MIN_BYTES // PAGE_BYTES
    assert base.rows(answer, tmp_path / "copy") == written.state


def test_a_disk_without_descriptors_says_what_to_raise() -> None:
    error = local_disk_error(OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/local/000009.sst"))
    assert error.message == "'/local/000009.sst': Too many open files (raise the limit 'ulimit -n')"


def test_the_hand_goes_on_when_the_longer_file_that_it_was_in_is_gone(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader")
    read = PageReader(job, job.restore_by_blocks(5))
    for name in read.names:
        read.read(name, 0, PAGE_BYTES)
    cache = cache_of(job)
    before = cache._resident_pages
    cache._hand = (0, len(cache._ring[0].present) + 1)
    with cache._lock:
        cache._evict(before)
    assert cache._resident_pages == 0 < before
