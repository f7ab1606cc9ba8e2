"""Services for tests that speak the protocols of Azure and of Google Cloud Storage, on the loopback.

`azurite` is Microsoft's stand-in for the Blob service, `fake-gcs-server` is one for Google's. Neither comes
with Python: a test that lacks its service is skipped, and says how to install it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class CloudService:
    """A running service with the bucket or container `bucket`; `environment` leads clients to it."""

    port: int
    environment: dict[str, str]

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
        yield CloudService(port, {"AZURE_STORAGE_CONNECTION_STRING": text})


@contextmanager
def fake_gcs(directory: Path) -> Iterator[CloudService]:
    """Run a service of Google's protocol in memory; its log is in `directory`."""
    options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", "{port}"]
    with _running("fake-gcs-server", [*options, "-public-host", "127.0.0.1:{port}"], directory) as port:
        service = CloudService(port, {"CLOUD_STORAGE_EMULATOR_ENDPOINT": f"http://127.0.0.1:{port}"})
        request = urllib.request.Request(
            f"{service.url}/storage/v1/b?project=tests",
            json.dumps({"name": "bucket"}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=_START_TIMEOUT_S).close()
        yield service


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
