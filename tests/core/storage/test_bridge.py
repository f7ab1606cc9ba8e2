"""Storage through a real JVM: Spark's checkpoint file manager, on a real HDFS and on a directory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from minihdfs import HdfsCluster, write_configuration

from state_store.core.storage import hadoop, open_storage
from state_store.core.storage.hadoop import HadoopStorage, StoreFiles
from state_store.core.storage.webhdfs import WebHdfsStorage
from state_store.errors import StorageError
from state_store.testing.storage import KilledWriters, StorageConformance

from .file_server import serving, writer

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def local_jvm() -> Iterator[StoreFiles]:
    # One at a time: Hadoop's local file system replaces a file in two steps. Stores do not use it.
    with serving("file:/", connections=1) as jvm:
        yield jvm


@pytest.mark.hdfs
class TestOnHdfs(KilledWriters):
    losers_leave_files = True  # Spark's stream gives its temporary file up when the rename is refused
    tells_directories = False

    @pytest.fixture(autouse=True)
    def _served(self, hdfs_jvm: StoreFiles, hdfs_cluster: HdfsCluster) -> None:
        self.jvm, self.cluster = hdfs_jvm, hdfs_cluster

    def make_storage(self, tmp_path: Path) -> HadoopStorage:
        self.path = f"/bridge/{uuid.uuid4()}"
        storage = open_storage(f"{self.cluster.uri}{self.path}", jvm=self.jvm)
        assert isinstance(storage, HadoopStorage)
        return storage

    def uri(self, storage: HadoopStorage) -> str:
        return storage.location

    def writer(self, storage: HadoopStorage) -> list[str]:
        return writer(storage.location)

    @pytest.mark.tier("more")
    def test_a_killed_writer_leaves_the_old_or_the_new_file(self, storage: HadoopStorage) -> None:
        super().test_a_killed_writer_leaves_the_old_or_the_new_file(storage)

    def put_raw(self, storage: HadoopStorage, path: str, data: bytes) -> None:
        self._raw().write(path, data)

    def get_raw(self, storage: HadoopStorage, path: str) -> bytes | None:
        raw = self._raw()
        return raw.read(path) if raw.exists(path) else None

    def _raw(self) -> WebHdfsStorage:
        return WebHdfsStorage([self.cluster.web], self.path)


@pytest.mark.tier("long")
def test_a_file_manager_that_does_not_replace_is_found_out(hdfs_cluster: HdfsCluster, tmp_path: Path) -> None:
    manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    properties = {"spark.sql.streaming.checkpointFileManagerClass": manager}
    write_configuration(tmp_path / "core-site.xml", properties)
    location = f"{hdfs_cluster.uri}/bridge/{uuid.uuid4()}"
    with serving(location, configuration=tmp_path) as jvm:
        storage = open_storage(location, jvm=jvm)
        storage.write("delta/a", b"old", overwrite=True)
        with pytest.raises(
            StorageError, match=r"delta/a was not replaced.*FileSystemBasedCheckpointFileManager"
        ):
            storage.write("delta/a", b"new", overwrite=True)
        assert storage.read("delta/a") == b"old"
        storage.write("delta/b", b"new", overwrite=True)
        finished = [entry.name for entry in storage.list_files("delta") if not entry.name.endswith(".tmp")]
        assert finished == ["a", "b"]


@pytest.mark.tier("long")
def test_reads_from_observers_are_refused(tmp_path: Path) -> None:
    service = {
        "dfs.nameservices": "ours",
        "dfs.ha.namenodes.ours": "a",
        "dfs.namenode.rpc-address.ours.a": "127.0.0.1:1",
        "dfs.client.failover.max.attempts": "1",
        "dfs.client.failover.proxy.provider.ours": (
            "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider"
        ),
    }
    period = {"dfs.client.failover.observer.auto-msync-period.ours": "0"}
    for properties, said in (
        (service, "from observers.*set dfs"),
        ({**service, **period}, "Connection refused"),
    ):
        write_configuration(tmp_path / "core-site.xml", properties)
        with serving("hdfs://ours/", configuration=tmp_path) as jvm:
            storage = open_storage("hdfs://ours/store", jvm=jvm)
            with pytest.raises(StorageError, match=f"hdfs://ours/store/delta.*{said}"):
                storage.list_files("delta")


class TestOnADirectory(StorageConformance):
    tells_directories = False

    @pytest.fixture(autouse=True)
    def _served(self, local_jvm: StoreFiles) -> None:
        self.jvm = local_jvm

    def make_storage(self, tmp_path: Path) -> HadoopStorage:
        self.directory = tmp_path / "with a space" / "store"
        return HadoopStorage(f"file:{self.directory}", self.jvm)

    def put_raw(self, storage: HadoopStorage, path: str, data: bytes) -> None:
        target = self.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def get_raw(self, storage: HadoopStorage, path: str) -> bytes | None:
        target = self.directory / path
        return target.read_bytes() if target.is_file() else None

    def test_a_failed_call_names_the_file(self, storage: HadoopStorage) -> None:
        self.put_raw(storage, "delta", b"")
        with pytest.raises(StorageError, match="store/delta"):
            storage.write("delta/a", b"")

    @pytest.mark.parametrize("files", [9, 10])
    def test_a_listing_in_pages_has_each_file_once(
        self, storage: HadoopStorage, monkeypatch: pytest.MonkeyPatch, files: int
    ) -> None:
        """Also where the last page is full."""
        monkeypatch.setattr(hadoop, "PAGE_ENTRIES", 3)
        for number in range(files):
            self.put_raw(storage, f"delta/{number}", b"x" * number)
        found = [(entry.name, entry.size_bytes) for entry in storage.list_files("delta")]
        assert found == [(str(number), number) for number in range(files)]
