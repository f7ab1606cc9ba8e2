"""Storage on S3, through `pyarrow.fs` and through Hadoop's S3A: the contract, and a service that fails."""

from __future__ import annotations

import _thread
import os
import random
import shutil
import subprocess
import sys
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import maven_jars
import minis3
import pytest
from minihdfs import write_configuration
from minis3 import (
    Fault,
    S3Server,
    Schedule,
    broken_off,
    in_reverse,
    lost_answer,
    status,
)

from state_store.core.files.transfer import PART_BYTES, Wanted, fetch
from state_store.core.files.workspace import LocalCache
from state_store.core.storage import Storage, open_storage
from state_store.core.storage.contract import AnsweringStorage, Span
from state_store.core.storage.hadoop import HadoopStorage, StoreFiles
from state_store.core.storage.objects import ArrowStorage
from state_store.errors import ConflictError, StateStoreError, StorageError, UnknownOutcomeError
from state_store.testing.storage import KilledWriters, StorageConformance

from .file_server import serving, writer
from .witness import Witness

pytest.importorskip("moto")

SLOW_DOWN = status("503 Slow Down", "SlowDown")
DENIED = status("403 Forbidden", "AccessDenied")


def first(count: int, fault: Fault, method: str = "", part: str = "") -> Schedule:
    """Let the first `count` requests of that kind, with `part` in their path, go wrong."""
    left = count

    def schedule(asked: str, path: str) -> Fault | None:
        nonlocal left
        if asked.startswith(method) and part in path:
            left -= 1
            return fault if left >= 0 else None
        return None

    return schedule


class S3Raw:
    """The bytes of objects below a prefix, past the storage."""

    s3: Any
    prefix: str

    def put_raw(self, storage: Storage, path: str, data: bytes) -> None:
        self.s3.put_object(Bucket="bucket", Key=f"{self.prefix}/{path}", Body=data)

    def get_raw(self, storage: Storage, path: str) -> bytes | None:
        try:
            return self.s3.get_object(Bucket="bucket", Key=f"{self.prefix}/{path}")["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None


class _OnS3(S3Raw, StorageConformance):
    big_bytes = 12 << 20  # in more than one part

    @pytest.fixture(autouse=True)
    def _server(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in s3_server.environment.items():
            monkeypatch.setenv(name, value)
        self.server, self.s3, self.prefix = s3_server, s3_server.client(), f"stores/{uuid.uuid4()}"

    def test_no_order_of_listings_is_assumed(self, storage: Storage) -> None:
        for name in ("c", "a", "b"):
            storage.write(f"delta/{name}", b"")
        with self.server.failing(first(9, in_reverse, "GET", "list-type=2")):
            assert self.names(storage, "delta") == ["a", "b", "c"]

    def test_nothing_is_copied_or_renamed(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "local").write_bytes(b"abc")
        self.server.requests.clear()
        storage.write("delta/a", b"abc")
        storage.upload(tmp_path / "local", "delta/b")
        storage.write("delta/a", b"abcd", overwrite=True)
        puts = [path.partition("?")[0] for method, path in self.server.requests if method == "PUT"]
        # What a writer of an earlier test had sent when it was killed may come only now.
        files = [path for path in puts if self.prefix in path and not path.endswith("/")]
        assert files == [f"/bucket/{self.prefix}/delta/{name}" for name in "aba"]

    def test_a_busy_service_is_asked_again(self, storage: Storage) -> None:
        with self.server.failing(first(1, SLOW_DOWN)):
            storage.write("delta/a", b"abc")
        with self.server.failing(first(1, SLOW_DOWN)):
            assert storage.read("delta/a") == b"abc"
        with self.server.failing(first(1, SLOW_DOWN)):
            assert self.names(storage, "delta") == ["a"]

    @pytest.mark.tier("long")
    def test_a_bucket_that_stays_busy_is_an_error_with_file_and_remedy(self, storage: Storage) -> None:
        with (
            self.server.failing(lambda method, path: SLOW_DOWN),
            pytest.raises(StorageError, match=r"delta/a.*asked too often"),
        ):
            storage.write("delta/a", b"abc")
        assert self.get_raw(storage, "delta/a") is None

    def test_a_denied_request_is_named(self, storage: Storage) -> None:
        with (
            self.server.failing(lambda method, path: DENIED),
            pytest.raises(StorageError, match=r"delta/a.*must be allowed to"),
        ):
            storage.write("delta/a", b"abc", overwrite=True)

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_a_file_is_written_though_the_answer_is_lost(self, storage: Storage, overwrite: bool) -> None:
        """The client repeats the request: with a condition it may then find its own file in the way."""
        with self.server.failing(first(1, lost_answer, "PUT", "/delta/a")):
            try:
                storage.write("delta/a", b"abc", overwrite=overwrite)
            except (ConflictError, UnknownOutcomeError):
                assert not overwrite
        assert self.get_raw(storage, "delta/a") == b"abc"

    def test_a_body_that_breaks_off_is_read_again(self, storage: Storage, tmp_path: Path) -> None:
        data = random.Random(1).randbytes(1 << 20)
        self.put_raw(storage, "shared/a", data)
        with self.server.failing(first(1, broken_off, "GET", "/shared/a")):
            assert _whole_or_error(lambda: storage.read("shared/a")) in (data, None)
        with self.server.failing(first(1, broken_off, "GET", "/shared/a")):
            done = _whole_or_error(lambda: storage.download("shared/a", tmp_path / "got") or b"")
        assert done is None or (tmp_path / "got").read_bytes() == data

    def test_a_large_file_comes_in_parts_all_of_them_or_none(self, storage: Storage, tmp_path: Path) -> None:
        data = random.Random(4).randbytes(3 * PART_BYTES)
        self.put_raw(storage, "shared/a", data)
        cache = LocalCache(tmp_path / "empty", 1 << 20).store("here")
        wanted = Wanted("shared/a", len(data), tmp_path / "got", crc32=zlib.crc32(data))
        with (
            self.server.failing(first(99, DENIED, "GET", "/shared/a")),
            pytest.raises(StorageError, match="shared/a"),
        ):
            fetch(storage, cache, [wanted], 2)
        assert not wanted.target.exists()
        self.server.requests.clear()
        with self.server.failing(first(1, broken_off, "GET", "/shared/a")):
            fetch(storage, cache, [wanted], 2)
        assert wanted.target.read_bytes() == data
        assert [method for method, _ in self.server.requests].count("GET") >= 4

    def test_an_upload_that_breaks_off_shows_nothing(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "local").write_bytes(random.Random(2).randbytes(self.big_bytes))
        with (
            self.server.failing(first(99, DENIED, "PUT", "partNumber=2")),
            pytest.raises(StorageError, match="shared/a"),
        ):
            storage.upload(tmp_path / "local", "shared/a")
        assert storage.list_files("shared") == []
        assert not storage.exists("shared/a")
        assert self.server.unfinished_uploads("bucket", self.prefix) == self.left_unfinished()
        storage.upload(tmp_path / "local", "shared/a")
        assert storage.read("shared/a") == (tmp_path / "local").read_bytes()

    @pytest.mark.parametrize("size_bytes", [10, 3_000, 200_000])
    def test_an_object_in_an_archive_is_named_with_what_to_do(
        self, storage: Storage, tmp_path: Path, size_bytes: int
    ) -> None:
        """As a lifecycle rule moves it there. Clients lose the reason of the refusal of a small one."""
        content = random.Random(6).randbytes(size_bytes)
        place = {"Bucket": "bucket", "Key": f"{self.prefix}/delta/a"}
        self.s3.put_object(**place, Body=content, StorageClass="GLACIER")
        assert self.names(storage, "delta") == ["a"]
        for number, ask in enumerate(
            (
                lambda: storage.read("delta/a"),
                lambda: storage.read("delta/a", 5, 3),
                lambda: storage.download("delta/a", tmp_path / "local"),
            )
        ):
            with pytest.raises(StorageError, match=r"delta/a.*archive tier"):
                ask()
            assert not (tmp_path / "local").exists(), number
        self.s3.put_object(**place, Body=content)
        assert storage.read("delta/a") == content

    def test_an_upload_that_a_rule_ends_makes_no_file(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "local").write_bytes(random.Random(7).randbytes(self.big_bytes))
        gone = status("404 Not Found", "NoSuchUpload")
        for method in ("PUT", "POST"):
            with (
                self.server.failing(first(99, gone, method, "uploadId")),
                pytest.raises(StorageError, match=r"shared/a.*ended from outside"),
            ):
                storage.upload(tmp_path / "local", "shared/a")
            assert not storage.exists("shared/a")

    def left_unfinished(self) -> list[str]:
        """Uploads that broke off, which the bucket's own rules remove."""
        return []

    def test_a_store_goes_on_through_storms(self, storage: Storage, tmp_path: Path) -> None:
        chance = random.Random(3)
        witness = Witness(storage, tmp_path / "witness")
        with self.server.failing(lambda method, path: SLOW_DOWN if chance.random() < 0.1 else None):
            for number in range(1, 7):
                witness.commit()
                if number % 2 == 0:
                    witness.checkpoint(full=number == 4)
                if number % 3 == 0:
                    witness.clean_up()
        witness.check()


def _whole_or_error(action) -> bytes | None:
    try:
        return action()
    except StateStoreError:
        return None


class TestArrowOnS3(_OnS3, KilledWriters):
    exclusive_create = False

    def uri(self, storage: Storage) -> str:
        return storage.location

    def make_storage(self, tmp_path: Path) -> ArrowStorage:
        opened = open_storage(f"s3://bucket/{self.prefix}")
        assert isinstance(opened, AnsweringStorage)
        assert isinstance(opened.inner, ArrowStorage)
        return opened.inner

    def left_unfinished(self) -> list[str]:
        return [f"{self.prefix}/shared/a"]

    def test_a_small_file_is_one_request(self, storage: Storage) -> None:
        self.server.requests.clear()
        storage.write("delta/a", b"abc", overwrite=True)
        assert self.server.requests == [("PUT", f"/bucket/{self.prefix}/delta/a")]

    def test_a_missing_bucket_is_named_with_the_fix(self) -> None:
        storage = open_storage("s3://no-such-bucket/store")
        for ask in (
            lambda: storage.write("delta/a", b"abc", overwrite=True),
            lambda: storage.read("delta/a"),
            lambda: storage.exists("delta/a"),
            lambda: storage.list_files("delta/a"),
            lambda: storage.directories("delta/a"),
        ):
            with pytest.raises(StorageError, match=r"no-such-bucket/store/.*make the bucket"):
                ask()

    @pytest.mark.parametrize(
        ("line", "code", "advice"),
        [
            ("400 Bad Request", "ExpiredToken", "the credentials have expired"),
            ("403 Forbidden", "InvalidAccessKeyId", "does not know this key"),
            ("403 Forbidden", "SignatureDoesNotMatch", "is not that of the key"),
            ("403 Forbidden", "RequestTimeTooSkewed", "set the clock"),
            ("301 Moved Permanently", "PermanentRedirect", "in another region"),
            ("400 Bad Request", "KMS.DisabledException", "encryption is disabled"),
            ("403 Forbidden", "AccessDenied", "must be allowed to"),
        ],
    )
    def test_a_refusal_says_why_though_a_head_has_no_body(
        self, storage: Storage, line: str, code: str, advice: str
    ) -> None:
        with self.server.failing(lambda method, path: status(line, code)):
            for ask in (lambda: storage.read("delta/a"), lambda: storage.exists("delta/a")):
                with pytest.raises(StorageError, match=rf"delta/a.*\(.*{advice}"):
                    ask()

    def test_the_proxy_of_the_environment_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3.invalid")
        monkeypatch.setenv("http_proxy", self.server.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        self.server.requests.clear()
        with self.server.failing(lambda method, path: DENIED), pytest.raises(StorageError, match="delta/a"):
            open_storage(f"s3://bucket/{self.prefix}").read("delta/a")
        assert self.server.requests
        monkeypatch.setenv("no_proxy", ".invalid")
        self.server.requests.clear()
        with pytest.raises(StorageError, match="delta/a"):
            open_storage(f"s3://bucket/{self.prefix}").read("delta/a")
        assert self.server.requests == []

    def test_an_interrupt_after_the_opening_leaves_no_empty_file(self, storage: Storage) -> None:
        storage.write("delta/a", b"old")
        real = storage._filesystem

        class Interrupted:
            type_name = "s3"

            def __getattr__(self, name: str) -> object:
                return getattr(real, name)

            def open_output_stream(self, path: str) -> object:
                stream = real.open_output_stream(path)
                _thread.interrupt_main()
                return stream

        storage._filesystem = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            storage.write("delta/a", b"new", overwrite=True)
        assert self.get_raw(storage, "delta/a") in (b"old", b"new")


@pytest.mark.tier("more")
def test_an_authority_of_ones_own_is_that_of_ssl_cert_file(tmp_path: Path) -> None:
    """The variables of other clients, as AWS_CA_BUNDLE, are not asked by `pyarrow`."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes certificates, is not installed")
    certificate = tmp_path / "certificate.pem"
    words = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    files = ["-keyout", str(certificate), "-out", str(tmp_path / "authority.pem")]
    subprocess.run([openssl, *words.split(), *files], check=True, capture_output=True)
    with certificate.open("a") as file:
        file.write((tmp_path / "authority.pem").read_text())
    program = (
        "from state_store.core.storage import open_storage; storage = open_storage('s3://bucket/tls'); "
        "storage.write('a', b'abc'); print(storage.read('a'))"
    )
    with minis3.running(certificate) as server:
        for variable, works in (("AWS_CA_BUNDLE", False), ("SSL_CERT_FILE", True)):
            ran = subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, **server.environment, variable: str(tmp_path / "authority.pem")},
                capture_output=True,
                text=True,
            )
            if works:
                assert ran.stdout.strip() == "b'abc'", ran.stderr
            else:
                assert "SSL_CERT_FILE names a file with the certificate" in ran.stderr
                assert (
                    ran.returncode != 0 and server.client().list_objects_v2(Bucket="bucket")["KeyCount"] == 0
                )


@pytest.fixture(scope="module")
def s3a_jvm(s3_server: S3Server, tmp_path_factory) -> Iterator[StoreFiles]:
    conf = tmp_path_factory.mktemp("hadoop")
    write_configuration(conf / "core-site.xml", s3_server.hadoop_properties)
    with serving("s3a://bucket/", configuration=conf, jars=maven_jars.s3a_jars()) as jvm:
        yield jvm


@pytest.mark.tier("long")
@pytest.mark.spark
class TestS3aOnS3(_OnS3, KilledWriters):
    tells_directories = False

    @pytest.fixture(autouse=True)
    def _served(self, s3a_jvm: StoreFiles, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.jvm = s3a_jvm
        self.conf = tmp_path_factory.mktemp("hadoop")

    def uri(self, storage: Storage) -> str:
        return storage.location

    def writer(self, storage: Storage) -> list[str]:
        write_configuration(self.conf / "core-site.xml", self.server.hadoop_properties)
        return writer(storage.location, configuration=self.conf, jars=maven_jars.s3a_jars())

    def make_storage(self, tmp_path: Path) -> HadoopStorage:
        return HadoopStorage(f"s3a://bucket/{self.prefix}", self.jvm)

    def test_the_name_is_a_condition_of_the_write(self, storage: Storage) -> None:
        storage.write("delta/other", b"")
        self.server.requests.clear()
        storage.write("delta/a", b"abc")
        assert [method for method, _ in self.server.requests] == ["PUT"]


@pytest.mark.tier("long")
@pytest.mark.spark
def test_a_range_is_one_request_for_exactly_that(s3_server: S3Server, tmp_path: Path) -> None:
    """With the input stream of S3A that `docs/operations.md` says to take: the other asks for more."""
    write_configuration(
        tmp_path / "core-site.xml",
        {**s3_server.hadoop_properties, "fs.s3a.bucket.bucket.input.stream.type": "classic"},
    )
    data, offset, length = random.Random(5).randbytes(3 << 20), 500_000, 1_000_000
    (tmp_path / "local").write_bytes(bytes(len(data)))
    with serving("s3a://bucket/", configuration=tmp_path, jars=maven_jars.s3a_jars()) as jvm:
        storage = HadoopStorage(f"s3a://bucket/stores/{uuid.uuid4()}", jvm)
        storage.write("shared/a", data)
        s3_server.requests.clear()
        s3_server.ranges.clear()
        assert storage.read("shared/a", offset, length) == data[offset : offset + length]
        span = Span("shared/a", tmp_path / "local", ((offset, length),))
        assert storage.download_spans([span]) == [length]
    assert (tmp_path / "local").read_bytes()[offset : offset + length] == data[offset : offset + length]
    assert [method for method, _ in s3_server.requests] == ["GET", "GET"]
    assert s3_server.ranges == [f"bytes={offset}-{offset + length - 1}"] * 2
