"""Storage on a real HDFS through WebHDFS: the contract, and what a broken connection means."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from minihdfs import HdfsCluster

from state_store.core.storage import open_storage
from state_store.core.storage.contract import AnsweringStorage
from state_store.core.storage.webhdfs import WebHdfsStorage
from state_store.errors import StorageError, UnknownOutcomeError
from state_store.testing.storage import KilledWriters

pytestmark = pytest.mark.hdfs
pytest.importorskip("hdfs")

OTHER_ANSWERS = {
    "page": (502, b"<html><body>502 Bad Gateway \xff</body></html>"),
    "nothing": (503, b""),
    "denied": (403, b'{"RemoteException": {"exception": "AccessControlException", "message": "no"}}'),
    "renewer": (400, b'{"RemoteException": {"exception": "IOException", "message": "it does not exist"}}'),
    "fields": (500, b'{"error": "no"}'),
    "list": (500, b"[]"),
    "login": (200, b"<html>Log in</html>"),
    "empty": (200, b"{}"),
}
"""Answers of gateways, of other services, and of a NameNode that is asked for too much."""

ACTIONS: list[Callable[[WebHdfsStorage], object]] = [
    lambda storage: storage.exists("delta/a"),
    lambda storage: storage.read("delta/a"),
    lambda storage: storage.list_files("delta"),
    lambda storage: storage.directories("delta"),
    lambda storage: storage.write("delta/b", b"abc"),
    lambda storage: storage.delete("delta/a"),
    lambda storage: storage.delete_directory("delta"),
]


def _raw_client(storage: WebHdfsStorage):
    from hdfs import InsecureClient

    return InsecureClient(storage._endpoints[0], root=storage._directory)


class TestWebHdfsStorage(KilledWriters):
    def uri(self, storage: WebHdfsStorage) -> str:
        return storage.location

    @pytest.fixture(autouse=True)
    def _cluster(self, hdfs_cluster: HdfsCluster) -> None:
        self.cluster = hdfs_cluster

    def make_storage(self, tmp_path: Path) -> WebHdfsStorage:
        opened = open_storage(self.cluster.webhdfs(f"/stores/{uuid.uuid4()}"))
        assert isinstance(opened, AnsweringStorage)
        assert isinstance(opened.inner, WebHdfsStorage)
        return opened.inner

    def put_raw(self, storage: WebHdfsStorage, path: str, data: bytes) -> None:
        _raw_client(storage).write(path, data=data)

    def get_raw(self, storage: WebHdfsStorage, path: str) -> bytes | None:
        client = _raw_client(storage)
        if client.status(path, strict=False) is None:
            return None
        with client.read(path) as reader:
            return reader.read()

    def test_the_hdfs_uri_finds_webhdfs(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage.write("delta/a", b"abc")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(self.cluster.configuration))
        other = open_storage(f"{self.cluster.uri}{storage._directory}")
        assert other.read("delta/a") == b"abc"

    def test_a_rename_whose_answer_is_lost_is_found_out(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _lose_the_answer(storage, monkeypatch, happens=True)
        storage.write("delta/a", b"abc")
        assert self.get_raw(storage, "delta/a") == b"abc"

    def test_a_rename_that_did_not_happen_is_an_error(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage.write("delta/a", b"old")
        _lose_the_answer(storage, monkeypatch, happens=False)
        with pytest.raises(StorageError, match=r"delta/a.*lost"):
            storage.write("delta/a", b"new", overwrite=True)
        assert self.get_raw(storage, "delta/a") == b"old"
        assert self.names(storage, "delta") == ["a"]

    @pytest.mark.parametrize("answer", ["FileNotFoundException", "FileAlreadyExistsException"])
    def test_a_rename_that_was_repeated_at_another_namenode_is_found_out(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch, answer: str
    ) -> None:
        from hdfs.util import HdfsError

        rename = storage._client._rename

        def repeated(*arguments: object, **named: object) -> None:
            rename(*arguments, **named)
            raise HdfsError("it was renamed already", exception=answer)

        monkeypatch.setattr(storage._client, "_rename", repeated)
        storage.write("delta/a", b"abc")
        assert self.get_raw(storage, "delta/a") == b"abc"

    def test_a_datanode_that_breaks_off_is_followed_by_another_attempt(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "local").write_bytes(b"abc")
        _break_off(storage, monkeypatch, "write", 3, at="http://datanode:9864/webhdfs")
        storage.upload(tmp_path / "local", "shared/a")
        assert self.get_raw(storage, "shared/a") == b"abc"
        _break_off(storage, monkeypatch, "read", 3, at="http://datanode:9864/webhdfs")
        assert storage.read("shared/a") == b"abc"
        assert self.names(storage, "shared") == ["a"]
        _break_off(storage, monkeypatch, "write", 1, at=f"{self.cluster.web}/webhdfs")
        with pytest.raises(StorageError, match=r"shared/b.*lost"):
            storage.write("shared/b", b"abc")

    def test_when_nothing_can_be_seen_the_outcome_is_unknown(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _lose_the_answer(storage, monkeypatch, happens=True)

        def broken(*_: object, **__: object) -> None:
            raise _connection_error()

        real = storage._client.status
        monkeypatch.setattr(storage._client, "status", real)
        rename = storage._client._rename

        def rename_then_break(*arguments: object, **named: object) -> None:
            monkeypatch.setattr(storage._client, "status", broken)
            rename(*arguments, **named)

        monkeypatch.setattr(storage._client, "_rename", rename_then_break)
        with pytest.raises(UnknownOutcomeError, match="delta/a"):
            storage.write("delta/a", b"abc")

    @pytest.mark.parametrize("name", OTHER_ANSWERS)
    def test_an_error_is_no_absence(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        storage.write("delta/a", b"abc")
        _answer(storage, monkeypatch, *OTHER_ANSWERS[name])
        for action in ACTIONS:
            with pytest.raises(StorageError, match=r"cannot .*delta"):
                action(storage)

    @pytest.mark.parametrize("name", ["page", "login", "empty", "list"])
    def test_a_rename_that_something_else_answers_is_not_taken_for_done(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        storage.write("delta/a", b"old")
        _answer(storage, monkeypatch, *OTHER_ANSWERS[name], operation="RENAME")
        with pytest.raises(StorageError, match="the answer is not one of WebHDFS"):
            storage.write("delta/a", b"new", overwrite=True)
        assert self.get_raw(storage, "delta/a") == b"old"
        assert self.names(storage, "delta") == ["a"]

    def test_a_rename_is_not_taken_for_done_because_a_gateway_fails(
        self, storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage.write("delta/a", b"old")
        _answer(storage, monkeypatch, 502, b"<html>Bad Gateway</html>", operation="RENAME")
        _answer(storage, monkeypatch, 502, b"", operation="GETFILESTATUS", times=2)  # after the length
        with pytest.raises(UnknownOutcomeError, match="delta/a"):
            storage.write("delta/a", b"new", overwrite=True)
        assert self.get_raw(storage, "delta/a") == b"old"


def _answer(
    storage: WebHdfsStorage,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: bytes,
    *,
    operation: str | None = None,
    times: int | None = None,
) -> None:
    """Have something else than the NameNode answer the requests of an operation, or the second to `times`."""
    from requests import Response

    session, asked = storage._client._session, 0
    real = session.request

    def request(*arguments: Any, **named: Any) -> Response:
        nonlocal asked
        if operation in (None, named.get("params", {}).get("op")):
            asked += 1
            if times is None or 1 < asked <= times:
                answer = Response()
                answer.status_code, answer._content = status, body
                return answer
        return real(*arguments, **named)

    monkeypatch.setattr(session, "request", request)


def _lose_the_answer(storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch, *, happens: bool) -> None:
    rename = storage._client._rename

    def lossy(*arguments: object, **named: object) -> None:
        if happens:
            rename(*arguments, **named)
        raise _connection_error()

    monkeypatch.setattr(storage._client, "_rename", lossy)


def _break_off(
    storage: WebHdfsStorage, monkeypatch: pytest.MonkeyPatch, method: str, times: int, *, at: str
) -> None:
    """Let the next `times` calls of a method of the client break off at a URL."""
    real, left = getattr(storage._client, method), times

    def broken(*arguments: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if left >= 0:
            raise _connection_error(at)
        return real(*arguments, **named)

    monkeypatch.setattr(storage._client, method, broken)


def _connection_error(at: str | None = None) -> Exception:
    from requests import Request
    from requests.exceptions import ConnectionError as Lost

    return Lost("the connection was lost", request=Request("PUT", at) if at else None)


def test_an_address_without_a_service_is_named(tmp_path: Path) -> None:
    storage = open_storage("webhdfs://127.0.0.1:9/store")
    with pytest.raises(StorageError, match=r"webhdfs://127\.0\.0\.1:9/store/delta"):
        storage.list_files("delta")
