"""Pages of a sparse file arrive from several threads: none replaces what a reader may have verified."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state_store.agent.lazy import local_file
from state_store.agent.lazy.local_file import LocalFile
from state_store.core.files.sparse import SparseFile, fetch_spans, spans_of
from state_store.core.files.transfer import fetch_part, make_hole
from state_store.core.runtime import SYSTEM
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


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have ten bytes."""
    monkeypatch.setattr(local_file, "PAGE_BYTES", 10)


@pytest.fixture
def storage(tmp_path: Path) -> Changeable:
    storage = Changeable(tmp_path / "state")
    storage.write(PATH, STORED)
    return storage


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory with a file whose last ten bytes are there."""
    (tmp_path / "base").mkdir()
    make_hole(tmp_path / "base" / "a.sst", len(STORED))
    with (tmp_path / "base" / "a.sst").open("r+b") as file:
        file.seek(90)
        file.write(STORED[90:])
    return tmp_path / "base"


@pytest.fixture
def local(base: Path) -> LocalFile:
    file = SparseFile("a.sst", PATH, len(STORED), None, stretches=((90, 100),))
    return LocalFile(file, base / "a.sst", SYSTEM, file.stretches)


def fetch(local: LocalFile, storage: Changeable, start: int, end: int) -> None:
    """Fetch what is missing of a part, as a prefetch does."""
    gaps = local.gaps(start // 10, end // 10)
    with local.arriving(gaps) as aside:
        fetch_part(storage, PATH, aside, gaps[0][0], gaps[-1][1] - gaps[0][0])


def read(local: LocalFile, storage: Changeable, *parts: tuple[int, int]) -> None:
    """Fetch parts, offset and length of each, as a reader does."""
    stretches = local.stretches(parts)
    with local.arriving(stretches, [(offset, offset + length) for offset, length in parts]) as aside:
        fetch_spans(storage, list(spans_of(PATH, aside, stretches)), SYSTEM)


def content(local: LocalFile) -> bytes:
    return local.local.read_bytes()


def test_parts_come_as_whole_pages(storage: Changeable, local: LocalFile) -> None:
    read(local, storage, (15, 1), (31, 3))
    assert content(local) == bytes(10) + STORED[10:20] + bytes(10) + STORED[30:40] + bytes(50) + STORED[90:]
    assert local.gaps(0, 9) == [(0, 10), (20, 30), (40, 90)]
    assert local.missing_bytes == 70
    assert local.stretches([(95, 5), (85, 15)]) == [(80, 90)], "the tail is there"


def test_pages_between_the_parts_of_a_request_are_not_replaced(storage: Changeable, local: LocalFile) -> None:
    """The reader may have verified them."""
    read(local, storage, (10, 20))
    storage.answer = damaged
    read(local, storage, (0, 10), (30, 10))
    assert content(local)[10:30] == STORED[10:30]
    assert content(local)[:10] + content(local)[30:40] == damaged(STORED[:10] + STORED[30:40])


def test_damaged_bytes_of_a_part_do_not_replace_those_that_were_asked_for(
    storage: Changeable, local: LocalFile
) -> None:
    read(local, storage, (10, 20))
    storage.answer = damaged
    fetch(local, storage, 0, 90)
    assert content(local)[10:30] == STORED[10:30]
    assert content(local)[:10] + content(local)[30:90] == damaged(STORED[:10] + STORED[30:90])
    assert content(local)[90:] == STORED[90:]


def in_between(storage: Changeable, local: LocalFile, first: Callable[[], None]) -> None:
    """Let `first` get damaged bytes, and read ten right bytes at 10 before they come."""
    has_begun, has_read = threading.Event(), threading.Event()

    def wait(data: bytes) -> bytes:
        has_begun.set()
        assert has_read.wait(PATIENCE_S)
        return damaged(data)

    storage.answer = wait
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first)
        assert has_begun.wait(PATIENCE_S)
        storage.answer = lambda data: data
        read(local, storage, (10, 10))
        has_read.set()
        waiting.result(PATIENCE_S)


def test_a_part_that_is_under_way_leaves_pages_alone_that_came_meanwhile(
    storage: Changeable, local: LocalFile
) -> None:
    in_between(storage, local, lambda: fetch(local, storage, 0, 90))
    assert content(local)[10:20] == STORED[10:20]
    assert content(local)[:10] == damaged(STORED[:10])


def test_bytes_that_are_asked_for_do_not_replace_pages_that_came_meanwhile(
    storage: Changeable, local: LocalFile
) -> None:
    in_between(storage, local, lambda: read(local, storage, (12, 15)))
    assert content(local)[10:20] == STORED[10:20]
    assert content(local)[20:30] == damaged(STORED[20:30])


def test_a_part_that_failed_and_is_fetched_again_has_written_nothing(
    storage: Changeable, local: LocalFile
) -> None:
    storage.answer = lambda data: data[:50]
    with pytest.raises(DamagedError, match="ends at 50"):
        fetch(local, storage, 0, 90)
    assert content(local) == bytes(90) + STORED[90:]
    storage.answer = lambda data: data
    fetch(local, storage, 0, 90)
    assert content(local) == STORED


def test_bytes_that_are_asked_for_replace_damaged_ones_and_no_others(
    storage: Changeable, local: LocalFile
) -> None:
    storage.answer = damaged
    fetch(local, storage, 0, 90)
    storage.answer = lambda data: data
    read(local, storage, (13, 20), (85, 15))
    right = damaged(STORED[:13]) + STORED[13:33] + damaged(STORED[33:85]) + STORED[85:]
    assert content(local) == right


def test_a_download_leaves_no_file_of_its_own(storage: Changeable, base: Path, local: LocalFile) -> None:
    def fail(data: bytes) -> bytes:
        raise StorageError("it is down")

    fetch(local, storage, 0, 10)
    storage.answer = fail
    with pytest.raises(StorageError, match="it is down"):
        read(local, storage, (20, 10))
    assert [path.name for path in base.iterdir()] == ["a.sst"]


def test_an_agent_finds_what_another_has_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_file, "PAGE_BYTES", 4096)
    path, size = tmp_path / "a.sst", 20 * 4096
    make_hole(path, size)
    with path.open("r+b") as file:
        for page in (3, 4, 9, 18):
            file.seek(page * 4096)
            file.write(b"x" * 4096)
    spec = SparseFile("a.sst", PATH, size, None, stretches=((18 * 4096, size),))
    local = LocalFile(spec, path, SYSTEM)
    gaps = [(start // 4096, end // 4096) for start, end in local.gaps(0, 18)]
    assert gaps == [(0, 3), (5, 9), (10, 18)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 40))))
def test_stretches_are_the_pages_of_the_parts(parts: list[tuple[int, int]]) -> None:
    local = LocalFile.__new__(LocalFile)
    local.tail_at = 85
    pages = {
        offset
        for start, length in parts
        for byte in range(start, min(start + length, 85))
        for offset in range(byte // 10 * 10, min(85, byte // 10 * 10 + 10))
    }
    stretches = local.stretches(parts)
    assert sorted(pages) == [offset for start, end in stretches for offset in range(start, end)]
    assert all(stretches[i][1] < stretches[i + 1][0] for i in range(len(stretches) - 1))
