"""What a transfer takes from this machine, and what it reads from storage."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from state_store.errors import DamagedError
from state_store.files.local_cache import LocalCache, StoreCache
from state_store.files.transfer import Wanted, fetch, parallel, verify
from state_store.storage.local import LocalStorage

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
    with pytest.raises(ZeroDivisionError):
        parallel(4, lambda number: 1 // (number - 3), range(20))
