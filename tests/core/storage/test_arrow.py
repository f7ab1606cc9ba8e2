"""Storage on `pyarrow.fs`: the contract on its local and mock file
systems, the former also as an object store.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from pyarrow import fs

from state_store.core.storage.objects import ArrowStorage
from state_store.errors import StorageError
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


class TestFailures:
    def test_a_failed_write_leaves_nothing(self, tmp_path: Path) -> None:
        storage = ArrowStorage(fs.LocalFileSystem(), str(tmp_path / "store"))
        (tmp_path / "store" / "shared" / "a").mkdir(parents=True)
        with pytest.raises(StorageError, match="shared/a"):
            storage.write("shared/a", b"abc", overwrite=True)
        assert [path.name for path in (tmp_path / "store" / "shared").iterdir()] == ["a"]
