"""New partitions that are large: snapshots of tables of a bounded size, and the rows of any other."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from dataset.golden_states import VERSIONS, checkpoint, expected, in_order, shown

import state_store
from running.running_query import RunningQuery
from state_store.cli.main import main
from state_store.core.runtime import SYSTEM
from state_store.core.snapshots import streamed_merge
from state_store.data.dataset.rewriting import store_writer
from state_store.data.dataset.rewriting.copying import repartition
from state_store.data.dataset.rewriting.store_writer import Receipts, StoreWriter, pieces
from state_store.data.query import Query, StoreKey
from state_store.data.query.targets import new_checkpoint
from state_store.data.rows.batches import SortedSpool
from state_store.errors import DamagedError

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0"
TABLE = 60
"""Bytes of the rows of a table: one or two rows."""


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "MAX_DELTA_BYTES", 0)
    monkeypatch.setattr(streamed_merge, "MIN_TABLE_BYTES", 1)
    monkeypatch.setattr(StoreWriter, "_table_bytes", lambda *_: TABLE)


def tables(store: Path) -> list[Path]:
    return sorted((store / "shared").glob("*.sst"))


def without_partition(rows: list[dict]) -> list[dict]:
    return in_order({name: value for name, value in row.items() if name != "partition_id"} for row in rows)


def stores(target: Path) -> list[Path]:
    return [path.parent for path in sorted(target.rglob("shared"))]


def check_tables(target: Path) -> None:
    """Check that each store is a snapshot of tables of which none is larger than a table may be."""
    assert not list(target.rglob("*/delta/*.sst"))
    assert max(len(tables(store)) for store in stores(target)) > 1
    for store in stores(target):
        assert len(list((store / "snapshot").iterdir())) == 1
        assert max(path.stat().st_size for path in tables(store)) < TABLE + 2_500  # what surrounds the rows


def test_rows_are_the_same_and_each_is_found(tmp_path: Path) -> None:
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    done = repartition(source, str(target), 3)
    rows = expected("flights", VERSIONS[-1])
    assert done.rows == len(rows)
    assert done.size_bytes == sum(path.stat().st_size for path in target.rglob("shared/*")) + sum(
        path.stat().st_size for path in target.rglob("snapshot/*")
    )
    check_tables(target)
    with state_store.open(str(target)) as state:
        found = [shown(row) for row in state.to_arrow().to_pylist()]
        assert without_partition(found) == without_partition(rows)
        for row in found[:5]:
            again = state.get({key: row[key] for key in state.columns.key_names})
            assert again is not None and shown(again) == row
    assert main(["verify", str(target)]) == 0
    back = tmp_path / "back"
    repartition(str(target), str(back), 2)
    with state_store.open(str(back)) as state:
        assert in_order(shown(row) for row in state.to_arrow().to_pylist()) == rows


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_a_query_goes_on_from_them(form: str, tmp_path: Path) -> None:
    """A later version is made of the snapshot and a delta, whether Spark gives ids or not."""
    source = Path(shutil.copytree(JOIN / form, tmp_path / form))
    target = tmp_path / "target"
    repartition(str(source), str(target), 3)
    check_tables(target)
    query = RunningQuery(target, 1)
    query.batch()
    for store in ("left-keyWithIndexToValue", "right-keyToNumValues"):
        with state_store.open(str(target), store=store) as state:
            assert state.version == Query.open(str(source)).newest_batch() + 2
            assert state.count() == len(state.to_arrow())
    assert main(["verify", str(target)]) == 0


def test_an_import_writes_them(tmp_path: Path) -> None:
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    with state_store.open(source) as state:
        rows = state.to_arrow()
    state_store.import_state(source, rows, str(target))
    check_tables(target)
    with state_store.open(str(target)) as state:
        assert in_order(state.to_arrow().to_pylist()) == in_order(rows.to_pylist())


def test_a_repartition_beside_a_query_begins_with_several_tables(tmp_path: Path) -> None:
    source, targets = tmp_path / "source", [tmp_path / "beside", tmp_path / "stopped"]
    query = RunningQuery(Path(shutil.copytree(JOIN / "ids", source)), 1)
    repartition(str(source), str(targets[0]), 3, running=True)
    query.batch()
    for target in targets:
        repartition(str(source), str(target), 3)
    assert max(len(tables(store)) for store in stores(targets[0])) > 1
    for store in ("left-keyWithIndexToValue", "right-keyToNumValues"):
        rows = []
        for target in targets:
            with state_store.open(str(target), store=store) as state:
                rows.append(in_order(state.to_arrow().to_pylist()))
        assert rows[0] == rows[1]
    assert main(["verify", str(targets[0])]) == 0


def test_rows_that_the_disk_loses_on_the_way_are_missed(tmp_path, monkeypatch):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    merged = SortedSpool.merged
    monkeypatch.setattr(SortedSpool, "merged", lambda *of: (batch.slice(1) for batch in merged(*of)))
    with pytest.raises(DamagedError, match=r"4 rows of store 0/0/default came back"):
        repartition(source, str(target), 1)
    assert not target.exists()


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_the_tables_of_a_task_that_was_second_or_was_killed_are_removed(form: str, tmp_path: Path) -> None:
    query = Query.open(str(shutil.copytree(JOIN / form, tmp_path / form)))
    (operator,), name = query.operators, "left-keyWithIndexToValue"
    (piece, *_) = pieces(0, name, operator.stores[name], operator.stores[name])
    key = StoreKey(0, piece.targets[0], name)
    store, version = tmp_path / "target" / key.path, query.committed_batch() + 1
    with new_checkpoint("a job", query.location, str(tmp_path / "target"), goes_on=True) as (_, location):
        receipts = Receipts(location)

        class Unaware(Receipts):
            """Receipts of which a task has seen none when it began."""

            looks = itertools.count()

            def of(self, key):
                return None if next(self.looks) == 0 else super().of(key)

        def write(counts: Receipts) -> store_writer.WrittenStore:
            writer = StoreWriter(
                query, operator, piece, location, version, form == "ids", counts, None, SYSTEM
            )
            return writer.write()[key.partition]

        write(store_writer.NoReceipts(location))  # killed before it made its receipt
        first = write(receipts)
        both = tables(store)
        assert write(Unaware(location)) == first
        assert tables(store) == both
        receipts.remove_orphans([(key, first)])
    assert {f"shared/{path.name}" for path in tables(store)} == set(first.others)
    assert [f"snapshot/{path.name}" for path in (store / "snapshot").iterdir()] == [first.path]
    assert len(both) == 2 * len(first.others)
