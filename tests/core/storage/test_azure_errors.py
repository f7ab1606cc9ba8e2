"""Answers of Azure's service that its stand-in does not give, or not at will."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("azure.storage.blob")
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from state_store.core.storage.objects import AzureStorage
from state_store.errors import ConflictError, StorageError


class Blob:
    """A blob, to which other writers complete an upload just before the first of ours are completed."""

    def __init__(self, others: int, *, is_there: bool = True) -> None:
        self.content: bytes | None = b"old" if is_there and not others else None
        self.others = others
        self.is_there = is_there

    def upload_blob(self, data: bytes | io.BufferedReader, *, length: int, overwrite: bool) -> None:
        content = data if isinstance(data, bytes) else data.read()
        assert len(content) == length
        if self.others:
            self.others -= 1
            self.content = b"of the other" if self.is_there else None
            raise answer("InvalidBlockList", 400)
        self.content = content

    def get_blob_properties(self) -> Any:
        if self.content is None:
            raise answer("BlobNotFound", 404, ResourceNotFoundError)
        return SimpleNamespace(name="a", metadata={})


def answer(code: str, status: int, kind: type[HttpResponseError] = HttpResponseError) -> HttpResponseError:
    error = kind("the service's words")
    error.error_code, error.status_code = code, status  # type: ignore[attr-defined]
    return error


def storage_of(blob: Blob) -> AzureStorage:
    return AzureStorage(SimpleNamespace(get_blob_client=lambda name: blob), "store", "abfs://c/store")


def test_a_new_file_of_another_writer_is_a_conflict(tmp_path: Path) -> None:
    """Its completion discards the blocks of every other upload to that name."""
    blob = Blob(others=1)
    with pytest.raises(ConflictError, match=r"snapshot/a\.zip"):
        storage_of(blob).write("snapshot/a.zip", b"mine")
    assert blob.content == b"of the other"


@pytest.mark.parametrize("uploads", [True, False])
def test_the_later_of_two_replacements_wins(tmp_path: Path, uploads: bool) -> None:
    blob, local = Blob(others=2), tmp_path / "local"
    local.write_bytes(b"mine")
    if uploads:
        storage_of(blob).upload(local, "snapshot/a.zip", overwrite=True)
    else:
        storage_of(blob).write("snapshot/a.zip", b"mine", overwrite=True)
    assert blob.content == b"mine"


def test_a_file_that_is_discarded_again_and_again_is_an_error() -> None:
    blob = Blob(others=1000, is_there=False)
    with pytest.raises(StorageError, match=r"snapshot/a\.zip.*InvalidBlockList"):
        storage_of(blob).write("snapshot/a.zip", b"mine")
    assert blob.others > 900
