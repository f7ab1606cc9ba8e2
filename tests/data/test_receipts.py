"""The receipts of stores that tasks have written: what others have left is removed."""

from __future__ import annotations

from state_store.core.checkpoint.stored_documents import MARKER
from state_store.core.storage import open_storage
from state_store.data.dataset.rewriting.store_writer import DIRECTORY, Receipts, WrittenStore
from state_store.data.query import StoreKey

KEY = StoreKey(0, 1, "default")


def test_tables_of_killed_tasks_are_removed_beside_those_that_count(tmp_path):
    storage, place = open_storage(str(tmp_path)), tmp_path / KEY.path
    storage.write(MARKER, b"{}")
    for name in ("6_a.zip", "6_b.zip", "SSTs/1-a.sst", "SSTs/2-a.sst", "SSTs/1-b.sst", "_metadata/schema"):
        storage.write(f"{KEY.path}/{name}", b"x")
    receipts = Receipts(str(tmp_path))
    written = WrittenStore("a", "6_a.zip", 3, 9, ("SSTs/1-a.sst", "SSTs/2-a.sst"))
    assert receipts.claim(KEY, written) == written
    assert receipts.of(KEY) == written
    receipts.settle([(KEY, written)])
    found = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    assert found == ["6_a.zip", "SSTs/1-a.sst", "SSTs/2-a.sst", "_metadata/schema"]
    assert not (tmp_path / DIRECTORY).exists()


def test_a_task_that_was_second_takes_what_the_first_has_written(tmp_path):
    storage = open_storage(str(tmp_path))
    storage.write(MARKER, b"{}")
    receipts = Receipts(str(tmp_path))
    first = WrittenStore("a", "6_a.zip", 3, 9, ("SSTs/1-a.sst",))
    for name in ("6_a.zip", "6_b.zip"):
        storage.write(f"{KEY.path}/{name}", b"x")
    receipts.claim(KEY, first)
    assert receipts.claim(KEY, WrittenStore("b", "6_b.zip", 3, 9, ("SSTs/1-b.sst",))) == first
    assert not (tmp_path / KEY.path / "6_b.zip").exists() and (tmp_path / KEY.path / "6_a.zip").exists()
