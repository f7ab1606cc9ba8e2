r"""Kafka to Delta, exactly once: the balance of each account after each of its payments.

Payments come from a Kafka topic as JSON, `{"account": "a", "amount": 5}`, with the account as the key, in
transactions: aborted ones are not read. A processor of `transformWithState` keeps the number of payments and
the balance of each account in this store; each payment becomes a row of a Delta table. Kill the query at any
moment and start it again: each payment is in the table once.

    pip install ".[spark]" "pyspark==4.0.1" "pyarrow<26" "delta-spark==4.0.0" importlib-metadata
    python examples/kafka_to_delta.py localhost:9092 payments /data/checkpoint /data/balances

Spark fetches the jars of Delta and of its Kafka source from Maven Central. Delta 4.0 is for Spark 4.0.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyspark
from delta import configure_spark_with_delta_pip
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

import state_store

KAFKA = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
"""After a kill, Delta's sink passes over a batch that it has; Spark's checkpoint format 2 fails then."""

OUTPUT = "account string, payment bigint, amount bigint, balance bigint"


class Balances(StatefulProcessor):
    """Number the payments of an account, and add them up."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state of an account."""
        self._account = handle.getValueState("account", "payments bigint, balance bigint")

    def handleInputRows(
        self, key: tuple[str], rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Yield a row for each payment of the batch, in the topic's order."""
        amounts = pd.concat(rows).sort_values("offset").amount
        payments, balance = self._account.get() if self._account.exists() else (0, 0)
        balances = amounts.cumsum() + balance
        numbers = range(payments + 1, payments + len(amounts) + 1)
        self._account.update((payments + len(amounts), int(balances.iloc[-1])))
        yield pd.DataFrame({"account": key[0], "payment": numbers, "amount": amounts, "balance": balances})


def session() -> SparkSession:
    """Return a session with this store, Delta and the Kafka source."""
    builder = SparkSession.builder.appName("kafka_to_delta")
    builder = builder.config(map={**DELTA, FORMAT: "1", "spark.sql.shuffle.partitions": "2"})
    return configure_spark_with_delta_pip(state_store.configure(builder), [KAFKA]).getOrCreate()


def payments(spark: SparkSession, brokers: str, topic: str, rows_a_batch: int) -> DataFrame:
    """Return the payments of committed transactions."""
    records = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": brokers,
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(rows_a_batch),
        }
    )
    return records.load().selectExpr(
        "inline(array(from_json(cast(value as string), 'account string, amount bigint')))", "offset"
    )


def start(paid: DataFrame, checkpoint: str, table: str, once: bool) -> StreamingQuery:
    """Start the query; with `once` it ends when it has read what the topic has now."""
    balances = paid.groupBy("account").transformWithStateInPandas(
        Balances(), outputStructType=OUTPUT, outputMode="append", timeMode="none"
    )
    trigger = {"availableNow": True} if once else {"processingTime": "0 seconds"}
    writer = balances.writeStream.format("delta").outputMode("append").trigger(**trigger)
    return writer.option("checkpointLocation", checkpoint).start(table)


def main() -> None:
    """Run the query that the command line describes."""
    parser = argparse.ArgumentParser(description="Write the balances of accounts from Kafka to Delta.")
    parser.add_argument("brokers", help="addresses of Kafka, HOST:PORT, separated by commas")
    parser.add_argument("topic", help="topic with payments")
    parser.add_argument("checkpoint", help="directory or URI of the query's checkpoint")
    parser.add_argument("table", help="directory or URI of the Delta table")
    parser.add_argument("--rows-a-batch", type=int, default=100_000, help="at most (default: 100000)")
    parser.add_argument("--once", action="store_true", help="end when the topic has been read")
    arguments = parser.parse_args()
    spark = session()
    paid = payments(spark, arguments.brokers, arguments.topic, arguments.rows_a_batch)
    start(paid, arguments.checkpoint, arguments.table, arguments.once).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
