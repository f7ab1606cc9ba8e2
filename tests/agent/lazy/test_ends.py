"""Ends of files that a lazy restore asks for: wrong ones are refused, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import Call, FaultyStorage, once, short_read, unavailable

from agent.harness import Job, rows_of
from agent.lazy.remote_storage import reader
from state_store.core.checkpoint.names import SnapshotName
from state_store.core.deletion.lease import read_archive
from state_store.core.files.sparse import end_bytes, make_sparse
from state_store.core.files.transfer import Wanted
from state_store.core.snapshots.context import wanted_tables
from state_store.core.storage.local import LocalStorage
from state_store.errors import DamagedError, StorageError


@pytest.fixture
def storage(written: Job) -> FaultyStorage:
    return FaultyStorage(LocalStorage(written.location))


@pytest.fixture
def table(written: Job, storage: FaultyStorage, tmp_path: Path) -> Wanted:
    """Return the tables of the full snapshot, to be made below a directory of their own."""
    (path,) = written.location.glob("snapshot/*")
    name = SnapshotName.parse(path.name)
    assert name is not None
    (tmp_path / "base").mkdir()
    return wanted_tables(read_archive(storage, name).manifest, tmp_path / "base")[0]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.unlink()
    path.write_bytes(data)


def reads(storage: FaultyStorage) -> int:
    return sum(operation == "read" for operation, _ in storage.calls)


def test_an_end_comes_to_its_place_in_one_request(storage: FaultyStorage, table: Wanted) -> None:
    before = reads(storage)
    file, requests = make_sparse(storage, table, table.target.parent)
    assert file is not None and (requests, reads(storage) - before) == (1, 1)
    stored, made = storage.inner.read(table.path), table.target.read_bytes()
    local_bytes = end_bytes(table.size_bytes)
    assert made == bytes(table.size_bytes - local_bytes) + stored[-local_bytes:]


def test_the_end_of_another_file_is_not_taken(written: Job, storage: FaultyStorage, table: Wanted) -> None:
    flip(written.location / table.path, -200)
    assert make_sparse(storage, table, table.target.parent) == (None, 1)
    assert not list(table.target.parent.iterdir())


def test_an_end_that_fails_once_is_asked_for_again(storage: FaultyStorage, table: Wanted) -> None:
    storage.fault = once("read", table.path, unavailable)
    file, _ = make_sparse(storage, table, table.target.parent)
    assert file is not None and storage.faults == 1
    local_bytes = end_bytes(table.size_bytes)
    assert table.target.read_bytes()[-local_bytes:] == storage.inner.read(table.path)[-local_bytes:]


@pytest.mark.parametrize(("fault", "error"), [(None, StorageError), (short_read, DamagedError)])
def test_an_end_that_does_not_come_leaves_no_file(
    storage: FaultyStorage, table: Wanted, fault: object, error: type[Exception]
) -> None:
    def fails(call: Call) -> object:
        raise call.failed("it is down")

    storage.fault = lambda operation, path: fault or fails
    with pytest.raises(error, match=table.path):
        make_sparse(storage, table, table.target.parent)
    assert not list(table.target.parent.iterdir())


def test_a_table_whose_end_is_damaged_is_done_without(written: Job, table: Wanted, tmp_path: Path) -> None:
    flip(written.location / table.path, -200)
    job = reader(written, tmp_path / "reader")
    answer = job.restore_by_blocks(5)
    assert any(table.path in warning for warning in answer["warnings"])
    assert rows_of(answer) == written.state
