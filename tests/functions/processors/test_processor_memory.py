"""The memory of a processor in batches is bounded in large groups and for large states.

The JVM has a heap of one GB, in which the states and rows of these tests do not fit several times over.
"""

from __future__ import annotations

import json
from typing import Any

import large_processors
import outside
import pyarrow as pa
import pytest
from large_processors import LargeGroup, LargeList, LargeMap, LargeValue
from test_processors import BATCHED, OURS, PROCESSORS

pytestmark = pytest.mark.spark

SESSION = """
import json, sys
from pathlib import Path
import pyarrow as pa
import numpy as np
import large_processors
from conftest import session_options
from pyspark.sql import SparkSession
from streams import Stream
from test_processors import BATCHED, OURS, PROCESSORS

root, name, batched, values = Path(sys.argv[1]), *sys.argv[2:5]
options = {**session_options(), **OURS, "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[2]").config(map={**options, PROCESSORS: batched}).getOrCreate()
processor = getattr(large_processors, name)
stream = Stream(spark, root, "k long, v long")
for rows, value in json.loads(values):
    stream.add(pa.table({"k": pa.array(np.ones(rows, dtype="int64")), "v": pa.array(np.full(rows, value))}))

def query(frame):
    return frame.groupBy("k").transformWithState(processor(), large_processors.OUTPUT, "update", "None")

stream.run(query)
assert (BATCHED in stream.plan) == (batched == "true")
print("FOUND", json.dumps([row for batch in sorted(stream.rows) for row in stream.rows[batch]]))
"""


def played(directory: Any, processor: type, batches: Any, batched: bool = True) -> tuple[list[int], int, int]:
    """Return what a processor showed for batches of one group: its numbers, its peak and its growth in KB.

    Args:
        directory: for the stream.
        processor: of `large_processors`.
        batches: of (number of rows, value of each row).
        batched: whether the processor runs in batches.
    """
    directory = directory / str(batched)
    directory.mkdir()
    rows, _ = outside.run(SESSION, directory, processor.__name__, str(batched).lower(), json.dumps(batches))
    return [row[0] for row in rows], max(row[1] for row in rows), max(row[2] for row in rows)


@pytest.mark.tier("long")
@pytest.mark.timeout(3600)
def test_memory_of_a_large_group_is_that_of_sparks_worker(tmp_path):
    stock, stock_peak, _ = played(tmp_path, LargeGroup, [(1_000_000, 1)] * 2, False)
    batched, peak, _ = played(tmp_path, LargeGroup, [(1_000_000, 1)] * 2)
    assert batched == stock
    assert peak < 1.5 * stock_peak, f"{peak} KB, Spark's worker {stock_peak} KB"


@pytest.mark.tier("long")
@pytest.mark.timeout(3600)
def test_a_group_of_ten_million_rows_takes_little_memory(tmp_path):
    numbers, _, growth = played(tmp_path, LargeGroup, [(1000, 1), (10_000_000, 1)])
    assert numbers == [1000, 10_000_000]
    assert growth < 100 * 1024, f"{growth} KB"  # as rows of Python they are more than 3 GB


@pytest.mark.tier("long")
@pytest.mark.timeout(3600)
def test_a_map_of_a_million_entries_takes_little_memory(tmp_path):
    count = 1_000_000
    numbers, _, growth = played(tmp_path, LargeMap, [(1, count), (1, 1)])
    assert numbers == [2 * count, 2 * count]
    assert growth < 20 * 1024, f"{growth} KB"  # 119 MB if the writes are kept until the end of the group


@pytest.mark.tier("long")
@pytest.mark.timeout(3600)
def test_a_list_of_a_million_entries_takes_little_memory(tmp_path):
    count = 1_000_000
    numbers, _, growth = played(tmp_path, LargeList, [(1, count), (1, 1)])
    assert numbers == [count, count + 1]
    assert growth < 20 * 1024, f"{growth} KB"  # 30 MB if the writes are kept


SMALLER = {LargeGroup: 100_000, LargeValue: 10 << 20, LargeMap: 30_000, LargeList: 30_000}


@pytest.mark.tier("more")
@pytest.mark.parametrize("processor", SMALLER)
def test_smaller_ones_have_the_results_of_sparks_worker(spark, stream, conf, processor):
    size = SMALLER[processor]
    rows, value = (size, 1) if processor is LargeGroup else (1, size)
    batches = [
        pa.table({"k": pa.array([1] * count, pa.int64()), "v": pa.array([number] * count, pa.int64())})
        for count, number in [(rows, value), (rows, 1)]
    ]
    for name, setting in OURS.items():
        conf(name, setting)
    found = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        query = stream("k long, v long", batches)
        query.run(
            lambda frame: frame.groupBy("k").transformWithState(
                processor(), large_processors.OUTPUT, "update", "None"
            )
        )
        assert (BATCHED in query.plan) == (batched == "true")
        found.append([row[0] for batch in sorted(query.rows) for row in query.rows[batch]])
    assert found[1] == found[0]
