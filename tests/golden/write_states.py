"""Writes checkpoints of real queries, and what Spark's `statestore` source reads from them, as Arrow files.

    python tests/golden/write_states.py tests/golden/states

`types` is an aggregation whose keys and values have every SQL type that state can have; `flights` is
`applyInPandasWithState` over a few flights, with an event-time time-out. Each has two partitions and several
versions; `NAME-VERSION.arrow` beside it is what Spark reads of a version. It runs with the newest Spark, and
only again for a format that the one before cannot show.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 4
ROWS_PER_BATCH = 12
KEYS = 9

TYPES = {
    "flag": "value % 2 = 0",
    "tiny": "cast(value - 20 as byte)",
    "small": "cast(value * -500 as short)",
    "number": "cast(value * 1000003 as int)",
    "large": "value * 1000000007 - 9000000000",
    "single": "cast(value / 7 as float)",
    "ratio": "cast(-value / 7 as double)",
    "price": "cast(value / 8 - 3 as decimal(10, 3))",
    "fortune": "cast(value as decimal(38, 10)) * cast(-1234567890123456789.123 as decimal(25, 3))",
    "text": "repeat('Zürich ', cast(value % 4 as int))",
    "folded": "collate(concat('Text', value % 3), 'UTF8_LCASE')",
    "bytes": "cast(concat('b', value) as binary)",
    "day": "date_add(date'2024-02-27', cast(value as int))",
    "moment": "timestamp_micros(value * 86400000001)",
    "local": "cast(timestamp_micros(value * 3600000001) as timestamp_ntz)",
    "wait": "make_dt_interval(cast(value as int), 1, 2, 3.456789)",
    "term": "make_ym_interval(cast(value as int), 5)",
    "place": "named_struct('city', concat('c', value), 'at', named_struct('x', value / 2, 'y', -value))",
    "tags": "transform(sequence(1, value % 4 + 1), one -> if(one = 2, null, concat('t', one)))",
    "counts": "transform(sequence(0, value % 70), one -> if(one % 5 = 1, null, cast(one as short)))",
    "prices": "transform(sequence(1, value % 3 + 1), one -> cast(one * value as decimal(30, 2)))",
    "by_name": "map('a', value, concat('b', value), null)",
    "by_day": "map(date'2024-01-01', array(named_struct('n', value, 'flag', value % 3 = 0)))",
    "any": "parse_json(concat('{\"n\": ', value, ', \"s\": [\"', value, '\"]}'))",
    "nothing": "null",
}
"""The columns of the values, as expressions over `value`; each is null in some rows."""

KEY_TYPES = {
    "k_text": "concat('k', value % {keys})",
    "k_number": "cast(value % {keys} as int)",
    "k_flag": "value % {keys} % 2 = 0",
    "k_price": "cast(value % {keys} as decimal(9, 2))",
    "k_fortune": "cast(value % {keys} as decimal(38, 2)) * -10000000000000000",
    "k_day": "date_add(date'2024-02-27', cast(value % {keys} as int))",
    "k_moment": "timestamp_micros(value % {keys})",
    "k_ratio": "cast(value % {keys} as double) - 4",
    "k_place": "named_struct('x', value % {keys}, 'name', if(value % {keys} = 3, null, 'here'))",
    "k_tags": "array(concat('t', value % {keys}), null)",
}


def typed(events: DataFrame) -> DataFrame:
    """Return the last row of each key; its columns are null where `value` says so."""
    from pyspark.sql import functions as F

    keys = [
        F.expr(f"if(value % 11 = 5, null, {expression})".format(keys=KEYS)).alias(name)
        for name, expression in KEY_TYPES.items()
    ]
    values = [
        F.expr(f"if(value % 13 = {number % 13}, null, {expression})").alias(name)
        for number, (name, expression) in enumerate(TYPES.items())
    ]
    rows = events.select(*keys, F.struct("value", *values).alias("row"))
    return rows.groupBy(*KEY_TYPES).agg(F.last("row").alias("newest"), F.count("*").alias("n"))


MONTHS = "cast(value.last.term as int)"

JSON = "to_json(value.last.any)"

FLIGHT_STATE = "flights long, delay double, worst struct<number: int, delay: double>, day string"


def followed(key: tuple, frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Totals of a carrier, and its worst flight."""
    if state.hasTimedOut:
        state.remove()
        return
    flights, delay, worst, _ = state.get if state.exists else (0, 0.0, None, "")
    records = pd.concat(list(frames))
    flights, delay = flights + len(records), delay + float(records["delay"].sum())
    last = records.sort_values("delay").iloc[-1]
    if worst is None or last["delay"] > worst[1]:
        worst = (int(last["number"]), float(last["delay"]))
    state.update((flights, delay, worst, str(records["ts"].max())))
    state.setTimeoutTimestamp(int(records["ts"].max().timestamp() * 1000) + 20_000)
    yield pd.DataFrame({"carrier": [key[0]], "flights": [flights]})


def flights(events: DataFrame) -> DataFrame:
    """Return a few carriers, one of which falls silent."""
    rows = events.withWatermark("timestamp", "0 seconds").selectExpr(
        "concat('C', if(value < 18, value % 5, value % 4)) as carrier",
        "cast(value as int) as number",
        "cast(value * 7 % 31 as double) as delay",
        "timestamp as ts",
    )
    return rows.groupBy("carrier").applyInPandasWithState(
        followed, "carrier string, flights long", FLIGHT_STATE, "update", "EventTimeTimeout"
    )


QUERIES = {"types": typed, "flights": flights}


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    import state_store

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"maxDeltas": 2, "minPauseBetweenMerges": "0s", "fullAfterMerges": 2}
    return (
        SparkSession.builder.master("local[2]")
        .config(map=state_store.spark_conf(settings))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.minBatchesToRetain", "100")
        .config("spark.sql.streaming.stateStore.maintenanceInterval", "300ms")
        .getOrCreate()
    )


def _run(spark: SparkSession, checkpoint: Path, query: Any) -> None:
    """Batches one after the other, so that a snapshot can be made in between."""
    for batch in range(1, BATCHES + 1):
        events = (
            spark.readStream.format("rate-micro-batch")
            .options(
                rowsPerBatch=ROWS_PER_BATCH,
                numPartitions=1,
                startTimestamp=10_000,
                advanceMillisPerBatch=10_000,
            )
            .load()
        )
        running = (
            query(events)
            .writeStream.foreachBatch(lambda frame, _: frame.count())
            .option("checkpointLocation", str(checkpoint))
            .outputMode("update")
            .trigger(processingTime="2 seconds")
            .start()
        )
        while running.isActive and len(list((checkpoint / "commits").glob("[0-9]*"))) < batch:
            running.awaitTermination(1)
        running.stop()


def main(target: Path) -> None:
    from pyspark.sql import functions as F

    target.mkdir(parents=True)
    spark = _session()
    spark.sparkContext.setLogLevel("ERROR")
    for name, query in QUERIES.items():
        checkpoint = target / name
        _run(spark, checkpoint, query)
        for left_over in (*checkpoint.rglob(".*.crc"), *checkpoint.rglob("*.tmp")):
            left_over.unlink()
        for batch in sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")):
            frame = spark.read.format("statestore").option("batchId", batch).load(str(checkpoint))
            if name == "types":  # two types that Spark does not hand to pyarrow
                value = F.col("value").withField("last.term", F.expr(MONTHS))
                frame = frame.withColumn("value", value.withField("last.any", F.expr(JSON)))
            table = frame.toArrow()
            with (
                pa.OSFile(str(target / f"{name}-{batch + 1}.arrow"), "wb") as file,
                pa.ipc.new_file(file, table.schema) as writer,
            ):
                writer.write_table(table)
        for left_over in (*checkpoint.rglob(".*.crc"), *checkpoint.rglob("*.tmp")):
            left_over.unlink()
        shutil.rmtree(checkpoint / "sources", ignore_errors=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
