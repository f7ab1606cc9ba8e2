"""`transformWithState` on this store and on Spark's RocksDB: equal output, state and timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyspark
import pytest
from dataset.golden_states import in_order
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from queries import settings
from queries.flow import Flow

import state_store
from state_store.migration.migrate import migrate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

pytestmark = [pytest.mark.spark, pytest.mark.spark42_long]

OUTPUT = "key string, n long, listed string, counted string, timer long"
HOUR_MS = 3_600_000
SILENCE_S = 100
FAR_MS = 4_000_000_000_000
# Before 4.2 Spark does not look at the store: then the store itself says what it lacks.
REFUSAL = (
    "COLUMN_FAMILIES" if pyspark.__version__.startswith("4.1.") else "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"
)
VARIABLES = ("n", "times", "digits")
WITH_TTL = ("kept", "keptTimes", "keptDigits")
# (key, seconds) of each batch; the watermark follows the newest by 10 seconds.
BATCHES = [
    [("a", 10), ("b", 20), ("a", 35), ("c", 7)],
    [("a", 60), ("d", 61), ("d", 62), ("b", 300), ("a", 53)],
    [("e", 290), ("b", 305), ("c", 310), ("b", 299)],
]
RESTART_AFTER = 2


class Census(StatefulProcessor):
    """Variables of each kind, and a timer for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.n = handle.getValueState("n", "n long")
        self.times = handle.getListState("times", "at long")
        self.digits = handle.getMapState("digits", "digit long", "n long")

    def silent_ms(self, seconds: list[int]) -> int:
        """When a key with these records expires."""
        return (max(seconds) + SILENCE_S) * 1000

    def count(self, seconds: list[int]) -> tuple[int, str, str, int]:
        n = (self.n.get()[0] if self.n.exists() else 0) + len(seconds)
        self.n.update((n,))
        for at in seconds:
            self.times.appendValue((at,))
            self.add_digit(self.digits, at)
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(self.silent_ms(seconds))
        return n, *self._told(), -1

    def add_digit(self, digits: Any, at: int) -> None:
        before = digits.getValue((at % 10,))[0] if digits.containsKey((at % 10,)) else 0
        digits.updateValue((at % 10,), (before + 1,))

    def expire(self, timer: ExpiredTimerInfo) -> tuple[int, str, str, int]:
        answer = (-1, *self._told(), timer.getExpiryTimeInMs())
        self.n.clear()
        self.times.clear()
        self.digits.clear()
        return answer

    def _told(self) -> tuple[str, str]:
        listed = ",".join(str(row[0]) for row in self.times.get())
        # In the order of the store: RocksDB's is that of the keys' bytes.
        return listed, ",".join(f"{key[0]}:{value[0]}" for key, value in self.digits.iterator())


class PandasCensus(Census):
    def handleInputRows(
        self, key: tuple, rows: Iterable[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        yield self._frame(key, self.count([at for frame in rows for at in frame["value"].tolist()]))

    def handleExpiredTimer(
        self, key: tuple, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        yield self._frame(key, self.expire(expiredTimerInfo))

    def _frame(self, key: tuple, answer: tuple) -> pd.DataFrame:
        return pd.DataFrame([(key[0], *answer)], columns=["key", "n", "listed", "counted", "timer"])


class RowCensus(Census):
    """In processing time, and so that the clock makes no difference: a timer expires at once, or never."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.kept = handle.getValueState("kept", "at long", ttlDurationMs=HOUR_MS)
        self.kept_times = handle.getListState("keptTimes", "at long", ttlDurationMs=HOUR_MS)
        self.kept_digits = handle.getMapState("keptDigits", "digit long", "n long", ttlDurationMs=HOUR_MS)

    def silent_ms(self, seconds: list[int]) -> int:
        silent_ms = super().silent_ms(seconds)
        return silent_ms if max(seconds) % 5 else silent_ms + FAR_MS

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        seconds = [row.value for row in rows]
        self.kept.update((seconds[-1],))
        self.kept_times.put([(at,) for at in seconds])
        for at in seconds:
            self.kept_times.appendValue((-at,))
            self.add_digit(self.kept_digits, at)
        yield self._row(key, self.count(seconds))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        yield self._row(key, self.expire(expiredTimerInfo))

    def _row(self, key: Any, answer: tuple) -> Row:
        n, listed, counted, timer = answer
        return Row(key=key[0], n=n, listed=listed, counted=counted, timer=timer)


def in_pandas(records: DataFrame) -> DataFrame:
    timed = records.select("key", "value", F.timestamp_seconds("value").alias("ts"))
    grouped = timed.withWatermark("ts", "10 seconds").groupBy("key")
    return grouped.transformWithStateInPandas(PandasCensus(), OUTPUT, "update", "eventTime")


def in_rows(records: DataFrame) -> DataFrame:
    return records.groupBy("key").transformWithState(RowCensus(), OUTPUT, "update", "processingTime")


def lived(
    spark: Any,
    directory: Path,
    query: Any,
    provider: str,
    encoding: str,
    between: Callable[[Flow], None] = lambda flow: None,
) -> Flow:
    """A query that ran all batches, and was stopped and started again in between."""
    options = {
        settings.PREFIX + "providerClass": settings.PROVIDERS[provider],
        settings.PREFIX + "encodingFormat": encoding,
        "spark.sql.shuffle.partitions": 1,
        # In processing time another batch is always due: the query would not end.
        "spark.sql.streaming.noDataMicroBatches.enabled": str(query is in_pandas).lower(),
    }
    flow = Flow(spark, directory, query, **options)
    flow.run(*BATCHES[:RESTART_AFTER])
    between(flow)
    flow.run(*BATCHES[RESTART_AFTER:])
    return flow


def read_back(flow: Flow, variables: Iterable[str]) -> dict[str, Counter]:
    """What Spark's state reader says of each variable and of the timers, without moments that vary."""
    asked: dict[str, dict] = {name: {"stateVarName": name} for name in variables}
    asked["timers"] = {"readRegisteredTimers": True}
    return {name: Counter(map(_shown, flow.state(**options))) for name, options in asked.items()}


def _shown(row: dict) -> str:
    return repr(_without_moments(row))


def _without_moments(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_moments(inner) for key, inner in value.items() if key != "ttlExpirationMs"}
    return value


@pytest.mark.parametrize(
    ("query", "variables", "encoding"),
    [
        pytest.param(in_pandas, VARIABLES, "unsaferow", marks=pytest.mark.long),
        (in_rows, (*VARIABLES, *WITH_TTL), "avro"),
    ],
)
def test_output_state_and_timers_equal_those_of_rocksdb(spark, tmp_path, query, variables, encoding):
    ours = lived(spark, tmp_path / "ours", query, "incremental", encoding)
    theirs = lived(spark, tmp_path / "theirs", query, "rocksdb", encoding)
    check_equal(ours, theirs, variables)
    for name in variables:
        flattened = ours.state(stateVarName=name, flattenCollectionTypes=True)
        with state_store.open(str(ours.checkpoint), store=name) as opened:
            assert in_order(map(_leaves, opened.to_arrow().to_pylist())) == in_order(map(_leaves, flattened))


@pytest.mark.parametrize(
    ("before", "after"),
    [("rocksdb", "incremental"), ("incremental", "rocksdb")],
)
@pytest.mark.long
def test_output_state_and_timers_are_the_same_when_a_query_is_moved(spark, tmp_path, before, after):
    def move(flow: Flow) -> None:
        target = tmp_path / "moved"
        migrate(str(flow.checkpoint), str(target), after)
        flow.checkpoint = target
        flow.options[settings.PREFIX + "providerClass"] = settings.PROVIDERS[after]

    moved = lived(spark, tmp_path / "moves", in_rows, before, "avro", move)
    stayed = lived(spark, tmp_path / "stays", in_rows, before, "avro")
    check_equal(moved, stayed, (*VARIABLES, *WITH_TTL))


def check_equal(one: Flow, other: Flow, variables: Iterable[str]) -> None:
    assert [sorted(map(repr, rows)) for rows in one.batches] == [
        sorted(map(repr, rows)) for rows in other.batches
    ]
    assert any(row["timer"] > 0 for rows in one.batches for row in rows), "no timer has expired"
    state = read_back(one, variables)
    assert state == read_back(other, variables)
    assert all(state.values()), f"nothing to read: {[name for name, rows in state.items() if not rows]}"


def _leaves(value: Any) -> list[Any]:
    """The single values of a row, whatever it nests them in; moments in milliseconds."""
    return [leaf for one in value.values() for leaf in _leaves(one)] if isinstance(value, dict) else [value]


def test_another_store_is_refused_as_spark_refuses_it(spark, tmp_path):
    hdfs = {
        settings.PREFIX + "providerClass": settings.PROVIDERS["hdfs"],
        settings.PREFIX + "checkpointFormatVersion": 1,
    }
    flow = Flow(spark, tmp_path / "flow", in_pandas, **hdfs)
    with pytest.raises(StreamingQueryException, match=REFUSAL):
        flow.run(BATCHES[0])
