"""Transfers: files that come from this machine, and files that come from storage."""

from __future__ import annotations

import errno
import threading
import time
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from faults import FaultyStorage, Schedule, damaged_read, fail_at, once, short_read, unavailable
from waiting import PATIENCE_S

from state_store.core.files import transfer
from state_store.core.files.transfer import Wanted, fetch, parallel, parts_of, verify
from state_store.core.files.workspace import LocalCache, StoreCache
from state_store.core.runtime import Running, SystemRuntime
from state_store.core.storage.contract import NEVER, BoundedStorage
from state_store.core.storage.local import LocalStorage
from state_store.errors import DamagedError, StorageError

PATH = "delta/00000000000000000001.sst"
STORED, KEPT = b"what is stored", b"what was kept!"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path / "state")
    storage.write(PATH, STORED)
    return storage


@pytest.fixture
def cache(tmp_path: Path) -> StoreCache:
    """Has another file under that path."""
    cache = LocalCache(tmp_path / "kept", 1 << 20).store("here")
    (tmp_path / "local").write_bytes(KEPT)
    cache.keep(PATH, tmp_path / "local")
    assert cache.find(PATH)
    return cache


def test_a_local_copy_that_cannot_be_checked_is_not_taken(
    storage: LocalStorage, cache: StoreCache, tmp_path: Path
) -> None:
    wanted = Wanted(PATH, len(STORED), tmp_path / "target")
    assert fetch(storage, cache, [wanted], 1).local_files == 0
    assert verify(storage, cache, [wanted], 1) == []
    assert wanted.target.read_bytes() == STORED


def test_a_local_copy_that_is_another_file_is_dropped_with_a_warning(
    storage: LocalStorage, cache: StoreCache, tmp_path: Path
) -> None:
    wanted = Wanted(PATH, len(STORED), tmp_path / "target", crc32=zlib.crc32(STORED))
    assert fetch(storage, cache, [wanted], 1).local_files == 1
    (warning,) = verify(storage, cache, [wanted], 1)
    assert PATH in warning
    assert wanted.target.read_bytes() == STORED
    kept = cache.find(PATH)
    assert kept and kept.read_bytes() == STORED


@pytest.mark.parametrize("thorough", [True, False])
def test_a_local_copy_that_the_disk_cannot_read_any_more_is_dropped(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    cache = LocalCache(tmp_path / "kept", 1 << 20).store("here")
    (tmp_path / "local").write_bytes(STORED)
    cache.keep(PATH, tmp_path / "local")
    wanted = Wanted(
        PATH,
        len(STORED),
        tmp_path / "target",
        sha256=sha256(STORED).hexdigest(),
        tail_bytes=4,
        tail_sha256=sha256(STORED[-4:]).hexdigest(),
    )
    assert fetch(storage, cache, [wanted], 1).local_files == 1
    bad = wanted.target.stat().st_ino
    for name in ("sha256_of", "read_end"):
        monkeypatch.setattr(transfer, name, unreadable(bad, getattr(transfer, name)))
    (warning,) = verify(storage, cache, [wanted], 1, thorough=thorough)
    assert f"local copy of '{PATH}' was damaged (it cannot be read: Input/output error)" in warning
    assert wanted.target.stat().st_ino != bad
    kept = cache.find(PATH)
    assert kept and kept.stat().st_ino != bad


def unreadable(inode: int, read: Callable[..., Any]) -> Callable[..., Any]:
    def tried(path: Path, *arguments: object) -> Any:
        if path.stat().st_ino == inode:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path, *arguments)

    return tried


def test_a_local_copy_is_taken_where_the_stored_file_is_cut_off(
    storage: LocalStorage, cache: StoreCache, tmp_path: Path
) -> None:
    """The size is that of the damaged file; the checksum is the name's."""
    wanted = Wanted(PATH, 3, tmp_path / "target", crc32=zlib.crc32(KEPT))
    fetch(storage, cache, [wanted], 1)
    (warning,) = verify(storage, cache, [wanted], 1)
    assert f"'{PATH}' has 3 bytes in checkpoint storage instead of {len(KEPT)}" in warning
    assert wanted.target.read_bytes() == KEPT
    assert cache.find(PATH)


def test_a_stored_file_that_is_another_is_an_error_that_names_it(
    storage: LocalStorage, tmp_path: Path
) -> None:
    cache = LocalCache(tmp_path / "empty", 1 << 20).store("here")
    wanted = Wanted(PATH, len(STORED), tmp_path / "target", crc32=zlib.crc32(KEPT))
    fetch(storage, cache, [wanted], 1)
    with pytest.raises(DamagedError) as failure:
        verify(storage, cache, [wanted], 1)
    assert failure.value.file == f"{storage.location}/{PATH}"
    assert cache.find(PATH) is None


def test_a_local_copy_of_another_length_is_another_file_though_its_end_is_the_same(
    storage: LocalStorage, tmp_path: Path
) -> None:
    (tmp_path / "longer").write_bytes(b"more than " + STORED)
    cache = LocalCache(tmp_path / "kept", 1 << 20).store("here")
    cache.keep(PATH, tmp_path / "longer")
    wanted = with_end(tmp_path / "target")
    fetched = fetch(storage, cache, [wanted], 1)
    (warning,) = verify(storage, cache, [wanted], 1, thorough=False, local=fetched.local)
    assert fetched.local == {PATH} and PATH in warning
    assert wanted.target.read_bytes() == STORED


def test_a_fetched_file_is_kept_once_its_end_was_compared(storage: LocalStorage, tmp_path: Path) -> None:
    cache = LocalCache(tmp_path / "empty", 1 << 20).store("here")
    wanted = with_end(tmp_path / "target")
    fetched = fetch(storage, cache, [wanted], 1)
    assert cache.find(PATH) is None
    verify(storage, cache, [wanted], 1, thorough=False, local=fetched.local)
    kept = cache.find(PATH)
    assert kept and kept.read_bytes() == STORED


def with_end(target: Path) -> Wanted:
    """Return a stored file whose SHA-256 is known, and that of its last four bytes."""
    return Wanted(
        PATH,
        len(STORED),
        target,
        sha256=sha256(STORED).hexdigest(),
        tail_bytes=4,
        tail_sha256=sha256(STORED[-4:]).hexdigest(),
    )


def test_files_of_another_size_are_damaged_even_without_a_checksum(
    storage: LocalStorage, tmp_path: Path
) -> None:
    cache = LocalCache(tmp_path / "empty", 1 << 20).store("here")
    wanted = Wanted(PATH, len(STORED) + 1, tmp_path / "target")
    fetch(storage, cache, [wanted], 1)
    with pytest.raises(DamagedError, match=f"{len(STORED)} bytes instead of {len(STORED) + 1}"):
        verify(storage, cache, [wanted], 1)


def test_parallel_work_keeps_its_order_and_raises_the_first_failure() -> None:
    assert parallel(4, lambda number: number * 2, range(20)) == [number * 2 for number in range(20)]
    later_has_failed = threading.Event()

    def fail(number: int) -> None:
        if number == 3:
            later_has_failed.wait()
            raise ValueError(number)
        if number == 4:
            try:
                raise ValueError(number)
            finally:
                later_has_failed.set()

    with pytest.raises(ValueError, match=r"^3$"):
        parallel(4, fail, range(20))


class Interrupted(SystemRuntime):
    """A runtime whose user presses Ctrl-C while it starts a thread, once the thread works."""

    def __init__(self) -> None:
        self.works = threading.Event()
        self.threads: list[Running] = []

    def start(self, work: Callable[[], object], *, name: str) -> Running:
        self.threads.append(super().start(work, name=name))
        assert self.works.wait(PATIENCE_S)
        raise KeyboardInterrupt


@pytest.mark.parametrize("way", ["parallel", "background"])
def test_no_work_goes_on_after_an_interrupt_while_a_thread_starts(way: str) -> None:
    runtime, started, done = Interrupted(), [], []

    def work(number: int = 0) -> None:
        started.append(number)
        runtime.works.set()
        time.sleep(0.2)
        done.append(number)

    with pytest.raises(KeyboardInterrupt):
        if way == "parallel":
            parallel(4, work, range(20), runtime=runtime)
        else:
            transfer.Background(work, runtime=runtime)
    assert done and started == done
    for thread in runtime.threads:
        thread.join()
    assert started == done


# ---- large files, in parts -------------------------------------------------------------------------------

LARGE = bytes(range(250)) * 5
"""Twelve parts and a half."""


@pytest.mark.parametrize("size_bytes", [1, 99, 101, 149, 150, 1249, 1250, 1251, 8000])
def test_parts_are_about_as_long_as_each_other(size_bytes: int) -> None:
    """A table is a little longer than the part that RocksDB ends it at: the rest is worth no request."""
    parts = parts_of(size_bytes, 100)
    assert [offset for offset, _ in parts] == [
        sum(length for _, length in parts[:n]) for n in range(len(parts))
    ]
    assert sum(length for _, length in parts) == size_bytes
    assert max(length for _, length in parts) <= 150
    assert len(parts) == 1 or min(length for _, length in parts) >= 60


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PART_BYTES", 100)


def remote(storage: LocalStorage, schedule: Schedule | None = None) -> FaultyStorage:
    storage.write("shared/large.sst", LARGE)
    return FaultyStorage(storage, schedule)


def large(tmp_path: Path) -> Wanted:
    return Wanted("shared/large.sst", len(LARGE), tmp_path / "large", crc32=zlib.crc32(LARGE))


@pytest.fixture
def empty(tmp_path: Path) -> StoreCache:
    return LocalCache(tmp_path / "empty", 1 << 20).store("here")


@pytest.mark.usefixtures("parts")
def test_a_large_file_comes_in_parts_several_at_a_time(
    storage: LocalStorage, empty: StoreCache, tmp_path: Path
) -> None:
    at_once = threading.Barrier(4)

    def together(operation: str, path: str) -> None:
        if path.startswith("shared/") and source.reads < 12:
            source.reads += 1
            at_once.wait(600)

    source = remote(storage, together)
    source.reads = 0
    small = Wanted(PATH, len(STORED), tmp_path / "small", crc32=zlib.crc32(STORED))
    fetched = fetch(source, empty, [small, large(tmp_path)], 4)
    assert (fetched.files, fetched.size_bytes) == (2, len(STORED) + len(LARGE))
    assert (tmp_path / "large").read_bytes() == LARGE
    assert (tmp_path / "small").read_bytes() == STORED
    asked = [operation for operation, _ in source.calls]
    assert (asked.count("read"), asked.count("download")) == (13, 1)
    assert verify(source, empty, [large(tmp_path)], 4) == []


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("fault", [unavailable, short_read])
def test_a_part_that_fails_once_is_fetched_again(
    storage: LocalStorage, empty: StoreCache, tmp_path: Path, fault: Callable[..., object]
) -> None:
    source = remote(storage, once("read", "shared/", fault, nth=3))
    fetch(source, empty, [large(tmp_path)], 4)
    assert (tmp_path / "large").read_bytes() == LARGE
    assert len(source.calls) == 14


@pytest.mark.usefixtures("parts")
def test_a_part_that_fails_twice_fails_the_file(
    storage: LocalStorage, empty: StoreCache, tmp_path: Path
) -> None:
    source = remote(storage, fail_at("read", "shared/", nth=5, message="it is down"))
    other = Wanted("shared/other.sst", 300, tmp_path / "other", crc32=0)
    with pytest.raises(StorageError, match="it is down"):
        fetch(source, empty, [large(tmp_path), other], 4)
    assert not (tmp_path / "large").exists()
    assert not (tmp_path / "other").exists()
    assert len(source.calls) <= 4 + 2 * 4


@pytest.mark.usefixtures("parts")
def test_a_stored_file_that_lacks_parts_is_damaged(
    storage: LocalStorage, empty: StoreCache, tmp_path: Path
) -> None:
    source = remote(storage)
    longer = Wanted("shared/large.sst", len(LARGE) + 200, tmp_path / "large", crc32=1)
    with pytest.raises(DamagedError, match=r"large\.sst' is damaged: it ends at 1250, and not at 1261"):
        fetch(source, empty, [longer], 4)
    assert not (tmp_path / "large").exists()


@pytest.mark.usefixtures("parts")
def test_a_part_that_is_damaged_on_its_way_is_found_and_read_again(
    storage: LocalStorage, empty: StoreCache, tmp_path: Path
) -> None:
    source = remote(storage, once("read", "shared/", damaged_read, nth=7))
    wanted = large(tmp_path)
    fetch(source, empty, [wanted], 4)
    assert wanted.target.read_bytes() != LARGE
    assert empty.find(wanted.path) is None
    (warning,) = verify(source, empty, [wanted], 4)
    assert "first download of 'shared/large.sst' was damaged" in warning
    assert wanted.target.read_bytes() == LARGE


@pytest.mark.usefixtures("parts")
def test_a_large_file_of_local_storage_is_linked(
    storage: LocalStorage, empty: StoreCache, tmp_path: Path
) -> None:
    storage.write("shared/large.sst", LARGE)
    fetch(BoundedStorage(storage, NEVER), empty, [large(tmp_path)], 4)
    assert (tmp_path / "large").stat().st_nlink == 2
