"""The tests that every storage passes: subclass, give a factory, inherit the suite (needs pytest).

class TestMine(StorageConformance):
    def make_storage(self, tmp_path): return MyStorage(...)
    def put_raw(self, storage, path, data): ...   # bypasses the storage, so that both sides are checked
    def get_raw(self, storage, path): ...
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.storage.contract import Span, Storage
from state_store.errors import ConflictError, MissingError, StorageError


class StorageConformance(ABC):
    """The contract of `Storage`, method by method. Every test starts with a directory that does not exist."""

    exclusive_create = True
    """False if two concurrent writers without `overwrite` may both succeed (object stores)."""

    losers_leave_files = False
    """True if a concurrent writer that is refused may leave an unfinished file, which the cleaner sweeps."""

    tells_directories = True
    """False if the storage refuses `directories`."""

    big_bytes = 40 << 20
    """Size of a file that no storage transfers in one piece."""

    @abstractmethod
    def make_storage(self, tmp_path: Path) -> Storage:
        """Return a storage whose directory does not exist."""

    @abstractmethod
    def put_raw(self, storage: Storage, path: str, data: bytes) -> None:
        """Make a file without using the storage."""

    @abstractmethod
    def get_raw(self, storage: Storage, path: str) -> bytes | None:
        """Return the bytes of a file without using the storage; None if it does not exist."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        storage = self.make_storage(tmp_path)
        yield storage
        storage.close()

    def names(self, storage: Storage, directory: str) -> list[str]:
        return [entry.name for entry in storage.list_files(directory)]

    def test_a_new_storage_is_empty(self, storage: Storage) -> None:
        assert storage.list_files("delta") == []
        assert not storage.exists("delta/a.sst")

    def test_writes_the_bytes_given(self, storage: Storage) -> None:
        storage.write("delta/a.sst", b"abc")
        assert self.get_raw(storage, "delta/a.sst") == b"abc"
        assert storage.read("delta/a.sst") == b"abc"
        assert storage.exists("delta/a.sst")

    def test_reads_the_bytes_stored(self, storage: Storage) -> None:
        self.put_raw(storage, "delta/a.sst", b"0123456789")
        assert storage.read("delta/a.sst") == b"0123456789"
        assert [(entry.name, entry.size_bytes) for entry in storage.list_files("delta")] == [("a.sst", 10)]

    def test_an_empty_file(self, storage: Storage, tmp_path: Path) -> None:
        storage.write("shared/a.sst", b"")
        (tmp_path / "empty").write_bytes(b"")
        storage.upload(tmp_path / "empty", "shared/b.sst")
        storage.download("shared/a.sst", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == b""
        assert storage.read("shared/b.sst") == b""
        assert self.get_raw(storage, "shared/b.sst") == b""

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (3, None, b"3456789"),
            (3, 4, b"3456"),
            (8, 100, b"89"),
            (0, 0, b""),
            (10, 5, b""),
            (12, None, b""),
        ],
    )
    def test_reads_a_range(self, storage: Storage, offset: int, length: int | None, expected: bytes) -> None:
        self.put_raw(storage, "delta/a.sst", b"0123456789")
        assert storage.read("delta/a.sst", offset, length) == expected

    def test_downloads_parts_to_their_offsets(self, storage: Storage, tmp_path: Path) -> None:
        self.put_raw(storage, "shared/a.sst", b"0123456789")
        local = tmp_path / "got"
        local.write_bytes(b"-" * 12)
        for offset, length, count in ((6, 3, 3), (1, 2, 2), (8, 100, 2), (10, 5, 0), (20, 5, 0)):
            assert storage.download_spans([Span("shared/a.sst", local, ((offset, length),))]) == [count]
        assert local.read_bytes() == b"-12---6789--"
        with pytest.raises(MissingError, match=r"shared/b\.sst"):
            storage.download_spans([Span("shared/b.sst", local, ((0, 1),))])
        with pytest.raises(StorageError, match="nowhere"):
            storage.download_spans([Span("shared/a.sst", tmp_path / "nowhere", ((0, 1),))])
        assert not (tmp_path / "nowhere").exists()

    def test_downloads_pieces_of_spans_to_their_offsets(self, storage: Storage, tmp_path: Path) -> None:
        data = secrets.token_bytes(700_000)
        self.put_raw(storage, "shared/a.sst", data)
        self.put_raw(storage, "shared/b.sst", b"0123456789")
        large, small = tmp_path / "large", tmp_path / "small"
        large.write_bytes(bytes(len(data)))
        small.write_bytes(b"-" * 12)
        pieces = ((3, 10), (262_100, 100), (300_000, 300_000), (699_990, 10))
        spans = [
            Span("shared/a.sst", large, pieces),
            Span("shared/b.sst", small, ((1, 2), (6, 3))),
            Span("shared/b.sst", small, ((9, 3),)),
        ]
        assert storage.download_spans(spans) == [300_120, 5, 1]
        expected = bytearray(len(data))
        for offset, length in pieces:
            expected[offset : offset + length] = data[offset : offset + length]
        assert large.read_bytes() == expected
        assert small.read_bytes() == b"-12---6789--"
        with pytest.raises(MissingError, match=r"shared/c\.sst") as missing:
            storage.download_spans([spans[1], Span("shared/c.sst", small, ((0, 1),))])
        assert missing.value.file is not None
        assert missing.value.file.endswith("shared/c.sst")
        with pytest.raises(StorageError, match="nowhere"):
            storage.download_spans([spans[0], Span("shared/b.sst", tmp_path / "nowhere", ((0, 1),))])

    def test_a_missing_file_is_an_error_that_names_it(self, storage: Storage, tmp_path: Path) -> None:
        with pytest.raises(MissingError, match=r"delta/a\.sst"):
            storage.read("delta/a.sst")
        with pytest.raises(MissingError, match=r"delta/a\.sst"):
            storage.download("delta/a.sst", tmp_path / "got")
        assert not (tmp_path / "got").exists()

    def test_write_does_not_replace_unless_asked(self, storage: Storage) -> None:
        storage.write("delta/a.sst", b"old")
        with pytest.raises(ConflictError, match=r"delta/a\.sst"):
            storage.write("delta/a.sst", b"new")
        assert storage.read("delta/a.sst") == b"old"
        storage.write("delta/a.sst", b"newer", overwrite=True)
        assert storage.read("delta/a.sst") == b"newer"
        assert self.names(storage, "delta") == ["a.sst"]

    def test_overwrite_makes_a_missing_file(self, storage: Storage) -> None:
        storage.write("delta/a.sst", b"new", overwrite=True)
        assert self.get_raw(storage, "delta/a.sst") == b"new"

    def test_upload_does_not_replace_unless_asked(self, storage: Storage, tmp_path: Path) -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        first.write_bytes(b"old")
        second.write_bytes(b"new")
        storage.upload(first, "shared/a.sst")
        with pytest.raises(ConflictError, match=r"shared/a\.sst"):
            storage.upload(second, "shared/a.sst")
        assert self.get_raw(storage, "shared/a.sst") == b"old"
        storage.upload(second, "shared/a.sst", overwrite=True)
        storage.upload(second, "shared/a.sst", overwrite=True)
        assert self.get_raw(storage, "shared/a.sst") == b"new"
        assert self.names(storage, "shared") == ["a.sst"]
        assert second.read_bytes() == b"new"

    def test_upload_of_a_missing_file_fails(self, storage: Storage, tmp_path: Path) -> None:
        with pytest.raises((StorageError, MissingError), match="nowhere"):
            storage.upload(tmp_path / "nowhere", "shared/a.sst")
        assert storage.list_files("shared") == []

    def test_big_files_are_uploaded_and_downloaded(self, storage: Storage, tmp_path: Path) -> None:
        data = secrets.token_bytes(self.big_bytes)
        (tmp_path / "big").write_bytes(data)
        storage.upload(tmp_path / "big", "shared/a.sst")
        storage.download("shared/a.sst", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == data
        storage.write("shared/b.sst", data)
        assert storage.read("shared/b.sst") == data

    def test_download_leaves_an_existing_file_alone(self, storage: Storage, tmp_path: Path) -> None:
        self.put_raw(storage, "shared/a.sst", b"new")
        (tmp_path / "got").write_bytes(b"old")
        with pytest.raises((ConflictError, StorageError), match="got"):
            storage.download("shared/a.sst", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == b"old"

    def test_delete_removes_and_accepts_missing_files(self, storage: Storage) -> None:
        storage.write("delta/a.sst", b"abc")
        storage.delete("delta/a.sst")
        storage.delete("delta/a.sst")
        storage.delete("nowhere/a.sst")
        assert self.get_raw(storage, "delta/a.sst") is None
        assert storage.list_files("delta") == []

    def test_lists_files_by_name_and_no_directories(self, storage: Storage) -> None:
        for name in ("b", "a", "c.tmp"):
            self.put_raw(storage, f"shared/{name}", name.encode())
        self.put_raw(storage, "shared/deeper/d", b"")
        assert self.names(storage, "shared") == ["a", "b", "c.tmp"]

    def test_lists_directories(self, storage: Storage) -> None:
        if not self.tells_directories:
            with pytest.raises(StorageError, match="cannot be searched"):
                storage.directories()
            return
        assert storage.directories() == []
        self.put_raw(storage, "b/c/file", b"")
        self.put_raw(storage, "a/file", b"")
        self.put_raw(storage, "file", b"")
        assert storage.directories() == ["a", "b"]
        assert storage.directories("b") == ["c"]
        for _ in range(2):
            storage.delete_directory("b")
            assert storage.directories() == ["a"]
        assert storage.exists("a/file") and not storage.exists("b/c/file")

    def test_times_are_milliseconds_and_do_not_decrease(self, storage: Storage) -> None:
        storage.write("shared/a", b"")
        storage.write("shared/b", b"")
        first, second = storage.list_files("shared")
        assert 1_600_000_000_000 < first.modified_ms <= second.modified_ms < 10_000_000_000_000

    def test_names_with_every_character_of_the_format(self, storage: Storage) -> None:
        path = "delta/" + "0" * 19 + "7_Ab-9_empty_00c0ffee.sst"
        storage.write(path, b"x")
        storage.write("tombstone/" + path.replace("/", "."), b"{}")
        assert storage.read(path) == b"x"
        assert self.names(storage, "tombstone") == [path.replace("/", ".")]

    @pytest.mark.parametrize("path", ["", "../a", "delta/../../a", "/etc/a", "delta//a", "delta/./a"])
    def test_a_path_stays_below_the_directory(self, storage: Storage, path: str) -> None:
        with pytest.raises(StorageError, match="not a path below"):
            storage.write(path, b"")

    def test_one_of_concurrent_writers_wins(self, storage: Storage, tmp_path: Path) -> None:
        def create(number: int) -> bool:
            data = b"%d" % number
            try:
                if number % 2:
                    storage.write("snapshot/a.zip", data)
                else:
                    (tmp_path / data.decode()).write_bytes(data)
                    storage.upload(tmp_path / data.decode(), "snapshot/a.zip")
            except ConflictError:
                return False
            return True

        outcomes = _at_once(8, create)
        winners = [b"%d" % number for number, won in enumerate(outcomes) if won]
        assert len(winners) == 1 or (winners and not self.exclusive_create)
        assert storage.read("snapshot/a.zip") in winners
        names = self.names(storage, "snapshot")
        leftovers = [name for name in names if name.endswith(TEMPORARY_SUFFIX)]
        assert names == [*leftovers, "a.zip"]
        assert not leftovers or (self.losers_leave_files and len(leftovers) < len(outcomes))

    def test_a_reader_sees_the_old_or_the_new_file_while_it_is_replaced(
        self, storage: Storage, tmp_path: Path
    ) -> None:
        """The versions have different lengths: bytes of one with the length of another are seen."""
        versions = [bytes([number]) * (100_000 + 1_000 * (number * 7 % 10)) for number in range(10)]
        storage.write("snapshot/a.zip", versions[0])
        stop = threading.Event()
        wrong: list[str] = []
        counts = [0, 0]

        def watch(reader: int) -> None:
            while not stop.is_set() or not counts[reader]:
                local = tmp_path / f"got-{reader}-{counts[reader]}"
                if reader:
                    storage.download("snapshot/a.zip", local)
                data = local.read_bytes() if reader else storage.read("snapshot/a.zip")
                counts[reader] += 1
                if data not in versions:
                    wrong.append(f"{len(data)} bytes of {len(set(data))} versions")

        with ThreadPoolExecutor(2) as threads:
            watchers = [threads.submit(watch, reader) for reader in range(2)]
            try:
                for number, data in enumerate(versions[1:]):
                    if number % 2:
                        storage.write("snapshot/a.zip", data, overwrite=True)
                    else:
                        (tmp_path / f"new-{number}").write_bytes(data)
                        storage.upload(tmp_path / f"new-{number}", "snapshot/a.zip", overwrite=True)
            finally:
                stop.set()
            for watcher in watchers:
                watcher.result()
        assert not wrong, wrong

    def test_nothing_temporary_is_left(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "local").write_bytes(b"abc")
        storage.write("lease/a", b"")
        storage.write("lease/a", b"1", overwrite=True)
        storage.upload(tmp_path / "local", "lease/b")
        with pytest.raises(ConflictError):
            storage.write("lease/b", b"")
        assert self.names(storage, "lease") == ["a", "b"]


class KilledWriters(StorageConformance):
    """The contract of a storage that another process can open by its URI, with writers that are killed."""

    unfinished = rf".*{re.escape(TEMPORARY_SUFFIX)}"
    """Names, as a regular expression, of files that a writer has not finished, and leaves if it is killed."""

    @abstractmethod
    def uri(self, storage: Storage) -> str:
        """Return the URI by which `open_storage` opens the same directory in another process."""

    def writer(self, storage: Storage) -> list[str]:
        """Return the command of a process that calls `write_again_and_again` on the same directory.

        It is killed with all processes that it has started.
        """
        program = (
            "import sys; from state_store.core.storage import open_storage; "
            "from state_store.testing.storage import write_again_and_again; "
            "write_again_and_again(open_storage(sys.argv[1]))"
        )
        return [sys.executable, "-c", program, self.uri(storage)]

    def test_a_killed_writer_leaves_the_old_or_the_new_file(self, storage: Storage) -> None:
        storage.write("snapshot/a.zip", _version(0))
        for round_ in range(3):
            command = self.writer(storage)
            with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as writer:
                assert writer.stdout is not None
                lines = [writer.stdout.readline() for _ in range(2 + round_)]
                time.sleep(secrets.randbelow(20) / 1000)
                os.killpg(writer.pid, signal.SIGKILL)
            assert lines[-1], "the writer failed"
            data = storage.read("snapshot/a.zip")
            assert data == _version(data[0] if data else 0)
            names = self.names(storage, "snapshot")
            strange = [name for name in names if name != "a.zip" and not re.fullmatch(self.unfinished, name)]
            assert not strange, strange
            storage.write("snapshot/a.zip", _version(0), overwrite=True)


def _version(number: int) -> bytes:
    return bytes([number]) * (1_000_000 + 1_000 * number)


def write_again_and_again(storage: Storage) -> None:
    """Replace a file without an end, and print a line before each time: what `KilledWriters.writer` does."""
    number = 0
    while True:
        number = number % 250 + 1
        print(number, flush=True)
        storage.write("snapshot/a.zip", _version(number), overwrite=True)


def _at_once(count: int, action: Callable[[int], bool]) -> list[bool]:
    barrier = threading.Barrier(count)

    def run(number: int) -> bool:
        barrier.wait()
        return action(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))
