"""Storage on Azure and Google Cloud Storage: the contract, on services that speak their protocols."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from state_store.core.storage import open_storage
from state_store.core.storage.contract import AnsweringStorage
from state_store.core.storage.objects import ArrowStorage, AzureStorage
from state_store.errors import StorageError
from state_store.testing.storage import KilledWriters

from .clouds import CloudService, azurite, fake_gcs
from .test_arrow import ArrowRaw

pytestmark = pytest.mark.tier("long")


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
