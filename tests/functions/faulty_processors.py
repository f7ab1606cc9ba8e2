"""Processors that fail or do unusual things, in the module that workers import."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType


class Base(StatefulProcessor):
    """Keeps a count of each key; `act` does more."""

    def init(self, handle):
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.money = handle.getValueState("money", "d decimal(4,2), p struct<x:int,y:int>")
        self.words = handle.getListState("words", "s string")
        self.pairs = handle.getMapState("pairs", "s string", "n long")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[Any]:
        n = sum(1 for _ in rows) + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        if key[0] == "k3":
            self.act(key)
        yield Row(k=key[0], n=n)

    def act(self, key):
        raise KeyError("made up")  # the line of the user

    def close(self):
        pass


class Raises(Base):
    pass


class NoDecimal(Base):
    def act(self, key):
        self.money.update((decimal.Decimal("123456.78"), None))  # the line of the user


class ShortStruct(Base):
    def act(self, key):
        self.money.update((None, (1,)))  # the line of the user


class ShortValue(Base):
    def act(self, key):
        self.count.update((1, 2))  # the line of the user


class NoTuple(Base):
    def act(self, key):
        self.count.update(3)  # the line of the user


class NoText(Base):
    def act(self, key):
        self.words.appendValue((object(),))  # the line of the user


class NullInNotNull(Base):
    def init(self, handle):
        super().init(handle)
        self.strict = handle.getValueState("strict", StructType([StructField("n", LongType(), False)]))

    def act(self, key):
        self.strict.update((None,))  # the line of the user


class TimerWithoutTime(Base):
    def act(self, key):
        self.handle.registerTimer(1)  # the line of the user


class DeletedTimerWithoutTime(Base):
    def act(self, key):
        self.handle.deleteTimer(1)  # the line of the user


class ListedTimersWithoutTime(Base):
    def act(self, key):
        list(self.handle.listTimers())  # the line of the user


class TimerOfText(Base):
    def act(self, key):
        self.handle.registerTimer("1")  # the line of the user


class LateVariable(Base):
    def act(self, key):
        self.handle.getValueState("late", "n long")  # the line of the user


class NameTwice(Base):
    def init(self, handle):
        super().init(handle)
        handle.getListState("count", "n long")  # the line of the user


class WrongSchema(Base):
    def init(self, handle):
        handle.getValueState("count", "n nothing")  # the line of the user


class StateInInit(Base):
    def init(self, handle):
        super().init(handle)
        if (
            not hasattr(handle, "_statefulProcessorApiClient")
            or handle._statefulProcessorApiClient.handle_state.name != "PRE_INIT"
        ):
            self.count.get()  # the line of the user


class NoRow(Base):
    def handleInputRows(self, key, rows, timerValues):
        yield (key[0], 1)


class WrongOutput(Base):
    def handleInputRows(self, key, rows, timerValues):
        yield Row(k=key[0], n="text")


class NothingIterable(Base):
    def handleInputRows(self, key, rows, timerValues):
        return 5


class FailsInClose(Base):
    def act(self, key):
        pass

    def close(self):
        if hasattr(self, "seen"):
            raise KeyError("made up in close")  # the line of the user

    def handleInputRows(self, key, rows, timerValues):
        self.seen = True
        yield from super().handleInputRows(key, rows, timerValues)


class Swallows(Base):
    """Goes on after an error of its own values."""

    def act(self, key):
        try:
            self.count.update(3)
        except TypeError:
            self.count.update((100,))


class Lazy(Base):
    """Reads rows and state only when its output is taken, keeps iterators, and leaves some unread."""

    kept: Any = None

    def handleInputRows(self, key, rows, timerValues):
        self.words.appendList([("a",), ("b",), ("c",)])
        left = "none" if self.kept is None else repr(list(self.kept))
        iterator = self.words.get()
        first = next(iterator)
        self.words.clear()
        self.kept = iterator if key[0] < "k2" else rows
        yield Row(k=f"{key[0]} {left} {first}", n=1)
        self.words.put([("z",)])
        row = next(iter(rows))
        yield Row(k=f"{row.k} {list(self.words.get())} {list(iterator)}", n=2)


class Missing(Base):
    """Gives rows with other columns, more of them, and fewer."""

    def handleInputRows(self, key, rows, timerValues):
        yield Row(n=1, k=key[0])
        yield Row(k=key[0])
        yield Row(k=key[0], n=2, more=3)


class Frames(Base):
    """Gives frames of all sorts: empty, of other types, with other columns first."""

    def handleInputRows(self, key, rows, timerValues):
        types = [str(frame.dtypes.to_dict()) for frame in rows]
        yield pd.DataFrame({"k": [str(types)], "n": [1]})
        yield pd.DataFrame({"k": pd.Series([], dtype=str), "n": pd.Series([], dtype=int)})
        yield pd.DataFrame({"n": [2], "k": [key[0]]})
        yield pd.DataFrame({"n": [4, 3], "k": [key[0], None]}, index=[5, 7])


class Floats(Base):
    """Keeps a map by numbers that Python or Spark may take for equal: zeros, and NaNs of several bits."""

    BITS = ("0" * 16, "8" + "0" * 15, "7ff8000000000000", "fff8000000000000", "7ff8000000000001")

    def init(self, handle):
        super().init(handle)
        self.floats = handle.getMapState("floats", "x double", "n long")

    def handleInputRows(self, key, rows, timerValues):
        for number, bits in enumerate((*self.BITS, *self.BITS)):
            x = struct.unpack(">d", bytes.fromhex(bits))
            n = self.floats.getValue(x)[0] if self.floats.containsKey(x) else number
            self.floats.updateValue(x, (n + 100,))
        for x, n in self.floats.iterator():
            yield Row(k=struct.pack(">d", x[0]).hex(), n=n[0])


class NoFrame(Base):
    def handleInputRows(self, key, rows, timerValues):
        yield [1]


class FrameOfText(Base):
    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({"k": [key[0]], "n": ["text"]})


class WithInitialState(Base):
    def handleInitialState(self, key, initialState, timerValues):
        self.count.update((initialState.n,))

    def act(self, key):
        pass


FAIL = [
    Raises,
    NoDecimal,
    ShortStruct,
    ShortValue,
    NoTuple,
    TimerWithoutTime,
    DeletedTimerWithoutTime,
    TimerOfText,
    LateVariable,
    NameTwice,
    WrongSchema,
    StateInInit,
    NoRow,
    WrongOutput,
    NothingIterable,
    FailsInClose,
]
FAIL_WITH_FRAMES = [NoFrame, FrameOfText]
RUN = [Swallows, Lazy, Missing, Floats, NoText, NullInNotNull]
RUN_WITH_FRAMES = [Frames]
