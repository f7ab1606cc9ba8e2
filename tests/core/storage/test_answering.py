"""The first request to a service has a limit; later ones are passed on as they are."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from state_store.core import runtime
from state_store.core.storage.contract import AnsweringStorage
from state_store.core.storage.local import LocalStorage
from state_store.errors import MissingError, StorageError
from state_store.testing.storage import StorageConformance

URI = "s3://bucket/query"


class TestAnsweringStorage(StorageConformance):
    """A storage that has to answer is a storage."""

    def make_storage(self, tmp_path: Path) -> AnsweringStorage:
        return AnsweringStorage(URI, lambda: LocalStorage(str(tmp_path / "store")))

    def put_raw(self, storage: AnsweringStorage, path: str, data: bytes) -> None:
        self._file(storage, path).parent.mkdir(parents=True, exist_ok=True)
        self._file(storage, path).write_bytes(data)

    def get_raw(self, storage: AnsweringStorage, path: str) -> bytes | None:
        file = self._file(storage, path)
        return file.read_bytes() if file.exists() else None

    def _file(self, storage: AnsweringStorage, path: str) -> Path:
        assert isinstance(storage.inner, LocalStorage)
        return storage.inner.directory / path


class Silent(LocalStorage):
    """A storage that answers once `answers` is set."""

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory))
        self.answers = threading.Event()
        self.threads: list[threading.Thread] = []

    def exists(self, path: str) -> bool:
        self.answers.wait()
        return super().exists(path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.threads.append(threading.current_thread())
        self.answers.wait()
        return super().read(path, offset, length)


@pytest.fixture
def silent(tmp_path: Path):
    storage = Silent(tmp_path)
    yield storage
    storage.answers.set()
    runtime._left_behind.clear()


def test_a_service_that_is_silent_when_it_is_opened_is_given_up(silent: Silent) -> None:
    with pytest.raises(StorageError, match=f"'{URI}' did not answer"):
        AnsweringStorage(URI, lambda: silent.exists("file") and silent, limit_s=0.01)


def test_the_first_request_is_given_up_and_the_next_one_tries_again(silent: Silent) -> None:
    storage = AnsweringStorage(URI, lambda: silent, limit_s=0.01)
    with pytest.raises(StorageError, match=f"'{URI}' did not answer"):
        storage.read("file")
    silent.answers.set()
    storage = AnsweringStorage(URI, lambda: silent)
    with pytest.raises(MissingError):
        storage.read("file")
    assert silent.threads[-1] is not threading.current_thread()
    with pytest.raises(MissingError):
        storage.read("file")
    assert silent.threads[-1] is threading.current_thread()


def test_nothing_is_written_to_a_service_that_does_not_answer(silent: Silent, tmp_path: Path) -> None:
    storage = AnsweringStorage(URI, lambda: silent, limit_s=0.01)
    with pytest.raises(StorageError, match=f"'{URI}' did not answer"):
        storage.write("file", b"data")
    with pytest.raises(StorageError, match=f"'{URI}' did not answer"):
        storage.delete("file")
    assert list(tmp_path.iterdir()) == []
