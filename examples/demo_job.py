"""The process that demo.py starts and kills: the query of flights.py, a line of JSON for each batch.

    python demo_job.py STORE INPUT CHECKPOINT OUTPUT [COMPARE_DIRECTORY]

With COMPARE_DIRECTORY it also runs a part of the first file through both functions at the end, and reports
their times.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import flights
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import state_store

COMPARED_AIRCRAFT = 1000
SETTINGS = {"maxDeltas": 4, "minPauseBetweenMerges": "0", "retainedCheckpoints": 8}
SPARKS_OWN = {
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "hdfs": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    },
}


class Progress(StreamingQueryListener):
    """Print each batch's progress as Spark reports it."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        say(json.loads(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def side_by_side(spark: SparkSession, source: str, work: Path) -> dict[str, Any]:
    """Run some flights of the first file as one batch through both functions.

    Returns:
        The milliseconds of each, and True if the outputs agree.
    """
    first = work / "first"
    first.mkdir(parents=True)
    legs = pd.read_parquet(min(Path(source).glob("*.parquet")))
    some = legs.tailnum.drop_duplicates()[:COMPARED_AIRCRAFT]
    legs[legs.tailnum.isin(some)].to_parquet(first / "flights.parquet", coerce_timestamps="us")
    times: dict[str, Any] = {}
    outputs = {}
    for function in (flights.follow_all, flights.follow):
        name = function.__name__.removeprefix("state_store.vectorized(").rstrip(")")
        sink, checkpoint = str(work / name), str(work / f"{name}-checkpoint")
        query = flights.start(spark, str(first), checkpoint, sink, function)
        query.awaitTermination()
        batch = json.loads(query.recentProgress[0].json)
        times |= {name: batch["durationMs"]["addBatch"], "rows": batch["numInputRows"]}
        times["aircraft"] = batch["stateOperators"][0]["numRowsTotal"]
        outputs[name] = (
            spark.read.parquet(sink).toPandas().sort_values(["tailnum", "at", "flight"], ignore_index=True)
        )
    return {**times, "equal": outputs["follow"].equals(outputs["follow_all"])}


def main(store: str, source: str, checkpoint: str, sink: str, compare: str = "") -> None:
    conf = {**state_store.spark_conf(SETTINGS), **SPARKS_OWN.get(store, {})}
    ui = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.driver.host": "127.0.0.1",  # the UI is for this machine alone
        "spark.driver.bindAddress": "127.0.0.1",
    }
    spark = flights.session({**conf, **ui, "spark.sql.streaming.stateStore.maintenanceInterval": "2s"})
    spark.sparkContext.setLogLevel("WARN")
    if store == "incremental":
        say({"ui": f"{spark.sparkContext.uiWebUrl}/checkpoints/"})
    listener = Progress()
    spark.streams.addListener(listener)
    flights.start(spark, source, checkpoint, sink).awaitTermination()
    spark.streams.removeListener(listener)
    if compare:
        say({"side_by_side": side_by_side(spark, source, Path(compare))})
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
