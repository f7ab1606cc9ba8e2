"""Storage on `pyarrow.fs`: the contract on its local and mock file
systems, the former also as an object store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from pyarrow import fs

from state_store.core.storage.objects import ArrowStorage
from state_store.errors import MissingError, StorageError
from state_store.testing.storage import StorageConformance


class ArrowRaw(StorageConformance):
    """Bytes past the storage, by its own client."""

    exclusive_create = False

    def put_raw(self, storage: ArrowStorage, path: str, data: bytes) -> None:
        full = storage._full(path)
        storage._filesystem.create_dir(full.rpartition("/")[0], recursive=True)
        with storage._filesystem.open_output_stream(full) as stream:
            stream.write(data)

    def get_raw(self, storage: ArrowStorage, path: str) -> bytes | None:
        full = storage._full(path)
        if storage._filesystem.get_file_info(full).type != fs.FileType.File:
            return None
        with storage._filesystem.open_input_stream(full) as stream:
            return stream.read()


class TestArrowStorageOnDisk(ArrowRaw):
    def make_storage(self, tmp_path: Path) -> ArrowStorage:
        return ArrowStorage(fs.LocalFileSystem(), str(tmp_path / "store"))


class TestArrowStorageInMemory(ArrowRaw):
    def make_storage(self, tmp_path: Path) -> ArrowStorage:
        return ArrowStorage(fs._MockFileSystem(), "bucket/store")


GONE = [FileNotFoundError("404"), ValueError("I/O operation on closed file")]
"""The ways in which `pyarrow` fails to read a version of an object of GCS that was replaced."""


@pytest.mark.parametrize("failure", GONE)
class TestReplacements:
    def test_a_read_begins_again_with_the_new_version(self, tmp_path: Path, failure: Exception) -> None:
        storage = ArrowStorage(_Gcs(failure, times=2), "bucket")
        assert storage.read("a") == b"new"
        storage = ArrowStorage(_Gcs(failure, times=2), "bucket")
        storage.download("a", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == b"new"

    def test_a_file_that_is_always_replaced_is_not_missing(self, failure: Exception) -> None:
        files = _Gcs(failure, times=99)
        storage = ArrowStorage(files, "bucket")
        with pytest.raises(StorageError, match="replaced while it was read"):
            storage.read("a")
        files.delete_file("bucket/a")
        with pytest.raises(MissingError, match="a' does not exist"):
            storage.read("a")


class _Gcs:
    """A bucket in memory with the file `a`, which fails some times as `GcsFileSystem` does."""

    type_name = "gcs"

    def __init__(self, failure: Exception, *, times: int) -> None:
        self._files, self._failure, self._left = fs._MockFileSystem(), failure, times
        self._files.create_dir("bucket")
        with self._files.open_output_stream("bucket/a") as stream:
            stream.write(b"new")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_input_file(self, path: str) -> Any:
        file = self._files.open_input_file(path)
        self._left -= 1
        if self._left >= 0:
            raise self._failure
        return file

    open_input_stream = open_input_file


class TestFailures:
    def test_a_failed_write_leaves_nothing(self, tmp_path: Path) -> None:
        storage = ArrowStorage(fs.LocalFileSystem(), str(tmp_path / "store"))
        (tmp_path / "store" / "shared" / "a").mkdir(parents=True)
        with pytest.raises(StorageError, match="shared/a"):
            storage.write("shared/a", b"abc", overwrite=True)
        assert [path.name for path in (tmp_path / "store" / "shared").iterdir()] == ["a"]
