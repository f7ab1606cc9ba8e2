"""A real S3 service for tests: `moto` behind an HTTP server of this process, on the loopback.

The fixture `s3_server` is for all tests. Requests are executed one after the other, so that a condition holds
until its write, as in a service with conditional writes. `S3Server.faults` makes requests fail on the wire.

`python -m minis3` is a service in its own process: it prints its port, and ends with its standard input. The
lines `refuse` and `serve` there let it answer `503 Slow Down`, and as usual again. Two more numbers make it
remote: the milliseconds that each request waits, and the bytes a second of a body.
"""

from __future__ import annotations

import mmap
import re
import socket
import ssl
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

KEY, SECRET, REGION = "test", "test", "us-east-1"
_PACED_BYTES = 1 << 20

Environ = dict[str, Any]
Start = Callable[..., Any]
Service = Callable[[Environ, Start], Iterable[bytes]]
Fault = Callable[[Service, Environ, Start], Iterable[bytes]]
Schedule = Callable[[str, str], "Fault | None"]


def nothing(method: str, path: str) -> Fault | None:
    """Do nothing: the request succeeds."""
    return None


@dataclass
class S3Server:
    """A running service.

    `requests` are the methods and paths, with query, so far; `ranges` are the ranges that they asked for.
    """

    port: int = 0
    certificate: Path | None = None
    faults: Schedule = nothing
    requests: list[tuple[str, str]] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)

    @property
    def url(self) -> str:
        if self.certificate is not None:
            return f"https://localhost:{self.port}"
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a client of the service."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def hadoop_properties(self) -> dict[str, str]:
        """Return the configuration of Hadoop's S3A: it fails after seconds, and uploads in small parts."""
        return {
            "fs.s3a.endpoint": self.url,
            "fs.s3a.endpoint.region": REGION,
            "fs.s3a.access.key": KEY,
            "fs.s3a.secret.key": SECRET,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.attempts.maximum": "3",
            "fs.s3a.retry.limit": "3",
            "fs.s3a.retry.interval": "50ms",
            "fs.s3a.retry.throttle.limit": "3",
            "fs.s3a.retry.throttle.interval": "50ms",
            "fs.s3a.multipart.size": "5M",
            "fs.s3a.multipart.threshold": "5M",
        }

    def client(self) -> Any:
        """Return a client without the product's code."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
            verify=self.certificate and str(self.certificate),
        )

    def unfinished_uploads(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the keys of multipart uploads that are neither completed nor aborted."""
        found = self.client().list_multipart_uploads(Bucket=bucket, Prefix=prefix)
        return [upload["Key"] for upload in found.get("Uploads", [])]

    @contextmanager
    def failing(self, faults: Schedule) -> Iterator[None]:
        """Make requests fail for the context."""
        self.faults = faults
        try:
            yield
        finally:
            self.faults = nothing


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Yield the service of the session, with the bucket `bucket`; use a separate prefix in each test."""
    with running() as server:
        yield server


@contextmanager
def running(certificate: Path | None = None) -> Iterator[S3Server]:
    """Run a service in this process, with the bucket `bucket`.

    Args:
        certificate: a file with a certificate for `localhost` and its key, for TLS.
    """
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_expect_100(self) -> bool:
            """Do nothing: Werkzeug asks for the body already, and a second request would confuse clients."""
            return True

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    _read_ranges_alone()
    server = S3Server(certificate=certificate)
    moto = DomainDispatcherApplication(lambda service: create_backend_app("s3"))
    in_turn = threading.Lock()

    def service(environ: Environ, start: Start) -> Iterable[bytes]:
        with in_turn:
            return moto(environ, start)

    def answer(environ: Environ, start: Start) -> Iterable[bytes]:
        method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        server.requests.append((method, path))
        server.ranges.append(environ.get("HTTP_RANGE"))
        fault = server.faults(method, path)
        return service(environ, start) if fault is None else fault(service, environ, start)

    tls: ssl.SSLContext | None = None
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    serving = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=Quiet, ssl_context=tls)
    server.port = serving.server_port
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        server.client().create_bucket(Bucket="bucket")
        yield server
    finally:
        serving.shutdown()
        thread.join()


def _read_ranges_alone() -> None:
    """Read a range of an object from a file: `moto` copies the object for each request."""
    import flask
    from moto.s3.models import FakeKey

    read, write = FakeKey.value.fget, FakeKey.value.fset
    mappings: MutableMapping[Any, mmap.mmap] = (
        weakref.WeakKeyDictionary()
    )  # copies of objects have their fields

    def value(key: Any) -> Any:
        in_part = flask.has_request_context() and "Range" in flask.request.headers
        return mapped(key) if in_part and key.contentsize > 1 << 16 else read(key)

    def mapped(key: Any) -> mmap.mmap:
        with key.lock:
            if key not in mappings:
                key._value_buffer.rollover()
                key._value_buffer.flush()
                mappings[key] = mmap.mmap(key._value_buffer.fileno(), 0, access=mmap.ACCESS_READ)
            return mappings[key]

    def replaced(key: Any, content: bytes) -> None:
        mappings.pop(key, None)
        write(key, content)

    FakeKey.value = property(value, replaced)


def status(line: str, code: str) -> Fault:
    """Refuse the request with a status like `503 Slow Down`, and an error like `SlowDown`."""

    def fault(service: Service, environ: Environ, start: Start) -> Iterable[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        start(line, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return fault


def lost_answer(service: Service, environ: Environ, start: Start) -> Iterable[bytes]:
    """Execute the request, and break the connection before the answer."""
    list(service(environ, lambda *of_response: lambda data: None))
    with suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return []


def broken_off(service: Service, environ: Environ, start: Start) -> Iterable[bytes]:
    """Break the connection after half of the body."""
    body = b"".join(service(environ, start))
    yield body[: len(body) // 2]
    with suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


def in_reverse(service: Service, environ: Environ, start: Start) -> Iterable[bytes]:
    """Return a listing in reverse order."""
    body = b"".join(service(environ, start))
    files = re.findall(rb"<Contents>.*?</Contents>", body, re.DOTALL)
    left = iter(reversed(files))
    return [re.sub(rb"<Contents>.*?</Contents>", lambda _: next(left), body, flags=re.DOTALL)]


def remote(seconds: float, bytes_a_second: float) -> Fault:
    """Delay the request, and give its body and that of the answer this pace."""

    def fault(service: Service, environ: Environ, start: Start) -> Iterable[bytes]:
        time.sleep(seconds + int(environ.get("CONTENT_LENGTH") or 0) / bytes_a_second)
        for body in service(environ, start):
            for at in range(0, len(body), _PACED_BYTES):
                part = body[at : at + _PACED_BYTES]
                time.sleep(len(part) / bytes_a_second)
                yield part

    return fault


if __name__ == "__main__":
    with running() as alone:
        if len(sys.argv) > 1:
            slowly = remote(float(sys.argv[1]) / 1000, float(sys.argv[2]))
            alone.faults = lambda method, path: slowly
        print(alone.port, flush=True)
        usual, slow_down = alone.faults, status("503 Slow Down", "SlowDown")
        for line in sys.stdin:
            alone.faults = (lambda method, path: slow_down) if line.strip() == "refuse" else usual
