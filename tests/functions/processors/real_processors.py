"""Processors of situations that real ones are in: models, rules, crashes, loops without an end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkFiles, TaskContext
from scenario_processors import Said

TURN = 5
"""The value at which something happens; it comes in the second batch."""

MINUTE_MS = 60_000


class Counts(Said):
    """Counts the rows of each key, and keeps their values; `act` does more."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.count = handle.getValueState("count", "n long")
        self.values = handle.getListState("values", "v long")
        self.texts = handle.getMapState("texts", "c string", "n long")

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        n = len(rows) + (self.count.get() or (0,))[0]
        self.count.update((n,))
        self.values.appendList([(row.v,) for row in rows])
        for row in rows:
            self.texts.updateValue((row.c,), (n,))
        return n, self.act(key, rows), list(self.values.get()), sorted(map(repr, self.texts.iterator()))

    def act(self, key: Any, rows: list[Any]) -> Any:
        """Return more that a group says."""
        return None


def _leave() -> None:
    sys.exit(3)


def _interrupt() -> None:
    raise KeyboardInterrupt("made up")


def _take_too_much() -> None:
    bytearray(1 << 62)


DEATHS: dict[str, Callable[[], None]] = {
    "exit": lambda: os._exit(7),
    "exit without an error": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "leave": _leave,
    "interrupt": _interrupt,
    "memory": _take_too_much,
}
"""Ways in which a worker or its task ends."""


class Dies(Counts):
    """Ends its worker or its task in the second batch, as long as a file is there."""

    def __init__(self, flag: str, death: str) -> None:
        self.flag = flag
        self.death = death

    def act(self, key: Any, rows: list[Any]) -> None:
        if any(row.v == TURN for row in rows) and Path(self.flag).exists():
            DEATHS[self.death]()


class DiesBetweenRows(Dies):
    """Does so when its first row is on its way."""

    def act(self, key: Any, rows: list[Any]) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        kept = list(rows)
        yield from super().handleInputRows(key, iter(kept), timerValues)
        super().act(key, kept)


class Survives(Counts):
    """Runs out of memory, forgets what it can, and goes on."""

    def act(self, key: Any, rows: list[Any]) -> str:
        try:
            self.texts.updateValue(("x" * (1 << 10),), (1,))
            _take_too_much()
        except MemoryError as error:
            self.values.clear()
            return repr(error)
        return "took it"


class Hungry(Counts):
    """Takes memory until there is no more, in its own variables or in its state."""

    def __init__(self, flag: str, place: str) -> None:
        self.flag = flag
        self.place = place

    def act(self, key: Any, rows: list[Any]) -> None:
        if any(row.v == TURN for row in rows) and Path(self.flag).exists():
            held = []
            text = "x" * (16 << 20)
            while True:
                held.append(bytearray(16 << 20))
                if self.place == "state":
                    self.texts.updateValue((text,), (1,))
                    text += text


class Endless(Counts):
    """Notes its process in a file and does not end its group until another file is there."""

    def __init__(self, note: str, way: str) -> None:
        self.note = note
        self.way = way

    def act(self, key: Any, rows: list[Any]) -> None:
        note, over = Path(self.note), Path(self.note + "-over")
        if over.exists() or all(row.v != TURN for row in rows):
            return
        written = note.with_name(note.name + "-new")
        written.write_text(str(os.getpid()))
        written.rename(note)
        step = {"sleeps": self._sleep, "spins": self._spin, "calls": self._call, "appends": self._append}
        while not over.exists():
            step[self.way]()

    def _sleep(self) -> None:
        time.sleep(600)

    def _spin(self) -> None:
        for _ in range(1_000_000):
            pass

    def _call(self) -> None:
        self.count.update(((self.count.get() or (0,))[0] + 1,))
        self.texts.getValue((str(time.monotonic()),))
        time.sleep(0.001)

    def _append(self) -> None:
        self.values.appendValue((1,))
        time.sleep(0.001)


class Adds(Counts):
    """Counts rows, timers and ends in an accumulator."""

    def __init__(self, seen: Any) -> None:
        self.seen = seen

    def act(self, key: Any, rows: list[Any]) -> None:
        self.seen.add(len(rows))
        self.handle.registerTimer(1)

    def said_when_due(self, key: Any, times: Any) -> Any:
        self.seen.add(1000)
        return self.count.get()

    def close(self) -> None:
        self.seen.add(1_000_000)


class WithBroadcast(Counts):
    """Looks words up in a broadcast table."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def act(self, key: Any, rows: list[Any]) -> Any:
        return [self.table.value.get(row.c) for row in rows]


class Shipped(Counts):
    """Uses a module and an archive that were added to the session."""

    def act(self, key: Any, rows: list[Any]) -> Any:
        import shipped_rules

        shipped_rules.calls += 1
        table = Path(SparkFiles.get("shipped_tables")) / "table.txt"
        return table.read_text(), shipped_rules.calls > 0


OWN = {"SPARK_SIMPLIFIED_TRACEBACK"}
"""Variables that Spark sets for its other workers of Python, and not for those of processors."""


class Places(Counts):
    """Says what Spark tells a task of its place."""

    def act(self, key: Any, rows: list[Any]) -> Any:
        context = TaskContext.get()
        assert context is not None
        return (
            context.partitionId(),
            context.attemptNumber(),
            context.cpus(),
            context.resources(),
            context.getLocalProperty("streaming.sql.batchId"),
            bool(context.getLocalProperty("sql.streaming.queryId")),
            bool(context.taskAttemptId() >= 0),
            SparkFiles._is_running_on_worker,
            Path(SparkFiles.getRootDirectory()).is_dir(),
            threading.current_thread().name,
            sys.getrecursionlimit(),
            sorted({name for name in os.environ if name.startswith(("SPARK_", "PYTHON", "PYSPARK"))} - OWN),
        )


class Model(Counts):
    """Keeps a model of numpy as pickled bytes."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.model = handle.getValueState("model", "bytes binary, n int")

    def act(self, key: Any, rows: list[Any]) -> Any:
        state = self.model.get()
        model = pickle.loads(state[0]) if state else {"weights": np.zeros(3), "n": 0}
        for row in rows:
            model["weights"] += np.array([row.v, row.v**2, 1.0])
            model["n"] += 1
        self.model.update((pickle.dumps(model), model["n"]))
        back = self.model.get()
        kinds = [type(value).__name__ for value in (*(state or ()), *back)]
        return kinds, pickle.loads(back[0])["weights"].tolist(), back[1]


class Fraud(Said):
    """Flags a small payment for a minute, and alarms if a large one comes while the flag is up."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.flag = handle.getValueState("flag", "up boolean, until long")
        self.recent = handle.getListState("recent", "v long, c string")

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        alarms = []
        for row in rows:
            flag = self.flag.get()
            if flag is not None and row.v > 4:
                alarms.append((row.v, list(self.recent.get())))
            if flag is not None:
                self.handle.deleteTimer(flag[1])
            if row.v < 7:
                until = int(row.t.timestamp() * 1000) + MINUTE_MS
                self.flag.update((True, until))
                self.handle.registerTimer(until)
            self.recent.appendValue((row.v, row.c))
            kept = list(self.recent.get())
            if len(kept) > 2:
                self.recent.put(kept[-2:])
        return alarms, list(self.recent.get()), sorted(self.handle.listTimers())

    def said_when_due(self, key: Any, times: Any) -> Any:
        flag = self.flag.get()
        self.flag.clear()
        return flag, times.getCurrentWatermarkInMs(), sorted(self.handle.listTimers())


class Sessions(Said):
    """Closes a session when no row has come for five minutes of event time."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.open = handle.getValueState("open", "first timestamp, last timestamp, n int")

    def said(self, key: Any, rows: list[Any], times: Any) -> Any:
        first, last, n = self.open.get() or (None, None, 0)
        closed = []
        for row in sorted(rows, key=lambda row: row.t):
            moment = row.t.replace(tzinfo=None)
            if last is not None and (moment - last).total_seconds() > 300:
                closed.append((first, last, n))
                first, n = moment, 0
            first, last, n = first or moment, moment, n + 1
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        assert last is not None
        self.open.update((first, last, n))
        self.handle.registerTimer(int(last.timestamp() * 1000) + 5 * MINUTE_MS)
        return closed, sorted(self.handle.listTimers())

    def said_when_due(self, key: Any, times: Any) -> Any:
        closed = self.open.get()
        self.open.clear()
        return closed


class Threads(Counts):
    """Calls state in threads of its own, and adds values in threads and coroutines."""

    def act(self, key: Any, rows: list[Any]) -> Any:
        answers: list[Any] = []

        def in_thread() -> None:
            answers.append(self.count.get())
            self.texts.updateValue(("thread",), (len(rows),))
            answers.append(self.texts.getValue(("thread",)))

        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()

        async def value(row: Any) -> int:
            await asyncio.sleep(0)
            number: int = row.v
            return number

        async def total() -> int:
            return sum(await asyncio.gather(*map(value, rows)))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            sums = sum(pool.map(lambda row: row.v, rows)), asyncio.run(total())
        return answers, sums


class Talks(Counts):
    """Writes to the log, to standard output and to standard error."""

    def act(self, key: Any, rows: list[Any]) -> Any:
        logging.getLogger("rules").warning("seen %s", key)
        print("on standard output")
        print("on standard error", file=sys.stderr, flush=True)
        return logging.getLogger().level


class Heavy(Counts):
    """Carries more bytes than Spark sends with a task."""

    def __init__(self, ballast: bytes) -> None:
        self.ballast = ballast

    def act(self, key: Any, rows: list[Any]) -> Any:
        return len(self.ballast), self.ballast[:4]
