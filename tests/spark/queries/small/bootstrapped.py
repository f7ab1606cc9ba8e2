"""Process that gives a query a state before its first batch, on any storage, and runs it.

    python -m queries.small.bootstrapped CHECKPOINT INPUT OPTIONS

INPUT is a directory of JSON files with a `key`, which the query counts; OPTIONS are Spark's, as JSON. It
prints the counts of the state before and after as JSON, and what the checkpoint has besides files of Spark's.
"""

from __future__ import annotations

import json
import sys

import pyarrow
from pyspark.sql import SparkSession

import state_store
from state_store.core.storage import open_storage

INITIAL = {"a": 100, "b": 7, "z": 1}


def main(checkpoint: str, source: str, options: str) -> None:
    spark = SparkSession.builder.master("local[2]").config(map=json.loads(options)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    counts = spark.readStream.schema("key string").json(source).groupBy("key").count()
    writer = counts.writeStream.outputMode("update").format("noop")
    rows = pyarrow.table({"key": list(INITIAL), "count": list(INITIAL.values())})
    state_store.bootstrap(writer, checkpoint, rows)
    before, directories = _counts(checkpoint), open_storage(checkpoint).directories()
    writer.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps([before, directories, _counts(checkpoint)]))
    spark.stop()


def _counts(checkpoint: str) -> dict[str, int]:
    with state_store.open(checkpoint) as state:
        return {row["key"]: row["count"] for row in state.to_arrow().to_pylist()}


if __name__ == "__main__":
    main(*sys.argv[1:])
