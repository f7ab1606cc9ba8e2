"""Logs of queries on S3, as this store's manager of checkpoint files makes them through Hadoop's S3A."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import maven_jars
import pytest
import scala_jars
from called_jvm import called_jvm
from minis3 import Environ, S3Server, Service, Start, lost_answer, status
from py4j.protocol import Py4JJavaError

pytestmark = [pytest.mark.spark, pytest.mark.tier("long")]


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    class_path = [scala_jars.probes_class_path(), *maven_jars.s3a_jars()]
    with called_jvm(tmp_path_factory.mktemp("jvm"), class_path) as gateway:
        yield gateway.jvm


class Log:
    """A directory of a log on S3, in a new bucket."""

    def __init__(self, jvm: Any, server: S3Server, *, conditional: bool = True) -> None:
        self._jvm = jvm
        self.bucket = f"logs-{uuid.uuid4()}"
        server.client().create_bucket(Bucket=self.bucket)
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        for name, value in server.hadoop_properties.items():
            configuration.set(name, value)
        configuration.set("fs.s3a.create.conditional.enabled", str(conditional).lower())
        root = jvm.org.apache.hadoop.fs.Path(f"s3a://{self.bucket}/log")
        package = jvm.org.apache.spark.sql.execution.streaming.state.incremental
        self.files = package.CheckpointFiles(root, configuration)
        if not conditional:
            self.files.mkdirs(root)  # Spark's manager needs the directory

    def path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"s3a://{self.bucket}/log/{name}")

    def put(self, name: str) -> tuple[str, str]:
        """Return the request that makes a file, as the server notes it."""
        return "PUT", f"/{self.bucket}/log/{name}"

    def opened(self, name: str, content: bytes, *, overwrite: bool = False) -> Any:
        out = self.files.createAtomic(self.path(name), overwrite)
        out.write(bytearray(content))
        return out


@pytest.fixture
def log(jvm: Any, s3_server: S3Server) -> Log:
    return Log(jvm, s3_server)


def content(server: S3Server, log: Log, name: str) -> bytes:
    body: bytes = server.client().get_object(Bucket=log.bucket, Key=f"log/{name}")["Body"].read()
    return body


def without_conditions(service: Service, environ: Environ, start: Start) -> Iterable[bytes]:
    """Serve the request as services do that do not know its condition."""
    environ.pop("HTTP_IF_NONE_MATCH", None)
    return service(environ, start)


def test_a_file_is_one_request_once_the_service_has_refused_a_taken_name(
    log: Log, s3_server: S3Server
) -> None:
    s3_server.requests.clear()
    log.opened("0", b"abc").close()
    assert s3_server.requests == [log.put("0"), log.put("0")]
    s3_server.requests.clear()
    out = log.opened("1", b"abc")
    out.close()
    out.close()
    out.cancel()
    assert s3_server.requests == [log.put("1")]
    assert content(s3_server, log, "1") == b"abc"


@pytest.mark.parametrize("directory", ["offsets", "commits", "sources/0"])
def test_an_entry_of_a_log_is_looked_for_by_one_request(
    log: Log, s3_server: S3Server, directory: str
) -> None:
    names = [f"{directory}/{number}" for number in range(3)]
    s3_server.requests.clear()
    assert not log.files.exists(log.path(names[0]))
    assert s3_server.requests == [("HEAD", log.put(names[0])[1])]
    log.opened(names[0], b"abc").close()
    log.opened(names[1], b"").close()
    assert log.files.exists(log.path(names[0]))
    assert log.files.exists(log.path(names[1]))
    with (
        s3_server.failing(lambda method, path: status("403 Forbidden", "AccessDenied")),
        pytest.raises(Py4JJavaError, match="AccessDenied"),
    ):
        log.files.exists(log.path(names[2]))


@pytest.mark.parametrize("directory", ["offsets", "sources/0", "sources", "state/0", "state/0/1"])
def test_a_directory_exists_if_a_file_is_in_it(log: Log, directory: str) -> None:
    assert not log.files.exists(log.path(directory))
    log.opened(f"{directory}/0", b"abc").close()
    assert log.files.exists(log.path(directory))


def test_a_service_that_ignores_conditions_is_refused_at_the_first_file(
    log: Log, s3_server: S3Server
) -> None:
    with s3_server.failing(lambda method, path: without_conditions):
        for name in ("0", "1"):
            with pytest.raises(
                Py4JJavaError, match=r"s3a://logs-\S+ ignores the condition .* replaced .*/log/"
            ):
                log.opened(name, b"abc").close()
            assert content(s3_server, log, name) == b"abc"
        log.opened("0", b"abcd", overwrite=True).close()
    log.opened("2", b"abc").close()


def test_without_conditions_a_taken_name_is_refused_by_spark(jvm: Any, s3_server: S3Server) -> None:
    log = Log(jvm, s3_server, conditional=False)
    with s3_server.failing(lambda method, path: without_conditions):
        log.opened("0", b"abc").close()
        with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
            log.opened("0", b"abcd").close()
    assert content(s3_server, log, "0") == b"abc"


def test_a_check_of_the_service_that_fails_is_made_with_the_next_file(log: Log, s3_server: S3Server) -> None:
    seen = []

    def after_the_first(method: str, path: str) -> Any:
        seen.append(path)
        return status("503 Slow Down", "SlowDown") if len(seen) > 1 else None

    with s3_server.failing(after_the_first):
        log.opened("0", b"abc").close()
    assert len(seen) > 1
    out = log.opened("1", b"abc")
    with (
        s3_server.failing(lambda method, path: without_conditions),
        pytest.raises(Py4JJavaError, match="ignores the condition"),
    ):
        out.close()


def test_a_file_is_refused_where_its_name_is_taken(log: Log, s3_server: S3Server) -> None:
    first, second = log.opened("0", b"first"), log.opened("0", b"second")
    second.close()
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        first.close()
    first.cancel()
    assert content(s3_server, log, "0") == b"second"
    log.opened("0", b"third", overwrite=True).close()
    assert content(s3_server, log, "0") == b"third"


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
    assert lost == [log.put("0")[1]]
    assert content(s3_server, log, "0") == b"abc"
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        log.opened("0", b"abcd").close()


def test_a_cancelled_file_never_appears(log: Log, s3_server: S3Server) -> None:
    log.opened("0", b"abc").cancel()
    large = log.opened("1", bytes(6 << 20))
    large.cancel()
    large.close()
    assert not log.files.exists(log.path("0"))
    assert not log.files.exists(log.path("1"))
    assert s3_server.unfinished_uploads(log.bucket) == []
