"""Storage on S3Proxy, a second service of S3's protocol beside `moto`: the contract, through both clients.

S3Proxy keeps objects in files or in memory, and answers several requests at once, where `moto` of these tests
answers them one after the other.
"""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import maven_jars
import pytest
from minihdfs import write_configuration
from minis3 import S3Server
from waiting import awaited

pytest.importorskip("boto3")
pytest.importorskip("pyarrow")

from benchmarks.environment import s3_service
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.contract import AnsweringStorage
from state_store.core.storage.hadoop import HadoopStorage, StoreFiles
from state_store.core.storage.objects import ArrowStorage
from state_store.errors import StorageError
from state_store.testing.storage import KilledWriters

from .file_server import serving, writer
from .test_s3 import S3Raw
from .witness import Witness

pytestmark = [pytest.mark.spark, pytest.mark.tier("long")]

_UNFINISHED = (("delta", "a.sst"), ("shared", "a.sst"), ("snapshot", "a.zip"), ("lease", "a"))
_UPLOADS = r".*-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""The names under which the service lists uploads, of files and of parts, until they end or break off."""


@pytest.fixture(scope="module", params=[s3_service.FILES, s3_service.MEMORY])
def s3_proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_service.started(tmp_path_factory.mktemp("s3proxy") / "log", request.param) as url:
        yield S3Server(port=int(url.rpartition(":")[2]))


@pytest.fixture(scope="module")
def configuration(s3_proxy: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hadoop")
    write_configuration(directory / "core-site.xml", s3_proxy.hadoop_properties)
    return directory


@pytest.fixture(scope="module")
def proxied_jvm(configuration: Path) -> Iterator[StoreFiles]:
    with serving("s3a://bucket/", configuration=configuration, jars=maven_jars.s3a_jars()) as jvm:
        yield jvm


@contextmanager
def _half_an_upload(service: S3Server, key: str) -> Iterator[None]:
    """Hold an upload open for the body that sends half of its file."""
    with socket.create_connection(("127.0.0.1", service.port)) as client:
        head = f"PUT /bucket/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2000\r\n\r\n"
        client.sendall(head.encode() + bytes(1000))
        yield


class _OnS3Proxy(S3Raw, KilledWriters):
    big_bytes = 12 << 20  # in more than one part
    unfinished = _UPLOADS

    @pytest.fixture(autouse=True)
    def _service(self, s3_proxy: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in s3_proxy.environment.items():
            monkeypatch.setenv(name, value)
        self.s3, self.prefix = s3_proxy.client(), f"stores/{uuid.uuid4()}"

    def uri(self, storage: Storage) -> str:
        return storage.location

    def test_a_store_lives_beside_uploads_that_never_end(
        self, storage: Storage, s3_proxy: S3Server, tmp_path: Path
    ) -> None:
        """The service lists them, by names that are none of the store's."""
        witness = Witness(storage, tmp_path / "witness")
        with ExitStack() as stack:
            for directory, name in _UNFINISHED:
                stack.enter_context(_half_an_upload(s3_proxy, f"{self.prefix}/{directory}/{name}"))
                listed = partial(self.names, storage, directory)
                (found,) = awaited(listed, f"{directory}/{name} in the listing")
                assert found.startswith(f"{name}-") and re.fullmatch(_UPLOADS, found)
            for number in range(1, 7):
                witness.commit()
                if number % 2 == 0:
                    witness.checkpoint(full=number == 4)
                if number % 3 == 0:
                    witness.clean_up()
            witness.check()
        assert witness.errors == []


class TestArrowOnS3Proxy(_OnS3Proxy):
    exclusive_create = False

    def make_storage(self, tmp_path: Path) -> ArrowStorage:
        opened = open_storage(f"s3://bucket/{self.prefix}")
        assert isinstance(opened, AnsweringStorage)
        assert isinstance(opened.inner, ArrowStorage)
        return opened.inner

    def test_a_bucket_that_does_not_exist_is_named_with_the_fix(self) -> None:
        storage = open_storage("s3://nowhere/store")
        for ask in (lambda: storage.read("a"), lambda: storage.list_files("a"), lambda: storage.exists("a")):
            with pytest.raises(StorageError, match=r"nowhere/store/a.*make the bucket"):
                ask()


class TestS3aOnS3Proxy(_OnS3Proxy):
    tells_directories = False

    @pytest.fixture(autouse=True)
    def _served(self, proxied_jvm: StoreFiles, configuration: Path) -> None:
        self.jvm, self.configuration = proxied_jvm, configuration

    def make_storage(self, tmp_path: Path) -> HadoopStorage:
        return HadoopStorage(f"s3a://bucket/{self.prefix}", self.jvm)

    def writer(self, storage: Storage) -> list[str]:
        return writer(storage.location, configuration=self.configuration, jars=maven_jars.s3a_jars())
