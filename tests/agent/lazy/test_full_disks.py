"""The cache of pages on a disk that others fill: half of the pages go, and come back when there is space."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mounted_disks import mounted_disk
from runtimes import AdjustedRuntime

from agent.harness import PATIENCE_S, Job
from agent.lazy.remote_storage import reader
from agent.lazy.test_page_cache import PageReader, cache_of, limited
from state_store.agent.lazy import file_cache
from state_store.agent.lazy.file_cache import MAX_QUIET_MS, PAGE_BYTES, QUIET_MS, DiskRoom
from state_store.core.storage.contract import Span
from state_store.core.storage.local_disk import local_disk_error
from state_store.errors import LocalDiskError

MIN_BYTES = 20 * PAGE_BYTES


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, sparse_deltas: None) -> None:
    """The rows of all versions have some 1.5 MB; ten pages of each file stay."""
    monkeypatch.setattr(file_cache, "MIN_BYTES", MIN_BYTES)
    monkeypatch.setattr(file_cache.FileCache, "take", lambda *base: False)


class Clock:
    """Milliseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def full(monkeypatch: pytest.MonkeyPatch, has_room: Callable[[], bool]) -> None:
    """The disk is full unless `has_room`."""
    fetch = file_cache.fetch_spans

    def refused(storage: Any, spans: Sequence[Span], runtime: Any) -> None:
        if not has_room():
            raise local_disk_error(OSError(errno.ENOSPC, "No space left on device", str(spans[0].local)))
        fetch(storage, spans, runtime)

    monkeypatch.setattr(file_cache, "fetch_spans", refused)


class Disk:
    """A disk of a certain size on which the cache of a job is, and files of others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, job: Job, size_bytes: int) -> None:
        self.job = job
        self.size_bytes = size_bytes
        self.others_bytes = 0
        monkeypatch.setattr(file_cache, "free_bytes", lambda directory: max(0, self.free_bytes))
        full(monkeypatch, lambda: self.free_bytes >= 0)

    def fill(self) -> None:
        """Have others take all of the disk, so that not even a page that replaces another can be written."""
        self.others_bytes += self.free_bytes + PAGE_BYTES

    @property
    def free_bytes(self) -> int:
        return self.size_bytes - self.others_bytes - cache_of(self.job).disk_bytes


def read_a_page(base: PageReader) -> None:
    base.job.call("ranges", directory=str(base.directory), ranges=[[base.names[0], 0, 10]])


def test_a_full_disk_halves_the_cache(written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    base = PageReader(job, job.restore_by_blocks(5))
    base.read_all()
    pages = cache_of(job)._resident_pages
    is_freed = False
    full(monkeypatch, lambda: is_freed or cache_of(job)._resident_pages <= pages * 3 // 5)
    read_a_page(base)
    assert cache_of(job)._resident_pages <= pages * 3 // 5
    assert base.local(base.names[0], 0, 10) == base.stored[base.names[0]][:10]
    is_freed = True
    base.read_all()
    assert cache_of(job)._resident_pages <= pages * 3 // 5, (
        "the cache grows at once, and leaves others no disk"
    )


def test_threads_that_find_the_disk_full_at_one_time_halve_the_cache_once(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    base = PageReader(job, job.restore_by_blocks(5))
    base.read_all()
    pages = cache_of(job)._resident_pages
    together = threading.Barrier(4, timeout=PATIENCE_S)
    refused = threading.local()

    def has_room() -> bool:
        if getattr(refused, "once", False):
            return True
        refused.once = True
        together.wait()
        return False

    full(monkeypatch, has_room)
    with ThreadPoolExecutor(4) as pool:
        for reading in [pool.submit(read_a_page, base) for _ in range(4)]:
            reading.result(PATIENCE_S)
    assert pages // 2 - 4 <= cache_of(job)._resident_pages <= pages // 2 + 4


def test_the_cache_grows_back_when_the_disk_has_space(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    clock = Clock()
    job = limited(written, tmp_path / "reader", limit="1g", uptime_ms=clock)
    base = PageReader(job, job.restore_by_blocks(5))
    base.read_all()
    pages = cache_of(job)._resident_pages
    disk = Disk(monkeypatch, job, size_bytes=2 << 30)
    for _ in range(3):
        disk.fill()
        read_a_page(base)
    assert cache_of(job)._resident_pages <= pages // 8 + 1
    disk.others_bytes = 0
    clock.ms += QUIET_MS - 1
    base.read_all()
    held = cache_of(job)._resident_pages
    assert held <= pages // 8 + 1, "the cache grows before a quiet minute has passed"
    steps = 0
    clock.ms += 1
    while held < pages:
        base.read_all()
        assert held < cache_of(job)._resident_pages <= 2 * held + 1, f"step {steps}"
        held = cache_of(job)._resident_pages
        clock.ms += QUIET_MS
        steps += 1
    assert steps >= 3
    base.read_all()
    base.asked = 0
    base.read_all()
    assert base.asked == 0
    for _ in range(20):
        clock.ms += QUIET_MS
        read_a_page(base)
    assert cache_of(job)._page_limit() > 100_000
    assert caplog.text.count("the local disk has space again") == 1


@pytest.mark.tier("more")
def test_the_cache_leaves_a_quarter_of_its_size_free_after_the_disk_was_full(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    job = limited(written, tmp_path / "reader", limit="1g", uptime_ms=clock)
    base = PageReader(job, job.restore_by_blocks(5))
    cache = cache_of(job)
    disk = Disk(monkeypatch, job, size_bytes=cache.disk_bytes + 200 * PAGE_BYTES)
    base.read_all()
    assert cache._disk.shrinks == 1
    assert disk.free_bytes >= 90 * PAGE_BYTES
    for _ in range(10):
        clock.ms += QUIET_MS
        base.read_all()
        assert disk.free_bytes >= cache._disk.pages * PAGE_BYTES // 4
    assert cache._disk.shrinks == 1
    assert disk.free_bytes <= cache._disk.pages * PAGE_BYTES // 4 + 2 * PAGE_BYTES, "the cache does not grow"


@pytest.mark.tier("more")
def test_the_cache_never_grows_above_the_option(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    job = limited(written, tmp_path / "reader", uptime_ms=clock)
    base = PageReader(job, job.restore_by_blocks(5))
    base.read_all()
    cache = cache_of(job)
    disk = Disk(monkeypatch, job, size_bytes=1 << 30)
    disk.fill()
    read_a_page(base)
    assert cache._page_limit() < MIN_BYTES // PAGE_BYTES
    disk.others_bytes = 0
    for _ in range(10):
        clock.ms += QUIET_MS
        base.read_all()
        assert cache._resident_pages <= MIN_BYTES // PAGE_BYTES
    assert cache._page_limit() == MIN_BYTES // PAGE_BYTES


def test_a_disk_that_is_full_after_each_step_is_left_alone_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(file_cache, "free_bytes", lambda directory: 1 << 40)
    room = DiskRoom(AdjustedRuntime(uptime_ms=clock), PAGE_BYTES)
    room.shrink(100)
    room.shrink(50)
    waits = []
    for _ in range(9):
        began_ms = clock.ms
        while room.pages == 50 and clock.ms < began_ms + 2 * MAX_QUIET_MS:
            clock.ms += QUIET_MS / 2
            room.grow(tmp_path, 50, 10_000)
        waits.append((clock.ms - began_ms) / QUIET_MS)
        room.shrink(50)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert waits[-1] == MAX_QUIET_MS / QUIET_MS
    room.forget()
    assert room.pages == sys.maxsize


def test_a_disk_that_stays_full_fails_the_read_alone(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = limited(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    base = PageReader(job, answer)
    is_full = True
    full(monkeypatch, lambda: not is_full)
    with pytest.raises(LocalDiskError, match="is full"):
        read_a_page(base)
    is_full = False
    assert base.rows(answer, tmp_path / "copy") == written.state
    assert job.open_store.damage_reports.of(str(written.location)) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 8 MiB."""
    with mounted_disk(tmp_path / "small", "8m") as path:
        yield path


def test_the_cache_gives_way_on_a_real_disk_and_grows_back(written: Job, small_disk: Path) -> None:
    clock = Clock()
    job = reader(written, small_disk, uptime_ms=clock, localDiskLimit="1g", localRecovery="false")
    base = PageReader(job, job.restore_by_blocks(5))
    base.read_all()
    cache = cache_of(job)
    pages = cache._resident_pages
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(PAGE_BYTES))
    cache._evict(cache._resident_pages // 2)  # and others take their room, too
    with open(filler, "ab", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(PAGE_BYTES))
    base.read_all()
    assert cache._disk.shrinks > 0
    assert cache._resident_pages <= pages // 2
    filler.unlink()
    for _ in range(12):
        clock.ms += QUIET_MS
        base.read_all()
    base.asked = 0
    base.read_all()
    assert base.asked == 0
    assert cache._resident_pages == pages
