"""The workloads on Spark, in its worker and in this project's forms: a program of the ordinary environment.

`--form` is one of: spark-worker (an unchanged processor in Spark's worker on Spark's RocksDB store with
changelog), processor (the same unchanged, on this store), per_group, spark-frames (a function on pandas
frames in Spark's operator, on Spark's RocksDB store), accelerate (the same with the mark), vectorized.

A batch is a file of the source; for latency rows arrive on a socket, and a batch begins when the one before
has ended. An output is there when the driver has it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from spark_forms import CLOSED, COUNTED, FUNCTIONS, PROCESSORS
from workloads import LATENCY, MARKS, SESSIONS, Outputs, counter_row, options, outputs_of, session_row

import state_store

_FIRST_FILE_S = 1_700_000_000
_POLL_S = 0.2
_STATE = "spark.sql.streaming.stateStore."
_SPARKS = {
    _STATE + "providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    _STATE + "rocksdb.changelogCheckpointing.enabled": "true",
    _STATE + "incremental.vectorized.enabled": "false",
}


def write_batches(asked: argparse.Namespace) -> str:
    """Write the input, a file for each batch, unless it is there; return its directory."""
    source = asked.root / "source"
    if source.exists():
        return str(source)
    source.mkdir()
    for batch in range(asked.batches):
        numbers = np.arange(batch * asked.rows, (batch + 1) * asked.rows)
        if asked.workload == SESSIONS:
            keys, values, moments_ms = session_row(numbers, asked.keys)
            moments = pa.array(moments_ms * 1000, pa.timestamp("us", "UTC"))
            table = pa.table({"k": keys, "v": values, "ms": moments_ms, "moment": moments})
        else:
            table = pa.table(dict(zip("kv", counter_row(numbers, asked.keys), strict=True)))
        path = source / f"{batch:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (_FIRST_FILE_S + batch,) * 2)
    return str(source)


def rows_of(asked: argparse.Namespace, spark: SparkSession) -> DataFrame:
    """Return the rows of a job."""
    if asked.purpose == LATENCY:
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", asked.port)
        numbers = lines.load().selectExpr("cast(value as long) as id")
        return numbers.selectExpr(f"id % {asked.keys} as k", f"id % {asked.keys} % 97 + 0.5D as v")
    columns = "k long, v double" + (", ms long, moment timestamp" if asked.workload == SESSIONS else "")
    rows = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(write_batches(asked))
    return rows.withWatermark("moment", "0 seconds") if asked.workload == SESSIONS else rows


def results_of(asked: argparse.Namespace, rows: DataFrame) -> DataFrame:
    """Return the outputs of a form."""
    groups = rows.groupBy("k")
    is_timed = asked.workload == SESSIONS
    output = CLOSED if is_timed else COUNTED
    function = FUNCTIONS.get((asked.workload, asked.form))
    if function is None:
        processor = PROCESSORS[asked.workload]()
        return groups.transformWithState(processor, output, "update", "eventTime" if is_timed else "none")
    timeout = "EventTimeTimeout" if is_timed else "NoTimeout"
    return groups.applyInPandasWithState(function.build(), output, function.state, "update", timeout)


def started(asked: argparse.Namespace, results: DataFrame, outputs: Outputs | None) -> StreamingQuery:
    """Start the query of a job; the commits of its batches are its marks."""
    checkpoint = asked.root / "checkpoint"
    if not (marks := asked.root / MARKS).is_symlink():
        marks.rmdir()
        marks.symlink_to(checkpoint / "commits")
    writer = results.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    if outputs is None:
        writer = writer.format("noop")
    else:

        def take(batch: DataFrame, number: int) -> None:
            for row in batch.collect():
                outputs.add(tuple(row))

        writer = writer.foreachBatch(take)
    return (writer if asked.purpose == LATENCY else writer.trigger(availableNow=True)).start()


def main() -> None:
    """Run the job that the command line asks for."""
    asked = options(__doc__)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    stock = _SPARKS if asked.form.startswith("spark-") else {}
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "3g")
        .config(map={**state_store.spark_conf(), **stock})
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for module in ("workloads", "spark_forms"):
        spark.sparkContext.addPyFile(str(Path(__file__).with_name(f"{module}.py")))
    outputs = outputs_of(asked)
    query = started(asked, results_of(asked, rows_of(asked, spark)), outputs)
    if asked.purpose == LATENCY and outputs:
        while not outputs.are_complete and not query.awaitTermination(_POLL_S):
            pass
        query.stop()
    else:
        query.awaitTermination()
    if outputs:
        outputs.write()
    spark.stop()


if __name__ == "__main__":
    main()
