"""Lists that Spark 4.1 wrote (`tests/golden/write_lists.py`) go to another store, and the query goes on.

The offset log of Spark 4.1 does not say how RocksDB joins the values of a list, and this Spark joins those of
new queries in another way.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden import write_lists
from queries.small.flow import session_options
from queries.store_choices import OURS, OURS_IDS, ROCKSDB_SNAPSHOTS, Store

import state_store
from state_store.core.settings.session import MERGE_OPERATOR_KEY

pytestmark = [
    pytest.mark.spark,
    pytest.mark.tier("more"),
    pytest.mark.older(long=("4.2",)),
    pytest.mark.timeout(1200),
]

GOLDEN = Path(write_lists.__file__).parent / "lists-of-spark-4.1"
ROCKSDB = Store("rocksdb", 1)
ROUTES = [
    ("rocksdb", [OURS_IDS, ROCKSDB]),
    ("incremental", [ROCKSDB_SNAPSHOTS, OURS]),
]


@pytest.mark.parametrize(("begun", "stores"), ROUTES, ids=[begun for begun, _ in ROUTES])
def test_lists_of_an_older_spark_are_whole_on_each_store(spark, tmp_path, begun, stores):
    place = tmp_path / "state" / "0" / "_stateSchema" / "a b%20" / "commits" / "metadata"
    source = Path(shutil.copytree(GOLDEN / begun, place / "golden"))
    assert MERGE_OPERATOR_KEY not in (source / "offsets/2").read_text()
    for leg, store in enumerate(stores):
        target = place / "state" / f"leg-{leg}"
        done = state_store.migrate(source, target, store.name, checkpoint_format=store.format)
        batches = write_lists.BATCHES + leg
        assert done.rows == batches * write_lists.ROWS_PER_BATCH + write_lists.KEYS
        if store.name == "incremental":
            assert values(target) == expected(batches)
        with session_options(spark, {**store.conf(), "spark.sql.shuffle.partitions": 1}):
            assert write_lists.run(spark, target, 1) == [write_lists.told(batches + 1)]
        source = target


def test_a_list_that_is_read_in_another_way_is_refused(tmp_path):
    """Nothing is left in the target, and the message names the store."""
    for begun, to in (("rocksdb", "incremental"), ("incremental", "rocksdb")):
        source = Path(shutil.copytree(GOLDEN / begun, tmp_path / begun))
        with pytest.raises(state_store.StateStoreError, match=r"version 3 of store 0/0/default") as raised:
            state_store.migrate(source, tmp_path / "target", to, conf={MERGE_OPERATOR_KEY: "2"})
        assert "list of values" in raised.value.message
        assert not (tmp_path / "target").exists()


def values(checkpoint: Path) -> list[tuple[int, int]]:
    """Return the keys and the numbers in the lists."""
    with state_store.open(checkpoint, store="numbers") as state:
        return sorted((row["key"], row["n"]) for row in state.to_arrow().to_pylist())


def expected(batches: int) -> list[tuple[int, int]]:
    told = write_lists.told(batches)
    return sorted((key, int(number)) for key, numbers in told.items() for number in numbers.split(","))
