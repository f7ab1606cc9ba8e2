"""The process that demo.py starts and kills: the query of flights.py, with a line of JSON on standard output
per batch.
"""

from __future__ import annotations

import sys

import flights
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import state_store

SPARKS_OWN = {
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "hdfs": {},
}


class Progress(StreamingQueryListener):
    """Prints each batch's progress as Spark reports it."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        print(event.progress.json.replace("\n", " "), flush=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def main(store: str, source: str, checkpoint: str, sink: str) -> None:
    conf = SPARKS_OWN[store] if store in SPARKS_OWN else state_store.spark_conf()
    spark = flights.session(conf)
    spark.sparkContext.setLogLevel("WARN")
    spark.streams.addListener(Progress())
    flights.start(spark, source, checkpoint, sink).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:5])
