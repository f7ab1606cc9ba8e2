"""Lists that Spark 4.1 wrote (`tests/golden/write_lists.py`) go to another store, and the query goes on.

The offset log of Spark 4.1 does not say how RocksDB joins the values of a list, and this Spark joins those of
new queries in another way.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from golden import write_lists
from queries.small.flow import session_options
from queries.store_choices import OURS, OURS_IDS, ROCKSDB_IDS, Store

import state_store
from state_store.core.settings.session import MERGE_OPERATOR_KEY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.tier("more"),
    pytest.mark.older(long=("4.2",)),
    pytest.mark.timeout(1200),
]

GOLDEN = Path(write_lists.__file__).parent / "lists-of-spark-4.1" / "rocksdb"
ROCKSDB = Store("rocksdb", 1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory below others with names of Spark's, which metadata name with its whole path."""
    return tmp_path / "state" / "0" / "_stateSchema" / "a b%20" / "commits" / "metadata"


def test_lists_of_an_older_spark_are_whole_in_each_store(spark, place, tmp_path):
    """No query runs in between, so the log does not name the option on the way back either."""
    source = Path(shutil.copytree(GOLDEN, place / "golden"))
    for store in (OURS, ROCKSDB_IDS, OURS_IDS):
        target = place / "state" / str(store)
        done = state_store.migrate(source, target, store.name, checkpoint_format=store.format)
        assert done.rows == write_lists.BATCHES * write_lists.ROWS_PER_BATCH + write_lists.KEYS
        assert MERGE_OPERATOR_KEY not in (target / "offsets/2").read_text()
        if store.name == "incremental":
            found = values(target)
        else:
            found = values_of_spark(spark, target, tmp_path / "link")
        assert found == expected(write_lists.BATCHES)
        source = target


@pytest.mark.parametrize("stores", [(OURS_IDS, ROCKSDB), (ROCKSDB_IDS, OURS)], ids=["ours", "rocksdb"])
def test_a_query_with_lists_of_an_older_spark_goes_on_in_each_store(spark, place, stores):
    source = Path(shutil.copytree(GOLDEN, place / "golden"))
    for leg, store in enumerate(stores):
        target = place / "state" / f"leg-{leg}"
        state_store.migrate(source, target, store.name, checkpoint_format=store.format)
        batches = write_lists.BATCHES + leg + 1
        with session_options(spark, {**store.conf(), "spark.sql.shuffle.partitions": 1}):
            assert write_lists.run(spark, target, 1) == [write_lists.lists_after(batches)]
        source = target


def test_a_list_that_is_read_in_another_way_is_refused(tmp_path):
    """Nothing is left in the target, and the message names the store."""
    with pytest.raises(state_store.StateStoreError, match=r"version 3 of store 0/0/default") as raised:
        state_store.migrate(GOLDEN, tmp_path / "target", "incremental", conf={MERGE_OPERATOR_KEY: "2"})
    assert "a list of values" in raised.value.message
    assert not (tmp_path / "target").exists()


def test_a_list_that_is_written_in_another_way_is_refused(tmp_path):
    """The copy is read as the query will read it, whatever the session of the migration says."""
    ours = tmp_path / "ours"
    state_store.migrate(GOLDEN, ours, "incremental")
    with pytest.raises(state_store.StateStoreError, match=r"version 3 of store 0/0/default") as raised:
        state_store.migrate(ours, tmp_path / "target", "rocksdb", conf={MERGE_OPERATOR_KEY: "2"})
    assert "a list of values" in raised.value.message
    assert not (tmp_path / "target").exists()


def values_of_spark(spark: SparkSession, checkpoint: Path, link: Path) -> list[tuple[int, int]]:
    """Return the keys and the numbers in the lists, as Spark's own reader finds them.

    That reader escapes the path that it is given and takes the result for a name: it finds no checkpoint
    below a name with a blank, except by a link.
    """
    link.symlink_to(checkpoint)
    rows = spark.read.format("statestore").option("stateVarName", "numbers").load(str(link)).collect()
    return sorted((row["key"][0], row["list_element"][0]) for row in rows)


def values(checkpoint: Path) -> list[tuple[int, int]]:
    """Return the keys and the numbers in the lists."""
    with state_store.open(checkpoint, store="numbers") as state:
        return sorted((row["key"], row["n"]) for row in state.to_arrow().to_pylist())


def expected(batches: int) -> list[tuple[int, int]]:
    numbers_of = write_lists.lists_after(batches)
    return sorted((key, int(number)) for key, numbers in numbers_of.items() for number in numbers.split(","))
