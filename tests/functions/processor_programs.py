"""Processors that do what their input rows say: a random input is a random program of calls on state."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

INPUT = "k string, t timestamp, step long, call int, n long, s string"
OUTPUT = "k string, step long, said string"
VARIABLES = {
    "plain": "value",
    "rich": "value",
    "aging": "value",
    "words": "list",
    "pairs": "list",
    "counts": "map",
    "things": "map",
}
RICH = (
    "d decimal(10,2), t timestamp, day date, l array<int>, p struct<x:int,y:string>, m map<string,long>, "
    "b binary, f float"
)


def rich(n: int, s: str | None) -> tuple[Any, ...]:
    """Return a value of many types."""
    return (
        decimal.Decimal(n).scaleb(-2),
        datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=n),
        datetime.date(2024, 1, 1) + datetime.timedelta(days=n),
        None if n % 3 == 0 else [n, None],
        (n, s),
        {str(n): n},
        bytes([n % 256]),
        n / 4,
    )


class Calls(StatefulProcessor):
    """Does the call of each row and says what came of it; a timer says when it was due."""

    def init(self, handle):
        self.handle = handle
        self.plain = handle.getValueState("plain", "n long, s string")
        self.rich = handle.getValueState("rich", RICH)
        self.aging = handle.getValueState("aging", "n int, x double", self.ttl_ms)
        self.words = handle.getListState("words", "s string")
        self.pairs = handle.getListState("pairs", RICH, self.ttl_ms)
        self.counts = handle.getMapState("counts", "s string", "n long", self.ttl_ms)
        self.things = handle.getMapState("things", "n int, x double", RICH)
        self.calls = [
            lambda n, s: self.plain.exists(),
            lambda n, s: self.plain.get(),
            lambda n, s: self.plain.update((n, s)),
            lambda n, s: self.plain.update([np.int64(n), s]),
            lambda n, s: self.plain.update(Row(n=n, s=None)),
            lambda n, s: self.plain.clear(),
            lambda n, s: self.rich.get(),
            lambda n, s: self.rich.update(rich(n, s)),
            lambda n, s: self.rich.update((None,) * 8),
            lambda n, s: self.aging.get(),
            lambda n, s: self.aging.exists(),
            lambda n, s: self.aging.update((n, n / 3)),
            lambda n, s: self.aging.update((n, float("nan"))),
            lambda n, s: self.aging.update((None, n)),
            lambda n, s: self.words.exists(),
            lambda n, s: list(self.words.get()),
            lambda n, s: next(self.words.get(), None),
            lambda n, s: self.words.appendValue((s,)),
            lambda n, s: self.words.appendList([(s,)] * (n % 3 + 1)),
            lambda n, s: self.words.appendList([(str(i),) for i in range(n * 20)] or [("x",)]),
            lambda n, s: self.words.put([(s,), (str(n),)]),
            lambda n, s: self.words.clear(),
            lambda n, s: [self.words.appendValue((str(w),)) for w in self.words.get()][:0],
            lambda n, s: list(self.pairs.get()),
            lambda n, s: self.pairs.appendValue(rich(n, s)),
            lambda n, s: self.pairs.put([rich(n, s), rich(n + 1, s)]),
            lambda n, s: self.pairs.clear(),
            lambda n, s: self.counts.getValue((s,)),
            lambda n, s: self.counts.containsKey((s,)),
            lambda n, s: self.counts.updateValue((s,), (n,)),
            lambda n, s: self.counts.updateValue((str(n),), (None,)),
            lambda n, s: self.counts.removeKey((s,)),
            lambda n, s: list(self.counts.keys()),
            lambda n, s: list(self.counts.values()),
            lambda n, s: list(self.counts.iterator()),
            lambda n, s: self.counts.exists(),
            lambda n, s: self.counts.clear(),
            lambda n, s: [self.counts.updateValue((f"{s}{i}",), (i,)) for i in range(n * 30)][:0],
            lambda n, s: self.things.getValue((n, n / 2)),
            lambda n, s: self.things.updateValue((n, n / 2), rich(n, s)),
            lambda n, s: self.things.updateValue((n, None), rich(n, s)),
            lambda n, s: sorted(map(repr, self.things.iterator())),
            lambda n, s: self.things.removeKey((n, n / 2)),
            lambda n, s: list(self.handle.listTimers()),
            lambda n, s: self.handle.registerTimer(self.moment(n)),
            lambda n, s: self.handle.registerTimer(np.int64(self.moment(n + 1))),
            lambda n, s: self.handle.deleteTimer(self.moment(n)),
            lambda n, s: list(map(self.both, self.words.get(), self.words.get())),
        ]

    ttl_ms: int | None = None
    first_moment_ms = 0

    def moment(self, n: int) -> int:
        return self.first_moment_ms + n * 60_000

    @staticmethod
    def both(a: Any, b: Any) -> Any:
        return a, b

    def said(self, call: int, n: int, s: str | None) -> str:
        answer = self.calls[call % len(self.calls)](n, s)
        return f"{call % len(self.calls)}: {type(answer).__name__} {answer!r}"

    def times(self, timer_values: Any) -> str:
        return str(timer_values.getCurrentWatermarkInMs())

    def handleInputRows(self, key, rows, timerValues) -> Iterator[Any]:
        (k,) = key
        for row in rows:
            if row.call == -1:  # leaves the rest unread
                return
            yield Row(
                k=k, step=row.step, said=f"{self.said(row.call, row.n, row.s)} {self.times(timerValues)}"
            )

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo) -> Iterator[Any]:
        due = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(k=key[0], step=due, said=f"due {key!r} {self.said(due // 60_000, 3, 'due')}")

    def close(self):
        self.closed = True


class TimedCalls(Calls):
    """The same with timers in event time."""

    first_moment_ms = 1_704_067_200_000  # 2024-01-01


class AgingCalls(Calls):
    """The same with times to live, in processing time; its timers are never due."""

    ttl_ms = 3_600_000
    first_moment_ms = 4_000_000_000_000


class UntimedCalls(Calls):
    """The same without timers, whose calls are left out."""

    def init(self, handle):
        super().init(handle)
        del self.calls[43:47]


class StartedCalls(UntimedCalls):
    """The same with an initial state, which does calls, too."""

    def handleInitialState(self, key, initialState, timerValues):
        for call in (initialState.call, 2, 17, 29):
            self.said(call, initialState.n, initialState.s)


class ChainedCalls(TimedCalls):
    """The same with a time in each row, by which the next operator groups."""

    def at(self, ms: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)

    def handleInputRows(self, key, rows, timerValues) -> Iterator[Any]:
        kept = []

        def seen() -> Iterator[Any]:
            for row in rows:
                kept.append(row)
                yield row

        for row in super().handleInputRows(key, seen(), timerValues):
            yield Row(t=kept[-1].t, **row.asDict())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo) -> Iterator[Any]:
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield Row(t=self.at(timerValues.getCurrentWatermarkInMs() + 60_000), **row.asDict())


class RepeatedUpdates(StatefulProcessor):
    """Writes the same values and entries for each row of a group, with and without a time to live."""

    def init(self, handle: Any) -> None:
        self._values = [handle.getValueState(f"v{ttl}", "n long", ttl) for ttl in (None, 3_600_000)]
        self._maps = [handle.getMapState(f"m{ttl}", "d int", "c long", ttl) for ttl in (None, 3_600_000)]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        said = [tuple(value.get() or ()) for value in self._values]
        said += [sorted(map(repr, entries.iterator())) for entries in self._maps]
        for row in rows:
            for value, entries in zip(self._values, self._maps, strict=True):
                value.update((row.n,))
                place = (row.call % 3,)
                before = entries.getValue(place) if entries.containsKey(place) else None
                entries.updateValue(place, (1 if before is None else before[0] + 1,))
                if row.call == 0:
                    entries.removeKey((row.n % 3,))
                elif row.call == 1:
                    value.clear()
            yield Row(k=key[0], step=row.step, said=repr(said))

    def close(self) -> None:
        pass


class _OfFrames:
    def handleInputRows(self, key, rows, timerValues) -> Iterator[Any]:
        (k,) = key
        for frame in rows:
            said = []
            types = ",".join(map(str, frame.dtypes))
            for row in frame.itertuples():
                if row.call == -1:
                    return
                n, s = int(row.n), None if row.s is None else str(row.s)
                said.append(f"{self.said(row.call, n, s)} {self.times(timerValues)} {types}")
            steps = frame["step"].tolist()
            yield pd.DataFrame({"k": [k] * len(said), "step": steps, "said": said})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo) -> Iterator[Any]:
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([row.asDict()])


class TimedFrames(_OfFrames, TimedCalls):
    """The same with pandas frames and timers in event time."""


class UntimedFrames(_OfFrames, UntimedCalls):
    """The same with pandas frames and without timers."""
