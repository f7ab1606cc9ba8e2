"""The memory of a processor in batches is bounded in a large group, as in Spark's own worker."""

from __future__ import annotations

from typing import Any

import outside
import pytest
from large_processors import LargeGroup

pytestmark = [pytest.mark.spark, pytest.mark.tier("long"), pytest.mark.timeout(3600)]

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
print("FOUND", json.dumps([sorted(n for n, _ in rows), max(peak for _, peak in rows)]))
"""


def played(directory: Any, processor: type, groups: int, rows: int, batched: bool) -> tuple[list[int], int]:
    """Return the numbers that a processor showed, and the peak of its worker in KB, of a JVM of one GB."""
    directory = directory / str(batched)
    directory.mkdir()
    arguments = (processor.__name__, str(groups), str(rows), str(batched).lower())
    (numbers, peak), _ = outside.run(SESSION, directory, *arguments)
    return numbers, peak


def test_memory_of_a_large_group_is_that_of_sparks_worker(tmp_path):
    stock, stock_peak = played(tmp_path, LargeGroup, 1, 1_000_000, False)
    batched, peak = played(tmp_path, LargeGroup, 1, 1_000_000, True)
    assert batched == stock
    assert peak < 1.5 * stock_peak, f"{peak} KB, Spark's worker {stock_peak} KB"
