"""The workloads on Bytewax: a program of the environment `bytewax`.

`--form` is bytewax (operators that map a value and the state of its key) or bytewax-windows (its window
operator for sessions). Its state knows no time but that of the key, so that the key's next event closes a
session.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import (
    DynamicSource,
    FixedPartitionedSource,
    StatefulSourcePartition,
    StatelessSourcePartition,
)
from bytewax.operators import KeyedStream, windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main
from workloads import (
    GAP_MS,
    LATENCY,
    SESSIONS,
    Progress,
    counter_row,
    options,
    outputs_of,
    session_row,
    step_of,
)

_AT_ONCE, _PER_SECOND = 1000, 20
"""Rows that a source gives at once, and how often it gives some if they are paced."""

_EPOCH = datetime.fromtimestamp(0, timezone.utc)


class _Numbers(StatefulSourcePartition[int, int]):
    """The numbers of all rows; those of a batch take `batch_s` at least."""

    def __init__(self, asked: Any, resumed: int | None) -> None:
        self._next = resumed or 0
        self._end = asked.rows * asked.batches
        self._size = max(1, asked.rows // (asked.batch_s * _PER_SECOND)) if asked.batch_s else _AT_ONCE
        self._wait = timedelta(seconds=asked.batch_s / asked.rows * self._size)
        self._awake = datetime.now(timezone.utc)

    def next_batch(self) -> list[int]:
        if self._next >= self._end:
            raise StopIteration
        numbers = list(range(self._next, min(self._end, self._next + self._size)))
        self._next += len(numbers)
        self._awake += self._wait
        return numbers

    def next_awake(self) -> datetime | None:
        return self._awake if self._wait else None

    def snapshot(self) -> int:
        return self._next


class _AllNumbers(FixedPartitionedSource[int, int]):
    def __init__(self, asked: Any) -> None:
        self._asked = asked

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, *where: Any) -> _Numbers:
        *_names, resumed = where
        return _Numbers(self._asked, resumed)


class _Lines(StatelessSourcePartition[int]):
    """The numbers that arrive on a socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._rest = b""

    def next_batch(self) -> list[int]:
        try:
            read = self._socket.recv(1 << 16)
        except BlockingIOError:
            return []
        if not read:
            raise StopIteration
        *lines, self._rest = (self._rest + read).split(b"\n")
        return [int(line) for line in lines]


class _Arriving(DynamicSource[int]):
    def __init__(self, port: int) -> None:
        self._port = port

    def build(self, *_where: Any) -> _Lines:
        return _Lines(self._port)


class _Taker(StatelessSinkPartition[Any]):
    def __init__(self, take: Callable[[Any], None] | None) -> None:
        self._take = take

    def write_batch(self, items: list[Any]) -> None:
        if self._take is not None:
            for key, values in items:
                self._take((int(key), *values))


class _Sink(DynamicSink[Any]):
    """A sink that gives each output to a function, or discards it."""

    def __init__(self, take: Callable[[Any], None] | None) -> None:
        self._take = take

    def build(self, *_where: Any) -> _Taker:
        return _Taker(self._take)


def counter(numbers: Stream[int], keys: int, progress: Progress) -> KeyedStream[Any]:
    """Return a count and a sum for each row."""

    def counted(state: Any, value: float) -> Any:
        progress.add()
        count, total, seen = state if state is not None else (0, 0.0, {})
        count += 1
        total += value
        step = step_of(count)
        seen[step] = seen.get(step, 0) + 1
        return (count, total, seen), (count, total)

    def keyed(number: int) -> tuple[str, float]:
        key, value = counter_row(number, keys)
        return str(key), value

    return op.stateful_map("counter", op.map("keys", numbers, keyed), counted)


def sessions(events: KeyedStream[tuple[int, float]], progress: Progress) -> KeyedStream[Any]:
    """Return sessions that the next event closes."""

    def followed(state: Any, event: tuple[int, float]) -> Any:
        progress.add()
        moment_ms, value = event
        last_ms, values = state if state is not None else (moment_ms, [])
        if moment_ms <= last_ms + GAP_MS:
            return (moment_ms, [*values, value]), ()
        return (moment_ms, [value]), [(len(values), sum(values), last_ms)]

    return op.stateful_flat_map("sessions", events, followed)


def session_windows(events: KeyedStream[tuple[int, float]], progress: Progress) -> KeyedStream[Any]:
    """Return sessions as the window operator collects them, in event time alone."""

    def moment(event: tuple[int, float]) -> datetime:
        progress.add()
        return _EPOCH + timedelta(milliseconds=event[0])

    clock = windowing.EventClock(
        moment, timedelta(0), now_getter=lambda: _EPOCH, to_system_utc=lambda _moment: None
    )
    windower = windowing.SessionWindower(timedelta(milliseconds=GAP_MS))
    closed = windowing.collect_window("sessions", events, clock, windower).down

    def row(window: tuple[int, list[tuple[int, float]]]) -> tuple[int, float, int]:
        _, collected = window
        return len(collected), sum(value for _, value in collected), collected[-1][0]

    return op.map_value("rows", closed, row)


def main() -> None:
    """Run the job that the command line asks for."""
    asked = options(__doc__)
    progress = Progress(asked.root, asked.rows)
    outputs = outputs_of(asked)
    flow = Dataflow("job")
    source = _Arriving(asked.port) if asked.purpose == LATENCY else _AllNumbers(asked)
    numbers = op.input("numbers", flow, source)
    if asked.workload == SESSIONS:

        def keyed(number: int) -> tuple[str, tuple[int, float]]:
            key, value, moment_ms = session_row(number, asked.keys)
            return str(key), (moment_ms, value)

        form = session_windows if asked.form == "bytewax-windows" else sessions
        results = form(op.map("keys", numbers, keyed), progress)
    else:
        results = counter(numbers, asked.keys, progress)
    op.output("results", results, _Sink(outputs.add if outputs else None))
    recovery = asked.root / "recovery"
    if not recovery.exists():
        recovery.mkdir()
        init_db_dir(recovery, 1)
    interval = timedelta(seconds=asked.checkpoint_s)
    run_main(flow, epoch_interval=interval, recovery_config=RecoveryConfig(recovery))
    if outputs:
        outputs.write()


if __name__ == "__main__":
    main()
