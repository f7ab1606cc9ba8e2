"""Logs of queries on S3, as this store's manager of checkpoint files makes them through Hadoop's S3A."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import maven_jars
import pytest
import scala_jars
from called_jvm import called_jvm
from minis3 import S3Server, lost_answer
from py4j.protocol import Py4JJavaError

pytestmark = [pytest.mark.spark, pytest.mark.tier("long")]


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    class_path = [scala_jars.probes_class_path(), *maven_jars.s3a_jars()]
    with called_jvm(tmp_path_factory.mktemp("jvm"), class_path) as gateway:
        yield gateway.jvm


class Log:
    """A directory of a log on S3."""

    def __init__(self, jvm: Any, server: S3Server) -> None:
        self._jvm = jvm
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        for name, value in server.hadoop_properties.items():
            configuration.set(name, value)
        self.key = f"logs/{uuid.uuid4()}"
        root = jvm.org.apache.hadoop.fs.Path(f"s3a://bucket/{self.key}")
        package = jvm.org.apache.spark.sql.execution.streaming.state.incremental
        self.files = package.CheckpointFiles(root, configuration)

    def path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"s3a://bucket/{self.key}/{name}")

    def opened(self, name: str, content: bytes, *, overwrite: bool = False) -> Any:
        out = self.files.createAtomic(self.path(name), overwrite)
        out.write(bytearray(content))
        return out


@pytest.fixture
def log(jvm: Any, s3_server: S3Server) -> Log:
    return Log(jvm, s3_server)


def content(server: S3Server, key: str) -> bytes:
    body: bytes = server.client().get_object(Bucket="bucket", Key=key)["Body"].read()
    return body


def test_a_file_is_one_request(log: Log, s3_server: S3Server) -> None:
    s3_server.requests.clear()
    out = log.opened("0", b"abc")
    out.close()
    out.close()
    out.cancel()
    assert s3_server.requests == [("PUT", f"/bucket/{log.key}/0")]
    assert content(s3_server, f"{log.key}/0") == b"abc"


def test_a_file_is_refused_where_its_name_is_taken(log: Log, s3_server: S3Server) -> None:
    first, second = log.opened("0", b"first"), log.opened("0", b"second")
    second.close()
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        first.close()
    first.cancel()
    assert content(s3_server, f"{log.key}/0") == b"second"
    log.opened("0", b"third", overwrite=True).close()
    assert content(s3_server, f"{log.key}/0") == b"third"


def test_a_file_whose_answer_was_lost_is_made(log: Log, s3_server: S3Server) -> None:
    lost = []

    def once(method: str, path: str) -> Any:
        if method != "PUT" or lost:
            return None
        lost.append(path)
        return lost_answer

    out = log.opened("0", b"abc")
    with s3_server.failing(once):
        out.close()
    assert lost == [f"/bucket/{log.key}/0"]
    assert content(s3_server, f"{log.key}/0") == b"abc"
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        log.opened("0", b"abcd").close()


def test_a_cancelled_file_never_appears(log: Log, s3_server: S3Server) -> None:
    log.opened("0", b"abc").cancel()
    large = log.opened("1", bytes(6 << 20))
    large.cancel()
    large.close()
    assert not log.files.exists(log.path("0"))
    assert not log.files.exists(log.path("1"))
    assert s3_server.unfinished_uploads("bucket", log.key) == []
