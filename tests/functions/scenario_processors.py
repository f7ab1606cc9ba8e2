"""Processors of the situations that Spark's own tests of `transformWithState` in Python have."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

DAY_MS = 86_400_000


class Said(StatefulProcessor):
    """Processor whose groups and timers say something: rows of the key and a text."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        """Return what a group says."""
        raise NotImplementedError

    def said_when_due(self, key: Any, times: Any) -> Any:
        """Return what a timer says."""
        raise NotImplementedError

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield Row(k=repr(key), said=repr(self.said(key, list(rows), timerValues)))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield Row(k=repr(tuple(key)), said=repr(self.said_when_due(key, timerValues)))

    def close(self) -> None:
        pass


class Deletes(Said):
    """Declares a variable and deletes it, and counts rows and keeps them."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.count = handle.getValueState("count", "n long")
        handle.getValueState("temporary", "n long")
        handle.deleteIfExists("temporary")
        self.items = handle.getListState("items", "v long")

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        n = len(rows) + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        self.items.appendList([(row.v,) for row in rows])
        return n, list(self.items.get())


class Due(Said):
    """Registers timers that are due in the same batch, in the next one, and never."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.count = handle.getValueState("count", "n long")

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        now = times.getCurrentProcessingTimeInMs()
        for moment in (1, now - 1, now + 1, now + DAY_MS, now + 2 * DAY_MS):
            self.handle.registerTimer(moment)
        self.handle.deleteTimer(now + DAY_MS)
        n = len(rows) + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        return n, self.waiting(now)

    def waiting(self, now: int) -> list[bool]:
        """Return for each timer whether it is later than this batch.

        Spark lists timers in the order of their bytes, the lowest first, so the order depends on the clock.
        """
        return sorted(moment > now for moment in self.handle.listTimers())

    def said_when_due(self, key: Any, times: Any) -> Any:
        n = self.count.get()
        if n is not None and n[0] > 3:
            self.count.clear()
        return n, len(list(self.handle.listTimers()))


class Times(Said):
    """Says the earliest time of a group, and the times of the batch that depend on no clock."""

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        return (
            min(row.t for row in rows),
            times.getCurrentWatermarkInMs(),
            times.getCurrentProcessingTimeInMs() > 0,
        )


class Sums(Said):
    """Adds to what an initial state gave, with a key of several columns."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.sum = handle.getValueState("sum", "n long")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        rows = initialState.to_dict("records") if isinstance(initialState, pd.DataFrame) else [initialState]
        self.sum.update((sum(int(row["v"]) for row in rows),))

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        n = sum(row.v for row in rows) + (self.sum.get()[0] if self.sum.exists() else 0)
        self.sum.update((n,))
        return n, sorted(map(repr, rows))


class SumsOfFrames(Sums):
    """The same with frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        plain = [row for frame in rows for row in frame.itertuples(index=False)]
        said = self.said(key, plain, timerValues)
        yield pd.DataFrame({"k": [repr(tuple(map(str, key)))], "said": [repr(said)]})


class TimersFromTheStart(Sums):
    """Registers a timer in event time for each key of the initial state, and for each group."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        super().handleInitialState(key, initialState, timerValues)
        self.handle.registerTimer(int(initialState["v"]) * 60_000)

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        self.handle.registerTimer(max(row.v for row in rows) * 60_000)
        return list(self.handle.listTimers())

    def said_when_due(self, key: Any, times: Any) -> Any:
        return self.sum.get(), list(self.handle.listTimers()), times.getCurrentWatermarkInMs()


class TimersOfFrames(TimersFromTheStart):
    """The same with frames."""

    handleInputRows = SumsOfFrames.handleInputRows

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        Sums.handleInitialState(self, key, initialState, timerValues)
        self.handle.registerTimer(int(initialState["v"].iloc[0]) * 60_000)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([row.asDict()])


class Inherits(Said):
    """Keeps all values of an initial state, which may have several rows for a key, and those of its rows."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.values = handle.getListState("values", "v long")
        self.words = handle.getMapState("words", "c string", "n long")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        rows = initialState.to_dict("records") if isinstance(initialState, pd.DataFrame) else [initialState]
        self.values.appendList([(int(row["v"]),) for row in rows])

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        for row in rows:
            self.values.appendValue((row.v,))
            self.words.updateValue((row.c,), (row.v,))
        return sorted(self.values.get()), sorted(map(repr, self.words.iterator()))


class InheritsFrames(Inherits):
    """The same with frames."""

    handleInputRows = SumsOfFrames.handleInputRows


class Remembers(Said):
    """Keeps a sum, the two largest values and the counts of words, and says them as plain values."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.sum = handle.getValueState("sum", "n long")
        self.largest = handle.getListState("largest", "v long")
        self.words = handle.getMapState("words", "c string", "n long")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        Sums.handleInitialState(self, key, initialState, timerValues)  # type: ignore[arg-type]

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        values = [int(row.v) for row in rows]
        before = self.sum.get()[0] if self.sum.exists() else 0
        self.sum.update((before + sum(values),))
        largest = sorted([*(v for (v,) in self.largest.get()), *values])[-2:]
        self.largest.put([(v,) for v in largest])
        for row in rows:
            word = (None if pd.isna(row.c) else row.c,)
            n = self.words.getValue(word)[0] if self.words.containsKey(word) else 0
            self.words.updateValue(word, (n + 1,))
        words = sorted((str(c), n) for (c,), (n,) in self.words.iterator())
        return self.sum.get()[0], [v for (v,) in self.largest.get()], words


class RemembersFrames(Remembers):
    """The same with frames."""

    handleInputRows = SumsOfFrames.handleInputRows


class Chunks(Sums):
    """Says how many rows each frame of a group has."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        lengths = list(map(len, rows))
        n = sum(lengths) + (self.sum.get()[0] if self.sum.exists() else 0)
        self.sum.update((n,))
        yield pd.DataFrame({"k": [key[0]], "said": [f"{n} {lengths}"]})


class Forgets(Said):
    """Keeps states for a millisecond, which is over in the next batch, and one for good."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.value = handle.getValueState("value", "n long", 1)
        self.list = handle.getListState("list", "n long", 1)
        self.map = handle.getMapState("map", "n long", "m long", 1)
        self.kept = handle.getValueState("kept", "n long")

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        found = self.seen()
        self.value.update((len(rows),))
        self.list.appendValue((len(rows),))
        self.map.updateValue((1,), (len(rows),))
        self.kept.update((len(rows) + (self.kept.get()[0] if self.kept.exists() else 0),))
        return found, self.seen()

    def seen(self) -> Any:
        """Return what all variables hold."""
        return (
            self.value.get(),
            self.value.exists(),
            list(self.list.get()),
            list(self.map.iterator()),
            self.map.containsKey((1,)),
            self.kept.get(),
        )


ITEM = "struct<x:int,d:double,l:array<string>,m:map<string,string>>"
COMPOSITE = (
    f"k string, texts array<string>, pairs map<string,string>, items array<{ITEM}>, named map<string,{ITEM}>"
)


class Composite(StatefulProcessor):
    """Gives nested output, of rows and dicts."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n int")

    def content(self, key: Any, added: int) -> dict[str, Any]:
        """Return the columns of a group's output."""
        n = added + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        items = [
            {"x": i, "d": i * 1.5, "l": [f"{i}{j}" for j in range(i)], "m": {str(i): None}} for i in range(n)
        ]
        texts = [None if i == 1 else str(i) for i in range(n)]
        named = {str(i): item for i, item in enumerate(items)}
        return {"k": key[0], "texts": texts, "pairs": {"a": "b"}, "items": items, "named": named}

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        content = self.content(key, len(list(rows)))
        content["items"] = [Row(**item) for item in content["items"]]
        yield Row(**content)

    def close(self) -> None:
        pass


class CompositeFrames(Composite):
    """The same with frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        content = self.content(key, sum(map(len, rows)))
        yield pd.DataFrame({name: [value] for name, value in content.items()})


class Evolving(Said):
    """Keeps a state whose schema a subclass has."""

    schema: Any = "id int, name string"

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.state = handle.getValueState("state", self.schema)

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        before = self.state.get()
        self.state.update(self.new(len(rows), key[0]))
        return before, self.state.get()

    def new(self, n: int, name: str) -> tuple[Any, ...]:
        """Return a new state."""
        return n, name


class MoreFields(Evolving):
    """The same with more columns."""

    schema = "id int, name string, count int, active boolean, score float"

    def new(self, n: int, name: str) -> tuple[Any, ...]:
        return n, name, n, True, n / 2


class OtherOrder(Evolving):
    """The same with its columns in another order."""

    schema = "name string, id int"

    def new(self, n: int, name: str) -> tuple[Any, ...]:
        return name, n


class WiderField(Evolving):
    """The same with a wider column."""

    schema = "name string, id long"

    def new(self, n: int, name: str) -> tuple[Any, ...]:
        return name, 2**40 + n


class OtherType(Evolving):
    """The same with a column of another type, which Spark refuses."""

    schema = "id string, name string"

    def new(self, n: int, name: str) -> tuple[Any, ...]:
        return str(n), name


class NotNull(Evolving):
    """The same with a column that may not be null, which Spark refuses with Avro."""

    schema = StructType([StructField("id", IntegerType(), False), StructField("name", StringType())])


class LargeTexts(Said):
    """Keeps texts of half a megabyte in a value, a list and a map."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.value = handle.getValueState("value", "s string")
        self.list = handle.getListState("list", "s string")
        self.map = handle.getMapState("map", "s string", "t string")

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        before = [self.value.get(), *self.list.get(), *self.map.iterator()]
        text = "a" * (512 << 10)
        self.value.update((text,))
        self.list.put([(text + "a",), (text + "b",)])
        self.list.appendValue((text + "c",))
        self.map.updateValue((text,), (text,))
        after = [self.value.get(), *self.list.get(), *self.map.values(), self.map.getValue((text,))]
        return len(repr(before)), len(repr(after)), zlib.crc32(repr((before, after)).encode())


class IntegersForDecimals(Said):
    """Gives frames with integers in a column of decimals."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield pd.DataFrame({"k": [key[0]], "d": [sum(map(len, rows))]})
