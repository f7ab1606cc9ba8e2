"""Storage through a real JVM: Spark's checkpoint file manager, on a real HDFS and on a directory."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import scala_jars
from minihdfs import HdfsCluster, hdfs_cluster  # noqa: F401 -- a fixture

from state_store.agent.files import FileConnections, StoreFiles
from state_store.agent.frames import read_frame, write_frame
from state_store.errors import StorageError
from state_store.storage import open_storage
from state_store.storage.conformance import StorageConformance
from state_store.storage.hadoop import HadoopStorage
from state_store.storage.webhdfs import WebHdfsStorage

pytestmark = pytest.mark.spark

_MAIN = "org.apache.spark.sql.execution.streaming.state.incremental.probe.FileServer"


@pytest.fixture(scope="session")
def file_server_classes() -> str:
    """The class path of the file server."""
    return scala_jars.probes_class_path()


@contextmanager
def serving(class_path: str, root: str, configuration: Path | None = None) -> Iterator[StoreFiles]:
    """A JVM that serves the files at `root`."""
    with (
        tempfile.TemporaryDirectory(prefix="bridge-") as directory,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = f"{directory}/s"
        listener.bind(path)
        listener.listen(1)
        listener.settimeout(120)
        extra = f"{configuration}:" if configuration else ""
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", extra + class_path, _MAIN, path, "token", root]
        with open(f"{directory}/log", "w+b") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ})
        try:
            channel, _ = listener.accept()
            with channel:
                assert read_frame(channel) == ({"token": "token", "for": "files"}, b"")
                write_frame(channel, {"ok": {}})
                connections = FileConnections()
                connections.lend(channel)
                yield StoreFiles(connections, 1)
            process.wait(60)
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def hdfs_jvm(hdfs_cluster: HdfsCluster, file_server_classes: str) -> Iterator[StoreFiles]:  # noqa: F811
    with serving(file_server_classes, hdfs_cluster.uri, hdfs_cluster.configuration) as jvm:
        yield jvm


@pytest.fixture(scope="module")
def local_jvm(file_server_classes: str) -> Iterator[StoreFiles]:
    with serving(file_server_classes, "file:/") as jvm:
        yield jvm


@pytest.mark.hdfs
class TestOnHdfs(StorageConformance):
    tells_directories = False

    @pytest.fixture(autouse=True)
    def _served(self, hdfs_jvm: StoreFiles, hdfs_cluster: HdfsCluster) -> None:  # noqa: F811
        self.jvm, self.cluster = hdfs_jvm, hdfs_cluster

    def make_storage(self, tmp_path: Path) -> HadoopStorage:
        self.path = f"/bridge/{uuid.uuid4()}"
        storage = open_storage(f"{self.cluster.uri}{self.path}", jvm=self.jvm)
        assert isinstance(storage, HadoopStorage)
        return storage

    def put_raw(self, storage: HadoopStorage, path: str, data: bytes) -> None:
        self._raw().write(path, data)

    def get_raw(self, storage: HadoopStorage, path: str) -> bytes | None:
        raw = self._raw()
        return raw.read(path) if raw.exists(path) else None

    def _raw(self) -> WebHdfsStorage:
        return WebHdfsStorage([self.cluster.web], self.path)


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

    def test_what_fails_names_the_file(self, storage: HadoopStorage) -> None:
        self.put_raw(storage, "delta", b"")
        with pytest.raises(StorageError, match="store/delta"):
            storage.write("delta/a", b"")
