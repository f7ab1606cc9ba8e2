"""Sparse files: bytes that a reader may have verified are not written again."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_store.core.files import sparse
from state_store.core.files.sparse import Ranges, SparseBytes, SparseFile
from state_store.core.files.transfer import make_hole
from state_store.core.storage.local import LocalStorage
from state_store.errors import DamagedError, StorageError

PATH = "shared/a.sst"
STORED = bytes(range(1, 101))
PATIENCE_S = 60


class Changeable(LocalStorage):
    """Storage whose reads return the result of `answer`, which is given the right bytes."""

    def __init__(self, location: Path) -> None:
        super().__init__(location)
        self.answer: Callable[[bytes], bytes] = lambda data: data

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self.answer(super().read(path, offset, length))


def damaged(data: bytes) -> bytes:
    """Return bytes none of which is right."""
    return bytes(byte ^ 0xFF for byte in data)


@pytest.fixture
def storage(tmp_path: Path) -> Changeable:
    storage = Changeable(tmp_path / "state")
    storage.write(PATH, STORED)
    return storage


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    make_hole(tmp_path / "base" / "a.sst", len(STORED))
    return tmp_path / "base"


@pytest.fixture
def local(base: Path) -> SparseBytes:
    return SparseBytes(SparseFile("a.sst", PATH, len(STORED), None), base)


def test_bytes_between_the_pieces_of_a_request_are_not_replaced(
    storage: Changeable, base: Path, local: SparseBytes
) -> None:
    """The reader may have verified them."""
    assert local.fetch_again(storage, [(10, 20)]) == 20
    storage.answer = damaged
    assert local.fetch_again(storage, [(0, 10), (30, 5), (90, 50)]) == 25
    assert local.fetch_again(storage, [(100, 5)]) == 0
    found = (base / "a.sst").read_bytes()
    assert found[10:30] == STORED[10:30]
    assert found[:10] + found[30:35] + found[90:] == damaged(STORED[:10] + STORED[30:35] + STORED[90:])
    assert not any(found[35:90])


def test_damaged_bytes_of_a_part_do_not_replace_those_that_were_asked_for(
    storage: Changeable, base: Path, local: SparseBytes
) -> None:
    assert local.fetch_again(storage, [(10, 20)]) == 20
    storage.answer = damaged
    assert local.fetch(storage, 0, 100) == 100
    found = (base / "a.sst").read_bytes()
    assert found[10:30] == STORED[10:30]
    assert found[:10] + found[30:] == damaged(STORED[:10] + STORED[30:])


def test_a_part_that_is_under_way_leaves_bytes_alone_that_were_asked_for_meanwhile(
    storage: Changeable, base: Path, local: SparseBytes
) -> None:
    has_begun, asked = threading.Event(), threading.Event()

    def wait(data: bytes) -> bytes:
        has_begun.set()
        assert asked.wait(PATIENCE_S)
        return damaged(data)

    storage.answer = wait
    with ThreadPoolExecutor(1) as pool:
        part = pool.submit(local.fetch, storage, 0, 100)
        assert has_begun.wait(PATIENCE_S)
        storage.answer = lambda data: data
        local.fetch_again(storage, [(10, 20)])
        asked.set()
        part.result(PATIENCE_S)
    assert (base / "a.sst").read_bytes()[10:30] == STORED[10:30]


def test_a_part_that_failed_and_is_fetched_again_has_written_nothing(
    storage: Changeable, base: Path, local: SparseBytes
) -> None:
    storage.answer = lambda data: data[:50]
    with pytest.raises(DamagedError, match="ends at 50"):
        local.fetch(storage, 0, 100)
    assert (base / "a.sst").read_bytes() == bytes(100)
    storage.answer = lambda data: data
    local.fetch(storage, 0, 100)
    assert (base / "a.sst").read_bytes() == STORED


def test_bytes_that_are_asked_for_replace_damaged_ones(
    storage: Changeable, base: Path, local: SparseBytes
) -> None:
    storage.answer = damaged
    local.fetch(storage, 0, 100)
    storage.answer = lambda data: data
    local.fetch_again(storage, [(10, 20)])
    assert (base / "a.sst").read_bytes() == damaged(STORED[:10]) + STORED[10:30] + damaged(STORED[30:])


def test_bytes_that_are_asked_for_do_not_replace_those_that_arrived_meanwhile(
    storage: Changeable, base: Path, local: SparseBytes
) -> None:
    has_begun, arrived = threading.Event(), threading.Event()

    def wait(data: bytes) -> bytes:
        has_begun.set()
        assert arrived.wait(PATIENCE_S)
        return damaged(data)

    storage.answer = wait
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(local.fetch_again, storage, [(10, 20)])
        assert has_begun.wait(PATIENCE_S)
        storage.answer = lambda data: data
        local.fetch(storage, 15, 5)
        arrived.set()
        asked.result(PATIENCE_S)
    found = (base / "a.sst").read_bytes()[10:30]
    assert found == damaged(STORED[10:15]) + STORED[15:20] + damaged(STORED[20:30])


def test_a_download_leaves_no_file_of_its_own(storage: Changeable, base: Path, local: SparseBytes) -> None:
    def fail(data: bytes) -> bytes:
        raise StorageError("it is down")

    local.fetch(storage, 90, 100)
    storage.answer = fail
    with pytest.raises(StorageError, match="it is down"):
        local.fetch_again(storage, [(0, 10)])
    assert [path.name for path in base.iterdir()] == ["a.sst"]


@pytest.fixture
def inherited(base: Path, monkeypatch: pytest.MonkeyPatch) -> SparseBytes:
    """A file of which an earlier process has placed some bytes and the tail."""
    monkeypatch.setattr(sparse, "_MIN_END_BYTES", 5)
    (base / "a.sst").write_bytes(bytes(10) + STORED[10:30] + bytes(65) + STORED[95:])
    file = SparseFile("a.sst", PATH, len(STORED), hashlib.sha256(STORED).hexdigest())
    return SparseBytes(file, base, is_inherited=True)


def test_parts_of_an_inherited_file_stay_aside_until_they_are_the_right_file(
    storage: Changeable, base: Path, inherited: SparseBytes
) -> None:
    before = (base / "a.sst").read_bytes()
    inherited.fetch(storage, 0, 50)
    inherited.fetch(storage, 50, 45)
    assert (base / "a.sst").read_bytes() == before
    assert inherited.difference() is None
    assert (base / "a.sst").read_bytes() == STORED
    assert [path.name for path in base.iterdir()] == ["a.sst"]


def test_damaged_parts_of_an_inherited_file_replace_nothing(
    storage: Changeable, base: Path, inherited: SparseBytes
) -> None:
    before = (base / "a.sst").read_bytes()
    inherited.fetch(storage, 0, 50)
    storage.answer = damaged
    inherited.fetch(storage, 50, 45)
    assert "SHA-256" in (inherited.difference() or "")
    assert (base / "a.sst").read_bytes() == before
    assert [path.name for path in base.iterdir()] == ["a.sst"]


def test_bytes_of_an_inherited_file_that_are_asked_for_come_to_their_places_at_once(
    storage: Changeable, base: Path, inherited: SparseBytes
) -> None:
    inherited.fetch_again(storage, [(40, 10)])
    assert (base / "a.sst").read_bytes()[40:50] == STORED[40:50]


def test_damaged_bytes_that_were_asked_for_do_not_replace_a_file_that_became_whole_meanwhile(
    storage: Changeable, base: Path, inherited: SparseBytes
) -> None:
    has_begun, is_whole = threading.Event(), threading.Event()

    def wait(data: bytes) -> bytes:
        has_begun.set()
        assert is_whole.wait(PATIENCE_S)
        return damaged(data)

    storage.answer = wait
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(inherited.fetch_again, storage, [(40, 10)])
        assert has_begun.wait(PATIENCE_S)
        storage.answer = lambda data: data
        inherited.fetch(storage, 0, 95)
        assert inherited.difference() is None
        is_whole.set()
        asked.result(PATIENCE_S)
    assert (base / "a.sst").read_bytes() == STORED


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))), st.integers(0, 30), st.integers(0, 30))
def test_gaps_are_the_offsets_that_were_not_added(added: list[tuple[int, int]], start: int, end: int) -> None:
    ranges = Ranges()
    for part in added:
        ranges.add(*part)
    left = set(range(start, end)) - {offset for part in added for offset in range(*part)}
    gaps = ranges.gaps(start, end)
    assert [offset for gap in gaps for offset in range(*gap)] == sorted(left)
    assert all(gaps[i][1] < gaps[i + 1][0] for i in range(len(gaps) - 1))
