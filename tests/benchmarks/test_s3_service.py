"""The S3 service of the benchmarks, and the delays of its clients. Times are compared with lower bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import maven_jars
import pytest
from botocore.exceptions import ClientError
from called_jvm import called_jvm
from minis3 import S3Server

from benchmarks.environment import s3_service

pytestmark = [pytest.mark.spark, pytest.mark.tier("long")]

_WRITERS = 8
_MIB = 1 << 20


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_service.started(tmp_path_factory.mktemp("s3") / "log") as url:
        yield url


@pytest.fixture
def client(url: str) -> Any:
    return S3Server(port=int(url.rpartition(":")[2])).client()


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    class_path = [*s3_service.client_jars(), f"{maven_jars.SPARK_JARS}/*"]
    with called_jvm(tmp_path_factory.mktemp("jvm"), class_path) as gateway:
        yield gateway.jvm


def test_an_upload_in_parts_may_tell_its_length(client: Any) -> None:
    """Do as the client does that copies a large file of Spark's RocksDB store."""
    place = {"Bucket": "bucket", "Key": "length"}
    upload = client.create_multipart_upload(**place)["UploadId"]
    part = client.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"abc")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload=parts, MpuObjectSize=3)
    assert client.get_object(**place)["Body"].read() == b"abc"


def test_conditional_writes_that_meet_make_a_single_object(client: Any) -> None:
    for key in range(20):
        together = Barrier(_WRITERS)

        def write(number: int, key: int = key, together: Barrier = together) -> int | None:
            together.wait()
            try:
                client.put_object(Bucket="bucket", Key=f"race/{key}", Body=b"%d" % number, IfNoneMatch="*")
            except ClientError as error:
                assert error.response["Error"]["Code"] == "PreconditionFailed"
                return None
            return number

        with ThreadPoolExecutor(_WRITERS) as writers:
            (winner,) = [number for number in writers.map(write, range(_WRITERS)) if number is not None]
        assert client.get_object(Bucket="bucket", Key=f"race/{key}")["Body"].read() == b"%d" % winner


def test_a_multipart_upload_keeps_the_condition_of_its_end(client: Any) -> None:
    def upload(**condition: str) -> None:
        where = {"Bucket": "bucket", "Key": "parts"}
        number = client.create_multipart_upload(**where)["UploadId"]
        tags = [
            client.upload_part(**where, UploadId=number, PartNumber=part, Body=bytes([part]) * 5 * _MIB)[
                "ETag"
            ]
            for part in (1, 2)
        ]
        parts = [{"ETag": tag, "PartNumber": part} for part, tag in enumerate(tags, start=1)]
        client.complete_multipart_upload(
            **where, UploadId=number, MultipartUpload={"Parts": parts}, **condition
        )

    upload(IfNoneMatch="*")
    across = client.get_object(Bucket="bucket", Key="parts", Range=f"bytes={5 * _MIB - 1}-{5 * _MIB}")
    assert across["Body"].read() == b"\1\2"
    with pytest.raises(ClientError, match="PreconditionFailed"):
        upload(IfNoneMatch="*")


def test_a_listing_has_pages(client: Any) -> None:
    names = [f"list/{number:02}" for number in range(12)]
    for name in names:
        client.put_object(Bucket="bucket", Key=name, Body=b"")
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket="bucket", Prefix="list/", PaginationConfig={"PageSize": 5}
    )
    assert [[entry["Key"] for entry in page["Contents"]] for page in pages] == [
        names[:5],
        names[5:10],
        names[10:],
    ]


def _files(jvm: Any, url: str, request_ms: int, stream_bytes: int) -> Any:
    """Return a new file system whose client has these delays."""
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    for name, value in s3_service.client_properties(url, request_ms, stream_bytes).items():
        configuration.set(name, value)
    return jvm.org.apache.hadoop.fs.FileSystem.newInstance(
        jvm.java.net.URI.create("s3a://bucket/"), configuration
    )


def _seconds(call: Callable[[], Any]) -> float:
    start_s = time.monotonic()
    call()
    return time.monotonic() - start_s


def test_each_request_of_a_client_waits(jvm: Any, url: str, client: Any) -> None:
    client.put_object(Bucket="bucket", Key="waits", Body=b"abc")
    path = jvm.org.apache.hadoop.fs.Path("s3a://bucket/waits")
    files = _files(jvm, url, request_ms=1_500, stream_bytes=100 * _MIB)

    def read() -> None:
        stream = files.open(path)  # asks for the object's size
        assert stream.read() == ord("a")
        stream.close()

    assert _seconds(lambda: files.getFileStatus(path)) >= 1.5
    assert _seconds(read) >= 3
    files.close()


def test_bodies_of_a_client_have_a_pace(jvm: Any, url: str, client: Any) -> None:
    """Two MiB take two seconds; a last pause of less than a millisecond may be missing."""
    files = _files(jvm, url, request_ms=0, stream_bytes=_MIB)
    path = jvm.org.apache.hadoop.fs.Path("s3a://bucket/paced")
    content = bytes(range(256)) * (2 * _MIB // 256)

    def write() -> None:
        out = files.create(path)
        out.write(content)
        out.close()

    def read() -> None:
        stream = files.open(path)
        assert bytes(stream.readNBytes(len(content))) == content
        stream.close()

    assert _seconds(write) >= 1.99
    assert client.get_object(Bucket="bucket", Key="paced")["Body"].read() == content
    assert _seconds(read) >= 1.99
    files.close()
