"""A stateful streaming query on real data: each aircraft followed from one flight to the next.

Input: flights that left New York, as files that arrive one after another. For each aircraft (tail number) the
state holds its last flight and the run of flights it belongs to. The output has a row for each flight (how
long since the last departure; how much of that flight's delay it inherited), and one for each run when the
aircraft falls silent for five days, found by an event-time timeout.

The function is there twice, with equal results: `follow` is called once for each aircraft, as in Spark,
`follow_all` once for thousands of them. demo.py runs both and checks them; to run the query on its own:

    python examples/flights.py INPUT CHECKPOINT OUTPUT
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import state_store
from state_store.functions import Context, Result

INPUT = (
    "tailnum string, departs timestamp, carrier string, flight bigint, origin string, dest string, "
    "dep_delay bigint, arr_delay bigint"
)
OUTPUT = (
    "tailnum string, event string, at timestamp, flight bigint, legs bigint, "
    "gap_min bigint, inherited_min bigint"
)
STATE = "legs bigint, inherited bigint, last_ms bigint, last_arr_delay bigint"

SILENCE_MS = 5 * 24 * 3600 * 1000
SAME_DAY_MS = 24 * 3600 * 1000
ORDER = ["departs", "carrier", "flight", "origin", "dest"]


def follow(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Return the output of an aircraft's new flights, or of its silence."""
    legs, inherited, last_ms, last_arr_delay = state.get if state.exists else (0, 0, 0, 0)
    out: list[tuple[Any, ...]] = []
    if state.hasTimedOut:
        out.append((key[0], "silent", last_ms + SILENCE_MS, None, legs, None, inherited))
        state.remove()
    else:
        for row in pd.concat(frames).sort_values(ORDER).itertuples():
            at_ms = int(row.departs.value) // 1_000_000
            gap_ms = at_ms - last_ms if legs else None
            if gap_ms is not None and gap_ms > SILENCE_MS:
                out.append((key[0], "silent", last_ms + SILENCE_MS, None, legs, None, inherited))
                legs, inherited, gap_ms = 0, 0, None
            passed_on = 0
            if gap_ms is not None and gap_ms <= SAME_DAY_MS:
                passed_on = max(0, min(last_arr_delay, row.dep_delay))
            legs, inherited, last_ms, last_arr_delay = legs + 1, inherited + passed_on, at_ms, row.arr_delay
            gap_min = None if gap_ms is None else gap_ms // 60_000
            out.append((key[0], "leg", at_ms, row.flight, legs, gap_min, passed_on))
        state.update((legs, inherited, last_ms, last_arr_delay))
        state.setTimeoutTimestamp(last_ms + SILENCE_MS)
    result = pd.DataFrame(
        out, columns=["tailnum", "event", "at", "flight", "legs", "gap_min", "inherited_min"]
    )
    result["at"] = pd.to_datetime(result["at"], unit="ms")
    yield result.astype({"flight": "Int64", "gap_min": "Int64"})


@state_store.vectorized(frame="pandas")
def follow_all(rows: pd.DataFrame, states: pd.DataFrame, context: Context) -> Result:
    """Do what `follow` does for all aircraft of the call at once."""
    if context.timed_out:
        return Result(output=silences(states), remove=np.full(len(states), True))
    legs = rows.sort_values(["__group", *ORDER], ignore_index=True)
    group, first = legs["__group"], ~legs["__group"].duplicated()
    before = states.loc[group].reset_index(drop=True)
    at_ms = (legs.departs - pd.Timestamp(0, tz=legs.departs.dt.tz)) // pd.Timedelta(milliseconds=1)
    gap_ms = at_ms - at_ms.shift().mask(first, before.last_ms)
    last_arr_delay = legs.arr_delay.shift().mask(first, before.last_arr_delay)
    begins = gap_ms.isna() | (gap_ms > SILENCE_MS)
    passed_on = np.minimum(last_arr_delay, legs.dep_delay).clip(lower=0).where(gap_ms <= SAME_DAY_MS, 0)
    passed_on = passed_on.mask(begins, 0)
    run = (begins | first).cumsum()
    goes_on = (first & ~begins).groupby(run).transform("first")
    number = passed_on.groupby(run).cumcount() + 1 + before.legs.where(goes_on, 0)
    inherited = passed_on.groupby(run).cumsum() + before.inherited.where(goes_on, 0)

    after = pd.DataFrame({"tailnum": legs.tailnum, "legs": number, "inherited": inherited, "last_ms": at_ms})
    after["last_arr_delay"] = legs.arr_delay
    carried = [name for name in after if name != "tailnum"]
    ended = begins & gap_ms.notna()
    previous = after.shift().mask(first, before[["tailnum", *carried]])
    flown = pd.DataFrame(
        {
            "tailnum": legs.tailnum,
            "event": "leg",
            "at": pd.to_datetime(at_ms, unit="ms", utc=True),
            "flight": legs.flight,
            "legs": number,
            "gap_min": (gap_ms // 60_000).mask(begins),
            "inherited_min": passed_on,
        }
    )
    state = after[~group.duplicated(keep="last")][carried].reset_index(drop=True).astype("int64")
    return Result(
        output=pd.concat([typed(flown), silences(previous[ended])]),
        state=state,
        timeout=state.last_ms + SILENCE_MS,
    )


def silences(states: pd.DataFrame) -> pd.DataFrame:
    """Return the output rows of aircraft that fell silent in these states."""
    out = states[["tailnum", "legs"]].assign(event="silent", flight=pd.NA, gap_min=pd.NA)
    out["at"] = pd.to_datetime(states.last_ms + SILENCE_MS, unit="ms", utc=True)
    out["inherited_min"] = states.inherited
    return typed(out)


def typed(out: pd.DataFrame) -> pd.DataFrame:
    """Return output rows with integers where the schema has them."""
    return out.astype(dict.fromkeys(("flight", "legs", "gap_min", "inherited_min"), "Int64"))


def aircraft(flights: DataFrame, function: Callable[..., Any] = follow_all) -> DataFrame:
    """Return the stateful query, which follows each aircraft."""
    return (
        flights.withWatermark("departs", "1 hour")
        .groupBy("tailnum")
        .applyInPandasWithState(function, OUTPUT, STATE, "append", GroupStateTimeout.EventTimeTimeout)
    )


def start(
    spark: SparkSession, source: str, checkpoint: str, sink: str, function: Callable[..., Any] = follow_all
) -> StreamingQuery:
    """Start the query on all files of `source`, one file a micro-batch; it ends after the last."""
    flights = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(source)
    return (
        aircraft(flights, function)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(sink)
    )


def session(conf: dict[str, str]) -> SparkSession:
    """Return a small local session with `conf` on top.

    Its JVM lives for a minute, so it uses the quick one of its two compilers.
    """
    builder = SparkSession.builder.master("local[2]").appName("flights")
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return builder.config(map={**settings, **conf}).getOrCreate()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/flights.py INPUT CHECKPOINT OUTPUT")
    start(session(state_store.spark_conf()), *sys.argv[1:4]).awaitTermination()
