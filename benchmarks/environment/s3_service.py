"""A real S3 service on the loopback: S3Proxy in a JVM of its own, with the objects in a temporary directory.

A request takes 0.25 ms of a core, where the `moto` of the tests takes 2 ms: on two cores that would be most
of the time of queries with many requests. Conditional writes are refused as Amazon's service refuses them.
The service adds no delay: its clients wait before each request, and pace bodies, as those of HDFS do
(`scala_s3/DelayedRequests.scala`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.environment import jvm

BUCKET = "bucket"
FILES, MEMORY = "filesystem-nio2", "transient-nio2"
"""Keepers of the objects: a temporary directory, and the memory of the service."""

DELAYED_REQUESTS = "statestore.benchmark.DelayedRequests"
"""The class that delays the requests of a client."""

_SOURCES = Path(__file__).resolve().parents[1] / "scala_s3"
_TESTS = Path(__file__).resolve().parents[2] / "tests"
_JVM_OPTIONS = (
    "-Xmx1g",
    "-XX:TieredStopAtLevel=1",  # half of the processor's time in the first 20,000 requests
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.logFile=System.out",  # the program logs all that it writes to System.err
)
_START_S = 120
_STOP_S = 20


class S3ServiceError(RuntimeError):
    """The service did not start; the message names its log."""


@contextlib.contextmanager
def started(log: Path, keeper: str = FILES) -> Iterator[str]:
    """Run a service with the bucket `bucket` for the `with` block, and yield its URL.

    Args:
        log: a file for what the service prints.
        keeper: what keeps the objects, `FILES` or `MEMORY`.

    Raises:
        S3ServiceError: It does not start.
    """
    with tempfile.TemporaryDirectory(prefix="s3-service-") as name, open(log, "wb") as sink:
        objects = Path(name) / "objects"
        objects.mkdir()
        url = f"http://127.0.0.1:{_free_port()}"
        properties = {
            "s3proxy.endpoint": url,
            "s3proxy.authorization": "none",
            "s3proxy.ignore-unknown-headers": "true",  # the length of a large file of Spark's RocksDB store
            "s3proxy.jetty.max-threads": "1024",
            "jclouds.provider": keeper,
            "jclouds.filesystem.basedir": str(objects),
        }
        written = Path(name) / "s3proxy.conf"
        written.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        pinned = of_tests("pinned_jars")
        class_path = os.pathsep.join(map(str, pinned.jars(pinned.S3_SERVICE)))
        command = [jvm.java(), *_JVM_OPTIONS, f"-Djava.io.tmpdir={name}", "-cp", class_path]
        command += ["org.gaul.s3proxy.Main", "--properties", str(written)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=name)
        try:
            _make_bucket(process, url, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def client_properties(url: str, request_ms: int, stream_bytes: int) -> dict[str, str]:
    """Return the configuration of Hadoop's S3A for a service.

    Args:
        url: the service.
        request_ms: the wait before each request.
        stream_bytes: the pace of a body, in bytes a second.
    """
    properties: Mapping[str, str] = (
        of_tests("minis3").S3Server(urllib.parse.urlsplit(url).port).hadoop_properties
    )
    return {
        **properties,
        "fs.s3a.audit.execution.interceptors": DELAYED_REQUESTS,
        "fs.delayed.request.ms": str(request_ms),
        "fs.delayed.stream.bytes": str(stream_bytes),
    }


def client_jars() -> list[Path]:
    """Return the jars that a JVM needs for `s3a:` URIs with `client_properties`."""
    s3a: list[Path] = of_tests("maven_jars").s3a_jars()
    return [jvm.compiled_sources("s3", sorted(_SOURCES.glob("*.scala")), s3a), *s3a]


def _make_bucket(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Make the bucket as soon as the service answers."""
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            put = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
            urllib.request.urlopen(put, timeout=_START_S).close()
            return
        time.sleep(0.1)
    code = process.poll()
    how = f"did not start within {_START_S} s" if code is None else f"ended with {code} before it had started"
    raise S3ServiceError(f"S3Proxy {how}; its log is {log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def of_tests(name: str) -> Any:
    """Import a module that the tests share."""
    if str(_TESTS) not in sys.path:
        sys.path.append(str(_TESTS))
    return importlib.import_module(name)
