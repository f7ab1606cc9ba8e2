"""`transformWithState`: stateful processors with state variables of each kind, timers and time to live.

They follow the rule of the module `group_functions`, so that the same replay says what must come out. A list
and a map must agree with the count of a value state at every call, or the query fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame as SparkDataFrame
from pyspark.sql import GroupedData, Row
from pyspark.sql.streaming import StatefulProcessor

from queries.scenarios import group_functions
from queries.scenarios.group_functions import COLUMNS, DELAY, OUTPUT, SILENCE_MS, SILENCE_S
from queries.scenarios.records import Record
from queries.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

INITIAL = {"k01": (1000, 0)}
TTL_MS = 300


class Follower(StatefulProcessor):
    """Count and add the values of a key, forget it at a value of 0, close it when it is silent."""

    def __init__(self, event_time: bool):
        self.event_time = event_time

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.sums = handle.getValueState("sums", "n long, total long")
        self.ids = handle.getListState("ids", "id long")
        self.counts = handle.getMapState("counts", "value long", "n long")
        self.variables = [self.sums, self.ids, self.counts]

    def follow(self, records: list[tuple[int, int, int]], times: TimerValues) -> tuple[str, int, int]:
        """Take records of one key: epoch seconds, value, id. Return the kind of answer, and the sums."""
        n, total = self._sums()
        n, total = n + len(records), total + sum(value for _, value, _ in records)
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        if any(value == 0 for _, value, _ in records):
            self._clear()
            return "forgotten", n, total
        self.sums.update((n, total))
        self._append([(record_id,) for _, _, record_id in records])
        for value, count in Counter(value for _, value, _ in records).items():
            before = self.counts.getValue((value,))[0] if self.counts.containsKey((value,)) else 0
            self.counts.updateValue((value,), (before + count,))
        # Half a second more, so that expiry exactly at the watermark makes no difference.
        newest_s = max(ts for ts, _, _ in records)
        silent_ms = (newest_s + SILENCE_S) * 1000 + 500
        self.handle.registerTimer(
            silent_ms if self.event_time else times.getCurrentProcessingTimeInMs() + SILENCE_MS
        )
        return "seen", n, total

    def close_silent(self) -> tuple[str, int, int]:
        n, total = self._sums()
        self._clear()
        return "closed", n, total

    def _append(self, ids: list[tuple[int]]) -> None:
        if self.ids.exists():
            self.ids.appendValue(ids[0])
            if ids[1:]:
                self.ids.appendList(ids[1:])
        else:
            self.ids.put(ids)

    def _sums(self) -> tuple[int, int]:
        n, total = self.sums.get() if self.sums.exists() else (0, 0)
        listed = [row[0] for row in self.ids.get()]
        counted = {key[0]: value[0] for key, value in self.counts.iterator()}
        if not n == len(set(listed)) == len(listed) == sum(counted.values()):
            raise AssertionError(f"{n} records, in the list {listed}, in the map {counted}")
        if sum(value * count for value, count in counted.items()) != total:
            raise AssertionError(f"the sum is {total}, in the map {counted}")
        return n, total

    def _clear(self) -> None:
        for variable in self.variables:
            variable.clear()


class PandasFollower(Follower):
    """Processor in frames, for `transformWithStateInPandas`."""

    def handleInputRows(
        self, key: tuple, rows: Iterable[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        frame = pd.concat(list(rows))
        seconds = [int(moment.timestamp()) for moment in frame["ts"]]
        records = list(zip(seconds, frame["value"].tolist(), frame["id"].tolist(), strict=True))
        yield self._frame(key, self.follow(records, timerValues))

    def handleExpiredTimer(
        self, key: tuple, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        yield self._frame(key, self.close_silent())

    def _frame(self, key: tuple, answer: tuple[str, int, int]) -> pd.DataFrame:
        return pd.DataFrame([(key[0], *answer)], columns=COLUMNS)


class RowFollower(Follower):
    """Processor in rows, for `transformWithState`, with a variable of each kind that is forgotten later."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.short = [
            handle.getValueState("shortValue", "id long", ttlDurationMs=TTL_MS),
            handle.getListState("shortList", "id long", ttlDurationMs=TTL_MS),
            handle.getMapState("shortMap", "id long", "n long", ttlDurationMs=TTL_MS),
        ]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        records = [(int(row.ts.timestamp()), row.value, row.id) for row in rows]
        value, ids, by_id = self.short
        value.update((records[-1][2],))
        for _, _, record_id in records:
            ids.appendValue((record_id,))
            by_id.updateValue((record_id,), (1,))
        yield self._row(key, self.follow(records, timerValues))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        yield self._row(key, self.close_silent())

    def _row(self, key: Any, answer: tuple[str, int, int]) -> Row:
        return Row(**dict(zip(COLUMNS, (key[0], *answer), strict=True)))


def _columns(events: DataFrame) -> Any:
    return events.select("key", "ts", "value", "id").groupBy("key")


def _pandas_event_time(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return _columns(events.withWatermark("ts", DELAY)).transformWithStateInPandas(
        PandasFollower(event_time=True), OUTPUT, "append", "eventTime"
    )


def _rows_processing_time(events: DataFrame, _answers: DataFrame) -> DataFrame:
    return _columns(events).transformWithState(
        RowFollower(event_time=False), OUTPUT, "update", "processingTime"
    )


def _scala(events: DataFrame, _answers: DataFrame) -> DataFrame:
    scala = events.sparkSession._jvm.statestore.queries.ScalaProcessors
    return SparkDataFrame(scala.followed(events._jdf, DELAY, SILENCE_S * 1000 + 500), events.sparkSession)


def _replay(history: list[list[Record]]) -> list[list[dict]]:
    return group_functions.replay(history, timeouts=True)


def _replay_with_initial_state(history: list[list[Record]]) -> list[list[dict]]:
    return group_functions.replay(history, timeouts=True, initial=INITIAL)


SCENARIOS = [
    Scenario("processor-pandas-event-time", _pandas_event_time, replay=_replay),
    Scenario("processor-scala-event-time", _scala, replay=_replay_with_initial_state),
]
if hasattr(GroupedData, "transformWithState"):  # from Spark 4.1 on
    rows = "processor-rows-processing-time"
    SCENARIOS.append(Scenario(rows, _rows_processing_time, "update", until_state_is_empty=True))
