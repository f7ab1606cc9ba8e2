"""`state-store serve` of queries on S3 and HDFS, and of storage that is slow, refuses, or loses files."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from minihdfs import HdfsCluster
from minis3 import Environ, S3Server, Service, Start, status
from query_directory import QueryDirectory, rows
from running_service import Served, serving
from waiting import PATIENCE_S, awaited

from state_store.cli.main import main
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL

FULL_REQUEST = {"checkpointType": "FULL"}
SLOW_DOWN = status("503 Slow Down", "SlowDown")


@pytest.fixture
def on_s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a directory of its own on S3."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/observe/{uuid.uuid4()}/flights"


@pytest.fixture(params=["s3", pytest.param("webhdfs", marks=pytest.mark.hdfs)])
def place(request: pytest.FixtureRequest) -> str:
    """Return a directory of its own on S3, or on HDFS."""
    if request.param == "s3":
        return str(request.getfixturevalue("on_s3"))
    cluster: HdfsCluster = request.getfixturevalue("hdfs_cluster")
    return cluster.webhdfs(f"/observe/{uuid.uuid4()}/flights")


def grown_at(location: str, tmp_path: Path) -> QueryDirectory:
    """Return a query of two stores, six versions, and a merge of the fourth."""
    query = QueryDirectory(tmp_path / "unused", tmp_path / "scratch", location=location)
    for version in range(1, 7):
        query.commit(rows(version * 1000, 400 if version == 1 else 20))
        if version == 4:
            for key in query.keys:
                query.merge(key, INCREMENTAL)
    return query


@pytest.fixture
def query(on_s3: str, tmp_path: Path) -> QueryDirectory:
    """Return a grown query on S3."""
    return grown_at(on_s3, tmp_path)


@pytest.fixture
def served(query: QueryDirectory) -> Iterator[Served]:
    """Yield a service of it that looks as often as it may."""
    service = serving(query.location, every_s=1.0)
    yield service
    service.stop()


@pytest.mark.tier("more")
def test_a_remote_checkpoint_is_shown_and_takes_a_request(place: str, tmp_path: Path) -> None:
    query = grown_at(place, tmp_path)
    service = serving(query.location, every_s=1.0)
    browser = Browser()
    try:
        shown = service.http.get("v1/queries/flights").json()
        assert (shown["batch"], shown["stores"], shown["verdict"]) == (5, 2, "fine")
        history = service.http.get("v1/queries/flights/checkpoints").json()["history"]
        assert [checkpoint["version"] for checkpoint in history] == [6, 5, 4, 3, 2, 1]
        assert service.http.get("v1/queries/flights/files").json()["files"]
        browser.size(1280, 900)
        browser.open(service.url)
        browser.wait("document.querySelectorAll('#ss-stores tbody tr').length === 2")
        browser.click("#ss-full")
        browser.wait("document.querySelector('#state-store').dataset.full === 'done'")
        status_line = browser.evaluate("document.querySelector('#ss-status').textContent")
        assert status_line.startswith("Full checkpoint of version 6: 2 of 2 stores in "), status_line
        browser.wait("document.querySelectorAll('#ss-history .tag.full').length === 1")
        metrics = service.http.get("metrics").text
        assert 'state_store_up{query="flights"} 1.0' in metrics
        labels = 'operator="0",partition="1",query="flights",store="default"'
        assert f"state_store_chain_deltas_since_full{{{labels}}} 0.0" in service.http.get("metrics").text
        assert main(["full", "--url", service.url, "--partition", "0"]) == 0
        assert main(["verify", query.location]) == 0
    finally:
        browser.close()
        service.stop()


@pytest.mark.tier("more")
def test_storage_that_refuses_is_said_and_looked_at_again(served: Served, s3_server: S3Server) -> None:
    with s3_server.failing(lambda method, path: SLOW_DOWN):
        awaited(lambda: served.http.get("v1/queries/flights").json()["verdict"] == "critical", "it is said")
        shown = served.http.get("v1/queries/flights").json()
        assert shown["error"]["kind"] == "storage"
        assert served.http.get("v1/queries/flights/stores").json()["total"] == 2, "the last figures stay"
        assert 'state_store_up{query="flights"} 0.0' in served.http.get("metrics").text
        assert "state_store_scan_errors_total" in served.http.get("metrics").text
        ended = served.ended(served.post(FULL_REQUEST).json()["request-id"])
        assert ended["failure"]["kind"] == "storage"
    awaited(lambda: served.http.get("v1/queries/flights").json()["verdict"] == "fine", "it is read again")
    ended = served.ended(served.post(FULL_REQUEST).json()["request-id"])
    assert (ended["made"], ended["failed"]) == (2, 0)


@pytest.mark.tier("more")
def test_nobody_waits_for_slow_storage(served: Served, s3_server: S3Server) -> None:
    is_asked, answers = threading.Event(), threading.Event()

    def silent(service: Service, environ: Environ, start: Start) -> Iterable[bytes]:
        is_asked.set()
        answers.wait()
        return service(environ, start)

    with s3_server.failing(lambda method, path: silent):
        try:
            assert is_asked.wait(PATIENCE_S), "a look has begun"
            for path in (
                "v1/queries",
                "v1/queries/flights/stores",
                "v1/queries/flights/verdict",
                "metrics",
                "",
            ):
                assert served.http.get(path).status_code == 200
        finally:
            answers.set()


@pytest.mark.tier("more")
def test_a_damaged_store_is_shown_as_such_and_the_rest_goes_on(
    query: QueryDirectory, s3_server: S3Server
) -> None:
    client = s3_server.client()
    prefix = query.location.removeprefix("s3://bucket/") + f"/{query.keys[0].path}/delta/"
    for entry in client.list_objects_v2(Bucket="bucket", Prefix=prefix)["Contents"]:
        client.delete_object(Bucket="bucket", Key=entry["Key"])
    fresh = serving(query.location)
    try:
        stores = fresh.http.get("v1/queries/flights/stores?sort=partition").json()["stores"]
        assert stores[0]["error"]["kind"] == "missing" and "error" not in stores[1]
        verdict = fresh.http.get("v1/queries/flights/verdict").json()
        assert verdict["findings"][0]["code"] == "store-damaged"
        ended = fresh.ended(fresh.post(FULL_REQUEST).json()["request-id"])
        assert (ended["made"], ended["failed"]) == (1, 1)
        assert 'state_store_damaged_stores{query="flights"} 1.0' in fresh.http.get("metrics").text
    finally:
        fresh.stop()


@pytest.mark.tier("more")
def test_a_checkpoint_that_is_deleted_meanwhile_is_said(
    served: Served, query: QueryDirectory, s3_server: S3Server
) -> None:
    client = s3_server.client()
    prefix = query.location.removeprefix("s3://bucket/")
    for entry in client.list_objects_v2(Bucket="bucket", Prefix=prefix)["Contents"]:
        client.delete_object(Bucket="bucket", Key=entry["Key"])

    def shown() -> dict[str, Any]:
        return served.http.get("v1/queries/flights").json()

    # While the files go one by one, it is a damaged checkpoint.
    awaited(lambda: (shown().get("error") or {}).get("kind") == "missing", "it is said")
    assert shown()["verdict"] == "critical"
    assert served.http.get("v1/queries/flights/stores").json()["total"] == 2


@pytest.mark.hdfs
def test_a_request_fails_while_the_namenode_refuses_changes_and_then_succeeds(
    hdfs_cluster: HdfsCluster, tmp_path: Path
) -> None:
    query = grown_at(hdfs_cluster.webhdfs(f"/observe/{uuid.uuid4()}/flights"), tmp_path)
    service = serving(query.location, every_s=1.0)
    try:
        with hdfs_cluster.in_safe_mode():
            assert service.http.get("v1/queries/flights").json()["verdict"] == "fine", "it can be read"
            ended = service.ended(service.post(FULL_REQUEST).json()["request-id"])
            assert (ended["made"], ended["failed"]) == (0, 2)
            assert ended["failure"]["kind"] == "storage"
        ended = service.ended(service.post(FULL_REQUEST).json()["request-id"])
        assert (ended["made"], ended["failed"]) == (2, 0), ended
        awaited(
            lambda: service.http.get("v1/queries/flights").json()["verdict"] == "fine", "it is read again"
        )
    finally:
        service.stop()
    assert query.merge(query.keys[0], FULL).manifest.version == 6


@pytest.mark.hdfs
@pytest.mark.tier("more")
def test_a_namenode_that_is_restarted_is_said_and_looked_at_again(
    hdfs_cluster: HdfsCluster, tmp_path: Path
) -> None:
    query = grown_at(hdfs_cluster.webhdfs(f"/observe/{uuid.uuid4()}/flights"), tmp_path)
    service = serving(query.location, every_s=1.0)
    browser = Browser()

    def verdict() -> str:
        return str(service.http.get("v1/queries/flights").json()["verdict"])

    try:
        browser.size(1280, 900)
        browser.open(service.url)
        browser.wait("document.querySelectorAll('#ss-stores tbody tr').length === 2")
        text = "document.querySelector('#state-store').textContent"
        assert "cannot be read" not in browser.evaluate(text)
        with hdfs_cluster.without_namenode():
            awaited(lambda: verdict() == "critical", "it is said")
            assert service.http.get("v1/queries/flights").json()["error"]["kind"] == "storage"
            assert service.http.get("healthz").status_code == 200
            assert 'state_store_up{query="flights"} 0.0' in service.http.get("metrics").text
            browser.wait(f"{text}.includes('The checkpoint cannot be read: ')")
            assert browser.evaluate("document.querySelectorAll('#ss-stores tbody tr').length") == 2
            ended = service.ended(service.post(FULL_REQUEST).json()["request-id"])
            assert (ended["failure"]["kind"], ended.get("made", 0)) == ("storage", 0)
        awaited(lambda: verdict() == "fine", "it is read again")
        browser.wait(f"!{text}.includes('The checkpoint cannot be read: ')")
        ended = service.ended(service.post(FULL_REQUEST).json()["request-id"])
        assert (ended["made"], ended["failed"]) == (2, 0)
        query.commit(rows(7000, 20))
        awaited(
            lambda: service.http.get("v1/queries/flights").json()["batch"] == 6, "the next batch is shown"
        )
    finally:
        browser.close()
        service.stop()
