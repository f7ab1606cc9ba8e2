"""Storage through the JVM: the contract against a stand-in for the JVM on a directory, and frame limits.

The same kit runs against the real JVM with the tests of the bridge.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from state_store.core.storage import hadoop, local_disk
from state_store.core.storage.contract import Span
from state_store.core.storage.hadoop import HadoopStorage
from state_store.core.storage.local import LocalStorage
from state_store.errors import LocalDiskError, StateStoreError, StorageError
from state_store.testing.storage import StorageConformance

_SCHEME = "other://host"


class _Calls:
    """The JVM's side of the `fs` calls as docs/protocol.md has them, on a local directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.largest_body = 0
        self.operations: list[str] = []

    def fs(self, operation: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        kind = operation.pop("fs")
        path = operation.pop("path")
        assert path.startswith(_SCHEME)
        self.operations.append(kind)
        directory, _, name = path[len(_SCHEME) :].rpartition("/")
        answer, data = getattr(self, f"_{kind}")(self._root / directory[1:], name, body, **operation)
        self.largest_body = max(self.largest_body, len(data), len(body))
        return answer, data

    def _list(self, at: Path, name: str, body: bytes, **given: Any) -> tuple[dict[str, Any], bytes]:
        after = given["after"]
        entries = [
            entry for entry in LocalStorage(at).list_files(name) if after is None or entry.name > after
        ]
        page = [
            {"name": entry.name, "bytes": entry.size_bytes, "modified_ms": entry.modified_ms}
            for entry in entries[: given["most"]]
        ]
        return {"entries": page, "more": len(page) < len(entries)}, b""

    def _read(
        self, at: Path, name: str, body: bytes, offset: int, length: int
    ) -> tuple[dict[str, Any], bytes]:
        return {}, LocalStorage(at).read(name, offset, length)

    def _write(
        self, at: Path, name: str, body: bytes, overwrite: bool, upload: str | None = None
    ) -> tuple[dict[str, Any], bytes]:
        data = body if upload is None else Path(upload).read_bytes()
        if not at.is_dir():
            raise StorageError("no directory")
        LocalStorage(at).write(name, data, overwrite=overwrite)
        return {}, b""

    def _download(self, at: Path, name: str, body: bytes, to: str) -> tuple[dict[str, Any], bytes]:
        Path(to).write_bytes(LocalStorage(at).read(name))
        return {}, b""

    def _spans(
        self, at: Path, name: str, body: bytes, spans: list[dict[str, Any]]
    ) -> tuple[dict[str, Any], bytes]:
        copied = []
        for span in spans:
            numbers = span["pieces"]
            directory, _, file = span["path"][len(_SCHEME) :].rpartition("/")
            pieces = tuple(zip(numbers[::2], numbers[1::2], strict=True))
            wanted_span = Span(file, Path(span["to"]), pieces)
            try:
                copied += LocalStorage(self._root / directory[1:]).download_spans([wanted_span])
            except StateStoreError as error:  # the JVM names a file as the request does
                raise type(error)(error.message, file=span["path"]) from error
        return {"copied": copied}, b""

    def _delete(self, at: Path, name: str, body: bytes) -> tuple[dict[str, Any], bytes]:
        LocalStorage(at).delete(name)
        return {}, b""

    def _exists(self, at: Path, name: str, body: bytes) -> tuple[dict[str, Any], bytes]:
        return {"exists": LocalStorage(at).exists(name)}, b""

    def _mkdirs(self, at: Path, name: str, body: bytes) -> tuple[dict[str, Any], bytes]:
        (at / name).mkdir(parents=True, exist_ok=True)
        return {}, b""


class TestHadoopStorage(StorageConformance):
    tells_directories = False

    def make_storage(self, tmp_path: Path) -> HadoopStorage:
        self.root = tmp_path / "remote"
        self.calls = _Calls(self.root)
        return HadoopStorage(f"{_SCHEME}/store", self.calls)

    def put_raw(self, storage: HadoopStorage, path: str, data: bytes) -> None:
        target = self.root / "store" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def get_raw(self, storage: HadoopStorage, path: str) -> bytes | None:
        target = self.root / "store" / path
        return target.read_bytes() if target.exists() else None

    def test_no_body_outgrows_a_frame(self, storage: HadoopStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hadoop, "CHUNK_BYTES", 1000)
        data = bytes(range(250)) * 10
        storage.write("delta/a", data)
        assert storage.read("delta/a") == data
        assert storage.read("delta/a", 10, 2000) == data[10:2010]
        assert self.calls.largest_body <= 1000

    def test_a_directory_is_made_once(self, storage: HadoopStorage) -> None:
        storage.write("delta/a", b"")
        storage.write("delta/b", b"")
        assert self.calls.operations == ["mkdirs", "write", "write"]


class _FullDisk(_Calls):
    """A JVM that cannot write what it has read."""

    def __init__(self, root: Path, why: str) -> None:
        super().__init__(root)
        self.why = why

    def _download(self, at: Path, name: str, body: bytes, **given: Any) -> tuple[dict[str, Any], bytes]:
        raise StorageError(self.why)

    def _spans(self, at: Path, name: str, body: bytes, **given: Any) -> tuple[dict[str, Any], bytes]:
        raise StorageError(self.why)

    def _write(self, at: Path, name: str, body: bytes, **given: Any) -> tuple[dict[str, Any], bytes]:
        raise StorageError(self.why)


def _downloads(storage: HadoopStorage, local: Path) -> list[Callable[[], object]]:
    return [
        lambda: storage.download("delta/a", local),
        lambda: storage.download_spans([Span("delta/a", local, ((0, 50_000),))]),
        lambda: storage.download_spans(
            [Span("delta/a", local, ((0, 30_000),)), Span("delta/b", local, ((9, 30_000),))]
        ),
    ]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    ("why", "free_bytes", "says"),
    [
        ("java.io.IOException: No space left on device", 1 << 30, "is full: No space left .*free space"),
        ("java.io.IOException: Disk quota exceeded", 1 << 30, "is full: Disk quota exceeded"),
        ("java.io.IOException: Read-only file system", 1 << 30, "Read-only file system"),
        ("java.io.IOException: Auf dem Gerät ist kein Speicherplatz mehr verfügbar", 5_000, "is full"),
    ],
)
def test_a_download_that_the_local_disk_refuses_blames_that_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, why: str, free_bytes: int, says: str
) -> None:
    monkeypatch.setattr(local_disk, "free_bytes", lambda directory: free_bytes)
    storage = HadoopStorage(f"{_SCHEME}/store", _FullDisk(tmp_path, why))
    local = tmp_path / "base" / "000009.sst"
    local.parent.mkdir()
    with pytest.raises(LocalDiskError, match=says) as raised:
        _downloads(storage, local)[number]()
    assert str(local.parent) in raised.value.message
    assert "localDir" in raised.value.message
    assert "state-store files" not in raised.value.message


@pytest.mark.parametrize("number", range(3))
def test_a_download_that_storage_refuses_blames_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(local_disk, "free_bytes", lambda directory: 60_000)
    storage = HadoopStorage(f"{_SCHEME}/store", _FullDisk(tmp_path, "java.net.SocketTimeoutException: read"))
    with pytest.raises(StorageError, match=r"cannot .* 'other://host/store/delta/a': java\.net") as raised:
        _downloads(storage, tmp_path / "a")[number]()
    assert not isinstance(raised.value, LocalDiskError)


def test_a_write_that_finds_no_space_blames_storage(tmp_path: Path) -> None:
    storage = HadoopStorage(f"{_SCHEME}/store", _FullDisk(tmp_path, "IOException: No space left on device"))
    with pytest.raises(StorageError, match="state-store files") as raised:
        storage.write("delta/a", b"1")
    assert not isinstance(raised.value, LocalDiskError)
