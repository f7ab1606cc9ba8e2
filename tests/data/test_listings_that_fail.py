"""A listing of directories that fails is no empty one: what is there would be passed over."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from data.query_directory import QueryDirectory
from faults import Call, FaultyStorage

from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.export import listed_names
from state_store.data.query.operators import operators_of
from state_store.data.query.query import Query, absence
from state_store.errors import DamagedError, StorageError
from state_store.observe.look import CountedStorage, Requests

DENIED = "Permission denied"


def denied(call: Call) -> Any:
    raise call.failed(DENIED)


def refusing(root: Path, operation: str = "directories") -> FaultyStorage:
    """Return the files of a directory, of which one kind of question is refused."""
    return FaultyStorage(LocalStorage(root), lambda asked, path: denied if asked == operation else None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    query = QueryDirectory(tmp_path / "query", tmp_path / "scratch")
    query.commit({b"a": b"1"})
    return tmp_path / "query"


def test_an_operator_without_metadata_is_not_passed_over(root: Path) -> None:
    """A copy would leave its state out."""
    shutil.copytree(root / "state/0/0", root / "state/1/0")
    with pytest.raises(StorageError, match=DENIED):
        operators_of(refusing(root))


def test_an_operator_without_metadata_is_not_fine_for_the_doctor(root: Path) -> None:
    """It looks through a storage that counts its requests."""
    shutil.copytree(root / "state/0/0", root / "state/1/0")
    with pytest.raises(DamagedError, match="has state of operator 1"):
        operators_of(CountedStorage(LocalStorage(root), Requests()))


def test_stores_in_other_partitions_are_not_passed_over(root: Path) -> None:
    opened = Query.open(str(root))
    with pytest.raises(StorageError, match=DENIED):
        Query(str(root), refusing(root), opened.operators).unexpected_partitions()


@pytest.mark.parametrize(
    "removed", [["metadata", "offsets", "commits"], ["state/0/_metadata"]], ids=["logs", "description"]
)
def test_a_directory_is_not_called_something_else(root: Path, removed: list[str]) -> None:
    for name in removed:
        remove(root / name)
    with pytest.raises(StorageError, match=DENIED):
        absence(refusing(root), str(root))


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.parametrize("operation", ["list", "directories"])
def test_a_directory_of_rows_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/a.parquet").write_bytes(b"x")
    storage = refusing(tmp_path, operation)
    monkeypatch.setattr("state_store.data.dataset.export._parted", lambda location: (storage, "rows"))
    with pytest.raises(StorageError, match=DENIED):
        listed_names("s3://bucket/rows")
