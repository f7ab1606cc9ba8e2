"""Deletions that have nothing to do with each other: a file that stays ends none of the others."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from state_store.core.storage.contract import MAX_FAILURES_IN_ROW, Failures, Storage
from state_store.core.storage.local import LocalStorage
from state_store.errors import BusyError, StorageError

FILES = ("a/1", "a/2", "a/3", "a/b/1", "a/b/2", "a/c/1")
STAYS = "a/b/1"


def stored(directory: Path) -> LocalStorage:
    storage = LocalStorage(directory)
    for path in FILES:
        storage.write(path, b"x")
    return storage


def files(directory: Path) -> list[str]:
    return [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()]


def test_by_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, delete = stored(tmp_path), LocalStorage.delete

    def refusing(own: LocalStorage, path: str) -> None:
        if path in ("a/1", STAYS):
            raise StorageError(f"cannot delete '{path}'", file=path)
        delete(own, path)

    monkeypatch.setattr(LocalStorage, "delete", refusing)
    monkeypatch.setattr(LocalStorage, "delete_directory", Storage.delete_directory)
    with pytest.raises(StorageError, match="cannot delete 'a/1'"):
        storage.delete_directory("a")
    assert sorted(files(tmp_path)) == ["a/1", STAYS]


def test_on_a_local_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, unlink = stored(tmp_path), os.unlink
    inode = (tmp_path / STAYS).stat().st_ino

    def refusing(name: str, *, dir_fd: int | None = None) -> None:
        if os.stat(name, dir_fd=dir_fd).st_ino == inode:
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refusing)
    with pytest.raises(StorageError, match=r"a'.*not permitted"):
        storage.delete_directory("a")
    assert files(tmp_path) == [STAYS]
    monkeypatch.undo()
    for _ in range(2):
        storage.delete_directory("a")
        assert files(tmp_path) == []


def test_on_azure() -> None:
    pytest.importorskip("azure.storage.blob")
    from azure.core.exceptions import HttpResponseError

    from state_store.core.storage.objects import AzureStorage

    blobs = {f"store/{path}" for path in FILES}

    def delete_blob(name: str, **_: object) -> None:
        if name == f"store/{STAYS}":
            raise HttpResponseError("it is held by a policy")
        blobs.discard(name)

    container = SimpleNamespace(list_blob_names=lambda **_: list(blobs), delete_blob=delete_blob)
    with pytest.raises(StorageError, match="held by a policy"):
        AzureStorage(container, "store", "abfs://c/store").delete_directory("a")
    assert blobs == {f"store/{STAYS}"}


def test_a_service_that_refuses_all_is_not_asked_for_ever() -> None:
    asked: list[int] = []
    failures = Failures()

    def delete(number: int) -> None:
        asked.append(number)
        if number != 5:
            raise StorageError(f"cannot delete {number}")

    for number in range(100):
        failures.attempt(delete, number)
    assert asked == list(range(5 + 1 + MAX_FAILURES_IN_ROW))
    with pytest.raises(StorageError, match="cannot delete 0"):
        failures.check()


def test_the_end_of_the_time_ends_all() -> None:
    def late() -> None:
        raise BusyError("the time is over")

    with pytest.raises(BusyError):
        Failures().attempt(late)
