"""A processor of `transformWithState`, with rows and with frames, that keeps a value, a list and a map."""

from __future__ import annotations

import decimal
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

OUTPUT = "k string, c long, seen string, v double, s string, t timestamp, l array<int>"
VARIABLES = ("last", "moments", "lengths")


class Keeps(StatefulProcessor):
    """Keeps a group's count and last row, its moments, and the lengths of its arrays."""

    def init(self, handle: Any) -> None:
        self.last = handle.getValueState("last", "c long, s string, n long")
        self.moments = handle.getListState("moments", "t timestamp, d decimal(10,2)")
        self.lengths = handle.getMapState("lengths", "n long", "l array<int>, f float")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count, last = (self.last.get()[0] if self.last.exists() else 0), None
        for row in rows:
            count, last = count + 1, row
            self.moments.appendValue((row.t, decimal.Decimal(count).scaleb(-2)))
            if row.n is not None and not self.lengths.containsKey((row.n,)):
                self.lengths.updateValue((row.n,), (row.l, count / 4))
        self.last.update((count, last.s, last.n))
        seen = f"{list(self.moments.get())} {list(self.lengths.iterator())}"
        yield Row(k=key[0], c=count, seen=seen, v=last.v, s=last.s, t=last.t, l=last.l)

    def close(self) -> None:
        pass


class Waits(StatefulProcessor):
    """Works on the first group for so many seconds, in which its worker neither reads nor writes rows."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        time.sleep(self._seconds)
        self._seconds = 0
        yield Row(k=key[0], c=len(list(rows)))

    def close(self) -> None:
        pass


class Fails(Keeps):
    """Fails at the first group, or dies there by a signal."""

    def __init__(self, by_signal: bool) -> None:
        self._by_signal = by_signal

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = len(list(rows))
        if self._by_signal:
            os.kill(os.getpid(), signal.SIGSEGV)
        raise KeyError(f"made up for {count} rows")


class KeepsFrames(Keeps):
    """The same with pandas frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        def plain() -> Iterator[Any]:
            for frame in rows:
                for row in frame.itertuples():
                    n = None if pd.isna(row.n) else int(row.n)
                    v = None if pd.isna(row.v) else row.v
                    items = None if row.l is None else [None if pd.isna(i) else int(i) for i in row.l]
                    yield Row(n=n, v=v, s=row.s, t=row.t.to_pydatetime(), l=items)

        for row in super().handleInputRows(key, plain(), timerValues):
            fields = row.asDict()
            yield pd.DataFrame({name: [fields[name]] for name in fields})


class Sizes(Keeps):
    """Tells how many rows each frame has."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for frame in rows:
            yield pd.DataFrame({"s": [key[0]], "c": [len(frame)]})
