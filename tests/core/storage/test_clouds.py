"""Storage on Azure and Google Cloud Storage: the contract, on services that speak their protocols.

The command line's clients are called here, and the connectors of queries, by a JVM that serves files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import maven_jars
import pytest
from minihdfs import write_configuration

pytest.importorskip("pyarrow")

from state_store.core.storage import open_storage
from state_store.core.storage.contract import AnsweringStorage
from state_store.core.storage.hadoop import HadoopStorage, StoreFiles
from state_store.core.storage.objects import ArrowStorage, AzureStorage
from state_store.errors import MissingError, StorageError
from state_store.testing.storage import KilledWriters, StorageConformance

from .clouds import ACCOUNT, CloudService, azurite, fake_gcs
from .file_server import serving, writer
from .test_arrow import ArrowRaw

pytestmark = pytest.mark.tier("long")

_REPLACING = (
    "test_write_does_not_replace_unless_asked",
    "test_upload_does_not_replace_unless_asked",
    "test_a_reader_sees_the_old_or_the_new_file_while_it_is_replaced",
    "test_nothing_temporary_is_left",
)
"""Tests that replace a file."""


@pytest.fixture(scope="module")
def azure_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudService]:
    pytest.importorskip("azure.storage.blob")
    with azurite(tmp_path_factory.mktemp("azurite")) as service:
        yield service


@pytest.fixture(scope="module")
def gcs_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudService]:
    with fake_gcs(tmp_path_factory.mktemp("gcs")) as service:
        yield service


class TestAzure(KilledWriters):
    big_bytes = 20 << 20  # in several blocks

    @pytest.fixture(autouse=True)
    def _service(self, azure_service: CloudService, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in azure_service.environment.items():
            monkeypatch.setenv(name, value)

    def make_storage(self, tmp_path: Path) -> AzureStorage:
        opened = open_storage(f"abfss://bucket@account.dfs.core.windows.net/{uuid.uuid4()}/store")
        assert isinstance(opened, AnsweringStorage)
        assert isinstance(opened.inner, AzureStorage)
        return opened.inner

    def uri(self, storage: AzureStorage) -> str:
        return storage.location

    def put_raw(self, storage: AzureStorage, path: str, data: bytes) -> None:
        storage._container.upload_blob(storage._full(path), data, overwrite=True)

    def get_raw(self, storage: AzureStorage, path: str) -> bytes | None:
        blob = storage._container.get_blob_client(storage._full(path))
        return blob.download_blob().readall() if blob.exists() else None

    def test_marks_of_directories_are_no_files(self, storage: AzureStorage) -> None:
        """Hadoop makes such blobs; a hierarchical namespace shows its directories so."""
        for name in ("a", "b/c"):
            storage._container.upload_blob(storage._full(name), b"", metadata={"hdi_isfolder": "true"})
        self.put_raw(storage, "b/c/file", b"")
        assert storage.list_files("b") == []
        assert not storage.exists("a")
        assert storage.directories() == ["a", "b"]
        assert storage.directories("b") == ["c"]
        storage.delete_directory("b")
        assert storage.directories() == ["a"]

    def test_a_container_that_does_not_exist_is_named_with_the_fix(self) -> None:
        storage = open_storage("abfs://nowhere/store")
        for ask in (lambda: storage.read("a"), lambda: storage.list_files("a"), lambda: storage.exists("a")):
            with pytest.raises(StorageError, match=r"abfs://nowhere/store/a.*make the container"):
                ask()


class TestGcs(ArrowRaw, KilledWriters):
    big_bytes = 12 << 20

    @pytest.fixture(autouse=True)
    def _service(self, gcs_service: CloudService, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in gcs_service.environment.items():
            monkeypatch.setenv(name, value)

    def make_storage(self, tmp_path: Path) -> ArrowStorage:
        opened = open_storage(f"gs://anonymous@bucket/{uuid.uuid4()}/store")
        assert isinstance(opened, AnsweringStorage)
        assert isinstance(opened.inner, ArrowStorage)
        return opened.inner

    def uri(self, storage: ArrowStorage) -> str:
        return storage.location

    def put_raw(self, storage: ArrowStorage, path: str, data: bytes) -> None:
        with storage._filesystem.open_output_stream(storage._full(path)) as stream:
            stream.write(data)

    def test_a_bucket_that_does_not_exist_is_named_with_the_fix(self) -> None:
        storage = open_storage("gs://anonymous@nowhere/store")
        for ask in (lambda: storage.read("a"), lambda: storage.list_files("a"), lambda: storage.exists("a")):
            with pytest.raises(StorageError, match=r"nowhere/store/a.*make the bucket"):
                ask()


@dataclass(frozen=True)
class Connector:
    """A connector of Hadoop's in a JVM that serves the files below `root`."""

    root: str
    configuration: Path
    jars: list[Path]
    files: StoreFiles


def _connected(root: str, jars: list[Path], service: CloudService, room: Path) -> Iterator[Connector]:
    write_configuration(room / "core-site.xml", service.hadoop_properties)
    with serving(f"{root}/", configuration=room, jars=jars) as files:
        yield Connector(root, room, jars, files)


@pytest.fixture(scope="module")
def gcs_connector(gcs_service: CloudService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connector]:
    room = tmp_path_factory.mktemp("hadoop")
    yield from _connected("gs://bucket", maven_jars.gcs_jars(), gcs_service, room)


@pytest.fixture(scope="module")
def abfs_connector(
    azure_service: CloudService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connector]:
    root = f"abfs://bucket@{ACCOUNT}.dfs.core.windows.net"
    yield from _connected(root, maven_jars.abfs_jars(), azure_service, tmp_path_factory.mktemp("hadoop"))


class _ThroughConnector(StorageConformance):
    """The contract through a connector; the bytes past the storage go through the command line's client."""

    tells_directories = False
    exclusive_create = False
    losers_leave_files = True
    big_bytes = 12 << 20
    own_root: str
    connector: Connector

    def uri(self, storage: HadoopStorage) -> str:
        return storage.location

    def make_storage(self, tmp_path: Path) -> HadoopStorage:
        name = f"{uuid.uuid4()}/store"
        self.own = open_storage(f"{self.own_root}/{name}")
        return HadoopStorage(f"{self.connector.root}/{name}", self.connector.files)

    def writer(self, storage: HadoopStorage) -> list[str]:
        of_process = {"configuration": self.connector.configuration, "jars": self.connector.jars}
        return writer(storage.location, **of_process)

    def put_raw(self, storage: HadoopStorage, path: str, data: bytes) -> None:
        self.own.write(path, data, overwrite=True)

    def get_raw(self, storage: HadoopStorage, path: str) -> bytes | None:
        try:
            return self.own.read(path)
        except MissingError:
            return None


@pytest.mark.spark
class TestGcsConnector(_ThroughConnector, KilledWriters):
    own_root = "gs://anonymous@bucket"

    @pytest.fixture(autouse=True)
    def _service(
        self, gcs_connector: Connector, gcs_service: CloudService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.connector = gcs_connector
        for name, value in gcs_service.environment.items():
            monkeypatch.setenv(name, value)


@pytest.mark.spark
class TestAbfsConnector(_ThroughConnector):
    """Without the tests that replace a file: on ABFS a file that is there is kept (docs/storage.md)."""

    own_root = f"abfs://bucket@{ACCOUNT}.dfs.core.windows.net"

    @pytest.fixture(autouse=True)
    def _service(
        self,
        abfs_connector: Connector,
        azure_service: CloudService,
        monkeypatch: pytest.MonkeyPatch,
        request: pytest.FixtureRequest,
    ) -> None:
        if request.function.__name__ in _REPLACING:
            pytest.skip("a file that is there is kept")
        self.connector = abfs_connector
        for name, value in azure_service.environment.items():
            monkeypatch.setenv(name, value)

    def test_a_file_that_is_there_is_kept(self, storage: HadoopStorage, tmp_path: Path) -> None:
        (tmp_path / "new").write_bytes(b"new")
        storage.write("snapshot/a.zip", b"old")
        for replace in (
            lambda: storage.write("snapshot/a.zip", b"new", overwrite=True),
            lambda: storage.upload(tmp_path / "new", "snapshot/a.zip", overwrite=True),
        ):
            with pytest.raises(StorageError, match=r"snapshot/a\.zip exists, .* it is kept"):
                replace()
        assert self.get_raw(storage, "snapshot/a.zip") == b"old"
        assert self.names(storage, "snapshot") == ["a.zip"]
