"""Storage through the JVM: the contract against a stand-in for the JVM on a directory, and frame limits.

The same kit runs against the real JVM with the tests of the bridge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from state_store.core.storage import hadoop
from state_store.core.storage.contract import Span
from state_store.core.storage.hadoop import HadoopStorage
from state_store.core.storage.local import LocalStorage
from state_store.errors import StorageError
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

    def _download(
        self, at: Path, name: str, body: bytes, to: str, offset: int = 0, length: int | None = None
    ) -> tuple[dict[str, Any], bytes]:
        if length is not None:
            return {"bytes": LocalStorage(at).download_part(name, Path(to), offset, length)}, b""
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
            copied += LocalStorage(self._root / directory[1:]).download_spans(
                [Span(file, Path(span["to"]), pieces)]
            )
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
