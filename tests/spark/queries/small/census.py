"""Stateful processors with variables of each kind, lists and maps among them, and a timer for each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

OUTPUT = "key string, n long, listed string, counted string, timer long"
HOUR_MS = 3_600_000
SILENCE_S = 100
FAR_MS = 4_000_000_000_000
VARIABLES = ("n", "times", "digits")
WITH_TTL = ("kept", "keptTimes", "keptDigits")


class Census(StatefulProcessor):
    """Processor with variables of each kind, and a timer for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.n = handle.getValueState("n", "n long")
        self.times = handle.getListState("times", "at long")
        self.digits = handle.getMapState("digits", "digit long", "n long")

    def silent_ms(self, seconds: list[int]) -> int:
        """Return the time at which a key with these records expires."""
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
        return n, *self._shown(), -1

    def add_digit(self, digits: Any, at: int) -> None:
        before = digits.getValue((at % 10,))[0] if digits.containsKey((at % 10,)) else 0
        digits.updateValue((at % 10,), (before + 1,))

    def expire(self, timer: ExpiredTimerInfo) -> tuple[int, str, str, int]:
        answer = (-1, *self._shown(), timer.getExpiryTimeInMs())
        self.n.clear()
        self.times.clear()
        self.digits.clear()
        return answer

    def _shown(self) -> tuple[str, str]:
        listed = ",".join(str(row[0]) for row in self.times.get())
        # The order is the store's: RocksDB's is that of the keys' bytes.
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
    """Processor in processing time that is independent of the clock: a timer expires at once, or never."""

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
