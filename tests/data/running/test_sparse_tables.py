"""Look-ups in stored tables of which only the tails are local: right answers or errors, by few requests."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from state_store.core.checkpoint.names import EMPTY_PARENT
from state_store.core.checkpoint.stored_documents import DeltaMetadata
from state_store.core.engine.database import write_delta
from state_store.core.files.workspace import LocalCache, Workspace
from state_store.core.runtime import SYSTEM
from state_store.core.snapshots.context import StoreContext
from state_store.core.storage.contract import ForwardingStorage
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.partitions import READING
from state_store.data.dataset.rewriting import catching_up as module
from state_store.data.dataset.rewriting.catching_up import SparseTables, Table
from state_store.errors import DamagedError

KEYS = 20_000


class Counted(ForwardingStorage):
    """Storage that counts the bytes and the spans that are fetched."""

    def __init__(self, inner: LocalStorage) -> None:
        super().__init__(inner)
        self.bytes = self.spans = 0

    def download_spans(self, spans):
        self.spans += len(spans)
        self.bytes += sum(span.size_bytes for span in spans)
        return self.inner.download_spans(spans)


def key(number: int) -> bytes:
    return b"\0\0key-%08d" % number


class Store:
    """A large table, and younger ones that change some of its keys."""

    def __init__(self, root: Path, large_row: int = 0) -> None:
        self.root = root
        self.storage = Counted(LocalStorage(root / "store"))
        draw = random.Random(3)
        self.rows: dict[bytes, bytes] = {}
        base = {key(2 * number): draw.randbytes(60) for number in range(KEYS)}
        if large_row:
            base[min(base)] = base[max(base)] = draw.randbytes(large_row)
        self.tables = [self._stored(base)]
        for _ in range(3):
            changed = draw.sample(range(2 * KEYS), 2_000)
            self.tables.append(
                self._stored({key(number): draw.choice((None, draw.randbytes(60))) for number in changed})
            )

    def _stored(self, rows: dict[bytes, bytes | None]) -> Table:
        self.rows = {k: v for k, v in {**self.rows, **rows}.items() if v is not None}
        local = self.root / f"{len(list(self.root.iterdir()))}.sst"
        size_bytes, _ = write_delta(
            local,
            sorted(rows.items()),
            DeltaMetadata(4, "id", EMPTY_PARENT, len(rows), len(rows), 0, {}, "tests"),
        )
        table = module._stored_table(4, local, size_bytes, SYSTEM)
        self.storage.upload(local, table.path)
        return table

    def opened(self) -> SparseTables:
        directory = self.root / SYSTEM.unique(4)
        workspace = Workspace(directory)
        workspace.open()
        cache = LocalCache(directory / "cache", 0).store("x")
        context = StoreContext(self.storage, cache, workspace, READING)
        with workspace.new_base(4) as base:
            return SparseTables(context, self.tables, base)

    def path(self, number: int) -> Path:
        return self.root / "store" / self.tables[number].path


@pytest.mark.parametrize("large_row", [0, 300_000])
def test_keys_are_found_by_few_requests_that_bring_few_bytes(tmp_path, large_row):
    store, draw = Store(tmp_path, large_row), random.Random(4)
    with closing(store.opened()) as tables:
        for first in (0, KEYS, 500):
            keys = [key(number) for number in sorted(draw.sample(range(first, first + KEYS), 60))]
            store.storage.spans = store.storage.bytes = 0
            assert tables.exist(keys) == [name in store.rows for name in keys]
            assert store.storage.spans <= 80
            assert 0 < store.storage.bytes < store.tables[0].size_bytes / 4
        everything = [key(number) for number in range(2 * KEYS)]
        assert tables.exist(everything) == [name in store.rows for name in everything]
        assert tables.exist([b"\0\0a", b"\0\0z"]) == [False, False]
        assert len(tables.files(7)) == 4
        assert {file.origin for file in tables.files(7).values()} == {7}


def test_a_block_that_is_damaged_in_storage_is_an_error(tmp_path):
    store = Store(tmp_path)
    data = bytearray(store.path(0).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 20] = bytes(20)
    store.path(0).chmod(0o600)
    store.path(0).write_bytes(data)
    with closing(store.opened()) as tables:
        assert tables.exist([key(0)]) == [key(0) in store.rows]
        with pytest.raises(DamagedError, match="is damaged") as raised:
            tables.exist([key(number) for number in range(2 * KEYS)])
    assert raised.value.file == f"{store.storage.location}/{store.tables[0].path}"


def test_another_file_under_the_name_of_a_table_is_an_error(tmp_path):
    store = Store(tmp_path)
    data = store.path(2).read_bytes()
    store.path(1).chmod(0o600)
    store.path(1).write_bytes(data)
    with pytest.raises(DamagedError):
        store.opened()


def test_blocks_that_were_looked_at_take_no_disk_afterwards(tmp_path):
    store = Store(tmp_path)
    with closing(store.opened()) as tables:
        before = _disk_bytes(tmp_path)
        assert tables.exist([key(number) for number in range(2 * KEYS)]).count(True) == len(store.rows)
        assert _disk_bytes(tmp_path) < before + store.tables[0].size_bytes / 4


def _disk_bytes(root: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in root.rglob("base-*/*.sst"))
