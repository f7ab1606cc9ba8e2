"""Stores that are larger than the disk: pages of their files are fetched, and evicted again."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent.harness import Job, rows_of
from agent.lazy.remote_storage import FailingStorage, damage, reader, restored, wait_until_whole
from state_store.agent.lazy import file_cache, local_file
from state_store.agent.lazy.file_cache import PAGE_BYTES, FileCache
from state_store.core.files import sparse
from state_store.errors import DamagedError, InternalError, StorageError

MIN_BYTES = 20 * PAGE_BYTES


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, sparse_deltas: None) -> None:
    """The rows of all versions have some 1.5 MB; ten pages of each file stay."""
    monkeypatch.setattr(file_cache, "MIN_BYTES", MIN_BYTES)
    monkeypatch.setattr(file_cache.FileCache, "take", lambda *base: False)


def limited(written: Job, directory: Path, limit: str = "1", **options: str) -> Job:
    return reader(written, directory, localDiskLimit=limit, **{"localRecovery": "false", **options})


def cache_of(job: Job) -> FileCache:
    return job.open_store.bases._cache


def disk_bytes(directory: Path) -> int:
    """Return the bytes of disk that the files below a directory take, each file once."""
    found = {}
    for path in directory.rglob("*"):
        if path.is_file():
            status = path.stat()
            found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


class PageReader:
    """Reads a base as the JVM does: what differs from the stored file is asked for."""

    def __init__(self, job: Job, answer: dict[str, Any]) -> None:
        self.job = job
        self.directory = Path(answer["directory"])
        self.names = list(answer["sparse"])
        assert answer["page_bytes"] == PAGE_BYTES
        files = job.open_store.bases._bases[self.directory].files
        self.stored = {name: (job.location / files[name].key[1]).read_bytes() for name in self.names}
        self.asked = 0

    def read(self, name: str, offset: int, length: int) -> None:
        expected = self.stored[name][offset : offset + length]
        if self.local(name, offset, length) != expected:
            self.asked += 1
            self.job.call("ranges", directory=str(self.directory), ranges=[[name, offset, length]])
            assert self.local(name, offset, length) == expected
        self.note(name, offset, length)

    def local(self, name: str, offset: int, length: int) -> bytes:
        with open(self.directory / name, "rb") as file:
            return os.pread(file.fileno(), length, offset)

    def note(self, name: str, offset: int, length: int) -> None:
        with open(self.directory / f"{name}.uses", "r+b") as file:
            pages = os.fstat(file.fileno()).st_size
            for page in range(offset // PAGE_BYTES, min(pages, -(-(offset + length) // PAGE_BYTES))):
                os.pwrite(file.fileno(), b"\1", page)

    def read_anywhere(self, chance: random.Random) -> None:
        name = chance.choice(self.names)
        offset = chance.randrange(len(self.stored[name]))
        self.read(name, offset, min(len(self.stored[name]) - offset, chance.choice((100, 4096, 30_000))))

    def read_all(self) -> None:
        for name in self.names:
            for offset in range(0, len(self.stored[name]), PAGE_BYTES):
                self.read(name, offset, min(PAGE_BYTES, len(self.stored[name]) - offset))

    def rows(self, answer: dict[str, Any], copy: Path) -> dict[bytes, bytes]:
        """Return the rows of the base, read through the cache into a complete copy."""
        shutil.copytree(self.directory, copy)
        for name, content in self.stored.items():
            assert (self.directory / name).stat().st_size == len(content)
            with open(copy / name, "r+b") as file:
                for offset in range(0, len(content), PAGE_BYTES):
                    self.read(name, offset, PAGE_BYTES)
                    file.seek(offset)
                    file.write(self.local(name, offset, PAGE_BYTES))
        deltas = [
            {**delta, "path": str(copy / Path(delta["path"]).relative_to(self.directory))}
            for delta in answer["loose_deltas"]
        ]
        return rows_of({**answer, "directory": str(copy), "loose_deltas": deltas})


def max_bytes(job: Job) -> int:
    """Return the disk that the cached files may take: their tails, and pages."""
    return cache_of(job)._other_bytes + MIN_BYTES


def test_all_rows_are_read_within_the_limit(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    assert len(answer["loose_deltas"]) == 2
    base = PageReader(job, answer)
    state_bytes = sum(map(len, base.stored.values()))
    assert max_bytes(job) < state_bytes / 2
    for _ in range(2):
        base.read_all()
        assert cache_of(job).disk_bytes <= max_bytes(job)
        assert disk_bytes(base.directory) <= max_bytes(job) + 4096 * 3 * len(base.names) + (64 << 10)
    assert base.asked > state_bytes / PAGE_BYTES
    assert base.rows(answer, tmp_path / "copy") == written.state


def test_pages_that_are_read_stay(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader")
    base = PageReader(job, job.restore_by_blocks(5))
    name = base.names[0]
    again = 0
    for _ in range(3):
        for other in base.names[1:]:
            for offset in range(0, len(base.stored[other]) - (80 << 10), PAGE_BYTES):
                base.read(other, offset, 10)
                fetched = base.asked
                base.read(name, 0, 10)
                again += base.asked - fetched
    assert base.asked > 10 * MIN_BYTES // PAGE_BYTES
    assert again <= 2  # the hand passes a page at first that nobody has read for the second time


def test_wishes_for_pages_are_forgotten_as_the_hand_goes_round(written: Job, tmp_path: Path) -> None:
    """The JVM has a page fetched if it finds that the page was wanted before, but not long ago."""
    job = limited(written, tmp_path / "reader")
    base = PageReader(job, job.restore_by_blocks(5))
    first, *others = base.names
    base.read_all()
    with (base.directory / f"{first}.uses").open("r+b") as file:
        file.write(b"\2")
    for _ in range(2):
        for name in others:
            for offset in range(0, len(base.stored[name]), PAGE_BYTES):
                base.read(name, offset, 1)
    assert (base.directory / f"{first}.uses").read_bytes()[0] == 0


def test_a_cache_that_is_not_full_takes_every_page(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    base = PageReader(job, job.restore_by_blocks(5))
    assert {use for name in base.names for use in (base.directory / f"{name}.uses").read_bytes()} == {2}


@pytest.mark.tier("more")
@pytest.mark.parametrize("seed", range(6))
def test_rows_are_right_and_the_disk_is_bounded_after_random_steps(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    job = limited(written, tmp_path / "reader", mergeTimeout="60s")
    answer = job.restore_by_blocks(5)
    base = PageReader(job, answer)
    copies = 0
    for _ in range(60):
        step = chance.choice(["read"] * 8 + ["commit", "commit", "merge", "rows", "agent", "fault", "shrink"])
        if step == "read":
            for _ in range(20):
                base.read_anywhere(chance)
        elif step == "commit":
            keys = chance.sample(sorted(job.state), 20)
            changes = {key: None if chance.random() < 0.3 else os.urandom(50) for key in keys}
            job.commit({**changes, b"\0\0new-%06d" % chance.randrange(1000): os.urandom(200)})
        elif step == "merge":
            made = job.merge(chance.choice(["ingest", "ingest", "incremental", "full"]))
            if "skipped" not in made:
                job.call("release", directory=answer["directory"])
                answer, base = made, PageReader(job, made)
        elif step == "rows":
            copies += 1
            version = answer.get("version", 5)
            assert base.rows(answer, tmp_path / f"copy-{copies}") == job.versions[version][1]
        elif step == "agent":
            held = [str(base.directory)]
            job.client = FailingStorage(tmp_path / "reader")
            job.client.call("open", store={**job.store, "held": held})
        elif step == "fault":
            job.client.is_down = True
            name = chance.choice(base.names)
            with pytest.raises(StorageError, match="it is down"):
                job.call("ranges", directory=str(base.directory), ranges=[[name, 0, 10]])
            job.client.is_down = False
        else:
            cache_of(job).limit(chance.choice([1, 400_000]))
        used = cache_of(job).disk_bytes
        assert used <= max(max_bytes(job), 400_000)
        assert disk_bytes(base.directory) <= used + (4096 * 4 * len(base.names)) + (200 << 10)
    assert base.rows(answer, tmp_path / "copy") == job.versions[answer.get("version", 5)][1]


def test_a_merge_of_kind_ingest_fetches_no_page_again(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader", limit="1g")
    first = job.restore_by_blocks(5)
    base = PageReader(job, first)
    base.read_all()
    job.commit({b"\0\0more": b"1"})
    job.client.reads.clear()
    made = job.merge("ingest")
    again = PageReader(job, made)
    assert (made["base"]["version"], len(made["loose_deltas"])) == (3, 3)
    job.call("release", directory=first["directory"])
    again.asked = 0
    again.read_all()
    assert again.asked <= 1
    assert sum(length or 0 for _, length in job.client.reads) < 100 << 10
    assert again.rows(made, tmp_path / "copy") == job.state


def test_a_published_base_leaves_the_disk(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader")
    first = job.restore_by_blocks(5)
    job.commit({b"\0\0more": b"1"})
    made = job.merge("full")
    job.call("release", directory=first["directory"])
    base = PageReader(job, made)
    assert disk_bytes(tmp_path / "reader") < sum(map(len, base.stored.values())) / 2
    assert base.rows(made, tmp_path / "copy") == job.state
    job.commit({b"\0\0more": b"2"})
    assert PageReader(job, job.merge("incremental")).directory != base.directory


def test_files_that_the_local_cache_has_stay_whole(written: Job, tmp_path: Path) -> None:
    """Files that were kept before there was a limit are linked into bases of merges, and never get holes."""
    earlier = reader(written, tmp_path / "reader")
    directory, sparse = restored(earlier)
    wait_until_whole(earlier, directory)
    job = limited(written, tmp_path / "reader", localRecovery="true")
    assert set(job.restore_by_blocks(5)["sparse"]) == set(sparse)
    job.commit({b"\0\0more": b"1"})
    base = PageReader(job, job.merge("incremental"))
    base.read_all()
    kept = 0
    files = job.open_store.bases._bases[base.directory].files
    for name, stored in base.stored.items():
        local = job.open_store.context.cache.find(files[name].spec.path)
        if local is not None:
            kept += 1
            assert local.read_bytes() == stored
    assert kept


def test_an_agent_that_replaces_a_dead_one_knows_the_pages(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    base = PageReader(job, answer)
    base.read_all()
    before = cache_of(job).disk_bytes
    job.client = FailingStorage(tmp_path / "reader")
    job.client.call("open", store={**job.store, "held": [answer["directory"]]})
    base.read(base.names[0], 0, 10)
    job.call("ranges", directory=answer["directory"], ranges=[[base.names[0], 0, 10]])
    assert abs(cache_of(job).disk_bytes - before) <= PAGE_BYTES
    base.read_all()
    assert cache_of(job).disk_bytes <= max_bytes(job)


def test_a_base_that_could_not_be_taken_over_is_taken_over_later(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = limited(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    base = PageReader(job, answer)
    data_ranges, calls = local_file.data_ranges, itertools.count()

    def few_descriptors(path: Path, size_bytes: int) -> list[tuple[int, int]]:
        if next(calls) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return list(data_ranges(path, size_bytes))

    monkeypatch.setattr(local_file, "data_ranges", few_descriptors)
    job.client = FailingStorage(tmp_path / "reader")
    job.client.call("open", store={**job.store, "held": [answer["directory"]]})
    base.read_all()
    assert base.asked
    assert len(cache_of(job)._ring) == len(base.names)
    assert cache_of(job).disk_bytes <= max_bytes(job)


def test_the_limit_is_given_up_if_no_holes_can_be_made(
    written: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sparse, "_fallocate", lambda: None)
    job = limited(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    base = PageReader(job, answer)
    base.read_all()
    base.asked = 0
    base.read_all()
    assert base.asked == 0
    assert caplog.text.count("localDiskLimit cannot be kept") == 1
    assert base.rows(answer, tmp_path / "copy") == written.state


def test_the_tail_is_never_written_again(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader")
    base = PageReader(job, job.restore_by_blocks(5))
    for name in base.names:
        file = job.open_store.bases._bases[base.directory].files[name]
        job.client.reads.clear()
        job.call("ranges", directory=str(base.directory), ranges=[[name, file.tail_at - 10, 10]])
        assert [offset + length for offset, length in job.client.reads] == [file.tail_at]


def test_other_names_are_refused(written: Job, tmp_path: Path) -> None:
    job = limited(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    with pytest.raises(InternalError):
        job.call("ranges", directory=answer["directory"], ranges=[["CURRENT", 0, 1]])


@pytest.fixture
def suspected(written: Job, tmp_path: Path) -> Job:
    """A job that has met a damaged block: its next restore verifies all files."""
    job = limited(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    job.call("damaged", directory=answer["directory"])
    job.call("release", directory=answer["directory"])
    job.client.reads.clear()
    return job


def test_a_restore_that_verifies_all_files_keeps_to_the_limit(
    suspected: Job, written: Job, tmp_path: Path
) -> None:
    max_bytes = 0

    def measure() -> None:
        nonlocal max_bytes
        max_bytes = max(max_bytes, disk_bytes(tmp_path / "reader"))

    suspected.client.before_reads = measure
    answer = suspected.restore_by_blocks(5)
    stored_bytes = sum(map(len, PageReader(suspected, answer).stored.values()))
    assert sum(length or 0 for _, length in suspected.client.reads) >= stored_bytes
    assert 0 < max_bytes < stored_bytes / 2
    assert suspected.open_store.damage_reports.of(str(written.location)) == 0
    assert PageReader(suspected, answer).rows(answer, tmp_path / "copy") == written.state


def test_pages_that_may_be_damaged_are_not_taken_into_a_restore_that_verifies(
    written: Job, tmp_path: Path
) -> None:
    job = limited(written, tmp_path / "reader")
    first = job.restore_by_blocks(5)
    base = PageReader(job, first)
    base.read(base.names[0], 0, 10)
    with (base.directory / base.names[0]).open("r+b") as file:
        file.write(b"damaged")
    job.call("damaged", directory=first["directory"])
    again = PageReader(job, job.restore_by_blocks(5))
    assert again.local(base.names[0], 0, 7) != b"damaged"


@pytest.mark.parametrize("where", ["shared", "delta"])
def test_a_damaged_file_is_found_by_a_restore_that_verifies(
    suspected: Job, written: Job, tmp_path: Path, where: str
) -> None:
    path = max((written.location / where).iterdir())
    damage(path)
    if where == "delta":
        with pytest.raises(DamagedError, match=f"{path.name}' is damaged: its CRC-32"):
            suspected.restore_by_blocks(5)
        assert suspected.open_store.damage_reports.of(str(written.location)) > 0
    else:
        answer = suspected.restore_by_blocks(5)
        assert answer["snapshot_version"] is None
        assert PageReader(suspected, answer).rows(answer, tmp_path / "copy") == written.state


def test_without_a_limit_nothing_is_cached_by_pages(written: Job, tmp_path: Path) -> None:
    answer = reader(written, tmp_path / "reader").restore_by_blocks(5)
    assert (answer["page_bytes"], bool(answer["sparse"])) == (0, True)
    assert not list(Path(answer["directory"]).rglob("*.uses"))
