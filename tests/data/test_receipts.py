"""The receipts of stores that tasks have written: what others have left is removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from state_store.core.checkpoint.stored_documents import MARKER
from state_store.core.storage import open_storage
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.rewriting.store_writer import Receipts, WrittenStore
from state_store.data.query import StoreKey
from state_store.data.query.targets import RECEIPTS
from state_store.errors import BusyError, StorageError

KEY = StoreKey(0, 1, "default")


FIRST = WrittenStore("a", "6_a.zip", 3, 9, ("6_a.zip.crc", "SSTs/1-a.sst", "SSTs/2-a.sst"))
OF_FIRST = {"6_a.zip", "6_a.zip.crc", "SSTs/1-a.sst", "SSTs/2-a.sst", "_metadata/schema"}
SECOND = WrittenStore("b", "6_b.zip", 3, 9, ("6_b.zip.crc", "SSTs/1-b.sst"))


def stored(place: Path, *written: WrittenStore) -> Receipts:
    """Store the files of a store as tasks have written it; return the receipts."""
    storage = open_storage(str(place))
    storage.write(MARKER, b"{}")
    for path in (path for store in written for path in (store.path, *store.others, "_metadata/schema")):
        storage.write(f"{KEY.path}/{path}", b"x", overwrite=True)
    return Receipts(str(place))


def files(place: Path) -> set[str]:
    below = place / KEY.path
    return {path.relative_to(below).as_posix() for path in below.rglob("*") if path.is_file()}


def test_files_of_killed_tasks_are_removed_beside_those_that_count(tmp_path):
    receipts = stored(tmp_path, FIRST, SECOND)
    assert receipts.claim(KEY, FIRST) == FIRST == receipts.of(KEY)
    receipts.remove_orphans([(KEY, FIRST)])
    assert files(tmp_path) == OF_FIRST
    assert receipts.of(KEY) == FIRST


def test_a_task_that_was_second_takes_what_the_first_has_written(tmp_path):
    receipts = stored(tmp_path, FIRST, SECOND)
    receipts.claim(KEY, FIRST)
    assert receipts.claim(KEY, SECOND) == FIRST
    assert files(tmp_path) == OF_FIRST


def test_the_receipt_names_the_files_that_stay_if_two_tasks_were_told_that_theirs_count(
    tmp_path, monkeypatch
):
    """Object storage looks a name up before it writes: two copies of a task may both find none."""
    receipts = stored(tmp_path, FIRST, SECOND)
    receipts.claim(KEY, FIRST)
    with monkeypatch.context() as patch:
        write = LocalStorage.write
        patch.setattr(LocalStorage, "write", lambda own, path, data: write(own, path, data, overwrite=True))
        assert receipts.claim(KEY, SECOND) == SECOND
    receipts.remove_orphans([(KEY, FIRST)])
    assert files(tmp_path) == OF_FIRST
    assert receipts.of(KEY) == FIRST, "a job that is started again takes the files that are there"


def test_a_task_that_outlives_its_job_leaves_nothing(tmp_path):
    receipts = stored(tmp_path, FIRST, SECOND)
    (tmp_path / MARKER).unlink()
    with pytest.raises(BusyError, match="has ended without this task"):
        receipts.claim(KEY, SECOND)
    assert files(tmp_path) == OF_FIRST


def test_a_task_that_outlives_its_run_gives_no_rows_to_the_next(tmp_path):
    """An import that failed may be called again at once, with other rows, while a task of it still writes."""
    stored(tmp_path, FIRST, SECOND)
    before, after = (Receipts(str(tmp_path), run=run) for run in ("before", "after"))
    before.begin()
    assert before.claim(StoreKey(0, 0, "default"), FIRST) == FIRST
    shutil.rmtree(tmp_path / RECEIPTS)  # as after a failure
    after.begin()
    with pytest.raises(BusyError, match="has ended without this task"):
        before.claim(KEY, FIRST)
    assert after.of(KEY) is None and after.claim(KEY, SECOND) == SECOND == after.of(KEY)
    assert files(tmp_path) == {"_metadata/schema", SECOND.path, *SECOND.others}


def test_a_file_that_stays_ends_no_other_deletion(tmp_path, monkeypatch):
    """A snapshot that stays keeps its tables; files of other stores are removed all the same."""
    other = StoreKey(0, 2, "default")
    receipts = stored(tmp_path, FIRST, SECOND)
    storage, delete = open_storage(str(tmp_path)), LocalStorage.delete
    for path in (FIRST.path, SECOND.path, *SECOND.others):
        storage.write(f"{other.path}/{path}", b"x")
    stays = f"{KEY.path}/{SECOND.path}"

    def refusing(own, path):
        if path == stays:
            raise StorageError(f"cannot delete '{path}'", file=path)
        delete(own, path)

    monkeypatch.setattr(LocalStorage, "delete", refusing)
    with pytest.raises(StorageError, match=SECOND.path):
        receipts.remove_orphans([(KEY, FIRST), (other, FIRST)])
    assert files(tmp_path) == OF_FIRST | {SECOND.path, "SSTs/1-b.sst"}
    assert {path.name for path in (tmp_path / other.path).rglob("*.*")} == {FIRST.path}

    receipts.claim(KEY, SECOND)
    stays = f"{KEY.path}/{FIRST.path}"
    with pytest.raises(StorageError, match="6_a"):
        receipts.claim(KEY, FIRST)
    assert files(tmp_path) == OF_FIRST - {"6_a.zip.crc"} | {SECOND.path, "SSTs/1-b.sst"}
    stays = f"{KEY.path}/SSTs/1-a.sst"
    with pytest.raises(StorageError, match="1-a"):
        receipts.claim(KEY, FIRST)
    assert files(tmp_path) == {"_metadata/schema", SECOND.path, "SSTs/1-a.sst", "SSTs/1-b.sst"}


def test_a_snapshot_is_removed_before_its_tables(tmp_path, monkeypatch):
    removed = []
    delete = LocalStorage.delete
    monkeypatch.setattr(
        LocalStorage,
        "delete",
        lambda self, path: (removed.append(path.rpartition("/")[2]), delete(self, path)),
    )
    receipts = stored(tmp_path, FIRST, SECOND)
    receipts.claim(KEY, FIRST)
    receipts.claim(KEY, SECOND)
    assert removed == ["6_b.zip", "6_b.zip.crc", "1-b.sst"]
    (tmp_path / MARKER).unlink()
    stored(tmp_path, SECOND)
    receipts.remove_orphans([(KEY, FIRST)])
    assert set(removed[3:5]) == {"6_b.zip", "6_b.zip.crc"} and removed[5:] == ["1-b.sst"]
