"""Processors with large groups and states have the results of Spark's worker, and memory like it."""

from __future__ import annotations

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

root, name, groups, rows, batched = Path(sys.argv[1]), *sys.argv[2:6]
options = {**session_options(), **OURS, "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[2]").config(map={**options, PROCESSORS: batched}).getOrCreate()
processor = getattr(large_processors, name)
stream = Stream(spark, root, "k long, v long")
count = int(rows)
keys = pa.array(np.arange(count) % int(groups))
values = pa.array(np.arange(count))
for _ in range(2):
    stream.add(pa.table({"k": keys, "v": values}))

def query(frame):
    return frame.groupBy("k").transformWithState(processor(), large_processors.OUTPUT, "update", "None")

stream.run(query)
assert (BATCHED in stream.plan) == (batched == "true")
rows = [row for batch in stream.rows.values() for row in batch]
print("FOUND", json.dumps([sorted(row[0] for row in rows), max(row[1] for row in rows)]))
"""


def played(directory: Any, processor: type, groups: int, rows: int, batched: bool) -> tuple[list[int], int]:
    """Return the numbers that a processor showed, and the peak of its worker in KB, of a JVM of one GB."""
    directory = directory / str(batched)
    directory.mkdir()
    arguments = (processor.__name__, str(groups), str(rows), str(batched).lower())
    (numbers, peak), _ = outside.run(SESSION, directory, *arguments)
    return numbers, peak


@pytest.mark.tier("long")
@pytest.mark.timeout(3600)
def test_memory_of_a_large_group_is_that_of_sparks_worker(tmp_path):
    stock, stock_peak = played(tmp_path, LargeGroup, 1, 1_000_000, False)
    batched, peak = played(tmp_path, LargeGroup, 1, 1_000_000, True)
    assert batched == stock
    assert peak < 1.5 * stock_peak, f"{peak} KB, Spark's worker {stock_peak} KB"


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
