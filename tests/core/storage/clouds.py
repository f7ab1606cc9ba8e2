"""Services for tests that speak the protocols of Azure and of Google Cloud Storage, on the loopback.

`azurite` is Microsoft's stand-in for the Blob service, `fake-gcs-server` is one for Google's. Neither comes
with Python: a test that lacks its service is skipped, and says how to install it.
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HOW = {
    "azurite-blob": "npm install --global azurite (half a minute, 190 MB)",
    "fake-gcs-server": "go install github.com/fsouza/fake-gcs-server@v1.56.1 (some minutes)",
}
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of `azurite` and its key, which its page publishes."""

_START_TIMEOUT_S = 60
_OF_CONNECTION = {"host", "connection", "keep-alive", "transfer-encoding", "expect"}
"""Headers that count for a connection alone."""


@dataclass(frozen=True)
class CloudService:
    """A running service with the bucket or container `bucket`.

    `environment` leads clients to it, `hadoop_properties` Hadoop's connectors.
    """

    port: int
    environment: dict[str, str]
    hadoop_properties: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def azurite(directory: Path) -> Iterator[CloudService]:
    """Run a service of Azure's protocol in memory; its log is in `directory`."""
    from azure.storage.blob import ContainerClient

    options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with _running("azurite-blob", [*options, "--blobPort", "{port}"], directory) as port:
        text = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
        )
        with ContainerClient.from_connection_string(text, "bucket") as container:
            container.create_container()
        with _listing_in_order(port) as ordered:
            properties = _abfs_properties(ordered)
            yield CloudService(port, {"AZURE_STORAGE_CONNECTION_STRING": text}, properties)


@contextmanager
def fake_gcs(directory: Path) -> Iterator[CloudService]:
    """Run a service of Google's protocol in memory; its log is in `directory`."""
    options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", "{port}"]
    with _running("fake-gcs-server", [*options, "-public-host", "127.0.0.1:{port}"], directory) as port:
        environment = {"CLOUD_STORAGE_EMULATOR_ENDPOINT": f"http://127.0.0.1:{port}"}
        service = CloudService(port, environment, _gcs_properties(port))
        request = urllib.request.Request(
            f"{service.url}/storage/v1/b?project=tests",
            json.dumps({"name": "bucket"}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=_START_TIMEOUT_S).close()
        yield service


def _abfs_properties(port: int) -> dict[str, str]:
    """Return the configuration of `abfs:` for Azurite, which has no hierarchical namespace and no TLS."""
    return {
        "fs.azure.abfs.endpoint": f"127.0.0.1:{port}",
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.always.use.https": "false",
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",  # the other one refuses to go without TLS
        **{f"fs.azure.account.key.{ACCOUNT}.{kind}.core.windows.net": KEY for kind in ("dfs", "blob")},
    }


def _gcs_properties(port: int) -> dict[str, str]:
    """Return the configuration of Google's connector, with the numbers that docs/storage.md tells to set."""
    return {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        "fs.gs.storage.root.url": f"http://127.0.0.1:{port}/",
        "fs.gs.project.id": "tests",
        "fs.gs.auth.service.account.enable": "false",
        "fs.gs.auth.null.enable": "true",
        "fs.gs.block.size": str(64 << 20),
        "fs.gs.rewrite.max.chunk.size": str(512 << 20),
        "fs.gs.outputstream.buffer.size": str(8 << 20),
        "fs.gs.inputstream.inplace.seek.limit": str(8 << 20),
        "fs.gs.inputstream.min.range.request.size": str(2 << 20),
    }


@contextmanager
def _listing_in_order(port: int) -> Iterator[int]:
    """Pass requests on to Azurite, and sort its listings, as Azure's service sorts them.

    Azurite lists all directories before all blobs. Hadoop's `abfs:` takes a directory and the blob that marks
    it for the same only if they are neighbours, and shows it twice otherwise.
    """

    class Passing(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_TIMEOUT_S)
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in _OF_CONNECTION
            }
            client.request(self.command, self.path, body or None, headers)
            answer = client.getresponse()
            text = answer.read()
            if "comp=list" in self.path:
                text = _sorted(text)
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in {"content-length", *_OF_CONNECTION}:
                    self.send_header(name, value)
            of_head = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", of_head or str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            client.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Passing) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def _sorted(listing: bytes) -> bytes:
    """Return the entries of a listing in the order of their names."""
    entries = re.findall(rb"<(Blob|BlobPrefix)>(.*?)</\1>", listing, re.DOTALL)
    texts = [b"<%b>%b</%b>" % (kind, content, kind) for kind, content in entries]
    return listing.replace(b"".join(texts), b"".join(sorted(texts, key=_name_of)))


def _name_of(entry: bytes) -> bytes:
    return entry.partition(b"<Name>")[2].partition(b"</Name>")[0]


@contextmanager
def _running(name: str, options: list[str], directory: Path) -> Iterator[int]:
    """Run a program with a free port in its options, and yield the port when it listens."""
    program = shutil.which(name)
    if program is None:
        reason = f"{name} is not installed: {HOW[name]}"
        if os.environ.get("STATE_STORE_TEST_TOOLS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with open(directory / f"{name}.log", "wb") as log:
        process = subprocess.Popen(
            [program, *(option.format(port=port) for option in options)],
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        end_s = time.monotonic() + _START_TIMEOUT_S
        while not _listens(port):
            assert process.poll() is None and time.monotonic() < end_s, (
                directory / f"{name}.log"
            ).read_text()
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
